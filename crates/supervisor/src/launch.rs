//! Starting a job: its pipes, its leader, its tasks.
//!
//! Order of effects: everything that can fail without a trace first (pipes, log, orders); then the leader is
//! spawned, and from that moment the job is in the table. The leader's copy of what it is told is an unlinked
//! memory file, so no command line and no environment of a leader shows it.

use crate::ground::JobCredentials;
use crate::job::{Job, JobCell, JobRef, Leader};
use crate::leader::{NAME, Orders};
use crate::output::Output;
use crate::output::log::Log;
use crate::stdin::Stdin;
use crate::supervisor::{Shared, Supervisor};
use crate::{clock, driver, limits, scan};
use ringfence_core::sweep::Root;
use ringfence_wire::supervisor::{ErrorCode, JobSpec, StartJob, StdinMode};
use rustix::fs::MemfdFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use sha2::{Digest, Sha256};
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;

#[derive(Debug, thiserror::Error)]
pub enum LaunchFailed {
    #[error("the system refused {what}: {error}")]
    System { what: &'static str, error: std::io::Error },
    #[error("the sandbox is at its bound on processes; end some of them, or abort it")]
    NoProcessLeft,
}

impl LaunchFailed {
    /// A fork that failed.
    pub fn no_process(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            return Self::NoProcessLeft;
        }
        Self::System { what: "another process", error }
    }

    pub fn code(&self) -> ErrorCode {
        match self {
            Self::System { .. } => ErrorCode::Internal,
            Self::NoProcessLeft => ErrorCode::LimitReached,
        }
    }
}

fn refused<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> LaunchFailed {
    move |error| LaunchFailed::System { what, error: error.into() }
}

/// The supervisor's ends of a job's descriptors.
pub struct Ends {
    pub socket: OwnedFd,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub stdin: Option<pipe::Sender>,
}

pub fn launch(supervisor: &Shared, start: &StartJob, fingerprint: [u8; 32]) -> Result<JobRef, LaunchFailed> {
    let marker = marker()?;
    let log = match &start.spec.log_path {
        None => None,
        Some(name) => {
            let nonce = random()?;
            let quota = limits::LOG_QUOTA_BYTES;
            Some(Log::create(&supervisor.logs, name, nonce, quota).map_err(refused("the log file"))?)
        }
    };
    let socket_flags = SocketFlags::CLOEXEC;
    let (socket, leader_socket) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, socket_flags, None)
            .map_err(refused("a socket"))?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(refused("a socket"))?;
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(refused("a pipe"));
    let (stdout, leader_stdout) = pipe()?;
    let (stderr, leader_stderr) = pipe()?;
    let (leader_stdin, stdin) = match start.spec.stdin {
        StdinMode::None => (None, None),
        StdinMode::Pipe => {
            let (read, write) = pipe()?;
            (Some(read), Some(pipe::Sender::from_owned_fd(write).map_err(refused("a pipe"))?))
        }
    };
    let ends = Ends {
        socket,
        stdout: pipe::Receiver::from_owned_fd(stdout).map_err(refused("a pipe"))?,
        stderr: pipe::Receiver::from_owned_fd(stderr).map_err(refused("a pipe"))?,
        stdin,
    };
    let (argv, script) = command_line(supervisor, &start.spec)?;
    let orders = Orders {
        supervisor: rustix::process::getpid().as_raw_pid(),
        argv,
        env: environment(supervisor, &start.spec, &marker),
        cwd: start.spec.cwd.as_deref().map_or_else(|| supervisor.ground.workspace.clone(), PathBuf::from),
        become_user: Orders::user(supervisor.ground.credentials),
        own_domain: supervisor.ground.jobs_apart,
        descriptors: supervisor.job_descriptors,
        socket: leader_socket.as_raw_fd(),
        stdin: leader_stdin.as_ref().map(AsRawFd::as_raw_fd),
        script: script.as_ref().map(AsRawFd::as_raw_fd),
    };
    let told = memory_file(
        "ringfence-orders",
        &serde_json::to_vec(&orders).map_err(refused("the leader's orders"))?,
    )?;
    for handed_down in [Some(&leader_socket), leader_stdin.as_ref(), script.as_ref()].into_iter().flatten() {
        rustix::io::fcntl_setfd(handed_down, FdFlags::empty()).map_err(refused("a descriptor"))?;
    }
    let started = Instant::now();
    let leader = Command::new("/proc/self/exe")
        .arg0(NAME)
        .env_clear()
        .stdin(Stdio::from(told))
        .stdout(Stdio::from(leader_stdout))
        .stderr(Stdio::from(leader_stderr))
        .spawn()
        .map_err(LaunchFailed::no_process)?;
    let pid = i32::try_from(leader.id()).map_err(|_| LaunchFailed::System {
        what: "the leader's pid",
        error: std::io::Error::from(Errno::RANGE),
    })?;

    let job = JobCell::new(Job {
        number: supervisor.jobs.borrow_mut().next_number(),
        id: start.id.clone(),
        kind: start.spec.kind,
        order: start.order,
        nonce: start.nonce.clone(),
        fingerprint,
        identity: supervisor.ground.identity,
        marker,
        machine: Default::default(),
        leader: Leader::Alive { pid },
        pid: None,
        timeout: start.spec.timeout_ms.map(|ms| started + Duration::from_millis(ms)),
        started,
        started_at_ms: clock::now_ms(),
        started_ticks: scan::start_time(pid).unwrap_or_default(),
        command_ended: None,
        output: Output::new(limits::RING_BYTES, log),
        stdin: Stdin::new(start.spec.stdin == StdinMode::Pipe),
        known: Default::default(),
        signalled: Default::default(),
        methods: Default::default(),
        sweeps: 0,
        swept: None,
        told: false,
        end: None,
        acknowledged: false,
    });
    supervisor.roots.borrow_mut().insert(pid, Root::Leader(job.number));
    supervisor.jobs.borrow_mut().insert(&job);
    driver::attend(supervisor, &job, ends);
    Ok(job)
}

/// The argument vector, and the script it reads where the command is too long for an argument.
fn command_line(
    supervisor: &Supervisor,
    spec: &JobSpec,
) -> Result<(Vec<String>, Option<OwnedFd>), LaunchFailed> {
    let shell = supervisor.ground.shell.to_owned();
    match (&spec.argv, &spec.command) {
        (Some(argv), _) => Ok((argv.clone(), None)),
        (None, Some(command)) if command.len() > limits::MAX_INLINE_COMMAND_BYTES => {
            let script = memory_file("ringfence-command", command.as_bytes())?;
            Ok((vec![shell, format!("/proc/self/fd/{}", script.as_raw_fd())], Some(script)))
        }
        (None, command) => {
            Ok((vec![shell, "-c".to_owned(), "--".to_owned(), command.clone().unwrap_or_default()], None))
        }
    }
}

/// The whole environment of a job: nothing of the supervisor's own but what is passed on by name.
fn environment(supervisor: &Supervisor, spec: &JobSpec, marker: &str) -> Vec<(String, String)> {
    const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let user = match supervisor.ground.credentials {
        JobCredentials::Separate { .. } => "sandbox",
        JobCredentials::Same => "root",
    };
    let mut environment = std::collections::BTreeMap::from([
        ("PATH".to_owned(), PATH.to_owned()),
        // UTF-8, without the cost of the other categories' files at every start of a shell.
        ("LC_CTYPE".to_owned(), "C.UTF-8".to_owned()),
        ("HOME".to_owned(), supervisor.ground.home.display().to_string()),
        ("USER".to_owned(), user.to_owned()),
        ("LOGNAME".to_owned(), user.to_owned()),
        ("SHELL".to_owned(), supervisor.ground.shell.to_owned()),
    ]);
    environment.extend(supervisor.passed_on.iter().cloned());
    environment.extend(spec.env.clone());
    environment.insert("RINGFENCE_RULES".to_owned(), supervisor.ground.rules.display().to_string());
    environment.insert(marker.to_owned(), "1".to_owned());
    environment.into_iter().collect()
}

/// The name of the marker: a hash of a random token, in hex, so that it spells no word that tools scrub.
fn marker() -> Result<String, LaunchFailed> {
    let token: [u8; 16] = random()?;
    let hash = Sha256::digest(token);
    Ok(format!("RINGFENCE_JOB_{}", hex::encode_upper(hash.get(..16).unwrap_or_default())))
}

pub fn random() -> Result<[u8; 16], LaunchFailed> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| LaunchFailed::System {
        what: "random bytes",
        error: std::io::Error::other(error.to_string()),
    })?;
    Ok(bytes)
}

/// A file without a name, readable by whoever inherits it.
fn memory_file(name: &str, content: &[u8]) -> Result<OwnedFd, LaunchFailed> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(refused("a memory file"))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content).and_then(|()| file.rewind()).map_err(refused("a memory file"))?;
    Ok(file.into())
}
