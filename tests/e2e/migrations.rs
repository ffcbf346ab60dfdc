//! A sandbox whose storage the first version of the Worker wrote is served by this one: looked at, replayed, and gone on
//! with. Its container is long gone and its deadline long past, as after an update that took its time.

use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, exec_input, start_input};
use ringfence_wire::contract::{DetachedStatus, ExecDone, GoneReason, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared: a_sandbox_that_the_first_version_left_is_looked_at_replayed_and_gone_on_with;
}

/// `tests/fixtures/README.md` says how it was recorded.
const V1: &str = include_str!("../fixtures/v1/sandbox.sql");

async fn a_sandbox_that_the_first_version_left_is_looked_at_replayed_and_gone_on_with(world: Arc<World>) {
    let sandbox = world.sandbox_of("ALPHA", "recorded").await;
    world.stack.plant(&sandbox.object, &V1.replace("'local'", "'alpha'"));
    let since = world.stack.control().now().await;

    // What ended then has ended; what ran then expired meanwhile. The alarm may still be ending it.
    let told = || async {
        let list = sandbox.list().await;
        let mut told: Vec<_> =
            list.processes.into_iter().map(|p| (p.idempotency_key.to_string(), p.status)).collect();
        told.sort_by(|a, b| a.0.cmp(&b.0));
        let settled = told.iter().all(|(_, status)| {
            matches!(status, DetachedStatus::Exited { .. } | DetachedStatus::Gone { is_final: true, .. })
        });
        settled.then_some(told)
    };
    let told = eventually("every process of it has ended", told).await;
    let reasons: Vec<_> = told
        .iter()
        .map(|(key, status)| match status {
            DetachedStatus::Gone { reason, .. } => (key.as_str(), Some(*reason)),
            _ => (key.as_str(), None),
        })
        .collect();
    let expected = [
        ("start-exited", None),
        ("start-lost", Some(GoneReason::ContainerStopped)),
        ("start-running", Some(GoneReason::Expired)),
        ("start-stopped", Some(GoneReason::Stopped)),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(told[0].1, DetachedStatus::Exited { exit_code: Some(5), signal: None });

    // Keys answer as they did, and boot nothing.
    let replay = done(sandbox.exec_input(recorded(exec_input("exec-1", "echo one; exit 3"))).await).receipt;
    assert!(replay.deduped && replay.exit_code == Some(3) && replay.tail == "one\n", "{replay:?}");
    let answers: [(Outcome<ExecDone>, RefusalKind); 2] = [
        (
            sandbox.exec_input(recorded(exec_input("exec-1", "echo two"))).await,
            RefusalKind::IdempotencyConflict,
        ),
        (
            sandbox.exec_input(recorded(exec_input("exec-unknown", "sleep 3601"))).await,
            RefusalKind::EffectUnknown,
        ),
    ];
    for (answer, kind) in answers {
        assert_eq!(ringfence_e2e::facade::refused(answer, kind).field.as_deref(), Some("idempotencyKey"));
    }
    let start = recorded(start_input("start-running", "sleep 3600"));
    assert!(done(sandbox.call::<StartDetachedDone>("startDetached", &[start]).await).deduped);
    sandbox.calls_since(since).await.assert_none("docker POST *");

    // And it goes on: a boot, an exec, and a trail whose numbers go on where they were.
    let before = sandbox.events().await;
    let first = before.events.first().expect("the trail of the first version");
    assert_eq!((first.seq, first.operation.as_str()), (1, "ensureSandbox"));
    let anew = done(sandbox.exec("echo anew").await);
    assert_eq!(anew.receipt.tail, "anew\n");
    assert!(anew.ensured.generation > 2, "two were booted by the first version: {anew:?}");
    let after = sandbox.events().await;
    assert_eq!(after.events.len(), before.events.len() + 1);
    assert_eq!(after.next, before.next + 1);
}

fn recorded(mut input: Value) -> Value {
    input["recipe"] = json!({ "version": "recorded" });
    input
}
