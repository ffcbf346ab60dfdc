//! The supervisor's own signals: CHLD reaps, TERM and INT end it only when they come from outside.
//!
//! Invariant: nothing inside the container can end the supervisor by a signal. To PID 1, a signal from the parent
//! namespace comes from pid 0. In a shared namespace the sender is looked up: a job's process is inside, and so is
//! a sender that is gone already while jobs run.

use crate::scan::Look;
use crate::supervisor::Shared;
use crate::{reap, sys};
use ringfence_core::sweep::{Place, place};
use ringfence_wire::evidence::KillScope;
use std::io;
use std::os::fd::OwnedFd;

/// One blocked signal, as signalfd tells it.
struct Received {
    number: u32,
    sender: i32,
}

/// Serves signals for as long as the supervisor lives.
pub async fn serve(supervisor: Shared, descriptor: OwnedFd) -> io::Result<()> {
    let descriptor = sys::watched(descriptor)?;
    // Children that ended before anyone listened.
    reap::children(&supervisor);
    loop {
        let mut ready = descriptor.readable().await?;
        match ready.try_io(|fd| receive(fd.get_ref())) {
            Ok(Ok(signal)) => take(&supervisor, &signal),
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

fn take(supervisor: &Shared, signal: &Received) {
    if i32::try_from(signal.number) == Ok(libc::SIGCHLD) {
        let _ = reap::children(supervisor);
    } else if from_outside(supervisor, signal.sender) {
        supervisor.end_wanted.notify_one();
    } else {
        supervisor.ignored_signals.set(supervisor.ignored_signals.get() + 1);
    }
}

fn from_outside(supervisor: &Shared, sender: i32) -> bool {
    if supervisor.ground.scope == KillScope::Namespace {
        return sender == 0;
    }
    let nobody_runs = || supervisor.live_jobs().is_empty();
    let Ok(look) = Look::take() else { return nobody_runs() };
    let me = rustix::process::getpid().as_raw_pid();
    let places = place(&look.seen, me, &supervisor.roots.borrow());
    match look.seen.iter().zip(places).find(|(seen, _)| seen.identity.pid == sender) {
        Some((_, Place::Job(_) | Place::Leader(_) | Place::Unsettled)) => false,
        // In a shared namespace a stray is everyone who is not the supervisor's, but a child that fell to it.
        Some((seen, Place::Stray | Place::Own)) => seen.parent != me,
        None => nobody_runs(),
    }
}

/// `struct signalfd_siginfo` is 128 bytes: the number is the first word, the sender's pid the fourth.
fn receive(descriptor: &OwnedFd) -> io::Result<Received> {
    let mut information = [0u8; sys::SIGNAL_INFORMATION_BYTES];
    let length = rustix::io::read(descriptor, &mut information)?;
    let word = |at: usize| {
        let bytes = information.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    if length < information.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Received { number: word(0)?, sender: word(12)?.cast_signed() })
}
