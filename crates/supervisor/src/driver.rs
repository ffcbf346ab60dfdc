//! A job's tasks: one listens to its leader, one reads each stream, one carries it to its end.
//!
//! Order at an end: the command has ended, or somebody wants it to → standard input is closed → output is awaited at
//! most 2 s after an own end → what is left is swept → the kernel's proof or a finished look → the pipes are drained
//! and cut → the end record. Nothing here polls: every step waits for news.

use crate::job::{JobRef, Leader};
use crate::launch::Ends;
use crate::leader::{MAX_NEWS_BYTES, News};
use crate::supervisor::Shared;
use crate::sweep::{self, Targets};
use crate::{clock, limits, scan, stdin, sys};
use ringfence_core::job::{CommandEnd, EndWanted, Event};
use ringfence_core::sweep::DEFAULT_GRACE_MS;
use ringfence_wire::evidence::{Evidence, KillMethod};
use ringfence_wire::supervisor::OutputStream;
use std::os::fd::OwnedFd;
use std::time::Instant;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::task::spawn_local;
use tokio::time::{sleep_until, timeout};

pub fn attend(supervisor: &Shared, job: &JobRef, ends: Ends) {
    spawn_local(listen(supervisor.clone(), job.clone(), ends.socket));
    spawn_local(read(supervisor.clone(), job.clone(), OutputStream::Stdout, ends.stdout));
    spawn_local(read(supervisor.clone(), job.clone(), OutputStream::Stderr, ends.stderr));
    if let Some(pipe) = ends.stdin {
        spawn_local(stdin::write(job.clone(), pipe));
    }
    spawn_local(drive(supervisor.clone(), job.clone()));
}

/// Hears the leader out. Its silence without the word that nothing is left means that it was lost.
async fn listen(supervisor: Shared, job: JobRef, socket: OwnedFd) {
    let mut empty = false;
    if let Ok(socket) = sys::watched(socket) {
        while !empty && let Some(news) = hear(&socket).await {
            let (event, nothing_left) = match news {
                News::Started { pid } => {
                    job.change(|job| job.pid = Some(pid));
                    (Event::Started, false)
                }
                News::NotStarted => (Event::CommandEnded(CommandEnd::NotStarted), false),
                News::Exited { code, empty } => (Event::CommandEnded(CommandEnd::Exited(code)), empty),
                News::Signaled { signal, empty } => {
                    (Event::CommandEnded(CommandEnd::Signaled(signal)), empty)
                }
                News::Empty => (Event::TreeReaped, true),
            };
            empty = nothing_left;
            told(&job, event, empty);
        }
    }
    if !empty {
        supervisor.strays_possible.set(true);
        job.change(|job| {
            job.leader = Leader::Lost;
            job.machine.apply(Event::Want(EndWanted::Interrupted));
        });
    }
    supervisor.leader_news.notify_waiters();
}

/// One step for whoever waits: a command that left nothing ends in the same moment as its tree.
fn told(job: &JobRef, event: Event, nothing_left: bool) {
    job.change(|job| {
        if matches!(event, Event::CommandEnded(_)) {
            job.command_ended.get_or_insert((Instant::now(), clock::now_ms()));
        }
        job.machine.apply(event);
        if nothing_left {
            job.leader = Leader::Empty;
            job.machine.apply(Event::TreeReaped);
        }
    });
}

/// Somebody wants the job ended. Its command may have ended unheard: a tracer reaps before the leader does. Then it
/// has the end it had.
pub fn want(job: &JobRef, end: EndWanted) {
    let unheard = job.read(|job| match (job.leader, job.pid, job.machine.command_end()) {
        (Leader::Alive { pid: leader }, Some(pid), None) => scan::end_of_unreaped(pid, leader),
        _ => None,
    });
    if let Some(end) = unheard {
        command_ended(job, end);
    }
    job.apply(Event::Want(end));
}

/// A lost leader's command was reaped by the supervisor itself.
pub fn command_ended(job: &JobRef, end: CommandEnd) {
    told(job, Event::CommandEnded(end), false);
}

async fn hear(socket: &AsyncFd<OwnedFd>) -> Option<News> {
    let mut text = [0u8; MAX_NEWS_BYTES];
    loop {
        let mut ready = socket.readable().await.ok()?;
        let received = ready.try_io(|fd| {
            Ok(rustix::net::recv(fd, text.as_mut_slice(), rustix::net::RecvFlags::empty())
                .map(|(length, _)| length)?)
        });
        match received {
            Ok(Ok(0) | Err(_)) => return None,
            Ok(Ok(length)) => return serde_json::from_slice(text.get(..length)?).ok(),
            Err(_would_block) => {}
        }
    }
}

/// Reads one stream to its end, or until the cut and then what is there.
async fn read(supervisor: Shared, job: JobRef, of: OutputStream, pipe: pipe::Receiver) {
    let mut told_to_stop = false;
    let cut = loop {
        if !told_to_stop {
            tokio::select! {
                ready = pipe.readable() => if ready.is_err() { break true },
                () = job.cut.notified() => told_to_stop = true,
            }
        }
        // One buffer for all jobs: it is borrowed between awaits only.
        let taken = {
            let mut buffer = supervisor.scratch.borrow_mut();
            pipe.try_read(&mut buffer).inspect(|length| {
                job.change(|job| job.output.push(of, buffer.get(..*length).unwrap_or_default()));
            })
        };
        match taken {
            Ok(0) => break false,
            Ok(_) => {
                supervisor.bound_rings();
                // A chatty job takes its turn like everyone.
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if told_to_stop {
                    break true;
                }
            }
            Err(_) => break true,
        }
    };
    job.change(|job| {
        job.output.close(of, cut);
        job.machine.apply(Event::StreamDone(of));
    });
}

async fn drive(supervisor: Shared, job: JobRef) {
    let ended = job.until(|job| job.machine.command_end().is_some() || job.machine.wanted().is_some());
    match job.read(|job| job.timeout) {
        None => ended.await,
        Some(at) => tokio::select! {
            biased;
            () = ended => {}
            () = sleep_until(at.into()) => want(&job, EndWanted::TimedOut),
        },
    }
    job.change(|job| job.stdin.close());
    if job.read(|job| job.machine.wanted().is_none()) {
        // It ended by itself: whoever still writes has a moment to finish.
        let complete = job.until(|job| job.output.is_complete() || job.machine.wanted().is_some());
        let _ = timeout(limits::OUTPUT_WAIT, complete).await;
    }
    sweep_until_gone(&supervisor, &job).await;
    let _ = timeout(limits::DRAIN_WAIT, job.until(|job| job.output.is_complete())).await;
    job.cut.notify_waiters();
    job.until(|job| job.output.is_complete()).await;
    job.until(|job| job.sweeps == 0 && job.machine.state().is_terminal()).await;
    let scope = supervisor.ground.scope;
    job.change(|job| {
        let sweep =
            job.swept.clone().unwrap_or_else(|| Evidence::nothing_to_do(scope, KillMethod::NoChildLeft));
        job.finish(&supervisor.boot_id, Instant::now(), clock::now_ms(), sweep);
    });
}

/// Ends what is left of the job, unless a sweep of it is already under way, until nothing is.
async fn sweep_until_gone(supervisor: &Shared, job: &JobRef) {
    let gone = |job: &JobRef| job.read(|job| job.machine.is_reaped());
    // A stop, a teardown or the supervisor's end brings its own sweep, with its own grace.
    let own = |job: &JobRef| {
        job.read(|job| {
            job.sweeps == 0
                && matches!(job.machine.wanted(), None | Some(EndWanted::TimedOut | EndWanted::Interrupted))
        })
    };
    if !gone(job) && own(job) {
        sweep::run(supervisor, Targets::one(job), DEFAULT_GRACE_MS).await;
    }
    job.until(|job| job.machine.is_reaped()).await;
}
