//! What a deployment saw of its own fence.

use serde::{Deserialize, Serialize};

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
