//! One fault at a time, at the engine's sockets or by a real signal: no end is invented, nothing runs twice, and
//! what is not known is said to be unknown and stays so. What ran is counted by the witness.

use crate::world::{World, tests};
use ringfence_e2e::control::Action;
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, long_sleep, now_ms, refused};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{DetachedStatus, ExecDone, GoneReason, ReceiptEnd};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;
use tokio::task::JoinHandle;

tests! {
    shared:
        a_supervisor_killed_under_a_detached_job_is_a_stopped_container_never_an_exit,
        a_container_killed_inside_an_exec_is_an_unknown_effect_recorded_and_never_rerun_unasked,
        an_exec_whose_answer_is_lost_after_it_started_is_settled_by_its_end_record,
        an_exec_whose_end_is_lost_on_the_way_is_settled_by_its_end_record,
        an_exec_whose_start_is_lost_on_the_way_did_not_run_and_its_key_is_free,
        an_exec_delivered_twice_runs_once,
        a_detached_start_delivered_twice_runs_once,
        a_detached_start_whose_answer_is_lost_is_one_process_under_one_id,
        a_start_that_arrives_after_its_fence_was_torn_down_is_refused,
        a_start_that_arrives_after_an_abort_never_runs,
        a_process_started_between_the_spare_list_and_the_teardown_lives,
        a_teardown_whose_answer_is_lost_leaves_nothing_it_should_have_killed,
        a_timed_out_exec_is_swept_and_reports_no_code;
}

async fn a_supervisor_killed_under_a_detached_job_is_a_stopped_container_never_an_exit(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let process = sandbox.process_with(&mark).await;
    sandbox.init().await.signal(Signal::KILL);
    until("what it ran is dead", || !process.is_alive()).await;
    let status = || async {
        match sandbox.status(id.as_str()).await {
            DetachedStatus::Gone { is_final: false, .. } | DetachedStatus::Running => None,
            settled => Some(settled),
        }
    };
    match eventually("the end of the container is noticed", status).await {
        DetachedStatus::Gone { reason: GoneReason::ContainerStopped, .. } => {}
        other => panic!("container-stopped was due, not {other:?}"),
    }
    // The sandbox is usable again, in a new container.
    assert_eq!(done(sandbox.exec("echo again").await).receipt.tail, "again\n");
}

async fn a_container_killed_inside_an_exec_is_an_unknown_effect_recorded_and_never_rerun_unasked(
    world: Arc<World>,
) {
    let sandbox = world.sandbox().await;
    let (word, key) = (fresh_word(), fresh_key());
    let (sleep, mark) = long_sleep();
    let command = format!("{}; {sleep}", say(&word));
    let exec = meanwhile(&sandbox, exec_input(&key, &command));
    world.stack.witness().heard(&word).await;
    sandbox.process_with(&mark).await;

    sandbox.init().await.signal(Signal::KILL);

    refused(exec.await.expect("the call was not cancelled"), RefusalKind::EffectUnknown);
    // From then on that is the answer for this key, and nothing runs for it.
    refused(sandbox.exec_as(&key, &command).await, RefusalKind::EffectUnknown);
    assert_eq!(world.stack.witness().count(&word), 1);

    // Unless the caller says, itself, that it may run twice.
    let mut rerun = exec_input(&key, &command);
    rerun["onUnknown"] = json!("rerun");
    let again = meanwhile(&sandbox, rerun);
    let twice = || async { (world.stack.witness().count(&word) == 2).then_some(()) };
    eventually("the command runs again", twice).await;
    sandbox.process_with(&mark).await.signal(Signal::KILL);
    let again = done(again.await.expect("the call was not cancelled"));
    assert_eq!((again.receipt.end, again.receipt.deduped), (ReceiptEnd::Signaled, false), "{again:?}");
    assert_eq!((again.receipt.exit_code, again.receipt.signal), (None, Some(9)), "{again:?}");
}

async fn an_exec_whose_answer_is_lost_after_it_started_is_settled_by_its_end_record(world: Arc<World>) {
    settled(&world, "POST", "/v1/jobs").await;
}

async fn an_exec_whose_end_is_lost_on_the_way_is_settled_by_its_end_record(world: Arc<World>) {
    settled(&world, "GET", "/v1/jobs/").await;
}

/// The answer of one kind of request is lost once, on the way back.
async fn settled(world: &World, method: &str, path: &str) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (word, gate) = (fresh_word(), world.stack.witness().gate());
    world.stack.control().fault(sandbox.ingress(method, path), Action::DropAfter, 1).await;
    let command = format!("{}; {}; echo settled; exit 9", say(&word), gate.wait());
    let exec = meanwhile(&sandbox, exec_input(&fresh_key(), &command));
    world.stack.witness().heard(&word).await;
    gate.open();
    let receipt = done(exec.await.expect("the call was not cancelled")).receipt;
    assert_eq!((receipt.end, receipt.exit_code), (ReceiptEnd::Exited, Some(9)), "{receipt:?}");
    assert_eq!(receipt.tail, "settled\n");
    assert_eq!(world.stack.witness().count(&word), 1);
}

async fn an_exec_whose_start_is_lost_on_the_way_did_not_run_and_its_key_is_free(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (lost, word, key) = (fresh_word(), fresh_word(), fresh_key());
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), Action::DropBefore, 8).await;
    refused(sandbox.exec_as(&key, &say(&lost)).await, RefusalKind::SandboxUnavailable);
    sandbox.clear_faults().await;
    let receipt = done(sandbox.exec_as(&key, &say(&word)).await).receipt;
    assert_eq!((receipt.exit_code, receipt.deduped), (Some(0), false), "{receipt:?}");
    assert_eq!((world.stack.witness().count(&lost), world.stack.witness().count(&word)), (0, 1));
}

async fn an_exec_delivered_twice_runs_once(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let word = fresh_word();
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), Action::Double, 1).await;
    let exec = done(sandbox.exec(&format!("{}; echo once", say(&word))).await);
    assert_eq!((exec.receipt.exit_code, exec.receipt.tail.as_str()), (Some(0), "once\n"));
    assert_eq!(world.stack.witness().count(&word), 1);
}

async fn a_detached_start_delivered_twice_runs_once(world: Arc<World>) {
    start_met(&world, Action::Double).await;
}

async fn a_detached_start_whose_answer_is_lost_is_one_process_under_one_id(world: Arc<World>) {
    start_met(&world, Action::DropAfter).await;
}

/// One start meets a fault that loses no effect, and is answered; the caller's own retry under the same key finds the one process.
async fn start_met(world: &World, action: Action) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (word, key) = (fresh_word(), fresh_key());
    let (sleep, mark) = long_sleep();
    let command = format!("{}; exec {sleep}", say(&word));
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), action, 1).await;
    let first = done(sandbox.start_as(&key, &command).await);
    let again = done(sandbox.start_as(&key, &command).await);
    assert_eq!(first.process, again.process);
    assert!(again.deduped);
    let process = sandbox.process_with(&mark).await;
    assert_eq!(sandbox.status(again.process.id.as_str()).await, DetachedStatus::Running);
    done(sandbox.exec("true").await);
    assert!(process.is_alive(), "declared, so spared");
    let alike = sandbox.processes().await.into_iter().filter(|p| p.has_arg(&mark)).count();
    assert_eq!((alike, world.stack.witness().count(&word)), (1, 1));
}

async fn a_start_that_arrives_after_its_fence_was_torn_down_is_refused(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (late, after) = (fresh_word(), fresh_word());
    let since = world.stack.control().now().await;
    // Longer than the object waits for a supervisor's answer.
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), Action::Delay { ms: LATE_MS }, 1).await;
    let outcome = sandbox.exec_as(&fresh_key(), &say(&late)).await;
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    done(sandbox.exec(&say(&after)).await);
    let arrived = || async {
        let log = sandbox.calls_since(since).await;
        log.matching("ingress POST /v1/jobs").first().and_then(|c| c.status)
    };
    let status = eventually("the late start arrives", arrived).await;
    let log = sandbox.calls_since(since).await;
    assert_eq!(status, 409, "fence-closed; the log:\n{log}");
    world.stack.witness().heard(&after).await;
    assert_eq!(world.stack.witness().count(&late), 0);
}

/// Longer than the object waits for a supervisor to answer a start.
const LATE_MS: u64 = 15_000;

/// How long a start is held on its way, so that an abort overtakes it.
const HELD_MS: u64 = 2_000;

async fn a_start_that_arrives_after_an_abort_never_runs(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let word = fresh_word();
    let since = world.stack.control().now().await;
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), Action::Delay { ms: HELD_MS }, 1).await;
    let start = tokio::spawn({
        let (sandbox, command) = (sandbox.clone(), say(&word));
        async move { sandbox.start(&command).await }
    });
    let asked =
        || async { (sandbox.calls_since(since).await.count("ingress POST /v1/jobs") > 0).then_some(()) };
    eventually("the start is on its way", asked).await;
    sandbox.abort().await;
    let outcome = start.await.expect("the call was not cancelled");
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    // A new container of the same sandbox is no place for it either.
    done(sandbox.exec("true").await);
    // Held until its delay was over, and taken by nobody: the container it was for is gone.
    let late = || async {
        let log = sandbox.calls_since(since).await;
        let call = log.matching("ingress POST /v1/jobs").first().map(|call| (call.at_ms, call.status));
        call.expect("it was on its way")
    };
    let (sent_at, _) = late().await;
    until("its delay is over", || now_ms() > sent_at + HELD_MS + 500).await;
    let (_, status) = late().await;
    assert!(status.is_none_or(|status| status >= 400), "{status:?}");
    assert_eq!(world.stack.witness().count(&word), 0);
}

async fn a_process_started_between_the_spare_list_and_the_teardown_lives(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let since = world.stack.control().now().await;
    // The teardown is on its way, its spare list written; it arrives later.
    world
        .stack
        .control()
        .fault(sandbox.ingress("POST", "/v1/teardown"), Action::Delay { ms: 2_000 }, 1)
        .await;
    let exec = sandbox.exec_meanwhile("true");
    let sent =
        || async { (sandbox.calls_since(since).await.count("ingress POST /v1/teardown*") > 0).then_some(()) };
    eventually("the teardown is on its way", sent).await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&format!("exec {sleep}")).await).process.id;
    let process = sandbox.process_with(&mark).await;

    done(exec.await.expect("the call was not cancelled"));

    assert!(process.is_alive(), "started after the decision, so not its business");
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
}

async fn a_teardown_whose_answer_is_lost_leaves_nothing_it_should_have_killed(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (sleep, mark) = long_sleep();
    let gate = world.stack.witness().gate();
    let exec = sandbox.exec_meanwhile(&format!("setsid {sleep} & {}", gate.wait()));
    let left = sandbox.process_with(&mark).await;
    world.stack.control().fault(sandbox.ingress("POST", "/v1/teardown"), Action::DropAfter, 1).await;
    assert!(left.is_alive());
    gate.open();
    let exec = done(exec.await.expect("the call was not cancelled"));
    assert_eq!(exec.receipt.exit_code, Some(0));
    assert!(!left.is_alive());
}

async fn a_timed_out_exec_is_swept_and_reports_no_code(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (sleep, mark) = long_sleep();
    let mut input = exec_input(&fresh_key(), &format!("setsid {sleep} & exec sleep 3600"));
    input["timeoutMs"] = json!(1_500);
    let exec = meanwhile(&sandbox, input);
    let left = sandbox.process_with(&mark).await;
    assert!(left.is_alive());
    let receipt = done(exec.await.expect("the call was not cancelled")).receipt;
    assert_eq!((receipt.end, receipt.exit_code), (ReceiptEnd::TimedOut, None), "{receipt:?}");
    assert!(!left.is_alive());
}

fn meanwhile(sandbox: &Sandbox, input: serde_json::Value) -> JoinHandle<Outcome<ExecDone>> {
    let sandbox = sandbox.clone();
    tokio::spawn(async move { sandbox.exec_input(input).await })
}
