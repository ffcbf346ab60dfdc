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
    Events,
    Artifacts,
    Artifact,
    AdmissionEnqueue,
    AdmissionAttempt,
    AdmissionRelease,
    PoolStatus,
    /// The registry; over HTTP only.
    Sandboxes,
    /// Looks at the fence now; over HTTP only.
    CanaryLook,
    /// The last look; over HTTP only.
    CanaryReport,
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
    (Method::Events, "events", &["key", "cursor", "limit"]),
    (Method::Artifacts, "artifacts", &["key"]),
    (Method::Artifact, "artifact", &["key", "path", "cursor", "limit", "processId", "source"]),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every export of `entry.js` with the names of its methods, as written there.
    fn exports() -> BTreeMap<String, Vec<String>> {
        let mut exports = BTreeMap::new();
        let mut current = None;
        for line in include_str!("../entry.js").lines() {
            if let Some(rest) = line.strip_prefix("export ") {
                let mut words = rest.split_whitespace();
                let name = match words.next() {
                    Some("class") => words.next().unwrap(),
                    Some("default") => "default",
                    other => panic!("an export of another kind: {other:?}"),
                };
                current = Some(name.to_owned());
                exports.insert(name.to_owned(), Vec::new());
            } else if line == "}" || line == "};" {
                current = None;
            } else if let Some(name) = &current
                && let Some(method) = line.strip_prefix("  ").and_then(|line| line.split_once('('))
                && method.0.chars().all(char::is_alphanumeric)
            {
                exports.get_mut(name).unwrap().push(method.0.to_owned());
            }
        }
        exports
    }

    #[test]
    fn nothing_is_exported_but_the_two_faces_the_egress_and_the_two_objects() {
        let exports = exports();
        let names: Vec<&str> = exports.keys().map(String::as_str).collect();
        assert_eq!(names, ["Admission", "Egress", "Facade", "Sandbox", "default"]);
        assert_eq!(exports["default"], ["fetch"]);
        assert_eq!(exports["Egress"], ["fetch"]);
        assert_eq!(exports["Sandbox"], ["constructor", "invoke", "alarm"]);
        assert_eq!(exports["Admission"], ["constructor", "invoke", "alarm"]);
    }

    #[test]
    fn the_rpc_face_has_exactly_the_methods_of_the_contract() {
        let known: Vec<&str> = RPC.iter().map(|(_, name, _)| *name).collect();
        assert_eq!(exports()["Facade"], known);
    }
}
