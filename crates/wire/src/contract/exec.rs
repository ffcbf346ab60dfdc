//! `execUnderGrant`: its input, its approval, and the receipt that proves its end.

use super::{Ensured, Recipe};
use crate::evidence::Evidence;
use crate::ids::IdempotencyKey;
use crate::supervisor::{ExecutionIdentity, TeardownMode};
use serde::{Deserialize, Serialize};

/// When an approval was given: milliseconds since the Unix epoch, or RFC 3339 text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(untagged)]
pub enum ApprovedAt {
    Millis(#[cfg_attr(feature = "ts", ts(type = "number"))] u64),
    Text(String),
}

/// A person's word that one exact command may run once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub task_id: String,
    /// An integer ≥ 0; (taskId, ordinal) is spent once.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub ordinal: i64,
    /// SHA-256 of the exact command text, hex, any case.
    pub command_sha256: String,
    pub approved_by: String,
    pub approved_at: ApprovedAt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum OnUnknown {
    #[default]
    Refuse,
    /// The caller's own word that the command may run twice.
    Rerun,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ExecInput {
    pub recipe: Recipe,
    /// Run by the sandbox's shell with `-c`. Not empty, no NUL, at most 256 KiB.
    pub command: String,
    pub idempotency_key: IdempotencyKey,
    /// A name for the whole log under the sandbox's artifact path.
    pub log_path: String,
    /// Default 10 minutes, at most 6 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional, type = "number"))]
    pub timeout_ms: Option<u64>,
    /// How much output the receipt carries; default 4,096, at most 65,536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional, type = "number"))]
    pub tail_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub lfs: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub on_unknown: Option<OnUnknown>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptEnd {
    Exited,
    Signaled,
    TimedOut,
    Killed,
}

/// Proof of one exec's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub end: ReceiptEnd,
    /// Present exactly when the command exited by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub signal: Option<i32>,
    /// Ended by a recovery's teardown, not by its own fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub interrupted: Option<bool>,
    /// From the command's start to its own end.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub duration_ms: u64,
    /// This answer was recorded earlier for the same key.
    pub deduped: bool,
    pub tail: String,
    /// There was more output than `tail`.
    pub truncated: bool,
    /// The log on disk lacks what came after: it reached its quota, or the disk took no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub log_truncated: Option<bool>,
    /// A stream did not end: it was cut while a process outside the command's tree still held it open, and that
    /// process may have written some of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub output_cut: Option<bool>,
    /// Where the command ran.
    #[serde(default = "legacy_unbound")]
    pub identity: ExecutionIdentity,
}

/// A record that names no identity was written before there was one.
fn legacy_unbound() -> ExecutionIdentity {
    ExecutionIdentity::LegacyUnbound
}

/// What happened to what the command left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct TeardownSummary {
    pub mode: TeardownMode,
    /// Absent where the container was destroyed instead of swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub evidence: Option<Evidence>,
}

/// One host an exec was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    pub host: String,
    pub profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ExecDone {
    pub receipt: Receipt,
    pub ensured: Ensured,
    pub granted: Vec<Granted>,
    /// Processes the fence's teardown killed.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub killed: u64,
    pub teardown: TeardownSummary,
}
