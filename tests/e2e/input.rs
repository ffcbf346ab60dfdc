//! Standard input of a detached process: written once per operation key however often it is sent, ended by its
//! caller, and refused where there is none.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Sandbox, done, fresh_key, fresh_word, refused, start_input};
use ringfence_e2e::files::files_with;
use ringfence_wire::contract::{DetachedStatus, InputDone, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use ringfence_wire::supervisor::StdinResult;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests! {
    shared:
        what_is_sent_again_under_one_operation_key_is_written_once_by_either_face,
        an_operation_key_with_other_bytes_is_a_conflict_and_writes_nothing,
        eof_ends_the_input_and_what_comes_after_it_is_closed,
        input_that_is_not_read_is_pending_until_it_is,
        input_still_pending_when_its_process_is_stopped_was_never_written_and_says_so_for_ever,
        more_writes_than_may_be_pending_are_refused_and_a_stop_is_as_quick_as_ever,
        more_bytes_than_may_be_pending_are_refused,
        what_is_written_to_a_process_is_stored_nowhere,
        input_to_a_process_without_stdin_is_refused_naming_the_process,
        a_bad_input_is_refused_by_both_faces_naming_the_field;
}

const MAX_INPUT_BYTES: usize = 64 * 1024;
const MAX_PENDING_WRITES: usize = 64;
const MAX_PENDING_BYTES: usize = 1024 * 1024;
/// What the kernel takes into a pipe that nobody reads.
const PIPE_BYTES: usize = 64 * 1024;

async fn what_is_sent_again_under_one_operation_key_is_written_once_by_either_face(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = with_stdin(&sandbox, "cat").await;

    let sent = join_all((0..8).map(|_| write(&sandbox, &id, "first", "one\n", false))).await;
    let sent: Vec<InputDone> = sent.into_iter().map(done).collect();
    assert!(sent.iter().all(|s| s.accepted == StdinResult::Written), "{sent:?}");
    assert_eq!(sent.iter().filter(|s| !s.deduped).count(), 1, "{sent:?}");
    // The other face knows the same operations.
    let again = done(post(&sandbox, &id, &input("first", "one\n", false), 200).await);
    assert!(again.deduped && again.accepted == StdinResult::Written, "{again:?}");
    let other = done(post(&sandbox, &id, &input("second", "two\n", true), 200).await);
    assert!(!other.deduped && other.accepted == StdinResult::Written, "{other:?}");

    assert_eq!(ended(&sandbox, &id).await, DetachedStatus::Exited { exit_code: Some(0), signal: None });
    assert_eq!(text(&sandbox, &id).await, "one\ntwo\n");
}

async fn an_operation_key_with_other_bytes_is_a_conflict_and_writes_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = with_stdin(&sandbox, "cat").await;
    done(write(&sandbox, &id, "op", "one\n", false).await);

    let refusal = refused(write(&sandbox, &id, "op", "two\n", false).await, RefusalKind::IdempotencyConflict);
    assert_eq!(refusal.field.as_deref(), Some("operationKey"));
    let refusal = refused(
        post(&sandbox, &id, &input("op", "two\n", false), 409).await,
        RefusalKind::IdempotencyConflict,
    );
    assert_eq!(refusal.field.as_deref(), Some("operationKey"));

    done(write(&sandbox, &id, "end", "three\n", true).await);
    ended(&sandbox, &id).await;
    assert_eq!(text(&sandbox, &id).await, "one\nthree\n");
}

async fn eof_ends_the_input_and_what_comes_after_it_is_closed(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let gate = world.stack.witness().gate();
    let id = with_stdin(&sandbox, &format!("cat; {}", gate.wait())).await;
    let last = done(write(&sandbox, &id, "last", "all\n", true).await);
    assert_eq!(last.accepted, StdinResult::Written);

    // The process lives on, its input has ended.
    assert_eq!(sandbox.status(&id).await, DetachedStatus::Running);
    let late = done(write(&sandbox, &id, "late", "more\n", false).await);
    assert_eq!(late.accepted, StdinResult::Closed);
    gate.open();
    ended(&sandbox, &id).await;
    assert_eq!(text(&sandbox, &id).await, "all\n");
}

async fn input_that_is_not_read_is_pending_until_it_is(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let gate = world.stack.witness().gate();
    let id = with_stdin(&sandbox, &format!("{}; wc -c", gate.wait())).await;
    let full = "x".repeat(PIPE_BYTES);
    let first = done(write(&sandbox, &id, "first", &full, false).await);
    assert_eq!(first.accepted, StdinResult::Written, "the pipe holds it");
    let second = done(write(&sandbox, &id, "second", "rest\n", true).await);
    assert_eq!(second.accepted, StdinResult::Pending, "the pipe is full and nobody reads");

    gate.open();
    ended(&sandbox, &id).await;
    assert_eq!(text(&sandbox, &id).await.trim(), (PIPE_BYTES + "rest\n".len()).to_string());
    let asked = done(write(&sandbox, &id, "second", "rest\n", true).await);
    assert!(asked.deduped && asked.accepted == StdinResult::Written, "{asked:?}");
}

async fn input_still_pending_when_its_process_is_stopped_was_never_written_and_says_so_for_ever(
    world: Arc<World>,
) {
    let sandbox = world.sandbox().await;
    let id = with_stdin(&sandbox, "sleep 3600").await;
    let full = done(write(&sandbox, &id, "full", &"x".repeat(PIPE_BYTES), false).await);
    assert_eq!(full.accepted, StdinResult::Written);
    let waiting = done(write(&sandbox, &id, "waiting", "rest\n", false).await);
    assert_eq!(waiting.accepted, StdinResult::Pending);

    assert!(sandbox.stop(&id).await.stopped);
    for _ in 0..2 {
        let asked = done(write(&sandbox, &id, "waiting", "rest\n", false).await);
        assert_eq!(
            (asked.accepted, asked.deduped),
            (StdinResult::Closed, true),
            "none of its bytes is in the pipe"
        );
    }
    let asked = done(write(&sandbox, &id, "full", &"x".repeat(PIPE_BYTES), false).await);
    assert_eq!((asked.accepted, asked.deduped), (StdinResult::Written, true));
    let new = done(write(&sandbox, &id, "new", "x", false).await);
    assert_eq!((new.accepted, new.deduped), (StdinResult::Closed, false));
}

async fn more_writes_than_may_be_pending_are_refused_and_a_stop_is_as_quick_as_ever(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = with_stdin(&sandbox, "sleep 3600").await;
    done(write(&sandbox, &id, "full", &"x".repeat(PIPE_BYTES), false).await);
    let keys: Vec<String> = (0..=MAX_PENDING_WRITES).map(|n| format!("w{n}")).collect();
    let writes = join_all(keys.iter().map(|key| write(&sandbox, &id, key, "x", false))).await;
    // They arrive in no order: any one of them may be the one too many.
    let (pending, refused_ones): (Vec<_>, Vec<_>) =
        keys.into_iter().zip(writes).partition(|(_, outcome)| matches!(outcome, Outcome::Done(_)));
    assert_eq!(pending.len(), MAX_PENDING_WRITES, "{refused_ones:?}");
    let mut keys = Vec::new();
    for (key, outcome) in pending {
        assert_eq!(done(outcome).accepted, StdinResult::Pending);
        keys.push(key);
    }
    for (_, outcome) in refused_ones {
        let refusal = refused(outcome, RefusalKind::SandboxUnavailable);
        assert_eq!(refusal.reason.as_deref(), Some("limit-reached"), "{refusal:?}");
        assert!(refusal.message.contains("64 writes"), "{refusal:?}");
    }

    // Many that wait hold up nobody.
    let waiting: Vec<_> = keys
        .into_iter()
        .take(16)
        .map(|key| {
            let (sandbox, id) = (sandbox.clone(), id.clone());
            tokio::spawn(async move { write(&sandbox, &id, &key, "x", false).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    assert!(sandbox.stop(&id).await.stopped);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    for outcome in join_all(waiting).await {
        assert_eq!(done(outcome.expect("it was answered")).accepted, StdinResult::Closed);
    }
}

async fn more_bytes_than_may_be_pending_are_refused(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = with_stdin(&sandbox, "sleep 3600").await;
    let full = "x".repeat(PIPE_BYTES);
    done(write(&sandbox, &id, "full", &full, false).await);
    let keys: Vec<String> = (0..MAX_PENDING_BYTES / PIPE_BYTES).map(|n| format!("w{n}")).collect();
    for outcome in join_all(keys.iter().map(|key| write(&sandbox, &id, key, &full, false))).await {
        assert_eq!(done(outcome).accepted, StdinResult::Pending);
    }
    let refusal = refused(write(&sandbox, &id, "over", "x", false).await, RefusalKind::SandboxUnavailable);
    assert_eq!(refusal.reason.as_deref(), Some("limit-reached"), "{refusal:?}");
    // What was refused took no key.
    assert!(sandbox.stop(&id).await.stopped);
    let asked = done(write(&sandbox, &id, "over", "x", false).await);
    assert_eq!((asked.accepted, asked.deduped), (StdinResult::Closed, false));
}

async fn what_is_written_to_a_process_is_stored_nowhere(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (secret, operation) = (fresh_word(), fresh_word());
    let id = with_stdin(&sandbox, "cat > /dev/null").await;
    done(write(&sandbox, &id, &operation, &format!("{secret}\n"), true).await);
    assert_eq!(ended(&sandbox, &id).await, DetachedStatus::Exited { exit_code: Some(0), signal: None });
    sandbox.list().await;

    let stored = files_with(world.stack.directory(), id.as_bytes());
    assert!(!stored.is_empty(), "this looks where the objects keep their records");
    assert_eq!(files_with(world.stack.directory(), secret.as_bytes()), Vec::<PathBuf>::new());
}

async fn input_to_a_process_without_stdin_is_refused_naming_the_process(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = done(sandbox.start("sleep 3600").await).process.id;
    let refusal =
        refused(write(&sandbox, id.as_str(), "op", "one\n", false).await, RefusalKind::RecipeRejected);
    assert_eq!(refusal.field.as_deref(), Some("processId"));
    let refusal = refused(
        post(&sandbox, id.as_str(), &input("op", "x", false), 422).await,
        RefusalKind::RecipeRejected,
    );
    assert_eq!(refusal.field.as_deref(), Some("processId"));
}

async fn a_bad_input_is_refused_by_both_faces_naming_the_field(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = with_stdin(&sandbox, "wc -c").await;
    let over = "x".repeat(MAX_INPUT_BYTES + 1);
    let bad = [
        (json!({ "operationKey": "", "data": "x" }), "operationKey"),
        (json!({ "operationKey": "k".repeat(129), "data": "x" }), "operationKey"),
        (json!({ "operationKey": "a\nb", "data": "x" }), "operationKey"),
        (json!({ "data": "x" }), "operationKey"),
        (json!({ "operationKey": "op" }), "data"),
        (json!({ "operationKey": "op", "data": 7 }), "data"),
        (json!({ "operationKey": "op", "data": over }), "data"),
        (json!({ "operationKey": "op", "data": "x", "eof": "yes" }), "eof"),
    ];
    for (input, field) in bad {
        for outcome in [
            sandbox.call::<InputDone>("detachedInput", &[json!(id), input.clone()]).await,
            post(&sandbox, &id, &input, 422).await,
        ] {
            let refusal = refused(outcome, RefusalKind::RecipeRejected);
            assert_eq!(refusal.field.as_deref(), Some(field), "{refusal:?}");
        }
    }
    // At the edge it is taken, and nothing of what was refused is there.
    let edge = "x".repeat(MAX_INPUT_BYTES);
    done(write(&sandbox, &id, &"k".repeat(128), &edge, true).await);
    ended(&sandbox, &id).await;
    assert_eq!(text(&sandbox, &id).await.trim(), MAX_INPUT_BYTES.to_string());
}

async fn with_stdin(sandbox: &Sandbox, command: &str) -> String {
    // A comment that no other process has: the key is as fresh.
    let mut input = start_input(&fresh_key(), &format!("{command} # {}", fresh_word()));
    input["stdin"] = json!("pipe");
    done(sandbox.call::<StartDetachedDone>("startDetached", &[input]).await).process.id.to_string()
}

fn input(operation_key: &str, data: &str, eof: bool) -> Value {
    json!({ "operationKey": operation_key, "data": data, "eof": eof })
}

async fn write(
    sandbox: &Sandbox,
    id: &str,
    operation_key: &str,
    data: &str,
    eof: bool,
) -> Outcome<InputDone> {
    sandbox.call("detachedInput", &[json!(id), input(operation_key, data, eof)]).await
}

async fn post(sandbox: &Sandbox, id: &str, body: &Value, status: u16) -> Outcome<InputDone> {
    let path = format!("/v1/sandboxes/{}/detached/{id}/stdin", sandbox.key);
    let answer =
        sandbox.stack.http("POST", &path, Some(sandbox.stack.token("alpha")), body.to_string()).await;
    assert_eq!(answer.status, status, "{}", answer.text());
    answer.json()
}

async fn ended(sandbox: &Sandbox, id: &str) -> DetachedStatus {
    let look = || async {
        let status = sandbox.status(id).await;
        (status != DetachedStatus::Running).then_some(status)
    };
    eventually("the process ends with its input", look).await
}

async fn text(sandbox: &Sandbox, id: &str) -> String {
    sandbox.output(id).await.page.frames.iter().map(|frame| frame.data.as_str()).collect()
}
