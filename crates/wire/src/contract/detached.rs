//! Detached processes: start, status, stop, list, output and input.

use super::{Approval, Recipe};
use crate::evidence::Evidence;
use crate::ids::{Cursor, IdempotencyKey, ProcessId};
use crate::supervisor::{ExecutionIdentity, OutputPage, StdinMode, StdinResult};
use serde::{Deserialize, Serialize};

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
