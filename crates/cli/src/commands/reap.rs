//! `ringfence reap`: finds what outlived its purpose, and with `--kill` ends it.
//!
//! The invariant: nothing is ended without `--kill`; what is ended is ended by an abort, which is proven or named;
//! and where it could not look it says so and guesses nothing. Containers are looked at only on the machine whose
//! engine runs them: the registry alone knows nothing of a container without a slot.
//!
//! Order of effects: registry and engine are read → findings are told → with `--kill`, aborts all at once → the
//! engine is read again.

use crate::connect::{Connect, Engine};
use crate::exit::Exit;
use crate::print;
use crate::stack::Container;
use crate::stack::interrupt::Interrupt;
use ringfence_client::{CallError, Client};
use ringfence_wire::contract::{AbortDone, ListedSandbox};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "\
Without --older-than and --expired it finds all that should not be there: sandboxes past their deadline, sandboxes
whose container is gone, and containers that no live sandbox owns. With either, sandboxes of that kind alone.
Containers can be seen only beside a running `scripts/dev`; elsewhere it says that it did not look.

Exit 0 when nothing was found, or all that was found was ended and seen gone; 1 when something was found (dry run) or
could not be ended; 130 after Ctrl-C, which stops the waiting and not what was begun.

Examples:
  ringfence reap                        what should not be there
  ringfence reap --kill                 and end it
  ringfence reap --older-than 2h --label job=nightly --kill")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// End what was found; without it nothing is touched
    #[arg(long)]
    kill: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only sandboxes with this label; may be repeated, then all must be there
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::label)]
    label: Vec<(String, String)>,
    /// Sandboxes that began longer ago than this, such as 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = super::run::parse_duration)]
    older_than: Option<Duration>,
    /// Sandboxes past their deadline
    #[arg(long)]
    expired: bool,
}

/// Why something is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Why {
    /// Past its deadline, and still holding its slot.
    Expired,
    Old,
    /// It holds a slot and no container runs for it.
    NoContainer,
    /// A container runs and no live sandbox owns it.
    NoSandbox,
}

impl Why {
    fn told(self) -> &'static str {
        match self {
            Self::Expired => "past its deadline",
            Self::Old => "older than asked for",
            Self::NoContainer => "holds a slot, has no container",
            Self::NoSandbox => "a container without a live sandbox",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    key: String,
    why: Why,
    created_at: u64,
    labels: BTreeMap<String, String>,
}

/// What is to be found.
struct Wanted<'a> {
    labels: &'a [(String, String)],
    older_than_ms: Option<u64>,
    expired: bool,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    tokio::select! {
        result = reap(&arguments) => result,
        () = interrupt.wait() => Ok(Exit::Interrupted),
    }
}

async fn reap(arguments: &Arguments) -> anyhow::Result<Exit> {
    let client = arguments.connect.client().await?;
    let engine = arguments.connect.engine();
    let wanted = Wanted {
        labels: &arguments.label,
        older_than_ms: arguments.older_than.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        expired: arguments.expired,
    };
    // Containers first: one that is begun between the two looks has its sandbox in the second.
    let containers = match &engine {
        Some(engine) => Some(own_containers(engine).await?),
        None => None,
    };
    let sandboxes = client.sandboxes(&[]).await?;
    let found = find(&wanted, &sandboxes, containers.as_deref(), print::now_ms());

    let ended = if arguments.kill { end(&client, &found).await } else { BTreeMap::new() };
    let left = match &engine {
        Some(engine) if !ended.is_empty() => own_containers(engine).await?,
        _ => Vec::new(),
    };
    let gone = |finding: &Finding| {
        let proven = matches!(ended.get(&finding.key), Some(Ok(done)) if done.container_gone);
        proven && !left.iter().any(|container| container.key == finding.key)
    };
    let clean = found.iter().all(gone);
    if arguments.json {
        let rows: Vec<_> = found.iter().map(|finding| as_json(finding, &ended, gone(finding))).collect();
        print::json(&serde_json::json!({ "containersLookedAt": engine.is_some(), "found": rows }))?;
    } else {
        tell(&found, &ended, gone, engine.is_some())?;
    }
    Ok(if clean { Exit::Ok } else { Exit::Failed })
}

/// A container that runs for a sandbox of the consumer's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    key: String,
    created_at: u64,
    labels: BTreeMap<String, String>,
}

async fn own_containers(engine: &Engine) -> anyhow::Result<Vec<Running>> {
    let containers = engine.control.containers().await?;
    Ok(containers.into_iter().filter_map(|container| running(container, &engine.consumer)).collect())
}

/// Sidecars and other consumers' containers are nobody's finding here.
fn running(container: Container, consumer: &str) -> Option<Running> {
    let key = container.sandbox.as_deref()?.strip_prefix(consumer)?.strip_prefix(':')?.to_owned();
    let runs = container.state == "running";
    runs.then_some(Running { key, created_at: container.created_at, labels: container.labels })
}

/// A sandbox is found once, for the first reason that holds.
fn find(
    wanted: &Wanted<'_>,
    sandboxes: &[ListedSandbox],
    containers: Option<&[Running]>,
    now: u64,
) -> Vec<Finding> {
    let labelled = |labels: &BTreeMap<String, String>| {
        wanted.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let everything = wanted.older_than_ms.is_none() && !wanted.expired;
    let runs: Option<BTreeSet<&str>> =
        containers.map(|all| all.iter().map(|container| container.key.as_str()).collect());
    let why = |sandbox: &ListedSandbox| {
        // The registry may not have been told its deadline yet.
        let told = sandbox.expires_at > 0;
        let expired = told && sandbox.expires_at <= now && (wanted.expired || everything);
        let old = wanted.older_than_ms.is_some_and(|ms| now.saturating_sub(sandbox.created_at) > ms);
        // A slot that was only just given may have its container under way.
        let settled = now.saturating_sub(sandbox.created_at) > BOOT_MS;
        let bare = everything && settled && runs.as_ref().is_some_and(|r| !r.contains(sandbox.key.as_str()));
        match (expired, old, bare) {
            (true, ..) => Some(Why::Expired),
            (_, true, _) => Some(Why::Old),
            (.., true) => Some(Why::NoContainer),
            _ => None,
        }
    };
    let mut found: Vec<Finding> = sandboxes
        .iter()
        .filter(|sandbox| labelled(&sandbox.labels))
        .filter_map(|sandbox| {
            let (key, labels) = (sandbox.key.to_string(), sandbox.labels.clone());
            why(sandbox).map(|why| Finding { key, why, created_at: sandbox.created_at, labels })
        })
        .collect();
    if everything {
        let live: BTreeSet<&str> = sandboxes.iter().map(|sandbox| sandbox.key.as_str()).collect();
        let stray = containers.unwrap_or_default().iter();
        found.extend(stray.filter(|c| !live.contains(c.key.as_str()) && labelled(&c.labels)).map(|c| {
            let (key, labels) = (c.key.clone(), c.labels.clone());
            Finding { key, why: Why::NoSandbox, created_at: c.created_at, labels }
        }));
    }
    found
}

/// How long a boot may take until its container is seen.
const BOOT_MS: u64 = 60_000;

type Ends = BTreeMap<String, Result<AbortDone, CallError>>;

async fn end(client: &Client, found: &[Finding]) -> Ends {
    let mut calls = tokio::task::JoinSet::new();
    for finding in found {
        let sandbox = client.sandbox(finding.key.as_str());
        let bare = finding.why == Why::NoContainer;
        calls.spawn(async move {
            let ended = sandbox.abort().await;
            if bare && ended.as_ref().is_ok_and(|done| done.container_gone) {
                // Its sandbox may never have been made, and so knows no slot to give back: the gate asks it. What fails
                // here the gate does by itself when the lease has ended.
                let _ = sandbox.admission_release().await;
            }
            (sandbox.key().to_string(), ended)
        });
    }
    calls.join_all().await.into_iter().collect()
}

fn as_json(finding: &Finding, ended: &Ends, gone: bool) -> serde_json::Value {
    let ended = ended.get(&finding.key).map(|ended| match ended {
        Ok(done) => serde_json::json!({ "gone": gone, "outcome": done }),
        Err(error) => serde_json::json!({ "gone": false, "error": print::causes(error) }),
    });
    match ended {
        None => serde_json::json!({ "finding": finding }),
        Some(ended) => serde_json::json!({ "finding": finding, "ended": ended }),
    }
}

fn tell(
    found: &[Finding],
    ended: &Ends,
    gone: impl Fn(&Finding) -> bool,
    looked: bool,
) -> std::io::Result<()> {
    let rows: Vec<_> = found
        .iter()
        .map(|finding| {
            let end = match ended.get(&finding.key) {
                None => "not touched".to_owned(),
                Some(Ok(done)) if gone(finding) => format!("gone, {} killed", done.killed),
                Some(Ok(done)) => {
                    format!(
                        "NOT seen gone{}",
                        done.detail.as_ref().map_or_else(String::new, |d| format!(": {d}"))
                    )
                }
                Some(Err(error)) => format!("NOT ended: {}", print::causes(error)),
            };
            [finding.key.clone(), print::age(finding.created_at), finding.why.told().to_owned(), end]
        })
        .collect();
    if !rows.is_empty() {
        print::lines(&print::table(["SANDBOX", "AGE", "WHY", "END"], &rows))?;
    }
    if !looked {
        print::note("containers were not looked at: no engine of this stack is known here");
    }
    match (found.len(), ended.is_empty()) {
        (0, _) => print::note("nothing to do"),
        (_, true) => print::note("nothing was touched; --kill ends these"),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 10_000_000;
    const ALL: Wanted<'_> = Wanted { labels: &[], older_than_ms: None, expired: false };

    fn sandbox(key: &str, created_at: u64, expires_at: u64) -> ListedSandbox {
        ListedSandbox {
            consumer: "local".into(),
            key: key.into(),
            pool: "lean".to_owned(),
            labels: BTreeMap::from([("job".to_owned(), key.to_owned())]),
            created_at,
            expires_at,
            last_seen_at: created_at,
        }
    }

    fn container(key: &str) -> Running {
        Running { key: key.to_owned(), created_at: 1, labels: BTreeMap::new() }
    }

    fn found(
        wanted: &Wanted<'_>,
        sandboxes: &[ListedSandbox],
        containers: Option<&[Running]>,
    ) -> Vec<(String, Why)> {
        find(wanted, sandboxes, containers, NOW).into_iter().map(|f| (f.key, f.why)).collect()
    }

    #[test]
    fn a_live_sandbox_with_its_container_is_not_found() {
        let live = [sandbox("a", 1, NOW + 1)];
        assert_eq!(found(&ALL, &live, Some(&[container("a")])), []);
    }

    #[test]
    fn a_deadline_is_passed_when_it_is_reached_and_one_not_told_yet_is_not() {
        let at = [sandbox("a", 1, NOW), sandbox("b", 1, NOW + 1), sandbox("c", 1, 0)];
        assert_eq!(found(&ALL, &at, None), [("a".to_owned(), Why::Expired)]);
    }

    #[test]
    fn a_container_without_a_sandbox_and_a_sandbox_without_a_container_are_both_found() {
        let live = [sandbox("bare", 1, NOW + 1), sandbox("whole", 1, NOW + 1)];
        let containers = [container("whole"), container("stray")];
        assert_eq!(
            found(&ALL, &live, Some(&containers)),
            [("bare".to_owned(), Why::NoContainer), ("stray".to_owned(), Why::NoSandbox)]
        );
    }

    #[test]
    fn where_no_container_could_be_looked_at_none_is_missed() {
        assert_eq!(found(&ALL, &[sandbox("a", 1, NOW + 1)], None), []);
    }

    #[test]
    fn a_slot_just_given_may_have_its_container_under_way() {
        let edge = [sandbox("young", NOW - BOOT_MS, NOW + 1), sandbox("settled", NOW - BOOT_MS - 1, NOW + 1)];
        assert_eq!(found(&ALL, &edge, Some(&[])), [("settled".to_owned(), Why::NoContainer)]);
    }

    #[test]
    fn an_age_asked_for_finds_only_what_is_older_and_no_container() {
        let wanted = Wanted { older_than_ms: Some(1_000), ..ALL };
        let aged = [sandbox("old", NOW - 1_001, NOW + 1), sandbox("edge", NOW - 1_000, NOW - 1)];
        assert_eq!(found(&wanted, &aged, Some(&[container("stray")])), [("old".to_owned(), Why::Old)]);
    }

    #[test]
    fn every_label_asked_for_must_be_there() {
        let wanted = Wanted { labels: &[("job".to_owned(), "a".to_owned())], expired: true, ..ALL };
        let expired = [sandbox("a", 1, 1), sandbox("b", 1, 1)];
        assert_eq!(found(&wanted, &expired, None), [("a".to_owned(), Why::Expired)]);
    }

    #[test]
    fn a_container_is_its_consumers_by_the_whole_name() {
        let named = |sandbox: Option<&str>| Container {
            name: "workerd-x".to_owned(),
            id: "x".to_owned(),
            sandbox: sandbox.map(str::to_owned),
            state: "running".to_owned(),
            init_pid: None,
            labels: BTreeMap::new(),
            created_at: 0,
            started_at: None,
        };
        assert_eq!(running(named(Some("local:a:b")), "local").map(|r| r.key).as_deref(), Some("a:b"));
        assert_eq!(running(named(Some("locale:a")), "local"), None);
        assert_eq!(running(named(None), "local"), None);
        assert_eq!(
            running(Container { state: "exited".to_owned(), ..named(Some("local:a")) }, "local"),
            None
        );
    }
}
