//! What the facade, the Sandbox object and the Admission object say to each other: one JSON text in, one out.
//!
//! A reader accepts its own version and the one before it.

use crate::contract::{
    AdmissionMode, DetachedInput, EnsureOptions, ExecInput, OutputQuery, Recipe, StartDetachedInput,
};
use crate::ids::{ConsumerName, ProcessId, SandboxKey};
use crate::refusal::AdmissionFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const INTERNAL_VERSION: u32 = 1;

/// Facade → Sandbox object. The answer is the contract's outcome for that call, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRequest {
    pub version: u32,
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    /// Proof that the facade made this call, so that a Worker bound straight to the class gets nothing:
    /// HMAC-SHA256 of `object-call:consumer:key` under the newest ticket secret, hex.
    pub seal: String,
    pub call: SandboxCall,
}

/// What the facade learned at the admission gate, for a call that could boot a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    pub ticket: String,
    pub pool: String,
    pub slot: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SandboxCall {
    Ensure {
        pass: Option<Pass>,
        recipe: Recipe,
        options: EnsureOptions,
    },
    Exec {
        pass: Option<Pass>,
        input: Box<ExecInput>,
        floor_rule: Option<String>,
    },
    StartDetached {
        pass: Option<Pass>,
        input: Box<StartDetachedInput>,
        floor_rule: Option<String>,
    },
    DetachedStatus {
        id: ProcessId,
    },
    StopDetached {
        id: ProcessId,
    },
    DetachedList,
    DetachedOutput {
        id: ProcessId,
        query: OutputQuery,
    },
    DetachedInput {
        id: ProcessId,
        input: DetachedInput,
    },
    ReadFile {
        path: String,
    },
    Checkpoint {
        reason: String,
    },
    Abort,
    Denials,
    Artifacts,
    /// Admission asks whether the container that holds this slot is gone.
    SlotState {
        slot: String,
    },
}

/// The answer to [`SandboxCall::SlotState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// The container runs, or is being started, under this slot.
    Held,
    /// Nothing runs under this slot and nothing will.
    Gone,
}

/// Facade or Sandbox object → Admission object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    pub version: u32,
    /// HMAC-SHA256 of `admission-call` under the newest ticket secret, hex.
    pub seal: String,
    pub call: AdmissionCall,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AdmissionCall {
    /// Take or renew the slot of this sandbox. Re-entrant for the holder.
    Touch {
        consumer: ConsumerName,
        key: SandboxKey,
        pool: String,
        mode: AdmissionMode,
    },
    /// Take a place in the queue (or the slot, if one is free and nobody waits).
    Enqueue {
        consumer: ConsumerName,
        key: SandboxKey,
        pool: String,
    },
    /// Take the slot if it is this waiter's turn.
    Attempt {
        consumer: ConsumerName,
        key: SandboxKey,
        pool: String,
    },
    /// Give up the place in the queue, or an unused slot.
    Withdraw {
        consumer: ConsumerName,
        key: SandboxKey,
    },
    /// The sandbox renews its slot and reports what the registry shows.
    Renew {
        consumer: ConsumerName,
        key: SandboxKey,
        slot: String,
        labels: BTreeMap<String, String>,
        expires_at: u64,
    },
    /// The sandbox's container is proven gone. By slot id, so that a late release cannot free a newer slot.
    Release {
        slot: String,
    },
    Pools,
    Registry {
        consumer: ConsumerName,
        label: Option<(String, String)>,
    },
}

/// The answer to [`AdmissionCall::Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RenewAnswer {
    Renewed,
    /// The sandbox holds no such slot: what runs under it was not admitted, or was reported gone before.
    NotHeld,
}

/// The answer to Touch, Enqueue and Attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "admission", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum AdmissionAnswer {
    Admitted { slot: String, pool: String, facts: AdmissionFacts },
    Waiting { facts: AdmissionFacts },
    Refused { facts: AdmissionFacts },
}
