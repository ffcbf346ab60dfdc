//! What the facade, the Sandbox object and the Admission object say to each other: one JSON text in, one out.
//!
//! A reader accepts its own version and the one before it. An enum is tagged from outside (`{"exec":{…}}`): a tag
//! inside would have every reader buffer the whole call before it knows what it is.

use crate::contract::{
    AdmissionMode, ArtifactQuery, CanaryDone, CanaryReport, DetachedInput, EnsureOptions, EventsQuery,
    ExecInput, OutputQuery, Recipe, StartDetachedInput,
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
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
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
    Artifacts,
    Artifact {
        /// Relative to the artifact path.
        path: String,
        query: ArtifactQuery,
    },
    Checkpoint {
        reason: String,
    },
    Abort,
    Denials,
    Events {
        query: EventsQuery,
    },
    /// Admission asks whether the container that holds this slot is gone.
    SlotState {
        slot: String,
    },
    /// A request of the container's own, on its way out.
    Egress {
        call: EgressCall,
    },
}

/// The props of a sandbox's interceptor. The secret is new for every boot and the object keeps it, so that no other
/// Worker can pose as a sandbox's egress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressProps {
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    pub generation: u64,
    pub secret: String,
}

/// Egress entrypoint → Sandbox object. The object decides every hop, under the grant that is open at that moment and
/// in the memory of the incarnation that applied it; the entrypoint fetches and streams.
///
/// A passage is one request with its redirects. Order: `open` → `hold` (unanswered while the passage may go on) →
/// `next` for each redirect → `end`, once the answer's body has ended or everything was aborted. An end that says
/// nothing more than that goes with the next `open`, or soon after by itself with others (`finished`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EgressCall {
    /// → [`HopAnswer`]
    Open {
        generation: u64,
        secret: String,
        hop: AskedHop,
        /// Earlier passages of which nothing moves any more.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        finished: Vec<String>,
    },
    /// → [`HopAnswer`]
    Next { passage: String, hop: AskedHop },
    /// → [`Held`], only when the passage must stop or has ended. One that is not known must stop.
    Hold { passage: String },
    /// [`PassageEnd::Finished`] of each.
    Finished { passages: Vec<String> },
    /// The acknowledgement: nothing of this passage moves any more.
    End { passage: String, end: PassageEnd },
}

/// One request as the container, or a redirect, asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedHop {
    pub method: String,
    pub url: String,
    /// The length its body declares; absent with `hasBody`: only the stream will tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_bytes: Option<u64>,
    pub has_body: bool,
    /// It asks to change the protocol (a WebSocket, say).
    pub upgrade: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum HopAnswer {
    /// Recorded by the object, with its reason.
    Denied,
    Admitted {
        passage: String,
        terms: HopTerms,
    },
}

/// What an admitted hop is held to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HopTerms {
    /// The most its body may hold; absent: no bound (a position that only reports).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_request_bytes: Option<u64>,
    /// Its body is a Git LFS batch that may only ask for downloads.
    #[serde(default)]
    pub lfs_download_only: bool,
    /// To be added to the request, or it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<HopCredential>,
}

/// Which secret of the Worker's goes into which header; never the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HopCredential {
    pub secret_name: String,
    pub host: String,
    pub header_template: String,
}

/// The answer to [`EgressCall::Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// Abort the fetch and the answer, then say [`PassageEnd::Cut`].
    Cut,
    /// The passage has ended before.
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum PassageEnd {
    /// The answer's body ended, or the container went away from it.
    Finished,
    /// Aborted because the object asked for it. Recorded as a denial of this hop.
    Cut { hop: AskedHop },
    /// The entrypoint found a reason to refuse (a body over its bound, a redirect that cannot be followed). `reason`
    /// is a denial's name; recorded for this hop.
    Refused { hop: AskedHop, reason: String },
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
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
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
    /// May the asker look at the fence now? → the running build's standing, and whose turn it is.
    CanaryBegin {
        build: String,
        /// The deployment itself asks, not somebody.
        by_itself: bool,
    },
    /// The look is over.
    CanaryEnd {
        report: CanaryReport,
    },
    /// What is known of the running build.
    CanaryStanding {
        build: String,
    },
    Registry {
        consumer: ConsumerName,
        /// All of them must be there.
        labels: Vec<(String, String)>,
    },
}

/// The answer to the three calls of the canary's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryAnswer {
    pub turn: CanaryTurn,
    pub known: CanaryDone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CanaryTurn {
    /// The asker is to look now.
    Look,
    /// Another one does.
    UnderWay,
    /// There is no need.
    Rest,
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
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum AdmissionAnswer {
    Admitted { slot: String, pool: String, facts: AdmissionFacts },
    Waiting { facts: AdmissionFacts },
    Refused { facts: AdmissionFacts },
}
