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
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
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
    let supervisor = rustix::process::getppid();
    sys::interrupt_on(libc::SIGUSR1)?;
    sys::block_signals(&[libc::SIGUSR1])?;
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
    drop((orders, script));
    release_streams()?;
    reap_until_empty(&socket, command, supervisor);
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

fn reap_until_empty(socket: &OwnedFd, command: Option<i32>, supervisor: Option<Pid>) {
    loop {
        match rustix::process::wait(EVERY_CHILD) {
            Ok(Some((pid, status))) if Some(pid.as_raw_pid()) == command => {
                let empty = nothing_is_left();
                if let Some(code) = status.exit_status() {
                    say(socket, News::Exited { code, empty });
                } else if let Some(signal) = status.terminating_signal() {
                    say(socket, News::Signaled { signal, empty });
                }
                if empty {
                    return;
                }
            }
            Ok(_) => {}
            Err(Errno::INTR) => {
                if rustix::process::getppid() != supervisor {
                    kill_what_is_below();
                }
            }
            // ECHILD: the kernel's proof.
            Err(_) => {
                say(socket, News::Empty);
                return;
            }
        }
    }
}

/// Reaps what has ended; true when the kernel says that there is no child left.
fn nothing_is_left() -> bool {
    loop {
        match rustix::process::wait(EVERY_CHILD | WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// The supervisor is gone and nobody will sweep: KILL until the kernel says that no child is left.
fn kill_what_is_below() {
    let me = rustix::process::getpid().as_raw_pid();
    let roots = HashMap::from([(me, Root::Leader(()))]);
    loop {
        if nothing_is_left() {
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
