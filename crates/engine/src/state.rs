//! The state directory: one engine at a time (a lock), a copy of the supervisor, and an empty mount point.
//!
//! Nothing of a container lies here: its files are in memory and go with its namespaces. So what an earlier crash can
//! leave is two sockets and this directory's own files, and they are replaced. An orderly end takes them away.

use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
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

const LOCK: &str = "lock";

/// Takes the lock. None: another engine holds it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    const OWNER_ONLY: u32 = 0o600;
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(OWNER_ONLY).open(path)?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // An engine that ended just now took the file away with it: then this lock is on nothing.
        match (file.metadata(), path.metadata()) {
            (Ok(held), Ok(seen)) if (held.dev(), held.ino()) == (seen.dev(), seen.ino()) => {
                return Ok(Some(file));
            }
            _ => {}
        }
    }
}

pub struct StateDir {
    path: PathBuf,
    // Held for the life of the engine.
    _lock: File,
}

impl Drop for StateDir {
    /// Takes away what was made here; the directory too, when nothing else is in it. The lock is let go last.
    fn drop(&mut self) {
        let _ = fs::remove_file(self.supervisor());
        let _ = fs::remove_dir(self.mount_point());
        let _ = fs::remove_file(self.path.join(LOCK));
        let _ = fs::remove_dir(&self.path);
    }
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
        let lock_path = path.join(LOCK);
        let lock =
            lock(&lock_path).map_err(at(&lock_path))?.ok_or_else(|| StateError::InUse(path.clone()))?;
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
