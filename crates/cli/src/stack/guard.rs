//! `ringfence guard`: a small process between the stack and one program it started, so that nothing that
//! program forks outlives the stack, whatever becomes of either.
//!
//! The invariant: when the guard has exited, every descendant of the program is dead and reaped. The guard is a
//! child subreaper, so orphans come to it; it owns them all.
//!
//! Order of effects: start the program in its own process group → report its pid → wait for one of: the control
//! pipe (standard input) closes, which is how the stack asks for an end and what the kernel does when the stack
//! is killed; SIGTERM, SIGINT or SIGHUP; the program ends → ask the program to end (`--stop-signal`) and wait for
//! `--grace-ms` → kill what is left until there is no child → report how the program ended.
//!
//! Should the guard itself be killed, the program dies with it (parent-death signal).

use super::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the guard says on its standard output, one JSON line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub enum GuardReport {
    Started { pid: i32 },
    Ended { code: Option<i32>, signal: Option<i32>, swept: u32 },
}

/// How the program is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StopSignal {
    Int,
    Term,
}

impl From<StopSignal> for Signal {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Int => Self::INT,
            StopSignal::Term => Self::TERM,
        }
    }
}

/// Runs `program` to its end. Call it from the main thread, once, in a process that does nothing else.
pub fn run(stop: StopSignal, grace: Duration, program: &str, arguments: &[String]) -> io::Result<i32> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let child_changed = signal_pipe(signal_hook::consts::SIGCHLD)?;
    let asked: Vec<UnixStream> =
        [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP]
            .into_iter()
            .map(signal_pipe)
            .collect::<io::Result<_>>()?;

    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(io::stderr().as_fd().try_clone_to_owned()?)
        .process_group(0);
    sys::die_with_spawning_thread(&mut command);
    let child = command.spawn()?;
    let pid =
        i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no pid"))?;
    report(&GuardReport::Started { pid: pid.as_raw_nonzero().get() });

    let mut family = Family { main: pid, end: None, swept: 0 };
    family.reap()?;
    let mut stop_by: Option<Instant> = None;
    while family.end.is_none() {
        let left = stop_by.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            break;
        }
        if wait_for_news(&child_changed, &asked, stop_by.is_some(), left)? && stop_by.is_none() {
            // The program has not been reaped, so its pid is still its own.
            let _ = rustix::process::kill_process(pid, stop.into());
            stop_by = Some(Instant::now() + grace);
        }
        family.reap()?;
    }
    family.sweep()?;
    let (code, signal) = family.end.unwrap_or((None, Some(Signal::KILL.as_raw())));
    report(&GuardReport::Ended { code, signal, swept: family.swept });
    Ok(code.unwrap_or(1))
}

/// Blocks until a child changed, the end was asked for, or `left` has passed. True: the end was asked for.
fn wait_for_news(
    child_changed: &UnixStream,
    asked: &[UnixStream],
    stopping: bool,
    left: Option<Duration>,
) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = vec![PollFd::new(child_changed, PollFlags::IN)];
    if !stopping {
        fds.push(PollFd::new(&stdin, PollFlags::IN));
        fds.extend(asked.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    }
    let timeout = left.map(|d| rustix::event::Timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(d.subsec_nanos()),
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // Anything on the control pipe, its end above all, asks for the end.
    let asked = fds.iter().skip(1).any(|fd| !fd.revents().is_empty());
    let mut sink = [0_u8; 64];
    let mut pipe = child_changed;
    while matches!(pipe.read(&mut sink), Ok(n) if n > 0) {}
    Ok(asked)
}

/// The program and everything that was ever forked beneath it.
struct Family {
    main: Pid,
    end: Option<(Option<i32>, Option<i32>)>,
    swept: u32,
}

impl Family {
    /// Takes the end of every child that has one.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.note(pid, status),
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills every child, and every grandchild that becomes one by its parent's death, until there is none.
    fn sweep(&mut self) -> io::Result<()> {
        loop {
            for pid in children()? {
                // A child of ours that we have not reaped: its pid cannot have been reused.
                if rustix::process::kill_process(pid, Signal::KILL).is_ok() && pid != self.main {
                    self.swept += 1;
                }
            }
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => self.note(pid, status),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            self.reap()?;
        }
    }

    fn note(&mut self, pid: Pid, status: WaitStatus) {
        if pid == self.main {
            self.end = Some((status.exit_status(), status.terminating_signal()));
        }
    }
}

/// This process's children, from `/proc`: `children` files are only complete for stopped processes, so the
/// parent field of every process is read instead.
fn children() -> io::Result<Vec<Pid>> {
    let own = rustix::process::getpid();
    let mut found = Vec::new();
    for process in super::processes::all()? {
        if process.parent == own.as_raw_nonzero().get()
            && let Some(pid) = Pid::from_raw(process.pid)
        {
            found.push(pid);
        }
    }
    Ok(found)
}

fn signal_pipe(signal: i32) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal, writer)?;
    Ok(reader)
}

fn report(report: &GuardReport) {
    // The stack may be gone; then nobody needs to know.
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(io::stdout(), "{line}");
    }
}
