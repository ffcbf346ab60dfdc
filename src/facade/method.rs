//! The contract's calls by name, and how each call's arguments are named.

/// One call of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    EnsureSandbox,
    ExecUnderGrant,
    StartDetached,
    DetachedStatus,
    StopDetached,
    DetachedList,
    DetachedOutput,
    DetachedInput,
    ReadFile,
    Checkpoint,
    Abort,
    Denials,
    Artifacts,
    Artifact,
    AdmissionEnqueue,
    AdmissionAttempt,
    AdmissionRelease,
    PoolStatus,
    /// The registry; over HTTP only.
    Sandboxes,
}

/// Name and positional parameters of every method of the RPC face.
const RPC: &[(Method, &str, &[&str])] = &[
    (Method::EnsureSandbox, "ensureSandbox", &["key", "recipe", "admission", "options"]),
    (Method::ExecUnderGrant, "execUnderGrant", &["key", "input"]),
    (Method::StartDetached, "startDetached", &["key", "input"]),
    (Method::DetachedStatus, "detachedStatus", &["key", "processId"]),
    (Method::StopDetached, "stopDetached", &["key", "processId"]),
    (Method::DetachedList, "detachedList", &["key"]),
    (Method::DetachedOutput, "detachedOutput", &["key", "processId", "cursor", "limit", "waitMs"]),
    (Method::DetachedInput, "detachedInput", &["key", "processId", "input"]),
    (Method::ReadFile, "readFile", &["key", "path"]),
    (Method::Checkpoint, "checkpoint", &["key", "reason"]),
    (Method::Abort, "abort", &["key"]),
    (Method::Denials, "denials", &["key"]),
    (Method::Artifacts, "artifacts", &["key"]),
    (Method::Artifact, "artifact", &["key", "path"]),
    (Method::AdmissionEnqueue, "admissionEnqueue", &["key", "recipe"]),
    (Method::AdmissionAttempt, "admissionAttempt", &["key", "recipe"]),
    (Method::AdmissionRelease, "admissionRelease", &["key"]),
    (Method::PoolStatus, "poolStatus", &[]),
];

impl Method {
    /// The method of this name with the names of its positional parameters.
    pub fn rpc(name: &str) -> Option<(Self, &'static [&'static str])> {
        RPC.iter().find(|(_, known, _)| *known == name).map(|(method, _, parameters)| (*method, *parameters))
    }
}
