//! A person's word: spent once, before anything boots, by whichever call, and never for less than it says.
//!
//! The floor command here is a `git push` outside any repository: on the floor by its words, harmless by its place.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, now_ms, refused, start_input};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{ExecDone, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

tests! {
    shared:
        an_approved_command_runs_once_and_its_retry_gets_the_record,
        of_32_identical_calls_one_runs_and_the_rest_get_its_record,
        of_32_calls_with_different_keys_one_runs_and_the_rest_are_refused,
        of_32_detached_starts_with_different_keys_one_runs_and_the_rest_are_refused,
        an_attestation_that_is_not_for_this_command_is_refused_and_costs_nothing,
        an_attestation_spent_by_an_exec_starts_nothing_detached;
}

#[derive(Clone)]
struct Floor {
    command: String,
    word: String,
    approval: Value,
}

impl Floor {
    fn command() -> Self {
        let word = fresh_word();
        let command = format!("{}; git push; true", say(&word));
        let approval = json!({
            "taskId": format!("task-{word}"),
            "ordinal": 0,
            "commandSha256": hex::encode(Sha256::digest(command.as_bytes())),
            "approvedBy": "a person",
            "approvedAt": now_ms(),
        });
        Self { command, word, approval }
    }

    async fn exec(&self, sandbox: &Sandbox, key: &str) -> Outcome<ExecDone> {
        let mut input = exec_input(key, &self.command);
        input["approval"] = self.approval.clone();
        sandbox.exec_input(input).await
    }

    async fn start(&self, sandbox: &Sandbox, key: &str) -> Outcome<StartDetachedDone> {
        let mut input = start_input(key, &self.command);
        input["approval"] = self.approval.clone();
        sandbox.call("startDetached", &[input]).await
    }

    async fn assert_ran_once(&self, sandbox: &Sandbox) {
        sandbox.stack.witness().heard(&self.word).await;
        assert_eq!(sandbox.stack.witness().count(&self.word), 1);
    }
}

async fn an_approved_command_runs_once_and_its_retry_gets_the_record(world: Arc<World>) {
    let (sandbox, floor, key) = (world.sandbox().await, Floor::command(), fresh_key());
    refused(sandbox.exec_as(&key, &floor.command).await, RefusalKind::ApprovalRequired);
    let first = done(floor.exec(&sandbox, &key).await).receipt;
    let again = done(floor.exec(&sandbox, &key).await).receipt;
    assert_eq!(
        (first.exit_code, first.deduped, again.exit_code, again.deduped),
        (Some(0), false, Some(0), true)
    );
    floor.assert_ran_once(&sandbox).await;
    let spent = refused(floor.exec(&sandbox, &fresh_key()).await, RefusalKind::AttestationRejected);
    assert_eq!(spent.reason.as_deref(), Some("already-used"), "{spent:?}");
    floor.assert_ran_once(&sandbox).await;
}

async fn of_32_identical_calls_one_runs_and_the_rest_get_its_record(world: Arc<World>) {
    let (sandbox, floor, key) = (world.sandbox().await, Floor::command(), fresh_key());
    let receipts =
        join_all((0..32).map(|_| floor.exec(&sandbox, &key))).await.into_iter().map(|o| done(o).receipt);
    assert_eq!(receipts.filter(|receipt| !receipt.deduped).count(), 1);
    floor.assert_ran_once(&sandbox).await;
}

async fn of_32_calls_with_different_keys_one_runs_and_the_rest_are_refused(world: Arc<World>) {
    let (sandbox, floor) = (world.sandbox().await, Floor::command());
    let keys: Vec<_> = (0..32).map(|_| fresh_key()).collect();
    let outcomes = join_all(keys.iter().map(|key| floor.exec(&sandbox, key))).await;
    assert_one_and_31_refused(outcomes);
    floor.assert_ran_once(&sandbox).await;
}

async fn of_32_detached_starts_with_different_keys_one_runs_and_the_rest_are_refused(world: Arc<World>) {
    let (sandbox, floor) = (world.sandbox().await, Floor::command());
    let keys: Vec<_> = (0..32).map(|_| fresh_key()).collect();
    let outcomes = join_all(keys.iter().map(|key| floor.start(&sandbox, key))).await;
    assert_one_and_31_refused(outcomes);
    floor.assert_ran_once(&sandbox).await;
    assert_eq!(sandbox.list().await.processes.len(), 1);
}

#[track_caller]
fn assert_one_and_31_refused<T: std::fmt::Debug>(outcomes: Vec<Outcome<T>>) {
    let (ran, not): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|o| matches!(o, Outcome::Done(_)));
    assert_eq!((ran.len(), not.len()), (1, 31));
    for outcome in not {
        let refusal = refused(outcome, RefusalKind::AttestationRejected);
        assert_eq!(refusal.reason.as_deref(), Some("already-used"), "{refusal:?}");
    }
}

async fn an_attestation_that_is_not_for_this_command_is_refused_and_costs_nothing(world: Arc<World>) {
    let (sandbox, floor) = (world.sandbox().await, Floor::command());
    let since = world.stack.control().now().await;
    let hour_ms = 3_600_000;
    let bad = [
        ("commandSha256", json!(hex::encode(Sha256::digest(b"git push")))),
        ("commandSha256", json!("not a digest")),
        ("approvedBy", json!("")),
        ("ordinal", json!(-1)),
        ("approvedAt", json!(now_ms() + hour_ms)),
    ];
    for (field, value) in bad {
        let mut wrong = floor.clone();
        wrong.approval[field] = value;
        refused(wrong.exec(&sandbox, &fresh_key()).await, RefusalKind::AttestationRejected);
        refused(wrong.start(&sandbox, &fresh_key()).await, RefusalKind::AttestationRejected);
    }
    sandbox.calls_since(since).await.assert_none("*");
    // None of that spent it: hex in the other case is the same digest, and it runs.
    let mut floor = floor;
    let digest = floor.approval["commandSha256"].as_str().expect("a text").to_uppercase();
    floor.approval["commandSha256"] = json!(digest);
    done(floor.exec(&sandbox, &fresh_key()).await);
    floor.assert_ran_once(&sandbox).await;
}

async fn an_attestation_spent_by_an_exec_starts_nothing_detached(world: Arc<World>) {
    let (sandbox, floor, key) = (world.sandbox().await, Floor::command(), fresh_key());
    done(floor.exec(&sandbox, &key).await);
    refused(floor.start(&sandbox, &key).await, RefusalKind::AttestationRejected);
    assert_eq!(sandbox.list().await.processes, []);
    floor.assert_ran_once(&sandbox).await;
}
