//! What the engine is told when it starts. Every bound has a name and a default here.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Processes and threads in one container.
pub const DEFAULT_PIDS: u32 = 4_096;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Memory of one container, its writable directories included, where cgroups allow.
pub const DEFAULT_MEMORY_BYTES: u64 = 8 * GIB;
/// `/workspace`.
pub const DEFAULT_WORKSPACE_BYTES: u64 = 4 * GIB;
/// `/artifacts`: the logs of all jobs.
pub const DEFAULT_ARTIFACTS_BYTES: u64 = 2 * GIB;
/// `/tmp`, `/home` and `/var`, each.
pub const DEFAULT_SCRATCH_BYTES: u64 = GIB;
/// `/run` and `/dev/shm`, each.
pub const DEFAULT_RUNTIME_BYTES: u64 = 64 * MIB;

/// What `ringfence engine` serves, and with which bounds.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The unix socket that workerd and wrangler speak the Docker API on.
    pub socket: PathBuf,
    /// The unix socket that the command-line tool and tests ask on.
    pub control: PathBuf,
    /// Owned by one engine at a time; made when missing, emptied of an earlier engine's remains at start.
    pub state_dir: PathBuf,
    /// PID 1 of every container.
    pub supervisor: PathBuf,
    /// Host paths shown read-only inside, beyond the system directories.
    pub bind_ro: Vec<BindReadOnly>,
    /// Serve `POST /v1/faults`, and record each request that goes to a supervisor.
    pub faults: bool,
    /// End when the process that started the engine ends.
    pub exit_with_parent: bool,
    pub bounds: Bounds,
}

/// What one container may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    pub pids: u32,
    pub memory_bytes: u64,
    pub workspace_bytes: u64,
    pub artifacts_bytes: u64,
    pub scratch_bytes: u64,
    pub runtime_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            pids: DEFAULT_PIDS,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            workspace_bytes: DEFAULT_WORKSPACE_BYTES,
            artifacts_bytes: DEFAULT_ARTIFACTS_BYTES,
            scratch_bytes: DEFAULT_SCRATCH_BYTES,
            runtime_bytes: DEFAULT_RUNTIME_BYTES,
        }
    }
}

/// `SRC:DST`: a host path shown read-only inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindReadOnly {
    pub source: PathBuf,
    pub target: PathBuf,
}

/// Why a `--bind-ro` argument is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BindError {
    #[error("--bind-ro {0}: expected SRC:DST, for example /opt/node:/opt/node")]
    Shape(String),
    #[error("--bind-ro {0}: both paths must be absolute and without '..'")]
    NotAbsolute(String),
    #[error(
        "--bind-ro {0}: the target would hide a directory that the engine makes itself; choose one below /opt or /srv"
    )]
    Reserved(String),
}

/// Directories that the engine fills; a bind may go below none of them, nor replace one.
const RESERVED: [&str; 14] = [
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "usr",
    "etc",
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    ".ringfence",
];

impl std::str::FromStr for BindReadOnly {
    type Err = BindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (source, target) = text.split_once(':').ok_or_else(|| BindError::Shape(text.into()))?;
        for path in [source, target] {
            if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
                return Err(BindError::NotAbsolute(text.into()));
            }
        }
        let first = target.split('/').find(|part| !part.is_empty()).unwrap_or_default();
        if first.is_empty() || RESERVED.contains(&first) {
            return Err(BindError::Reserved(text.into()));
        }
        Ok(Self { source: source.into(), target: target.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_names_two_absolute_paths_and_no_directory_of_the_engine() {
        let bind: BindReadOnly = "/opt/node:/opt/node".parse().unwrap();
        assert_eq!(bind.target, PathBuf::from("/opt/node"));
        assert_eq!("/opt/node".parse::<BindReadOnly>(), Err(BindError::Shape("/opt/node".into())));
        assert_eq!("opt:/opt".parse::<BindReadOnly>(), Err(BindError::NotAbsolute("opt:/opt".into())));
        assert_eq!(
            "/a:/opt/../etc".parse::<BindReadOnly>(),
            Err(BindError::NotAbsolute("/a:/opt/../etc".into()))
        );
        for target in ["/", "/etc", "/etc/ssl", "//proc", "/.ringfence/x"] {
            let text = format!("/a:{target}");
            assert_eq!(text.parse::<BindReadOnly>(), Err(BindError::Reserved(text)));
        }
    }
}
