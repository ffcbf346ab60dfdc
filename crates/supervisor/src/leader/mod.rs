//! A job's leader: the small process at the root of its tree.
//!
//! The leader runs as the supervisor's uid in its own session, is a child subreaper, and is not dumpable. It is
//! this same executable under another name, started afresh, so that it holds nothing of the supervisor's memory.
//! It is told what to run through an unlinked file on its standard input, and speaks over one socket: a message
//! per event, in order, and nothing after the one that says that nothing is left.

mod command;
mod run;

pub use run::main;

use crate::ground::JobCredentials;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `argv[0]` of a leader: what tells it from the supervisor.
pub const NAME: &str = "ringfenced: leader";

/// What a leader is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// Who leads the leader: should its parent be another, the supervisor is gone.
    pub supervisor: i32,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// uid and gid, or the leader's own.
    pub become_user: Option<(u32, u32)>,
    /// Into a domain of its own.
    pub own_domain: bool,
    /// The soft limit on descriptors that the container was given.
    pub descriptors: Option<u64>,
    /// Descriptors by number, open in the leader.
    pub socket: i32,
    pub stdin: Option<i32>,
    /// A command too long for an argument: the shell reads it from this descriptor.
    pub script: Option<i32>,
}

impl Orders {
    pub fn user(credentials: JobCredentials) -> Option<(u32, u32)> {
        match credentials {
            JobCredentials::Separate { uid, gid } => Some((uid, gid)),
            JobCredentials::Same => None,
        }
    }
}

/// What a leader says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum News {
    Started {
        pid: i32,
    },
    /// Why is in the job's standard error, as a shell would put it.
    NotStarted,
    /// The command ended. `empty`: and left nothing, so that this is the last message, in the sense of [`Self::Empty`].
    Exited {
        code: i32,
        empty: bool,
    },
    Signaled {
        signal: i32,
        empty: bool,
    },
    /// `waitid` said that there is no child left: nothing of the job lives, and the leader ends.
    Empty,
}

/// Longer than any message.
pub const MAX_NEWS_BYTES: usize = 128;
