//! Slots: what a caller may wish for, and what pools say of themselves.

use crate::refusal::AdmissionFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
