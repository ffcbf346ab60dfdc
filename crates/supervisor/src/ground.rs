//! What the supervisor finds under its feet: its place in the process tree, the uid its jobs can have, the
//! directories they write to and the shell that runs their commands.
//!
//! Invariant: nothing outside the sandbox is touched. Directories are handed to the job user only where the
//! supervisor is PID 1 of its own namespace or was told which ones they are.

use crate::apart;
use crate::environment::{JobUser, StartEnvironment};
use crate::limits::{JOB_GID, JOB_UID};
use ringfence_wire::evidence::KillScope;
use ringfence_wire::supervisor::{ExecutionIdentity, JobUid};
use rustix::fs::{Gid, Mode, Uid};
use std::io;
use std::path::{Path, PathBuf};

/// Whom a job runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobCredentials {
    /// Another uid and gid, no supplementary group.
    Separate { uid: u32, gid: u32 },
    /// The supervisor's own uid.
    Same,
}

impl JobCredentials {
    pub fn wire(self) -> JobUid {
        match self {
            Self::Separate { .. } => JobUid::Separate,
            Self::Same => JobUid::Same,
        }
    }
}

pub struct Ground {
    pub scope: KillScope,
    pub identity: ExecutionIdentity,
    pub credentials: JobCredentials,
    /// Each job gets a domain of its own.
    pub jobs_apart: bool,
    pub shell: &'static str,
    pub home: PathBuf,
    pub workspace: PathBuf,
    pub artifacts: PathBuf,
    pub logs: PathBuf,
    pub rules: PathBuf,
    /// Beneath these, files may be read and written.
    pub file_roots: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum GroundRefused {
    #[error(
        "cannot prepare {path}: {source}. Mount a writable directory there, or name another with {variable}"
    )]
    Directory { path: PathBuf, variable: &'static str, source: io::Error },
}

/// Beneath the artifact path, for the supervisor alone.
pub const LOGS: &str = ".logs";

/// What every job can read about the two policies, at a known path and in `RINGFENCE_RULES`.
pub const RULES: &str = "\
You are inside a Ringfence sandbox.

- A command's background work ends with the command. When the command exits, whatever it
  left running is stopped: SIGTERM, up to 5 seconds of grace, then SIGKILL. nohup, setsid,
  disown and daemons do not change that.
- To keep a server running, its owner starts it detached, through Ringfence. A detached
  process may outlive the call that started it. It must stay in the foreground: when its
  own command exits, what that left running is stopped too.
- You see the processes of the sandbox's other commands and can signal them. Do not count
  on tracing them, or on seeing their environment and open files: lsof shows your own.
- The network is closed, except for what one command was granted, while it runs.
- Write to /workspace, /artifacts, /tmp and your home directory.
";

impl Ground {
    pub fn prepare(start: &StartEnvironment) -> Result<Self, GroundRefused> {
        let scope = scope();
        let credentials = match start.job_user {
            JobUser::Root => JobCredentials::Same,
            JobUser::Separate => separate_credentials().unwrap_or(JobCredentials::Same),
        };
        let own = scope == KillScope::Namespace;
        let refuse = |path: &Path, variable| {
            let path = path.to_owned();
            move |source| GroundRefused::Directory { path, variable, source }
        };
        use ringfence_wire::supervisor::start_env;
        let home = if own { PathBuf::from("/home") } else { start.workspace.clone() };
        let tmp = PathBuf::from("/tmp");
        hand_over(&start.workspace, credentials).map_err(refuse(&start.workspace, start_env::WORKSPACE))?;
        // Jobs write here, but what the supervisor put here stays where it is: the directory is not theirs.
        std::fs::create_dir_all(&start.artifacts)
            .and_then(|()| Ok(rustix::fs::chmod(&start.artifacts, Mode::from_raw_mode(0o1777))?))
            .map_err(refuse(&start.artifacts, start_env::ARTIFACTS))?;
        if own {
            // An image may lack them or keep them read-only; a job then finds out by itself.
            let _ = hand_over(&home, credentials);
            let _ = std::fs::create_dir(&tmp);
            let _ = rustix::fs::chmod(&tmp, Mode::from_raw_mode(0o1777));
        }
        let logs = start.artifacts.join(LOGS);
        private_directory(&logs, Mode::RWXU).map_err(refuse(&logs, start_env::ARTIFACTS))?;
        let world = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        private_directory(&start.run, world).map_err(refuse(&start.run, start_env::RUN))?;
        let rules = start.run.join("RULES.txt");
        std::fs::write(&rules, RULES)
            .and_then(|()| Ok(rustix::fs::chmod(&rules, Mode::from_raw_mode(0o444))?))
            .map_err(refuse(&rules, start_env::RUN))?;
        Ok(Self {
            scope,
            identity: start.identity.unwrap_or(match scope {
                KillScope::Namespace => ExecutionIdentity::SandboxedWorkspace,
                KillScope::Session => ExecutionIdentity::HostUnsandboxed,
            }),
            credentials,
            jobs_apart: apart::can_be_kept(),
            shell: if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" },
            home,
            file_roots: vec![start.workspace.clone(), start.artifacts.clone(), tmp],
            workspace: start.workspace.clone(),
            artifacts: start.artifacts.clone(),
            logs,
            rules,
        })
    }
}

/// PID 1 is the init of the pid namespace it lives in: nobody else can be numbered so there.
fn scope() -> KillScope {
    if rustix::process::getpid().is_init() { KillScope::Namespace } else { KillScope::Session }
}

/// Another uid, where this process may become it: it is root, and its user namespace maps the ids and lets it set
/// supplementary groups.
fn separate_credentials() -> Option<JobCredentials> {
    let allowed = rustix::process::geteuid().is_root()
        && maps(&std::fs::read_to_string("/proc/self/uid_map").ok()?, JOB_UID)
        && maps(&std::fs::read_to_string("/proc/self/gid_map").ok()?, JOB_GID)
        && std::fs::read_to_string("/proc/self/setgroups").ok()?.trim() != "deny";
    allowed.then_some(JobCredentials::Separate { uid: JOB_UID, gid: JOB_GID })
}

/// Whether an id map (`inside outside count` per line) maps this id.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map_while(|number| number.parse::<u64>().ok());
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(inside), Some(_), Some(count)) => {
                (inside..inside.saturating_add(count)).contains(&u64::from(id))
            }
            _ => false,
        }
    })
}

fn hand_over(path: &Path, credentials: JobCredentials) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    if let JobCredentials::Separate { uid, gid } = credentials {
        rustix::fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// The supervisor's own directory. Its mode is set even where it lay there before.
fn private_directory(path: &Path, mode: Mode) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    let found = rustix::fs::statat(rustix::fs::CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir()
        || found.st_uid != rustix::process::geteuid().as_raw()
    {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not the supervisor's own directory",
        ));
    }
    Ok(rustix::fs::chmod(path, mode)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_mapped_only_inside_a_range() {
        let whole = "         0          0 4294967295\n";
        let one = "         0       1000          1\n";
        let ranged = "0 100000 1000\n1000 200000 1\n";
        assert!(maps(whole, 1_000));
        assert!(!maps(one, 1_000));
        assert!(maps(ranged, 1_000));
        assert!(!maps(ranged, 1_001));
        assert!(!maps("", 0));
    }
}
