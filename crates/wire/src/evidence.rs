//! What a teardown saw. Never a bool: a reader can tell a complete kill from one that could not finish looking.

use crate::ids::ProcessIdentity;
use serde::{Deserialize, Serialize};

/// Which rule decided membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum KillScope {
    /// The supervisor is PID 1 of its own pid namespace: everything not spared is the fence's.
    Namespace,
    /// A shared pid namespace: a process is the job's by marker, start time and parentage.
    Session,
}

/// How the supervisor came to know that nothing is left, and what it used on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum KillMethod {
    /// The leader's `waitid` said it has no child left: the kernel's own proof, no scan needed.
    NoChildLeft,
    /// Membership by ancestry below a leader.
    Ancestry,
    /// Membership by identity seen in an earlier scan.
    Identity,
    /// Membership by the job's environment marker (with start time and parentage).
    Marker,
    /// TERM was sent.
    Term,
    /// KILL was sent.
    Kill,
    /// `kill(-1, SIGKILL)` from PID 1.
    KillEveryone,
}

/// One process that a sweep named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SeenProcess {
    #[serde(flatten)]
    pub identity: ProcessIdentity,
    /// `/proc/PID/comm`, at most 15 bytes; empty where it could not be read.
    #[serde(default)]
    pub name: String,
}

/// What one sweep did and saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub scope: KillScope,
    pub methods: Vec<KillMethod>,
    /// True only if the look finished and found nothing left.
    pub complete: bool,
    /// At most 256 are named; `killedCount` counts them all.
    pub killed: Vec<SeenProcess>,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub killed_count: u64,
    /// Still alive when the sweep gave up. At most 256 are named.
    pub survivors: Vec<SeenProcess>,
    /// Could not be read, so could not be judged (session scope only); left alone.
    pub unreadable: Vec<SeenProcess>,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub scans: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub elapsed_ms: u64,
    /// Why the look did not finish, when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub unfinished: Option<String>,
}

impl Evidence {
    /// A sweep that had nothing to do and knows it.
    pub fn nothing_to_do(scope: KillScope, method: KillMethod) -> Self {
        Self {
            scope,
            methods: vec![method],
            complete: true,
            killed: Vec::new(),
            killed_count: 0,
            survivors: Vec::new(),
            unreadable: Vec::new(),
            scans: 0,
            elapsed_ms: 0,
            unfinished: None,
        }
    }
}
