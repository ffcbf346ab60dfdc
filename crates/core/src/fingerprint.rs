//! Fingerprints: whether two calls under one idempotency key ask for the same effect.
//!
//! A fingerprint covers every known field that changes what runs, in a canonical form: an absent field and its
//! default are the same, order and repetition in a set do not matter. It is tagged with the version of that form
//! and compared under the version it was stored with, so that a deploy never turns a retry into a conflict.
//! Left out on purpose: `approval` (spent by its own rules), `tailBytes` (how much is shown, not what ran) and
//! `onUnknown` (a later call's word about an earlier one).

use crate::recipe::{DEFAULT_TIMEOUT_MS, log_name};
use ringfence_wire::contract::{Enforcement, ExecInput, Recipe, StartDetachedInput, WorkspaceMode};
use ringfence_wire::supervisor::StdinMode;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The tag of the newest form, which new fingerprints are made in.
const NEWEST: &str = "v1";

/// A call that has a fingerprint.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Exec(&'a ExecInput),
    Start(&'a StartDetachedInput),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Different,
    /// Stored by a version this one does not know: neither a replay nor a conflict can be proven.
    UnknownVersion,
}

pub fn exec(input: &ExecInput) -> String {
    v1(Call::Exec(input))
}

pub fn start(input: &StartDetachedInput) -> String {
    v1(Call::Start(input))
}

/// Compares a call with a stored fingerprint, under the version that is stored.
pub fn matches(stored: &str, call: Call<'_>) -> Comparison {
    match stored.split_once(':') {
        Some((NEWEST, _)) if stored == v1(call) => Comparison::Same,
        Some((NEWEST, _)) => Comparison::Different,
        _ => Comparison::UnknownVersion,
    }
}

/// Version 1: SHA-256 over the JSON text of [`Form`]. Field names and order are fixed by the struct; never edit
/// it, add a version beside it.
fn v1(call: Call<'_>) -> String {
    let form = match call {
        Call::Exec(input) => Form {
            kind: "exec",
            recipe: recipe(&input.recipe),
            command: &input.command,
            log: canonical_log(&input.log_path),
            timeout_ms: Some(input.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            lfs: input.lfs.unwrap_or(false),
            stdin: None,
            workspace_mode: None,
        },
        Call::Start(input) => Form {
            kind: "start",
            recipe: recipe(&input.recipe),
            command: &input.command,
            log: canonical_log(&input.log_path),
            timeout_ms: None,
            lfs: false,
            stdin: Some(input.stdin.unwrap_or_default()),
            workspace_mode: Some(input.workspace_mode.unwrap_or_default()),
        },
    };
    let text = match serde_json::to_vec(&form) {
        Ok(text) => text,
        Err(_) => unreachable!("a struct of texts, numbers and sets is always JSON"),
    };
    format!("v1:{}", hex::encode(Sha256::digest(text)))
}

#[derive(Serialize)]
struct Form<'a> {
    kind: &'static str,
    recipe: RecipeForm<'a>,
    command: &'a str,
    log: &'a str,
    timeout_ms: Option<u64>,
    lfs: bool,
    stdin: Option<StdinMode>,
    workspace_mode: Option<WorkspaceMode>,
}

#[derive(Serialize)]
struct RecipeForm<'a> {
    version: &'a str,
    repo: Option<(&'a str, &'a str, Option<&'a str>)>,
    lfs: bool,
    profiles: BTreeSet<&'a str>,
    targets: BTreeSet<&'a str>,
    enforcement: Enforcement,
}

fn recipe(recipe: &Recipe) -> RecipeForm<'_> {
    RecipeForm {
        version: &recipe.version,
        repo: recipe.repo.as_ref().map(|r| (r.owner.as_str(), r.name.as_str(), r.reference.as_deref())),
        lfs: recipe.lfs.unwrap_or(false),
        profiles: recipe.profiles.iter().flatten().map(String::as_str).collect(),
        targets: recipe.targets.iter().flatten().map(String::as_str).collect(),
        enforcement: recipe.enforcement.unwrap_or_default(),
    }
}

/// `run.log` and `/artifacts/run.log` are one log.
fn canonical_log(path: &str) -> &str {
    log_name(path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn base() -> Value {
        json!({"recipe": {"version": "1"}, "command": "make", "idempotencyKey": "k", "logPath": "a.log"})
    }

    fn with(path: &[&str], value: Value) -> Value {
        let mut input = base();
        let mut at = &mut input;
        for part in path {
            at = &mut at[*part];
        }
        *at = value;
        input
    }

    fn exec_of(value: Value) -> String {
        exec(&serde_json::from_value(value).unwrap())
    }

    fn start_of(value: Value) -> String {
        start(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn an_absent_field_and_its_default_are_the_same_call() {
        for (path, value) in [
            (&["timeoutMs"][..], json!(DEFAULT_TIMEOUT_MS)),
            (&["lfs"], json!(false)),
            (&["recipe", "lfs"], json!(false)),
            (&["recipe", "profiles"], json!([])),
            (&["recipe", "enforcement"], json!("enforce")),
            (&["logPath"], json!("/artifacts/a.log")),
            (&["unheardOf"], json!(1)),
        ] {
            assert_eq!(exec_of(base()), exec_of(with(path, value)), "{path:?}");
        }
        assert_eq!(start_of(base()), start_of(with(&["stdin"], json!("none"))));
        assert_eq!(start_of(base()), start_of(with(&["workspaceMode"], json!("exclusive"))));
    }

    #[test]
    fn every_field_that_changes_the_effect_changes_the_fingerprint() {
        for (path, value) in [
            (&["command"][..], json!("make test")),
            (&["timeoutMs"], json!(1)),
            (&["lfs"], json!(true)),
            (&["logPath"], json!("b.log")),
            (&["recipe", "version"], json!("2")),
            (&["recipe", "repo"], json!({"owner": "o", "name": "n"})),
            (&["recipe", "lfs"], json!(true)),
            (&["recipe", "profiles"], json!(["js-install"])),
            (&["recipe", "targets"], json!(["example.com"])),
            (&["recipe", "enforcement"], json!("report")),
        ] {
            assert_ne!(exec_of(base()), exec_of(with(path, value)), "{path:?}");
        }
        assert_ne!(start_of(base()), start_of(with(&["stdin"], json!("pipe"))));
        assert_ne!(start_of(base()), start_of(with(&["workspaceMode"], json!("shared_service"))));
        assert_ne!(exec_of(base()), start_of(base()));
    }

    #[test]
    fn what_does_not_change_the_effect_does_not_change_the_fingerprint() {
        for (path, value) in [
            (&["tailBytes"][..], json!(1)),
            (&["onUnknown"], json!("rerun")),
            (&["idempotencyKey"], json!("other")),
        ] {
            assert_eq!(exec_of(base()), exec_of(with(path, value)), "{path:?}");
        }
        let one = with(&["recipe", "profiles"], json!(["a", "b"]));
        let two = with(&["recipe", "profiles"], json!(["b", "a", "b"]));
        assert_eq!(exec_of(one), exec_of(two));
    }

    #[test]
    fn fields_cannot_be_glued_into_each_other() {
        let one = with(&["recipe", "targets"], json!(["a\",\"b"]));
        let two = with(&["recipe", "targets"], json!(["a", "b"]));
        assert_ne!(exec_of(one), exec_of(two));
    }

    /// The expected values were computed by another program from the JSON text of the form.
    #[test]
    fn version_one_is_pinned_for_ever() {
        assert_eq!(exec_of(base()), PINNED_EXEC);
        assert_eq!(start_of(base()), PINNED_START);
    }

    #[test]
    fn a_fingerprint_of_an_unknown_version_is_neither_the_same_nor_different() {
        let input: ExecInput = serde_json::from_value(base()).unwrap();
        let call = Call::Exec(&input);
        assert_eq!(matches(&exec(&input), call), Comparison::Same);
        assert_eq!(matches("v1:00", call), Comparison::Different);
        for odd in ["", "v2:00", "nonsense", ":"] {
            assert_eq!(matches(odd, call), Comparison::UnknownVersion, "{odd:?}");
        }
    }

    const PINNED_EXEC: &str = "v1:dff9b87045188392bc8b7546c138cb7190a1efc569cba0014c899a8c76c12fcd";
    const PINNED_START: &str = "v1:bb24092511c9cdf5371b0dcc80d383f08c3765bda8c7e1c62d750861da31ba69";
}
