//! Idempotency keys and the fence's queue: what a retry gets, what an unknown effect allows, and what a full queue
//! says.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::eventually::until;
use ringfence_e2e::facade::{done, exec_input, fresh_key, fresh_word, long_sleep, refused};
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{ExecDone, ReceiptEnd};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;

tests! {
    shared:
        a_timed_out_exec_says_so_has_no_code_and_leaves_nothing,
        an_unknown_effect_is_run_again_only_on_its_callers_word,
        a_receipt_replayed_after_an_abort_boots_nothing,
        of_16_calls_in_flight_under_one_key_one_runs_and_15_get_its_receipt,
        an_exec_under_a_used_key_with_another_command_is_a_conflict,
        a_full_queue_for_the_fence_says_busy_with_facts_and_look_ups_go_on;
    own short_wait =>
        a_wait_for_the_fence_ends_at_its_deadline_with_facts_and_frees_its_place;
}

/// How many calls may wait for a sandbox's fence.
const MAX_WAITING: usize = 64;

async fn a_timed_out_exec_says_so_has_no_code_and_leaves_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let ((inner, left_mark), (outer, mark)) = (long_sleep(), long_sleep());
    let mut input = exec_input(&fresh_key(), &format!("setsid {inner} & {outer}"));
    input["timeoutMs"] = json!(2_000);
    let exec = tokio::spawn({
        let (sandbox, input) = (sandbox.clone(), input.clone());
        async move { sandbox.exec_input(input).await }
    });
    let (left, own) = (sandbox.process_with(&left_mark).await, sandbox.process_with(&mark).await);
    assert!(left.is_alive() && own.is_alive());

    let exec = done(exec.await.expect("the call was not cancelled"));

    assert_eq!(exec.receipt.end, ReceiptEnd::TimedOut, "{exec:?}");
    assert_eq!(exec.receipt.exit_code, None, "a code it did not have is not told");
    assert!(exec.receipt.duration_ms >= 2_000, "{exec:?}");
    assert!(!left.is_alive() && !own.is_alive());
    let replay = done(sandbox.exec_input(input).await).receipt;
    assert!(replay.deduped && replay.end == ReceiptEnd::TimedOut && replay.exit_code.is_none(), "{replay:?}");
}

async fn an_unknown_effect_is_run_again_only_on_its_callers_word(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (key, word) = (fresh_key(), fresh_word());
    let command = format!("{}; sleep 2", say(&word));
    let exec = tokio::spawn({
        let (sandbox, input) = (sandbox.clone(), exec_input(&key, &command));
        async move { sandbox.exec_input(input).await }
    });
    world.stack.witness().heard(&word).await;
    sandbox.init().await.signal(Signal::KILL);
    refused(exec.await.expect("the call was not cancelled"), RefusalKind::EffectUnknown);

    let refusal = refused(sandbox.exec_as(&key, &command).await, RefusalKind::EffectUnknown);
    assert_eq!(refusal.field.as_deref(), Some("idempotencyKey"));
    assert_eq!(world.stack.witness().count(&word), 1, "nobody guessed");

    let mut rerun = exec_input(&key, &command);
    rerun["onUnknown"] = json!("rerun");
    let again = done(sandbox.exec_input(rerun.clone()).await).receipt;
    assert_eq!((again.exit_code, again.deduped), (Some(0), false));
    assert_eq!(world.stack.witness().count(&word), 2);
    // What is known now is replayed, whatever the caller would allow.
    assert!(done(sandbox.exec_input(rerun).await).receipt.deduped);
    assert!(done(sandbox.exec_as(&key, &command).await).receipt.deduped);
    assert_eq!(world.stack.witness().count(&word), 2);
}

async fn a_receipt_replayed_after_an_abort_boots_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let key = fresh_key();
    let first = done(sandbox.exec_as(&key, "echo once; exit 3").await).receipt;
    assert!(sandbox.abort().await.container_gone);
    let since = world.stack.control().now().await;

    let replay = done(sandbox.exec_as(&key, "echo once; exit 3").await).receipt;

    assert!(replay.deduped && !first.deduped);
    assert_eq!((replay.exit_code, replay.tail.as_str()), (Some(3), "once\n"));
    let log = sandbox.calls_since(since).await;
    log.assert_none("docker POST /containers/create*");
    log.assert_none("docker POST /containers/*/start");
}

async fn of_16_calls_in_flight_under_one_key_one_runs_and_15_get_its_receipt(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (key, word) = (fresh_key(), fresh_word());
    let command = format!("{}; sleep 1; echo same", say(&word));
    let calls = join_all((0..16).map(|_| sandbox.exec_as(&key, &command))).await;

    let calls: Vec<ExecDone> = calls.into_iter().map(done).collect();
    assert_eq!(calls.iter().filter(|call| !call.receipt.deduped).count(), 1);
    assert!(calls.iter().all(|call| call.receipt.tail == "same\n"), "{calls:?}");
    world.stack.witness().heard(&word).await;
    assert_eq!(world.stack.witness().count(&word), 1, "the command ran once");
}

async fn an_exec_under_a_used_key_with_another_command_is_a_conflict(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (key, word) = (fresh_key(), fresh_word());
    done(sandbox.exec_as(&key, "true").await);
    let refusal = refused(sandbox.exec_as(&key, &say(&word)).await, RefusalKind::IdempotencyConflict);
    assert_eq!(refusal.field.as_deref(), Some("idempotencyKey"));
    let after = fresh_word();
    done(sandbox.exec(&say(&after)).await);
    world.stack.witness().heard(&after).await;
    assert_eq!(world.stack.witness().count(&word), 0);
}

async fn a_full_queue_for_the_fence_says_busy_with_facts_and_look_ups_go_on(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let holder = sandbox.exec_meanwhile(&sleep);
    let held = sandbox.process_with(&mark).await;
    let waiting: Vec<_> = (0..MAX_WAITING + 2).map(|_| sandbox.exec_meanwhile("true")).collect();

    // Two find the queue full and are told so at once; 64 wait on.
    until("two are refused", || waiting.iter().filter(|call| call.is_finished()).count() >= 2).await;
    let mut busy = 0;
    let mut rest = Vec::new();
    for call in waiting {
        if !call.is_finished() {
            rest.push(call);
            continue;
        }
        let refusal = refused(call.await.expect("the call was not cancelled"), RefusalKind::FenceBusy);
        assert!(refusal.retry_after_ms.is_some_and(|ms| ms > 0), "{refusal:?}");
        let facts = refusal.fence.expect("a busy fence says what it knew");
        assert_eq!((facts.waiting, facts.most_waiting), (64, 64), "{facts:?}");
        assert_eq!(
            (facts.limit_ms, Some(facts.retry_after_ms)),
            (60_000, refusal.retry_after_ms),
            "{facts:?}"
        );
        assert!(facts.waited_ms < 1_000, "a full queue is told at once: {facts:?}");
        busy += 1;
    }
    assert_eq!((busy, rest.len()), (2, MAX_WAITING));
    assert!(held.is_alive());

    // Neither a look-up nor a start waits for the fence.
    let started = done(sandbox.start("exit 0").await);
    assert_eq!(sandbox.list().await.processes.len(), 1);
    sandbox.status(started.process.id.as_str()).await;
    sandbox.output(started.process.id.as_str()).await;
    assert!(sandbox.stop(started.process.id.as_str()).await.stopped);

    assert!(sandbox.abort().await.container_gone);
    assert!(!held.is_alive());
    for call in rest {
        let outcome = call.await.expect("the call was not cancelled");
        // Cancelled, and said to be that.
        let refusal = refused(outcome, RefusalKind::SandboxUnavailable);
        assert_eq!(refusal.reason.as_deref(), Some("aborted"), "an abort ends what waits: {refusal:?}");
    }
    // The one that ran is told no end that was not proven: killed, or unknown.
    match holder.await.expect("the call was not cancelled") {
        Outcome::Done(done) => assert_eq!(done.receipt.end, ReceiptEnd::Killed, "{done:?}"),
        Outcome::Refused(refusal) => assert_eq!(refusal.kind, RefusalKind::EffectUnknown, "{refusal:?}"),
    }
}

const SHORT_WAIT_MS: u64 = 3_000;

fn short_wait() -> Setup {
    let vars = [("TIMES".to_owned(), json!({ "fenceWaitMs": SHORT_WAIT_MS }))];
    Setup { vars: vars.into(), ..Setup::default() }
}

async fn a_wait_for_the_fence_ends_at_its_deadline_with_facts_and_frees_its_place(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (sleep, mark) = long_sleep();
    let holder = sandbox.exec_meanwhile(&sleep);
    sandbox.process_with(&mark).await;

    // Twice as many as fit, one queue after the other: who gave up is in nobody's way.
    for _ in 0..2 {
        let waiting = join_all((0..MAX_WAITING).map(|_| sandbox.exec("true"))).await;
        for outcome in waiting {
            let refusal = refused(outcome, RefusalKind::FenceBusy);
            let facts = refusal.fence.expect("a busy fence says what it knew");
            assert_eq!(facts.limit_ms, SHORT_WAIT_MS, "{facts:?}");
            assert!(facts.waited_ms >= SHORT_WAIT_MS && facts.held_for_ms >= facts.waited_ms, "{facts:?}");
            assert!((facts.waiting as usize) < MAX_WAITING, "this one is not counted: {facts:?}");
        }
    }
    let path = format!("/v1/sandboxes/{}/exec", sandbox.key);
    let body = exec_input(&fresh_key(), "true").to_string();
    let answer = world.stack.http("POST", &path, Some(world.stack.token("alpha")), body).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{}", answer.text());

    sandbox.abort().await;
    drop(holder.await);
    assert_eq!(done(sandbox.exec("echo free").await).receipt.tail, "free\n");
}
