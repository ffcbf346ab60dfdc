//! Starts keepers, all from one thread that lives as long as the engine: a parent-death signal belongs to the thread
//! that forked, so a keeper forked by a pooled thread would die with that thread.

use crate::namespace::protocol::INIT_SUBCOMMAND;
use rustix::fd::OwnedFd;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use tokio::sync::oneshot;

struct Request {
    channel: OwnedFd,
    answer: oneshot::Sender<io::Result<Child>>,
}

/// The thread's address.
#[derive(Clone)]
pub struct Spawner(mpsc::Sender<Request>);

impl Spawner {
    /// Starts the thread. It ends with the process, or when the last sender is dropped.
    pub fn start() -> io::Result<Self> {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::Builder::new().name("spawner".into()).spawn(move || {
            for request in requests {
                let child = spawn(request.channel);
                if let Err(Ok(mut orphan)) = request.answer.send(child) {
                    let _ = orphan.kill();
                    let _ = orphan.wait();
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// A keeper whose standard input is `channel`.
    pub async fn keeper(&self, channel: OwnedFd) -> io::Result<Child> {
        let (answer, answered) = oneshot::channel();
        let gone = || io::Error::other("the spawner is gone");
        self.0.send(Request { channel, answer }).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn spawn(channel: OwnedFd) -> io::Result<Child> {
    // This very binary, even when the file it came from was replaced meanwhile.
    Command::new("/proc/self/exe")
        .arg(INIT_SUBCOMMAND)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(channel))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
}
