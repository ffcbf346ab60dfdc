//! The leader's own life: start the command, reap everything, say so, end.
//!
//! Invariant: `Empty` is said only on the kernel's word (no child left), so it proves that the job's tree is gone.
//! Should the supervisor die first, the leader kills what is below it: nothing outlives its supervisor.

use super::{NAME, News, Orders, command};
use crate::scan::Look;
use crate::signalling;
use crate::sys;
use ringfence_core::sweep::{Place, Root, place};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

/// Also children that were made without SIGCHLD (`__WALL`).
const EVERY_CHILD: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);

pub fn main() -> ExitCode {
    match lead() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn lead() -> std::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Blocked and read, not handled: none that comes between two waits is lost.
    sys::block_signals()?;
    let signals = sys::signal_descriptor(&[libc::SIGCHLD, libc::SIGUSR1])?;
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let _ = rustix::thread::set_name(c"ringfence-lead");

    let mut told = Vec::new();
    std::io::stdin().read_to_end(&mut told)?;
    let orders: Orders = serde_json::from_slice(&told)?;
    drop(told);
    let socket = sys::inherited(orders.socket).ok_or_else(|| std::io::Error::other("no socket"))?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let stdin = orders.stdin.and_then(sys::inherited);
    if let Some(stdin) = &stdin {
        rustix::io::fcntl_setfd(stdin, rustix::io::FdFlags::CLOEXEC)?;
    }
    let script = orders.script.and_then(sys::inherited);

    let command = match command::spawn(&orders, stdin) {
        Ok(child) => {
            let pid = i32::try_from(child.id()).unwrap_or_default();
            say(&socket, News::Started { pid });
            Some(pid)
        }
        Err(error) => {
            let _ = std::io::stderr().write_all(command::explain(&orders, &error).as_bytes());
            say(&socket, News::NotStarted);
            None
        }
    };
    let supervisor = orders.supervisor;
    drop((orders, script));
    release_streams()?;
    reap_until_empty(&socket, &signals, command, supervisor);
    Ok(())
}

/// The job's output ends when the job's own processes have closed it.
fn release_streams() -> std::io::Result<()> {
    let nowhere = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

fn reap_until_empty(socket: &OwnedFd, signals: &OwnedFd, command: Option<i32>, supervisor: i32) {
    loop {
        if rustix::process::getppid().map(Pid::as_raw_pid) != Some(supervisor) {
            kill_what_is_below();
        }
        let (ended, left) = reap(command);
        let empty = left == Left::Nothing;
        if let Some(code) = ended.and_then(WaitStatus::exit_status) {
            say(socket, News::Exited { code, empty });
        } else if let Some(signal) = ended.and_then(WaitStatus::terminating_signal) {
            say(socket, News::Signaled { signal, empty });
        } else if empty {
            say(socket, News::Empty);
        }
        if empty {
            return;
        }
        // A child has ended, or the supervisor has.
        let mut information = [0u8; sys::SIGNAL_INFORMATION_BYTES];
        let _ = rustix::io::read(signals, &mut information);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Something,
    /// ECHILD: the kernel's proof.
    Nothing,
}

/// Reaps what has ended; the command's status, if it was among it.
fn reap(command: Option<i32>) -> (Option<WaitStatus>, Left) {
    let mut ended = None;
    loop {
        match rustix::process::wait(EVERY_CHILD | WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid.as_raw_pid()) == command => ended = Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return (ended, Left::Something),
            Err(_) => return (ended, Left::Nothing),
        }
    }
}

/// The supervisor is gone and nobody will sweep: KILL until the kernel says that no child is left.
fn kill_what_is_below() {
    let me = rustix::process::getpid().as_raw_pid();
    let roots = HashMap::from([(me, Root::Leader(()))]);
    loop {
        if reap(None).1 == Left::Nothing {
            return;
        }
        if let Ok(look) = Look::take() {
            let places = place(&look.seen, 0, &roots);
            for (seen, place) in look.seen.iter().zip(places) {
                if place == Place::Job(()) && seen.alive {
                    let _ = signalling::send(seen.identity, Signal::KILL);
                }
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A supervisor that no longer listens needs no news.
fn say(socket: &OwnedFd, news: News) {
    if let Ok(text) = serde_json::to_vec(&news) {
        let _ = rustix::net::send(socket, &text, rustix::net::SendFlags::NOSIGNAL);
    }
}
