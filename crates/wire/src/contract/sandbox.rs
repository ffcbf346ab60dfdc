//! The sandbox as a whole: its files, its end, its denials, its place in a list.

use crate::evidence::Evidence;
use crate::ids::{ConsumerName, Cursor, ProcessId, SandboxKey};
use crate::supervisor::ArtifactSource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `artifact(key, path, cursor?, limit?, processId?, source?)`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactQuery {
    #[serde(default)]
    pub cursor: Option<Cursor>,
    /// 4 to 262,144 bytes; default 262,144.
    #[serde(default)]
    pub limit: Option<u64>,
    /// The log of this detached process alone, whatever else was given its `logPath` later.
    #[serde(default)]
    pub process_id: Option<ProcessId>,
    /// Absent: the newest log under this path or, where there is none, the file.
    #[serde(default)]
    pub source: Option<ArtifactSource>,
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
