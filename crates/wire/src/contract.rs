//! The facade's contract, version 1, as consumers see it over RPC and HTTP.
//!
//! Field names are fixed. Additions are optional fields. Unknown fields are ignored.

use crate::evidence::Evidence;
use crate::ids::{ConsumerName, Cursor, IdempotencyKey, ProcessId, SandboxKey};
use crate::refusal::{AdmissionFacts, RefusalKind};
use crate::supervisor::{ExecutionIdentity, OutputPage, StdinMode, StdinResult, TeardownMode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const CONTRACT_VERSION: u32 = 1;

/// How egress rules act. Absent means enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    Legacy,
    Report,
    #[default]
    Enforce,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Repo {
    pub owner: String,
    pub name: String,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub reference: Option<String>,
}

/// What a sandbox is made from. A change of `version` asks for a rebuild.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Recipe {
    /// 1 to 64 characters of the consumer's choice.
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub repo: Option<Repo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub lfs: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub profiles: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub targets: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub enforcement: Option<Enforcement>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionMode {
    /// Fail at once with facts.
    #[default]
    Refuse,
    /// Take a place in the queue and return; poll `admissionAttempt`.
    Queue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct AdmissionWish {
    #[serde(default)]
    #[cfg_attr(feature = "ts", ts(as = "Option<AdmissionMode>", optional))]
    pub mode: AdmissionMode,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct EnsureOptions {
    /// From now; default 30 minutes, at most 6 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional, type = "number"))]
    pub lifetime_ms: Option<u64>,
    /// At most 10; names ≤ 16 bytes, values ≤ 64 bytes, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Rebuild even though a declared process lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub rebuild: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Ensured {
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub generation: u64,
    pub rebuilt: bool,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub expires_at: u64,
}

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    #[default]
    Exclusive,
    SharedService,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct StartDetachedInput {
    pub recipe: Recipe,
    pub command: String,
    pub idempotency_key: IdempotencyKey,
    pub log_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub stdin: Option<StdinMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub workspace_mode: Option<WorkspaceMode>,
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
    /// The log on disk reached its quota and lacks what came after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub log_truncated: Option<bool>,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct StartedProcess {
    pub id: ProcessId,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub started_at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct StartDetachedDone {
    pub process: StartedProcess,
    /// This process was started by an earlier call with the same key.
    pub deduped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum GoneReason {
    NeverStarted,
    Stopped,
    Aborted,
    Checkpointed,
    ContainerStopped,
    Expired,
    FenceKilled,
    NotTracked,
    Unreachable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum DetachedStatus {
    Running,
    Exited {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "ts", ts(optional))]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "ts", ts(optional))]
        signal: Option<i32>,
    },
    Gone {
        reason: GoneReason,
        /// False only for `unreachable`: the caller may poll again.
        #[serde(rename = "final")]
        #[cfg_attr(feature = "ts", ts(rename = "final"))]
        is_final: bool,
        detail: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct StatusDone {
    pub status: DetachedStatus,
}

/// `stopDetached` never refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct StopDone {
    /// True only on complete evidence, or because it had ended before.
    pub stopped: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub evidence: Option<Evidence>,
    /// Why not, when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ListedProcess {
    pub id: ProcessId,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub started_at: u64,
    pub idempotency_key: IdempotencyKey,
    pub log_path: String,
    pub identity: ExecutionIdentity,
    pub status: DetachedStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct ListDone {
    pub processes: Vec<ListedProcess>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct OutputDone {
    pub page: OutputPage,
}

/// `detachedOutput(key, processId, cursor?, limit?)`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputQuery {
    #[serde(default)]
    pub cursor: Option<Cursor>,
    /// 4 to 65,536 bytes; default 65,536.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Wait up to so long for news; at most 5,000.
    #[serde(default)]
    pub wait_ms: Option<u64>,
}

/// `artifact(key, path, cursor?, limit?)`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactQuery {
    #[serde(default)]
    pub cursor: Option<Cursor>,
    /// 4 to 262,144 bytes; default 262,144.
    #[serde(default)]
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct DetachedInput {
    pub operation_key: String,
    pub data: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub eof: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct InputDone {
    pub accepted: StdinResult,
    pub deduped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct FileDone {
    /// UTF-8 text.
    pub content: String,
}

/// `abort` never refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct AbortDone {
    /// Processes seen killed before the container was destroyed; what died with the container is not counted.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub killed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub evidence: Option<Evidence>,
    /// The container was seen to be gone.
    pub container_gone: bool,
    /// Why not, when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub detail: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Done {}

/// One kind of refused request, counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct DenialEvent {
    pub host: String,
    pub method: String,
    /// Query strings are dropped.
    pub path: String,
    pub reason: String,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct PoolUse {
    pub pool: String,
    pub cap: u32,
    pub busy: u32,
    pub waiting: u32,
    /// Of the busy ones: kept because their sandbox could not be asked whether its container is gone.
    #[serde(default)]
    pub unreachable: u32,
    /// Slots by consumer.
    pub consumers: BTreeMap<String, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct PoolStatusDone {
    pub pools: Vec<PoolUse>,
}

/// `admissionEnqueue` and `admissionAttempt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct AdmissionDone {
    pub admitted: bool,
    pub facts: AdmissionFacts,
}

/// One row of the registry (`GET /v1/sandboxes`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ListedSandbox {
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    pub pool: String,
    pub labels: BTreeMap<String, String>,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub created_at: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub expires_at: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub last_seen_at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct SandboxesDone {
    pub sandboxes: Vec<ListedSandbox>,
}

/// What a look of the canary's proves. Inconclusive is no pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum CanaryVerdict {
    Passed,
    Failed,
    Inconclusive,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct CanaryCheck {
    /// `https`: a host that no rule names must be refused by us. `tcp`: a plain port must be unreachable.
    pub what: String,
    pub target: String,
    pub verdict: CanaryVerdict,
    pub detail: String,
}

/// One look at the fence from inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct CanaryReport {
    /// Of which build of the Worker.
    pub build: String,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub at: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub duration_ms: u64,
    pub verdict: CanaryVerdict,
    pub checks: Vec<CanaryCheck>,
    /// What kept the look from being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub detail: Option<String>,
    /// What no such look can see.
    pub unseen: Vec<String>,
}

/// `POST /v1/canary` looks now; `GET /v1/canary` tells of the last look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct CanaryDone {
    /// The running build passed a look, and failed none since. `/health` says the same.
    pub verified: bool,
    /// The last look of the running build. Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub canary: Option<CanaryReport>,
}

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
