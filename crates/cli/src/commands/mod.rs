//! One file per command: its arguments, its help, and what it does.

pub(crate) mod abort;
pub(crate) mod canary;
pub(crate) mod demo;
pub(crate) mod denials;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod egress;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod guard;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod reap;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod stop;

use ringfence_client::Sandbox;
use ringfence_wire::contract::{EventsDone, EventsQuery};
use std::fmt::Display;

/// What is said of a key that has no trail: the service's other answers look like those of a sandbox that is gone.
pub(crate) fn unknown(key: impl Display) -> String {
    format!("nothing is recorded under the key {key}: no sandbox of this consumer ever had it")
}

/// Whether the service ever made a sandbox of this key. A trail outlives its sandbox, so that none is none. Where it
/// cannot be asked, nothing is claimed.
pub(crate) async fn was_ever(sandbox: &Sandbox) -> bool {
    let look = EventsQuery { cursor: None, limit: Some(1) };
    sandbox.events(look).await.map_or(true, |page| !is_blank(&page))
}

pub(crate) fn is_blank(page: &EventsDone) -> bool {
    page.events.is_empty() && page.dropped == 0
}

/// A sandbox's key, as the service would take it.
pub(crate) fn key(text: &str) -> Result<String, String> {
    match ringfence_core::key::parse_key(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

/// `--label NAME=VALUE`
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    const NONE: &str = r#"{"ok":true,"events":[],"next":0,"dropped":0,"wakeups":0}"#;
    const OLD: &str = r#"{"ok":true,"events":[],"next":0,"dropped":3,"wakeups":0}"#;

    #[tokio::test]
    async fn a_key_without_a_trail_was_never_used_and_one_that_cannot_be_asked_about_may_have_been() {
        let client =
            fake::client(&[("/v1/sandboxes/none/events", NONE), ("/v1/sandboxes/old/events", OLD)]).await;
        assert!(!was_ever(&client.sandbox("none")).await);
        assert!(was_ever(&client.sandbox("old")).await);
        assert!(was_ever(&client.sandbox("unserved")).await);
    }
}
