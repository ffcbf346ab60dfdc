//! Writing to a detached process: in order, once per operation key, and to its end.

use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Sandbox, done, fresh_key, refused, start_input};
use ringfence_wire::contract::{DetachedStatus, InputDone, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use ringfence_wire::supervisor::StdinResult;
use serde_json::json;
use std::sync::Arc;

tests! {
    shared:
        what_is_written_arrives_once_per_operation_key_and_in_order,
        the_same_operation_key_with_other_bytes_is_a_conflict,
        input_after_its_end_is_closed_and_input_to_a_process_without_a_pipe_is_refused,
        a_pipe_into_a_shell_is_a_floor_command;
}

async fn what_is_written_arrives_once_per_operation_key_and_in_order(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = started(&sandbox, "cat").await;
    for (key, data) in [("op-1", "one\n"), ("op-2", "two\n"), ("op-1", "one\n"), ("op-3", "three\n")] {
        let written = done(write(&sandbox, &id, key, data, false).await);
        assert_eq!(written.accepted, StdinResult::Written);
    }
    let replay = done(write(&sandbox, &id, "op-3", "three\n", false).await);
    assert!(replay.deduped, "{replay:?}");
    done(write(&sandbox, &id, "end", "", true).await);
    let exited = DetachedStatus::Exited { exit_code: Some(0), signal: None };
    let look = || async { (sandbox.status(&id).await == exited).then_some(()) };
    eventually("cat ends with its input", look).await;
    let page = sandbox.output(&id).await.page;
    let text: String = page.frames.iter().map(|f| f.data.as_str()).collect();
    assert_eq!(text, "one\ntwo\nthree\n");
}

async fn the_same_operation_key_with_other_bytes_is_a_conflict(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = started(&sandbox, "cat").await;
    done(write(&sandbox, &id, "op", "these\n", false).await);
    refused(write(&sandbox, &id, "op", "those\n", false).await, RefusalKind::IdempotencyConflict);
    refused(write(&sandbox, &id, "op", "these\n", true).await, RefusalKind::IdempotencyConflict);
    assert_eq!(sandbox.status(&id).await, DetachedStatus::Running);
}

async fn input_after_its_end_is_closed_and_input_to_a_process_without_a_pipe_is_refused(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    // It goes on after its input has ended.
    let id = started(&sandbox, "cat; sleep 3600").await;
    done(write(&sandbox, &id, "end", "last\n", true).await);
    match write(&sandbox, &id, "late", "too late\n", false).await {
        Outcome::Done(late) => assert_eq!(late.accepted, StdinResult::Closed),
        Outcome::Refused(refusal) => {
            assert_eq!(refusal.reason.as_deref(), Some("stdin-closed"), "{refusal:?}")
        }
    }
    let without = done(sandbox.start("sleep 3600").await).process.id;
    let refusal =
        refused(write(&sandbox, without.as_str(), "op", "x", false).await, RefusalKind::SandboxUnavailable);
    assert_eq!(refusal.reason.as_deref(), Some("stdin-closed"), "{refusal:?}");
}

async fn a_pipe_into_a_shell_is_a_floor_command(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    for command in ["bash", "python3", "exec sh"] {
        let refusal = refused(start(&sandbox, command).await, RefusalKind::ApprovalRequired);
        assert_eq!(refusal.reason.as_deref(), Some("interactive-shell"), "{command}: {refusal:?}");
    }
    sandbox.calls_since(since).await.assert_none("*");
}

async fn start(sandbox: &Sandbox, command: &str) -> Outcome<StartDetachedDone> {
    let mut input = start_input(&fresh_key(), command);
    input["stdin"] = json!("pipe");
    sandbox.call("startDetached", &[input]).await
}

async fn started(sandbox: &Sandbox, command: &str) -> String {
    done(start(sandbox, command).await).process.id.0
}

async fn write(sandbox: &Sandbox, id: &str, key: &str, data: &str, eof: bool) -> Outcome<InputDone> {
    let input = json!({ "operationKey": key, "data": data, "eof": eof });
    sandbox.call("detachedInput", &[json!(id), input]).await
}
