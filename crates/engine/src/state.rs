//! The state directory: one engine at a time (a lock), a copy of the supervisor, and an empty mount point.
//!
//! Nothing of a container lies here: its files are in memory and go with its namespaces. So what an earlier crash can
//! leave is two sockets and this directory's own files, and they are replaced.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("another engine uses {0}; give this one another --state-dir, or stop that one")]
    InUse(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("no supervisor at {0}; build ringfenced beside ringfence, or name it with --supervisor")]
    NoSupervisor(PathBuf),
}

pub struct StateDir {
    path: PathBuf,
    // Held for the life of the engine.
    _lock: File,
}

impl StateDir {
    /// Makes or takes over the directory.
    pub fn open(path: &Path, supervisor: &Path) -> Result<Self, StateError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::Io { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
        let path = path.canonicalize().map_err(at(path))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StateError::InUse(path.clone()))?;
        let state = Self { path, _lock: lock };
        let mount_point = state.mount_point();
        fs::create_dir_all(&mount_point).map_err(at(&mount_point))?;
        state.copy_supervisor(supervisor)?;
        Ok(state)
    }

    /// A copy, so that a rebuild cannot change what containers run, and readable by the containers' ids.
    fn copy_supervisor(&self, from: &Path) -> Result<(), StateError> {
        const EXECUTABLE: u32 = 0o755;
        if !from.is_file() {
            return Err(StateError::NoSupervisor(from.to_owned()));
        }
        let to = self.supervisor();
        let fresh = self.path.join("ringfenced.new");
        let copied = fs::copy(from, &fresh)
            .and_then(|_| fs::set_permissions(&fresh, PermissionsExt::from_mode(EXECUTABLE)))
            .and_then(|()| fs::rename(&fresh, &to));
        copied.map_err(|source| StateError::Io { path: to, source })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn supervisor(&self) -> PathBuf {
        self.path.join("ringfenced")
    }

    /// Empty; the new root is mounted on it inside each container's own mount namespace.
    pub fn mount_point(&self) -> PathBuf {
        self.path.join("root")
    }
}
