//! The life of an engine: checks, sockets, serving, and an end that leaves nothing behind.
//!
//! Order at the start: namespaces can be made → the state directory is ours → sockets → ready is said. Order at the
//! end: no new calls → every container ended and seen ended → sockets removed.

use crate::config::EngineConfig;
use crate::container::spawner::Spawner;
use crate::doctor::{self, NoUserNamespace};
use crate::engine::Engine;
use crate::state::{StateDir, StateError};
use crate::{control, docker_api};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// Connections that still stand when all containers have ended are dropped after it.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    NoUserNamespace(#[from] NoUserNamespace),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("socket {path}: {source}")]
    Socket { path: PathBuf, source: io::Error },
    #[error("these containers did not end: {}", .0.join(", "))]
    Left(Vec<String>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs an engine until it is told to end (TERM, INT, or its parent's end). Blocks the calling thread.
///
/// # Errors
/// When it could not start, or left something behind.
pub fn run(config: EngineConfig) -> Result<(), RunError> {
    raise_descriptor_limit();
    // Before any other thread and any other child: all containers are forked by this one.
    let spawner = Spawner::start()?;
    let parent = config.exit_with_parent.then(Parent::of_this_process).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(config, spawner, parent));
    runtime.shutdown_timeout(SHUTDOWN_DEADLINE);
    result
}

/// Each tunnel takes four descriptors; the usual soft limit is for programs that use `select`.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn serve(config: EngineConfig, spawner: Spawner, parent: Option<Parent>) -> Result<(), RunError> {
    doctor::check_user_namespace()?;
    let state = StateDir::open(&config.state_dir, &config.supervisor)?;
    let docker = Socket::bind(&config.socket)?;
    let control = Socket::bind(&config.control)?;
    let engine = Engine::new(config, state, spawner);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let serving = [
        tokio::spawn(docker_api::serve(docker.listener, engine.clone())),
        tokio::spawn(control::serve(control.listener, engine.clone())),
    ];
    eprintln!("ringfence engine: ready on {}", engine.config.socket.display());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = Parent::ended(parent) => eprintln!("ringfence engine: its parent has ended"),
    }
    for task in &serving {
        task.abort();
    }
    end(&engine).await
}

async fn end(engine: &Arc<Engine>) -> Result<(), RunError> {
    let left = engine.end_all().await;
    if left.is_empty() { Ok(()) } else { Err(RunError::Left(left)) }
}

/// A unix socket that only its owner may use, removed when the engine ends.
struct Socket {
    listener: UnixListener,
    _file: SocketFile,
}

struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    fn bind(path: &Path) -> Result<Self, RunError> {
        const OWNER_ONLY: u32 = 0o600;
        let bind = || {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            // The state directory is ours, so a socket that is still here is a crashed engine's, unless it answers.
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves it")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => std::fs::remove_file(path)?,
            }
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, PermissionsExt::from_mode(OWNER_ONLY))?;
            Ok(Self { listener, _file: SocketFile(path.to_owned()) })
        };
        bind().map_err(|source| RunError::Socket { path: path.to_owned(), source })
    }
}

/// The process that started this one.
struct Parent(std::os::fd::OwnedFd);

impl Parent {
    fn of_this_process() -> io::Result<Self> {
        let parent: Pid =
            rustix::process::getppid().ok_or_else(|| io::Error::other("this process has no parent"))?;
        Ok(Self(rustix::process::pidfd_open(parent, PidfdFlags::NONBLOCK)?))
    }

    /// Never, where nobody is watched.
    async fn ended(parent: Option<Self>) {
        match parent.map(|parent| crate::sys::watch(parent.0)) {
            Some(Ok(watched)) => {
                let _ = watched.readable().await;
            }
            _ => std::future::pending().await,
        }
    }
}
