//! Detached processes as a consumer sees them: dialled across calls, their states told truly, started once per
//! key; and no question about one ever boots a container.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::control::{Action, CallLog};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Sandbox, done, fresh_key, fresh_word, long_sleep, refused};
use ringfence_e2e::witness::{INSIDE, say};
use ringfence_wire::contract::{DetachedStatus, GoneReason, OutputDone, StartDetachedDone};
use ringfence_wire::refusal::RefusalKind;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

tests! {
    shared:
        a_server_started_in_one_call_is_dialled_by_a_later_exec_and_dead_after_its_stop,
        a_running_process_says_running,
        an_exited_process_says_its_code,
        a_signal_death_says_the_signal_and_no_code,
        a_start_that_provably_never_ran_says_never_started_and_releases_its_key,
        after_an_abort_a_process_is_gone_for_good,
        after_its_container_was_killed_a_process_is_gone_for_good_and_nothing_boots,
        while_its_container_cannot_be_reached_a_process_is_gone_but_not_for_good,
        no_look_up_boots_a_container,
        of_32_concurrent_starts_with_one_key_one_starts_and_31_are_replays,
        the_same_key_with_another_command_is_a_conflict,
        a_stop_of_what_was_never_started_claims_nothing,
        output_is_paged_by_cursor_across_calls,
        what_a_command_left_is_swept_before_its_process_says_exited;
}

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

async fn a_server_started_in_one_call_is_dialled_by_a_later_exec_and_dead_after_its_stop(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let word = fresh_word();
    let server = done(sandbox.start(&format!("{INSIDE}/probe serve 8080 {word}")).await).process;
    let process = sandbox.process_with(&word).await;

    for _ in 0..2 {
        let exec = done(sandbox.exec(&format!("{INSIDE}/probe dial 127.0.0.1:8080")).await);
        assert_eq!(exec.receipt.exit_code, Some(0), "{exec:?}");
        assert_eq!(exec.receipt.tail.trim(), word, "the server that was declared answered");
        assert!(process.is_alive(), "it survives the teardown of the exec that dialled it");
    }

    let stop = sandbox.stop(server.id.as_str()).await;
    assert!(stop.stopped, "{stop:?}");
    assert!(stop.evidence.expect("a stop says what it saw").complete);
    assert!(!process.is_alive(), "dead after the stop");
    assert_gone(&sandbox, server.id.as_str(), GoneReason::Stopped).await;
    let exec = done(sandbox.exec(&format!("{INSIDE}/probe dial 127.0.0.1:8080")).await);
    assert_ne!(exec.receipt.exit_code, Some(0), "its port is free");
}

async fn a_stop_of_what_was_never_started_claims_nothing(world: Arc<World>) {
    let (sandbox, other) = (world.sandbox().await, world.sandbox().await);
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let process = sandbox.process_with(&mark).await;
    done(other.ensure().await);
    for stop in
        [other.stop(id.as_str()).await, sandbox.stop("never-started").await, sandbox.stop("a b").await]
    {
        assert!(!stop.stopped && stop.evidence.is_none() && stop.detail.is_some(), "{stop:?}");
    }
    assert!(process.is_alive());
    assert!(sandbox.stop(id.as_str()).await.stopped);
    let again = sandbox.stop(id.as_str()).await;
    assert_eq!((again.stopped, again.detail.as_deref()), (true, Some("it had ended before")));
}

async fn a_running_process_says_running(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let started = done(sandbox.start(&sleep).await);
    assert!(!started.deduped);
    assert!(sandbox.process_with(&mark).await.is_alive());
    assert_eq!(sandbox.status(started.process.id.as_str()).await, DetachedStatus::Running);
}

async fn an_exited_process_says_its_code(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    for code in [0, 1, 42] {
        let id = done(sandbox.start(&format!("exit {code}")).await).process.id;
        assert_eq!(
            ended(&sandbox, id.as_str()).await,
            DetachedStatus::Exited { exit_code: Some(code), signal: None }
        );
    }
}

async fn a_signal_death_says_the_signal_and_no_code(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = done(sandbox.start("kill -KILL $$").await).process.id;
    let killed = DetachedStatus::Exited { exit_code: None, signal: Some(SIGKILL) };
    assert_eq!(ended(&sandbox, id.as_str()).await, killed);

    // And from outside, by a signal that the test itself sends.
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&format!("exec {sleep}")).await).process.id;
    sandbox.process_with(&mark).await.signal(Signal::TERM);
    let termed = DetachedStatus::Exited { exit_code: None, signal: Some(SIGTERM) };
    assert_eq!(ended(&sandbox, id.as_str()).await, termed);
}

async fn a_start_that_provably_never_ran_says_never_started_and_releases_its_key(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (key, word) = (fresh_key(), fresh_word());

    // The request is lost before the supervisor sees it. What became of it is settled by asking for the job by
    // id, which leaves a tombstone: it did not run and never will.
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), Action::DropBefore, 8).await;
    refused(sandbox.start_as(&key, &say(&word)).await, RefusalKind::SandboxUnavailable);
    sandbox.clear_faults().await;

    let list = sandbox.list().await;
    let failed = list.processes.iter().find(|p| p.idempotency_key.as_str() == key);
    if let Some(failed) = failed {
        assert_gone(&sandbox, failed.id.as_str(), GoneReason::NeverStarted).await;
    }
    // The key is free: even for another command.
    let other = fresh_word();
    let started = done(sandbox.start_as(&key, &say(&other)).await);
    assert!(!started.deduped);
    world.stack.witness().heard(&other).await;
    assert_eq!(world.stack.witness().count(&word), 0, "the lost start never ran");
}

async fn after_an_abort_a_process_is_gone_for_good(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let (process, init) = (sandbox.process_with(&mark).await, sandbox.init().await);
    assert!(process.is_alive() && init.is_alive());

    let aborted = sandbox.abort().await;

    assert!(aborted.container_gone, "{aborted:?}");
    assert!(!process.is_alive() && !init.is_alive());
    assert_gone(&sandbox, id.as_str(), GoneReason::Aborted).await;
    assert!(sandbox.container().await.is_none_or(|c| !c.is_running()));
}

async fn after_its_container_was_killed_a_process_is_gone_for_good_and_nothing_boots(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let (process, init) = (sandbox.process_with(&mark).await, sandbox.init().await);
    assert!(process.is_alive());
    let since = world.stack.control().now().await;

    init.signal(Signal::KILL);
    until("what the container held is dead", || !process.is_alive()).await;

    let gone = || async {
        let status = sandbox.status(id.as_str()).await;
        matches!(status, DetachedStatus::Gone { is_final: true, .. }).then_some(())
    };
    eventually("the end of the container is noticed", gone).await;
    assert_gone(&sandbox, id.as_str(), GoneReason::ContainerStopped).await;
    assert_no_boot(&sandbox.calls_since(since).await);
}

async fn while_its_container_cannot_be_reached_a_process_is_gone_but_not_for_good(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let process = sandbox.process_with(&mark).await;

    world.stack.control().fault(sandbox.ingress("GET", "/v1/"), Action::DropBefore, 1000).await;
    match sandbox.status(id.as_str()).await {
        DetachedStatus::Gone { reason: GoneReason::Unreachable, is_final: false, .. } => {}
        other => panic!("unreachable was due, not {other:?}"),
    }
    assert!(process.is_alive(), "what could not be asked was never dead");
    sandbox.clear_faults().await;
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
}

async fn no_look_up_boots_a_container(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let nobody = "00000000-0000-4000-8000-000000000000";

    // Never booted at all.
    match sandbox.status(nobody).await {
        DetachedStatus::Gone { is_final: true, .. } => {}
        other => panic!("gone was due, not {other:?}"),
    }
    assert_eq!(sandbox.list().await.processes, []);
    let _ = sandbox.call::<serde_json::Value>("detachedOutput", &[json!(nobody)]).await;
    sandbox.stop(nobody).await;
    assert_no_boot(&sandbox.calls_since(since).await);

    // Booted once, then aborted.
    let id = done(sandbox.start("exit 0").await).process.id;
    ended(&sandbox, id.as_str()).await;
    sandbox.abort().await;
    let since = world.stack.control().now().await;
    for id in [id.as_str(), nobody] {
        sandbox.status(id).await;
        sandbox.stop(id).await;
        let _ = sandbox.call::<serde_json::Value>("detachedOutput", &[json!(id)]).await;
    }
    sandbox.list().await;
    assert_no_boot(&sandbox.calls_since(since).await);
}

async fn of_32_concurrent_starts_with_one_key_one_starts_and_31_are_replays(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (key, word) = (fresh_key(), fresh_word());
    let (sleep, _) = long_sleep();
    let command = format!("{}; {sleep}", say(&word));
    let starts = join_all((0..32).map(|_| sandbox.start_as(&key, &command))).await;

    let starts: Vec<StartDetachedDone> = starts.into_iter().map(done).collect();
    let ids: BTreeSet<_> = starts.iter().map(|s| s.process.id.clone()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(starts.iter().filter(|s| s.deduped).count(), 31);
    world.stack.witness().heard(&word).await;
    assert_eq!(sandbox.list().await.processes.len(), 1);
    let running =
        sandbox.processes().await.into_iter().filter(|p| p.args.first().is_some_and(|a| a == "sleep"));
    assert_eq!(running.count(), 1);
    assert_eq!(world.stack.witness().count(&word), 1, "the command ran once");
}

async fn the_same_key_with_another_command_is_a_conflict(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (key, word) = (fresh_key(), fresh_word());
    let (sleep, mark) = long_sleep();
    done(sandbox.start_as(&key, &sleep).await);
    let process = sandbox.process_with(&mark).await;

    refused(sandbox.start_as(&key, &say(&word)).await, RefusalKind::IdempotencyConflict);

    assert!(process.is_alive(), "the first is untouched");
    assert_eq!(sandbox.list().await.processes.len(), 1);
    // The refused command is proven not to have run by one that ran after it in the same sandbox.
    let after = fresh_word();
    done(sandbox.exec(&say(&after)).await);
    world.stack.witness().heard(&after).await;
    assert_eq!(world.stack.witness().count(&word), 0);
}

async fn output_is_paged_by_cursor_across_calls(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = done(sandbox.start("printf 'one\\ntwo\\nthree\\n'").await).process.id;
    ended(&sandbox, id.as_str()).await;
    let (mut text, mut cursor) = (String::new(), json!(0));
    let mut pages = 0;
    loop {
        let args = [json!(id), cursor, json!(4)];
        let page = done(sandbox.call::<OutputDone>("detachedOutput", &args).await).page;
        pages += 1;
        assert!(page.frames.iter().map(|f| f.data.len()).sum::<usize>() <= 4, "{page:?}");
        text.extend(page.frames.iter().map(|f| f.data.as_str()));
        cursor = json!(page.next);
        if page.eof {
            break;
        }
    }
    assert_eq!(text, "one\ntwo\nthree\n");
    assert!(pages >= 4, "14 bytes at 4 a page, seen in {pages}");
}

async fn what_a_command_left_is_swept_before_its_process_says_exited(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let gate = world.stack.witness().gate();
    let id = done(sandbox.start(&format!("setsid {sleep} & {}; exit 5", gate.wait())).await).process.id;
    let left = sandbox.process_with(&mark).await;
    assert!(left.is_alive());
    gate.open();
    assert_eq!(
        ended(&sandbox, id.as_str()).await,
        DetachedStatus::Exited { exit_code: Some(5), signal: None }
    );
    assert!(!left.is_alive(), "a job ends with its command");
}

/// Its status once it runs no more.
async fn ended(sandbox: &Sandbox, id: &str) -> DetachedStatus {
    let look = || async {
        let status = sandbox.status(id).await;
        (status != DetachedStatus::Running).then_some(status)
    };
    eventually("a short command ends", look).await
}

async fn assert_gone(sandbox: &Sandbox, id: &str, why: GoneReason) {
    match sandbox.status(id).await {
        DetachedStatus::Gone { reason, is_final: true, .. } => assert_eq!(reason, why),
        other => panic!("gone for good was due, not {other:?}"),
    }
}

#[track_caller]
fn assert_no_boot(log: &CallLog) {
    log.assert_none("docker POST /containers/create*");
    log.assert_none("docker POST /containers/*/start");
}
