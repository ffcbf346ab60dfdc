//! `ringfenced`: PID 1 of a sandbox. It starts every job, watches it, pages its output, kills it and proves its end.
//!
//! Order at the start: signals blocked → start environment read, copied out and erased, not dumpable → ground
//! prepared → port opened → jobs accepted. One thread, no other. Under another name the same executable is a job's
//! leader, or moves a file with a job's credentials.

mod apart;
mod clock;
mod deadline;
mod driver;
mod environment;
mod files;
mod ground;
mod http;
mod job;
mod launch;
mod leader;
mod limits;
mod orders;
mod output;
mod privileges;
mod reap;
mod scan;
mod signalling;
mod signals;
mod spec;
mod stdin;
mod supervisor;
mod sweep;
mod sys;
mod teardown;

use environment::StartEnvironment;
use ground::Ground;
use ringfence_core::sweep::Root;
use ringfence_wire::ids::BootId;
use ringfence_wire::supervisor::ExecutionIdentity;
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use supervisor::{Shared, Supervisor};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if name == leader::NAME => return leader::main(),
        Some(name) if name == files::NAME => return files::main(),
        _ => {}
    }
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("refuses to start: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// One line for the container's log.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "ringfenced: {line}");
}

fn start() -> Result<(), Box<dyn Error>> {
    sys::keep_descriptors_to_self()?;
    sys::block_signals()?;
    let descriptor = sys::signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT])?;
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    let environment = StartEnvironment::read(|name| std::env::var(name).ok());
    sys::erase_environment();
    let environment = environment?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    if environment.deadline_at_ms <= clock::now_ms() {
        tell("the deadline has passed: nothing starts");
        return Ok(());
    }
    // Whatever a lost leader leaves falls to this process, in its own pid namespace or not.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let _ = std::fs::write("/proc/self/oom_score_adj", limits::SUPERVISOR_OOM_SCORE.to_string());
    let job_descriptors = raise_descriptors();
    let ground = Ground::prepare(&environment)?;
    let supervisor = assemble(environment, ground, job_descriptors)?;
    let port = supervisor.1;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    LocalSet::new().block_on(&runtime, run(supervisor.0, port, descriptor))
}

/// Raises the supervisor's own bound; returns what jobs get back.
fn raise_descriptors() -> Option<u64> {
    let found = rustix::process::getrlimit(Resource::Nofile);
    let wanted = found.maximum.map_or(limits::DESCRIPTORS, |hard| hard.min(limits::DESCRIPTORS));
    if found.current.is_some_and(|soft| soft < wanted) {
        let _ = rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit { current: Some(wanted), maximum: found.maximum },
        );
    }
    found.current
}

fn assemble(
    environment: StartEnvironment,
    ground: Ground,
    job_descriptors: Option<u64>,
) -> Result<(Shared, u16), Box<dyn Error>> {
    let logs =
        rustix::fs::open(&ground.logs, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let me = rustix::process::getpid().as_raw_pid();
    let supervisor = Supervisor {
        boot_id: BootId(hex::encode(launch::random()?)),
        boot_key: environment.boot_key,
        generation: environment.generation,
        ground,
        logs,
        max_jobs: environment.max_jobs,
        passed_on: environment.passed_on,
        job_descriptors,
        orders: RefCell::default(),
        jobs: RefCell::default(),
        roots: RefCell::new(HashMap::from([(me, Root::Own)])),
        termed: RefCell::default(),
        sweeps: Cell::new(0),
        strays_possible: Cell::new(false),
        leader_news: Notify::new(),
        deadline_at_ms: Cell::new(environment.deadline_at_ms),
        deadline_moved: Notify::new(),
        ignored_signals: Cell::new(0),
        scratch: RefCell::new(vec![0; 64 * 1024]),
        ending: Cell::new(false),
        end_wanted: Notify::new(),
    };
    Ok((Rc::new(supervisor), environment.port))
}

async fn run(supervisor: Shared, port: u16, descriptor: OwnedFd) -> Result<(), Box<dyn Error>> {
    // Where the host's network remains available, the host's own loopback is all that may reach this port.
    let address = match supervisor.ground.identity {
        ExecutionIdentity::HostUnsandboxed => Ipv4Addr::LOCALHOST,
        ExecutionIdentity::SandboxedWorkspace | ExecutionIdentity::LegacyUnbound => Ipv4Addr::UNSPECIFIED,
    };
    let listener = TcpListener::bind(SocketAddr::from((address, port))).await?;
    tell(&format!(
        "{} listens on {}, boot {}, generation {}",
        env!("CARGO_PKG_VERSION"),
        listener.local_addr()?,
        supervisor.boot_id,
        supervisor.generation
    ));
    let signals = spawn_local(signals::serve(supervisor.clone(), descriptor));
    spawn_local(http::serve(supervisor.clone(), listener));
    let why = tokio::select! {
        () = supervisor.end_wanted.notified() => "a signal from outside",
        () = deadline::reached(&supervisor) => "the deadline",
        served = signals => {
            served??;
            "signals can no longer be served"
        }
    };
    let evidence = teardown::end_everything(&supervisor).await;
    tell(&format!("ends on {why}: {} killed, complete: {}", evidence.killed_count, evidence.complete));
    Ok(())
}
