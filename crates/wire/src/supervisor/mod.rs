//! What the Sandbox object and the supervisor say to each other: HTTP/1.1 and JSON on TCP port 7117.
//!
//! Every request carries the boot key; every answer carries the boot id and the generation. A mismatch means
//! the supervisor that was spoken to is gone: lost, never finished.

mod files;
mod jobs;
mod output;
mod stdin;
mod teardown;

pub use files::*;
pub use jobs::*;
pub use output::*;
pub use stdin::*;
pub use teardown::*;

use crate::evidence::KillScope;
use crate::ids::{BootId, Order};
use serde::{Deserialize, Serialize};

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
