//! Ending many jobs at once, with evidence.

use super::JobState;
use crate::evidence::Evidence;
use crate::ids::{Order, ProcessId};
use serde::{Deserialize, Serialize};

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
