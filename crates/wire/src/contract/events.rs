//! The sandbox's audit trail.

use crate::ids::{ConsumerName, SandboxKey};
use crate::refusal::RefusalKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One record of the audit trail: an operation that changes something. No command text, no path, no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SandboxEvent {
    /// Its number in the sandbox's trail, from 1.
    #[serde(default)]
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub seq: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub at: u64,
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    /// A call of the contract; `expire` or `destroy`, which the sandbox's alarm did; or `OrphanedSandbox`: a teardown
    /// whose container was not seen gone within its time.
    pub operation: String,
    /// Which process or idempotency key it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub id: Option<String>,
    pub ok: bool,
    /// Of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub kind: Option<RefusalKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub reason: Option<String>,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub duration_ms: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub generation: u64,
    /// Of an orphaned sandbox: those it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Of the operation `sweep`: what was killed, and what was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub swept: Option<Swept>,
}

/// What one sweep came to, by name. A sweep that had nothing to kill and knows it is no event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Swept {
    pub complete: bool,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub killed_count: u64,
    /// The first of them, as `name (pid)`; at most [`MAX_NAMES_IN_EVENT`].
    pub killed: Vec<String>,
    pub survivors: Vec<String>,
}

/// Names that one event lists of each kind.
pub const MAX_NAMES_IN_EVENT: usize = 32;

/// `events(key, cursor?, limit?)`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventsQuery {
    /// Events after this number; absent: from the oldest that is kept.
    #[serde(default)]
    pub cursor: Option<u64>,
    /// 1 to 1,000; default 200.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// One page of the audit trail, oldest first. An empty one is the end of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct EventsDone {
    pub events: Vec<SandboxEvent>,
    /// The cursor of the next page.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub next: u64,
    /// Events after the cursor that were dropped for space: the newest 1,000 are kept.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub dropped: u64,
    /// How often the sandbox's alarm woke it since it was made.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub wakeups: u64,
}
