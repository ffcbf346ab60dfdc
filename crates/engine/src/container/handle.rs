//! The engine's side of one keeper: requests by id, answers matched to them, the ends it proves.
//!
//! It owns the channel and the keeper's process. A container has ended only when its PID 1 is reported or seen
//! ended (its pidfd), and with it every process of its pid namespace; a channel that closed proves nothing.

use crate::namespace::channel::{self, ChannelError};
use crate::namespace::protocol::{ExecSpec, FromKeeper, ProcessEnd, ToKeeper};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

/// Messages of a boot that are not read yet. The keeper sends four at most.
const BOOT_MESSAGES: usize = 8;

type Answer = (FromKeeper, Vec<OwnedFd>);

#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("the container is gone")]
    Gone,
    #[error("nothing listens there")]
    Refused,
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// A process started in the container, and the word of its end.
pub struct StartedExec {
    pub pid: i32,
    pub terminal: Option<OwnedFd>,
    pub end: oneshot::Receiver<ProcessEnd>,
}

pub struct Keeper {
    socket: AsyncFd<OwnedFd>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
    end: watch::Sender<Option<ProcessEnd>>,
}

/// The reference that keeps a container alive: dropping it hangs up, and the keeper ends PID 1.
pub struct OwnedKeeper(pub Arc<Keeper>);

impl std::ops::Deref for OwnedKeeper {
    type Target = Keeper;

    fn deref(&self) -> &Keeper {
        &self.0
    }
}

impl Drop for OwnedKeeper {
    fn drop(&mut self) {
        self.hang_up();
    }
}

#[derive(Default)]
struct Waiting {
    closed: bool,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    exec_ends: HashMap<u64, oneshot::Sender<ProcessEnd>>,
}

impl Keeper {
    /// Takes over a keeper that was just spawned. The receiver gives the messages of its boot.
    pub fn new(socket: OwnedFd, process: Child) -> std::io::Result<(Arc<Self>, mpsc::Receiver<Answer>)> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let keeper = Arc::new(Self {
            socket: crate::sys::watch(socket)?,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            end: watch::Sender::new(None),
        });
        let (boot, messages) = mpsc::channel(BOOT_MESSAGES);
        tokio::spawn(Self::read(keeper.clone(), boot, process));
        Ok((keeper, messages))
    }

    async fn read(self: Arc<Self>, boot: mpsc::Sender<Answer>, mut process: Child) {
        let mut init = None;
        loop {
            let received = self
                .socket
                .async_io(tokio::io::Interest::READABLE, |socket| {
                    match channel::receive::<FromKeeper>(socket) {
                        Err(ChannelError::Io(error)) => Err(error),
                        other => Ok(other),
                    }
                })
                .await;
            let Ok(Ok((message, descriptors))) = received else { break };
            match message {
                FromKeeper::Ended { end } => {
                    self.end.send_replace(Some(end));
                }
                FromKeeper::ExecEnded { id, end } => {
                    if let Some(waiter) = self.lock().exec_ends.remove(&id) {
                        let _ = waiter.send(end);
                    }
                }
                FromKeeper::Unmapped | FromKeeper::Failed { .. } | FromKeeper::Running => {
                    let _ = boot.send((message, descriptors)).await;
                }
                FromKeeper::Built { init_pid } => {
                    init = Pid::from_raw(init_pid)
                        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
                    let _ = boot.send((FromKeeper::Built { init_pid }, descriptors)).await;
                }
                FromKeeper::Unpacked { id, .. }
                | FromKeeper::Connected { id }
                | FromKeeper::ConnectFailed { id, .. }
                | FromKeeper::ExecStarted { id, .. }
                | FromKeeper::ExecFailed { id, .. } => {
                    if let Some(waiter) = self.lock().answers.remove(&id) {
                        let _ = waiter.send((message, descriptors));
                    }
                }
            }
        }
        drop(boot);
        {
            let mut waiting = self.lock();
            waiting.closed = true;
            waiting.answers.clear();
            waiting.exec_ends.clear();
        }
        // The keeper ends after PID 1 did, or is dead and took PID 1 with it: see both.
        let reaped = tokio::task::spawn_blocking(move || {
            let _ = process.kill();
            process.wait()
        });
        let _ = reaped.await;
        if let Some(init) = init.and_then(|fd| crate::sys::watch(fd).ok()) {
            let _ = init.readable().await;
        }
        self.end.send_if_modified(|end| {
            let lost = end.is_none();
            end.get_or_insert(ProcessEnd::Signaled(Signal::KILL.as_raw()));
            lost
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the channel: the keeper ends PID 1 and itself.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
    }

    /// How PID 1 ended; waits until it has.
    pub async fn ended(&self) -> ProcessEnd {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.unwrap_or(ProcessEnd::Signaled(Signal::KILL.as_raw())),
            Err(_) => ProcessEnd::Signaled(Signal::KILL.as_raw()),
        }
    }

    pub async fn send(&self, message: &ToKeeper, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let sent = self
            .socket
            .async_io(tokio::io::Interest::WRITABLE, |socket| {
                match channel::send(socket, message, descriptors) {
                    Err(ChannelError::Io(error)) => Err(error),
                    other => Ok(other),
                }
            })
            .await;
        sent.map_err(ChannelError::Io)?
    }

    async fn ask(
        &self,
        message: impl FnOnce(u64) -> ToKeeper,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, KeeperError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.ask_as(id, message(id), descriptors).await
    }

    async fn ask_as(
        &self,
        id: u64,
        message: ToKeeper,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, KeeperError> {
        let (waiter, answer) = oneshot::channel();
        {
            let mut waiting = self.lock();
            if waiting.closed {
                return Err(KeeperError::Gone);
            }
            waiting.answers.insert(id, waiter);
        }
        if let Err(error) = self.send(&message, descriptors).await {
            self.lock().answers.remove(&id);
            return Err(error.into());
        }
        answer.await.map_err(|_| KeeperError::Gone)
    }

    /// A socket connected inside the container's network.
    pub async fn connect(&self, address: SocketAddr) -> Result<OwnedFd, KeeperError> {
        match self.ask(|id| ToKeeper::Connect { id, address }, &[]).await? {
            (FromKeeper::Connected { .. }, descriptors) => {
                descriptors.into_iter().next().ok_or(KeeperError::Channel(ChannelError::MissingDescriptor))
            }
            (FromKeeper::ConnectFailed { refused: true, .. }, _) => Err(KeeperError::Refused),
            (FromKeeper::ConnectFailed { error, .. }, _) => Err(KeeperError::Failed(error)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Unpacks an archive below a directory of the container.
    pub async fn unpack(&self, directory: String, archive: &[u8]) -> Result<(), KeeperError> {
        let archive = channel::to_memory_file(archive)?;
        match self.ask(|id| ToKeeper::Unpack { id, directory }, &[archive.as_fd()]).await? {
            (FromKeeper::Unpacked { error: None, .. }, _) => Ok(()),
            (FromKeeper::Unpacked { error: Some(error), .. }, _) => Err(KeeperError::Failed(error)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Starts a process with these standard streams (none of them for a terminal).
    pub async fn exec(&self, spec: &ExecSpec, streams: &[OwnedFd]) -> Result<StartedExec, KeeperError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (ended, end) = oneshot::channel();
        self.lock().exec_ends.insert(id, ended);
        let started = self.ask_exec(id, spec, streams).await;
        if started.is_err() {
            self.lock().exec_ends.remove(&id);
        }
        let (pid, terminal) = started?;
        Ok(StartedExec { pid, terminal, end })
    }

    async fn ask_exec(
        &self,
        id: u64,
        spec: &ExecSpec,
        streams: &[OwnedFd],
    ) -> Result<(i32, Option<OwnedFd>), KeeperError> {
        let spec = channel::to_memory_file(&serde_json::to_vec(spec).map_err(ChannelError::Malformed)?)?;
        let mut descriptors = vec![spec.as_fd()];
        descriptors.extend(streams.iter().map(AsFd::as_fd));
        match self.ask_as(id, ToKeeper::Exec { id }, &descriptors).await? {
            (FromKeeper::ExecStarted { pid, .. }, terminal) => Ok((pid, terminal.into_iter().next())),
            (FromKeeper::ExecFailed { error, .. }, _) => Err(KeeperError::Failed(error)),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

fn unexpected(message: &FromKeeper) -> KeeperError {
    KeeperError::Failed(format!("the keeper answered {message:?}"))
}
