//! The boot of one container, from the engine's side.
//!
//! Order: ids and a channel → keeper spawned → bounded by its groups before it makes anything → told what to build →
//! ids mapped → built → archives unpacked → go → running. Whatever fails, everything made so far is dropped, and with
//! the channel the keeper and all it started end. The whole has one deadline.

use super::cgroup::{Cgroups, Groups};
use super::handle::{Keeper, KeeperError, OwnedKeeper};
use super::ids::{IdPool, Ids, NoSlot};
use super::log::TailLog;
use super::record::Archive;
use super::spawner::Spawner;
use crate::namespace::channel::{self, ChannelError};
use crate::namespace::protocol::{BootSpec, FromKeeper, ProcessEnd, ToKeeper};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// From the spawn of the keeper to the supervisor's exec.
pub const BOOT_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    #[error("could not start the keeper: {0}")]
    Spawn(io::Error),
    #[error("could not map the container's ids: {0}")]
    Map(io::Error),
    #[error("could not bound the container: {0}")]
    Bound(io::Error),
    #[error("{step}: {error}")]
    Step { step: String, error: String },
    #[error("could not unpack an archive into {directory}: {error}")]
    Archive { directory: String, error: KeeperError },
    #[error("the keeper ended without a word")]
    Silent,
    #[error("the container was not up after {BOOT_DEADLINE:?}")]
    Deadline,
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("the engine cannot make a channel: {0}")]
    Io(#[from] io::Error),
}

/// Sockets inside the container that the engine serves.
pub struct Listeners {
    pub relay: OwnedFd,
    pub responder: OwnedFd,
}

/// A container's processes. Dropping it ends them.
pub struct Running {
    keeper: OwnedKeeper,
    pub init_pid: i32,
    init: OwnedFd,
    pub started_at: SystemTime,
    // Given back once the container has ended.
    held: Mutex<Held>,
}

/// What a container holds of the engine's.
#[derive(Default)]
struct Held {
    groups: Option<Groups>,
    ids: Option<Ids>,
}

/// What the boot uses of the engine.
pub struct Boot<'a> {
    pub spawner: &'a Spawner,
    pub ids: &'a IdPool,
    pub cgroups: &'a Cgroups,
    pub id: &'a str,
    pub log: Arc<TailLog>,
    pub archives: Vec<Archive>,
}

/// Boots a container. `spec` is made once its ids are known.
pub async fn boot(
    boot: Boot<'_>,
    spec: impl FnOnce(&Ids) -> BootSpec,
) -> Result<(Running, Listeners), BootError> {
    let mut attempt = Attempt::default();
    let result = tokio::time::timeout(BOOT_DEADLINE, attempt.run(boot, spec)).await;
    let result = result.unwrap_or(Err(BootError::Deadline));
    if result.is_err() {
        attempt.abandon();
    }
    result
}

/// What a boot has made so far.
#[derive(Default)]
struct Attempt {
    keeper: Option<OwnedKeeper>,
    held: Held,
}

impl Attempt {
    async fn run(
        &mut self,
        boot: Boot<'_>,
        spec: impl FnOnce(&Ids) -> BootSpec,
    ) -> Result<(Running, Listeners), BootError> {
        let ids = self.held.ids.insert(boot.ids.take()?);
        let spec = spec(ids);
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(io::Error::from)?;
        let (log_read, log_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let log = boot.log;
        let follow = pipe::Receiver::from_owned_fd(log_read)?;
        tokio::spawn(async move { log.follow(follow).await });

        let process = boot.spawner.keeper(theirs).await.map_err(BootError::Spawn)?;
        let pid = i32::try_from(process.id()).unwrap_or_default();
        let (keeper, mut messages) = Keeper::new(ours, process)?;
        let keeper = self.keeper.insert(OwnedKeeper(keeper));
        self.held.groups = Some(boot.cgroups.make(boot.id, pid, &spec.bounds).map_err(BootError::Bound)?);
        let bytes = serde_json::to_vec(&spec).map_err(ChannelError::Malformed)?;
        let file = channel::to_memory_file(&bytes)?;
        keeper.send(&ToKeeper::Boot, &[file.as_fd(), log_write.as_fd()]).await?;
        drop(log_write);

        let FromKeeper::Unmapped = next(&mut messages).await?.0 else { return Err(BootError::Silent) };
        ids.write_maps(pid).map_err(BootError::Map)?;
        keeper.send(&ToKeeper::Mapped, &[]).await?;
        let (FromKeeper::Built { init_pid }, sockets) = next(&mut messages).await? else {
            return Err(BootError::Silent);
        };
        let mut sockets = sockets.into_iter();
        let (Some(relay), Some(responder)) = (sockets.next(), sockets.next()) else {
            return Err(ChannelError::MissingDescriptor.into());
        };
        let init_id = Pid::from_raw(init_pid).ok_or(BootError::Silent)?;
        let init = rustix::process::pidfd_open(init_id, PidfdFlags::empty()).map_err(io::Error::from)?;
        for archive in boot.archives {
            let (directory, bytes) = (archive.directory, archive.bytes);
            let unpacked = keeper.unpack(directory.clone(), &bytes).await;
            unpacked.map_err(|error| BootError::Archive { directory, error })?;
        }
        keeper.send(&ToKeeper::Go, &[]).await?;
        let FromKeeper::Running = next(&mut messages).await?.0 else { return Err(BootError::Silent) };
        let keeper = self.keeper.take().ok_or(BootError::Silent)?;
        let held = Mutex::new(std::mem::take(&mut self.held));
        let running = Running { keeper, init_pid, init, started_at: SystemTime::now(), held };
        Ok((running, Listeners { relay, responder }))
    }

    /// Ends what was started, and gives back what it held once it has ended.
    fn abandon(self) {
        let Self { keeper, held } = self;
        tokio::spawn(async move {
            if let Some(keeper) = keeper {
                keeper.hang_up();
                keeper.ended().await;
            }
            let _ = tokio::task::spawn_blocking(move || drop(held)).await;
        });
    }
}

async fn next(
    messages: &mut mpsc::Receiver<(FromKeeper, Vec<OwnedFd>)>,
) -> Result<(FromKeeper, Vec<OwnedFd>), BootError> {
    match messages.recv().await {
        None => Err(BootError::Silent),
        Some((FromKeeper::Failed { step, error }, _)) => Err(BootError::Step { step, error }),
        Some(message) => Ok(message),
    }
}

impl Running {
    /// Sends PID 1 a signal, as from outside.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::pidfd_send_signal(&self.init, signal)
    }

    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// A socket connected inside the container's network.
    pub async fn connect(&self, address: SocketAddr) -> Result<OwnedFd, KeeperError> {
        self.keeper.connect(address).await
    }

    /// Waits until PID 1, and with it the whole container, has ended; gives back what it held.
    pub async fn ended(&self) -> ProcessEnd {
        let end = self.keeper.ended().await;
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        // Removing a group may have to wait a moment.
        let _ = tokio::task::spawn_blocking(move || drop(held)).await;
        end
    }
}
