//! Jobs: what is asked for, what is told of them, and the proof of their end.

use super::{ExecutionIdentity, StdinMode};
use crate::evidence::Evidence;
use crate::ids::{BootId, Cursor, Nonce, Order, ProcessId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// An exec: ends with its fence.
    Fenced,
    /// Outlives its call; spared by fences while declared.
    Detached,
}

/// What to run. The same id with the same spec replays; with another spec it is a conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    pub kind: JobKind,
    /// Run by the shell (`-c`). Exactly one of `command` and `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Absolute; default `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Added to the built environment (PATH, HOME, USER, LC_CTYPE, RINGFENCE_RULES, the marker, and of the container's own
    /// what names languages and certificates).
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub stdin: StdinMode,
    /// From the command's start. Absent: the supervisor's own deadline alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What the whole log is found under: a path relative to the artifact path. The file's real name is another,
    /// with a nonce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_path: Option<String>,
}

/// `POST /v1/jobs` → [`JobView`] (201 started, 200 replayed).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartJob {
    pub order: Order,
    pub id: ProcessId,
    pub nonce: Nonce,
    #[serde(flatten)]
    pub spec: JobSpec,
    /// Answer when the job is terminal or this long has passed (≤ [`MAX_WAIT_MS`]), whichever is first. The
    /// headers come at once, the body when there is news.
    #[serde(default)]
    pub wait_ms: u64,
    /// Answer as soon as the job is `stopping`, too: its command has ended or timed out, and what it left still
    /// lives. Lets a fence close before the tree is gone. `GET /v1/jobs/{id}` takes the same as
    /// `wakeOnStopping=true`.
    #[serde(default)]
    pub wake_on_stopping: bool,
    /// With a terminal answer, send the last so many bytes of output (≤ [`MAX_TAIL_BYTES`]).
    #[serde(default)]
    pub tail_bytes: u64,
}

pub const MAX_WAIT_MS: u64 = 5_000;
pub const MAX_TAIL_BYTES: u64 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Prepared,
    Running,
    Stopping,
    /// Exited by itself with 0.
    Completed,
    /// Exited by itself with another code, died of a signal nobody here sent, or could not start (127).
    Failed,
    TimedOut,
    /// Stopped by `DELETE /v1/jobs/{id}`.
    Cancelled,
    /// Ended by a teardown or a kill-all.
    Killed,
    /// Ended by the supervisor's own deadline or shutdown, or its leader was lost.
    Interrupted,
}

impl JobState {
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Prepared | Self::Running | Self::Stopping)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamDigest {
    pub bytes: u64,
    /// SHA-256 of the whole stream, hex.
    pub sha256: String,
}

/// The proof that a job ended, and how. Written once, kept until acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndRecord {
    pub nonce: Nonce,
    pub boot_id: BootId,
    pub state: JobState,
    /// Present exactly when the command exited by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Present exactly when the command died of a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub started_at_ms: u64,
    /// When the job was terminal: its tree reaped, its output read.
    pub ended_at_ms: u64,
    /// From the command's start to its own end; what was swept after it is not counted.
    pub duration_ms: u64,
    pub stdout: StreamDigest,
    pub stderr: StreamDigest,
    /// The log on disk lacks what came after: it reached its quota, or the disk took no more. The ring went on.
    #[serde(default)]
    pub log_truncated: bool,
    /// A stream did not end: it was cut while somebody outside the job's tree still held it open.
    #[serde(default)]
    pub output_cut: bool,
    /// What was left when the command exited, and its end.
    pub sweep: Evidence,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    pub id: ProcessId,
    pub kind: JobKind,
    pub order: Order,
    pub boot_id: BootId,
    pub nonce: Nonce,
    pub state: JobState,
    pub identity: ExecutionIdentity,
    /// The command's own process, in the supervisor's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    pub started_at_ms: u64,
    /// The command's own process has ended; the job is terminal once its tree is gone too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_ended_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndRecord>,
    /// The output ring: oldest byte still held, and bytes written so far.
    pub output_base: Cursor,
    pub output_end: Cursor,
    /// The last bytes of output, when asked for and terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tail {
    /// UTF-8, invalid sequences replaced; at most the bytes asked for, never a split character.
    pub text: String,
    /// There was more output than this.
    pub truncated: bool,
}

/// `GET /v1/jobs`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobList {
    pub jobs: Vec<JobView>,
    /// Jobs of this order or below may have been forgotten.
    pub forgotten_mark: Order,
}

/// What `DELETE /v1/jobs/{id}?graceMs=&order=` found. `order` is the job's start order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopFinding {
    /// It ran; it was stopped now (see the evidence for whether it is gone).
    Stopped,
    /// It had ended before; `job` carries the end record.
    AlreadyEnded,
    /// It was never started here and now never will be: proven not to have run.
    NeverStarted,
    /// Below the forgetting mark: it may have run.
    Forgotten,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopReport {
    pub id: ProcessId,
    pub finding: StopFinding,
    pub evidence: Evidence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
}

/// `POST /v1/acknowledge`: the object has these end records in storage; they may be forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledge {
    pub ends: Vec<ProcessId>,
}
