//! `ringfence reap`: what outlived its purpose is found, nothing is touched without `--kill`, and what is ended is
//! seen dead.

use crate::registry::labelled;
use crate::world::{World, tests};
use ringfence_core::seal::{Subject, seal};
use ringfence_core::ticket::Secrets;
use ringfence_e2e::command::{Said, said};
use ringfence_e2e::control::{Action, Match};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Rpc, Sandbox, done, fresh_word, long_sleep, recipe};
use ringfence_e2e::stack::Setup;
use ringfence_wire::contract::AdmissionDone;
use ringfence_wire::internal::{AdmissionAnswer, AdmissionCall, AdmissionRequest, INTERNAL_VERSION};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

tests! {
    shared:
        what_is_older_than_asked_for_is_found_by_its_label_and_ended_only_with_kill,
        a_denial_that_never_was_is_not_told,
        wrong_usage_ends_with_2_and_touches_nothing;
    own Setup::default =>
        a_container_whose_slot_was_lost_is_found_and_ended,
        where_no_engine_is_known_reap_says_that_it_did_not_look,
        a_slot_without_a_container_is_found_and_given_back,
        an_interrupted_reap_ends_with_130_and_what_it_began_goes_on;
}

const CLEAN: Option<i32> = Some(0);
const FOUND: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);
const INTERRUPTED: Option<i32> = Some(130);

async fn what_is_older_than_asked_for_is_found_by_its_label_and_ended_only_with_kill(world: Arc<World>) {
    let run = fresh_word();
    let (one, other) = (labelled(&world, &run, "a").await, labelled(&world, &run, "b").await);
    let (sleep, mark) = long_sleep();
    done(one.start(&sleep).await);
    let process = one.process_with(&mark).await;
    let by_run = format!("run={run}");
    let old = ["reap", "--json", "--label", &by_run, "--label", "part=a", "--older-than", "1s"];
    tokio::time::sleep(Duration::from_millis(1_500)).await;

    let dry = world.stack.ringfence_said(&old).await;
    assert_eq!(dry.code, FOUND, "{dry:?}");
    assert_eq!(keys(&dry), [(one.key.clone(), "old".to_owned())]);
    assert!(process.is_alive() && other.init().await.is_alive(), "a dry run touches nothing");
    let young = ["reap", "--label", &by_run, "--older-than", "1h"];
    assert_eq!(world.stack.ringfence_said(&young).await.code, CLEAN);

    let mut kill = old.to_vec();
    kill.push("--kill");
    let killed = world.stack.ringfence_said(&kill).await;
    assert_eq!(killed.code, CLEAN, "{killed:?}");
    let document: Value = serde_json::from_str(&killed.out).expect("JSON");
    assert_eq!(document["found"][0]["ended"]["gone"], true, "{document}");
    assert!(!process.is_alive());
    assert!(other.init().await.is_alive(), "the other label lives");
    let again = world.stack.ringfence_said(&kill).await;
    assert_eq!((again.code, keys(&again)), (CLEAN, vec![]));
}

async fn a_denial_that_never_was_is_not_told(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.exec("true").await);
    let denials = world.stack.ringfence_said(&["denials", "--json", &sandbox.key]).await;
    assert_eq!((denials.code, denials.out.trim()), (CLEAN, "[]"), "{denials:?}");
}

async fn wrong_usage_ends_with_2_and_touches_nothing(world: Arc<World>) {
    for usage in [&["reap", "--label", "no-value"][..], &["reap", "--older-than", "soon"], &["reap", "--all"]]
    {
        assert_eq!(world.stack.ringfence_said(usage).await.code, USAGE, "{usage:?}");
    }
}

async fn a_container_whose_slot_was_lost_is_found_and_ended(world: Arc<World>) {
    let (stray, kept) = (world.sandbox().await, world.sandbox().await);
    let (sleep, mark) = long_sleep();
    done(stray.start(&sleep).await);
    done(kept.ensure().await);
    let (process, init) = (stray.process_with(&mark).await, stray.init().await);
    let order = world.stack.ringfence_beside_the_engine(&["reap"]).await;
    assert_eq!(order.code, CLEAN, "all is in order: {order:?}");

    lose_slot(&stray).await;
    let dry = world.stack.ringfence_beside_the_engine(&["reap", "--json"]).await;
    assert_eq!(dry.code, FOUND, "{dry:?}");
    assert_eq!(keys(&dry), [(stray.key.clone(), "no-sandbox".to_owned())]);
    assert!(process.is_alive() && init.is_alive());

    let killed = world.stack.ringfence_beside_the_engine(&["reap", "--kill"]).await;
    assert_eq!(killed.code, CLEAN, "{killed:?}");
    until("all in it is dead", || !process.is_alive() && !init.is_alive()).await;
    assert!(kept.init().await.is_alive());
    assert_eq!(world.stack.ringfence_beside_the_engine(&["reap"]).await.code, CLEAN);
}

async fn where_no_engine_is_known_reap_says_that_it_did_not_look(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    lose_slot(&sandbox).await;
    let away = tempfile::tempdir().expect("a directory");
    let mut reap = world.stack.ringfence(&["reap", "--json"]);
    let blind = said(reap.current_dir(away.path()).spawn().expect("it starts")).await;
    let document: Value = serde_json::from_str(&blind.out).expect("JSON");
    assert_eq!((blind.code, &document["containersLookedAt"]), (CLEAN, &json!(false)), "{blind:?}");
}

async fn a_slot_without_a_container_is_found_and_given_back(world: Arc<World>) {
    /// `reap` takes a younger one for one whose container is under way.
    const BOOT: Duration = Duration::from_secs(60);
    let (bare, kept) = (world.sandbox().await, world.sandbox().await);
    done(kept.ensure().await);
    let place: AdmissionDone = done(bare.call("admissionEnqueue", &[recipe()]).await);
    assert!(place.admitted);
    let young = world.stack.ringfence_beside_the_engine(&["reap"]).await;
    assert_eq!(young.code, CLEAN, "{young:?}");
    tokio::time::sleep(BOOT + Duration::from_secs(1)).await;

    let dry = world.stack.ringfence_beside_the_engine(&["reap", "--json"]).await;
    assert_eq!(dry.code, FOUND, "{dry:?}");
    assert_eq!(keys(&dry), [(bare.key.clone(), "no-container".to_owned())]);
    let since = world.stack.control().now().await;
    let killed = world.stack.ringfence_beside_the_engine(&["reap", "--kill"]).await;
    assert_eq!(killed.code, CLEAN, "{killed:?}");
    bare.calls_since(since).await.assert_none("docker POST *");
    let freed = || async {
        let sandboxes = world.stack.ringfence_said(&["ps"]).await.out;
        (!sandboxes.contains(&bare.key)).then_some(())
    };
    eventually("its slot is given back", freed).await;
    assert!(kept.init().await.is_alive());
    assert_eq!(world.stack.ringfence_beside_the_engine(&["reap"]).await.code, CLEAN);
    // Meanwhile the other one, idle, was woken for its slot after its boot and for its first renewal, and for nothing else.
    let wakeups = kept.events().await.wakeups;
    assert!((1..=2).contains(&wakeups), "{wakeups} wake-ups in a minute");
}

async fn an_interrupted_reap_ends_with_130_and_what_it_began_goes_on(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let init = sandbox.init().await;
    let destroy = Match {
        plane: "docker".to_owned(),
        method: Some("DELETE".to_owned()),
        container: sandbox.container().await.map(|container| container.name),
        ..Match::default()
    };
    world.stack.control().fault(destroy, Action::Delay { ms: 5_000 }, 1).await;
    let since = world.stack.control().now().await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let reap = world.stack.ringfence(&["reap", "--older-than", "1s", "--kill"]).spawn().expect("it starts");
    let begun = || async { (sandbox.calls_since(since).await.count("docker DELETE *") > 0).then_some(()) };
    eventually("the end of the sandbox is under way", begun).await;

    let pid = reap.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("it runs"), rustix::process::Signal::INT).expect("it runs");
    let end = said(reap).await;
    assert_eq!(end.code, INTERRUPTED, "{end:?}");
    assert!(init.is_alive(), "it did not wait for what it began");
    until("what it began goes on", || !init.is_alive()).await;
}

/// The Admission object forgets a slot while its container runs, as after a fault: only who knows the secret can say it.
async fn lose_slot(sandbox: &Sandbox) {
    let (consumer, key) = ("alpha".into(), sandbox.key.as_str().into());
    let touch = AdmissionCall::Touch { consumer, key, pool: "lean".to_owned(), mode: Default::default() };
    let slot = match serde_json::from_str(&admission(sandbox, touch).await).expect("an answer") {
        AdmissionAnswer::Admitted { slot, .. } => slot,
        other => panic!("it holds a slot: {other:?}"),
    };
    admission(sandbox, AdmissionCall::Release { slot }).await;
    let listed = || async {
        let sandboxes = sandbox.stack.ringfence_said(&["ps"]).await.out;
        (!sandboxes.contains(&sandbox.key)).then_some(())
    };
    eventually("the registry has forgotten it", listed).await;
}

async fn admission(sandbox: &Sandbox, call: AdmissionCall) -> String {
    let secrets = Secrets::new(sandbox.stack.ticket_secrets().to_vec()).expect("the stack's own are good");
    let request =
        AdmissionRequest { version: INTERNAL_VERSION, seal: seal(&secrets, Subject::Admission), call };
    let text = serde_json::to_string(&request).expect("it serialises");
    match sandbox.stack.object("ADMISSION", "admission", "invoke", json!([text])).await {
        Rpc::Returned(Value::String(text)) => text,
        other => panic!("an object answers with text: {other:?}"),
    }
}

fn keys(said: &Said) -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let found = document["found"].as_array().expect("a list").iter().map(|row| &row["finding"]);
    found.map(|finding| (text(&finding["key"]), text(&finding["why"]))).collect()
}
