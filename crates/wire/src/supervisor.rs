//! What the Sandbox object and the supervisor say to each other: HTTP/1.1 and JSON on TCP port 7117.
//!
//! Every request carries the boot key; every answer carries the boot id and the generation. A mismatch means
//! the supervisor that was spoken to is gone: lost, never finished.

use crate::evidence::{Evidence, KillScope};
use crate::ids::{BootId, Cursor, Nonce, Order, ProcessId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const PROTOCOL_VERSION: u32 = 1;
pub const PORT: u16 = 7117;

/// Request header: the boot key, hex. Missing or wrong: 401 and nothing else.
pub const BOOT_KEY_HEADER: &str = "x-ringfence-boot-key";
/// Answer headers.
pub const BOOT_ID_HEADER: &str = "x-ringfence-boot-id";
pub const GENERATION_HEADER: &str = "x-ringfence-generation";

/// The supervisor's start environment.
pub mod start_env {
    /// Hex, 32 bytes. Required.
    pub const BOOT_KEY: &str = "RINGFENCE_BOOT_KEY";
    /// Decimal. Required.
    pub const GENERATION: &str = "RINGFENCE_GENERATION";
    /// Absolute deadline, milliseconds since the Unix epoch. Required: a supervisor without a deadline does not start.
    pub const DEADLINE_MS: &str = "RINGFENCE_DEADLINE_MS";
    /// `consumer:key` of the sandbox, for whoever looks at containers from outside; the supervisor has no use for it.
    pub const SANDBOX: &str = "RINGFENCE_SANDBOX";
    /// TCP port, default 7117.
    pub const PORT: &str = "RINGFENCE_PORT";
    /// `separate` (default where possible) or `root`.
    pub const JOB_USER: &str = "JOB_USER";
    /// Set by the engine: `sandboxed_workspace` or `host_unsandboxed`. Absent: `sandboxed_workspace` where the
    /// supervisor is PID 1 of its own namespace, else `host_unsandboxed`.
    pub const IDENTITY: &str = "RINGFENCE_IDENTITY";
    /// Where jobs run by default, default `/workspace`.
    pub const WORKSPACE: &str = "RINGFENCE_WORKSPACE";
    /// Where logs and artifacts go, default `/artifacts`.
    pub const ARTIFACTS: &str = "RINGFENCE_ARTIFACTS";
    /// The supervisor's own directory, default `/run/ringfence`: the rules text lies there.
    pub const RUN: &str = "RINGFENCE_RUN";
    /// Jobs that may run at a time, 1 to 1,024, default 32.
    pub const MAX_JOBS: &str = "RINGFENCE_MAX_JOBS";
}

/// Where a job runs, truthfully.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ExecutionIdentity {
    /// The namespaces hold.
    SandboxedWorkspace,
    /// Host network and credentials remain available.
    HostUnsandboxed,
    /// A historical row: readable, never executable.
    LegacyUnbound,
}

/// Whether a job's uid differs from the supervisor's. With `same`, a lost leader taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobUid {
    Separate,
    Same,
}

/// `GET /v1/hello`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub boot_id: BootId,
    pub generation: u64,
    pub identity: ExecutionIdentity,
    pub job_uid: JobUid,
    pub scope: KillScope,
    /// The shell that runs `command`: `/bin/bash` where there is one, else `/bin/sh`.
    pub shell: String,
    /// The highest order acted on.
    pub order: Order,
    pub deadline_at_ms: u64,
    pub now_ms: u64,
    pub capabilities: Vec<String>,
    /// TERM and INT signals that came from inside the container and were ignored.
    #[serde(default)]
    pub ignored_signals: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// An exec: ends with its fence.
    Fenced,
    /// Outlives its call; spared by fences while declared.
    Detached,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum StdinMode {
    /// `/dev/null`.
    #[default]
    None,
    /// A pipe that `POST /v1/jobs/{id}/stdin` writes to.
    Pipe,
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
    /// A plain name under the artifact path for the whole log; the file's real name carries a nonce.
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
/// A log's name: so many graphic ASCII characters, none a `/`, the first no `.`.
pub const MAX_LOG_NAME_BYTES: usize = 128;
pub const MIN_PAGE_BYTES: u64 = 4;
pub const MAX_PAGE_BYTES: u64 = 64 * 1024;

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
    /// The log on disk reached its quota; the ring went on.
    #[serde(default)]
    pub log_truncated: bool,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum FrameEncoding {
    Utf8,
    /// The bytes are not UTF-8.
    Base64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct OutputFrame {
    pub stream: OutputStream,
    /// The cursor of its first byte.
    pub at: Cursor,
    pub encoding: FrameEncoding,
    pub data: String,
}

/// `GET /v1/jobs/{id}/output?cursor=&limit=&waitMs=`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct OutputPage {
    /// Where the job runs.
    pub identity: ExecutionIdentity,
    /// The oldest byte still held.
    pub base: Cursor,
    /// Where the next page begins.
    pub next: Cursor,
    /// Bytes written so far.
    pub end: Cursor,
    /// Bytes between the asked cursor and the first frame that are gone from the ring.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub dropped: u64,
    /// The job is terminal and `next` is its end: nothing more will come.
    pub eof: bool,
    pub frames: Vec<OutputFrame>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ArtifactSource {
    /// A regular file that a job left beneath the artifact path.
    File,
    /// A job's whole log, written by the supervisor alone.
    Log,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Relative to the artifact path.
    pub path: String,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub bytes: u64,
    pub source: ArtifactSource,
}

/// `GET /v1/artifacts`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ArtifactList {
    pub artifacts: Vec<Artifact>,
    /// There are more than are listed here, or some whose name is not UTF-8.
    pub more: bool,
}

/// `GET /v1/artifacts/page?path=&cursor=&limit=`: some bytes of a file or, before any file of that path, of the newest
/// job's log of that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ArtifactPage {
    pub source: ArtifactSource,
    pub encoding: FrameEncoding,
    pub content: String,
    /// Where the next page begins.
    pub next: Cursor,
    /// How long it is so far.
    pub end: Cursor,
    /// `next` is its end, and it does not grow any more: a file, or the log of a job that has ended.
    pub eof: bool,
    /// The log reached its quota and lacks what came after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub truncated: Option<bool>,
}

pub const MAX_ARTIFACT_PAGE_BYTES: u64 = 256 * 1024;
/// Artifacts in one list.
pub const MAX_LISTED_ARTIFACTS: usize = 1_000;

/// `POST /v1/jobs/{id}/stdin?waitMs=`: writes are serialised in order of arrival. The answer waits at most so long
/// (default [`MAX_WAIT_MS`]) for the write; until then it is `pending`, and goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StdinWrite {
    pub operation_key: String,
    pub encoding: FrameEncoding,
    pub data: String,
    #[serde(default)]
    pub eof: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum StdinResult {
    /// All bytes are in the pipe.
    Written,
    /// Some may be: the write failed or the job ended half-way. The answer for this key for ever.
    Uncertain,
    /// None are: stdin was closed before.
    Closed,
    /// Not decided yet: the pipe is full and the command does not read. Ask again with the same key.
    Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StdinAnswer {
    pub result: StdinResult,
    pub bytes: u64,
    pub replayed: bool,
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

/// `POST /v1/teardown`; `POST /v1/kill-all` takes the same with nothing spared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeardownRequest {
    pub order: Order,
    #[serde(default)]
    pub spare: Vec<ProcessId>,
    /// TERM to KILL; default 5,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum TeardownMode {
    KillAll,
    Selective,
    /// The container was destroyed instead (only the object says this).
    Destroyed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrackedJob {
    pub id: ProcessId,
    pub state: JobState,
    pub order: Order,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeardownReport {
    pub order: Order,
    pub mode: TeardownMode,
    /// Jobs this teardown ended.
    pub ended: Vec<ProcessId>,
    /// Every job the supervisor knew when the teardown was decided, ended ones included.
    pub tracked: Vec<TrackedJob>,
    pub evidence: Evidence,
}

/// `PUT /v1/files?path=&sha256=` with the bytes as body: put in place by rename, and only when size
/// (`Content-Length`) and digest are what was sent. `GET /v1/files?path=` answers the bytes, with the digest in
/// [`FILE_SHA256_HEADER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReceipt {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

pub const FILE_SHA256_HEADER: &str = "x-ringfence-sha256";
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// `POST /v1/acknowledge`: the object has these end records in storage; they may be forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledge {
    pub ends: Vec<ProcessId>,
}

/// `POST /v1/deadline`: sets the absolute deadline (the object alone may extend it). Answers the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deadline {
    pub deadline_at_ms: u64,
}

/// The closed set of error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// 400: the body or a parameter is malformed.
    BadRequest,
    /// 401: no boot key, or a wrong one.
    Unauthorized,
    /// 404: no such path or method.
    NotFound,
    /// 404: no job of this id, and it was never started here.
    UnknownJob,
    /// 410: the id is below the forgetting mark.
    Forgotten,
    /// 409: a start at or below a teardown's order, not spared; or after a tombstone.
    FenceClosed,
    /// 409: the same id with another spec; the same operation key with other bytes.
    Conflict,
    /// 409: stdin was not asked for, or is closed.
    StdinClosed,
    /// 413: over a named limit.
    TooLarge,
    /// 429: a bounded table is full.
    LimitReached,
    /// 403: the path is outside what may be read or written, or not a regular file.
    PathRefused,
    /// 404: no such file.
    NoSuchFile,
    /// 422: what arrived is not what was sent (size or digest); nothing was put in place.
    Incomplete,
    /// 503: the supervisor is ending.
    ShuttingDown,
    /// 500.
    Internal,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    pub code: ErrorCode,
    /// For people; carries no secret.
    pub message: String,
}
