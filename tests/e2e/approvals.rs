//! The approval floor: a person's word for one exact command runs it once, however many ask at once, and a word that
//! does not hold costs nothing.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::facade::{
    Sandbox, approval_of, done, exec_input, fresh_key, fresh_word, now_ms, refused, start_input,
};
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{ExecDone, InputDone, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;

tests! {
    shared:
        an_approved_command_runs_once_and_its_retry_gets_the_record,
        of_32_identical_approved_calls_one_runs_and_31_get_its_record,
        of_32_identical_approved_starts_one_starts_and_31_get_its_record,
        of_32_calls_under_other_keys_with_one_approval_one_runs_and_31_are_refused,
        an_approval_spent_by_an_exec_starts_nothing,
        an_approval_spent_for_one_command_is_refused_for_another,
        an_approval_that_does_not_hold_is_refused_by_name_and_costs_nothing,
        a_shell_that_reads_its_commands_from_its_input_needs_an_approval;
    own with_a_rule_more =>
        a_rule_that_the_deployment_added_holds_beside_the_built_in_ones;
}

const MINUTE_MS: u64 = 60_000;

async fn an_approved_command_runs_once_and_its_retry_gets_the_record(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (command, word) = floor_command();
    let input = approved_exec(&fresh_key(), &command, &approval_of(&command));
    let mut without = input.clone();
    without.as_object_mut().expect("an input is an object").remove("approval");
    let refusal = refused(sandbox.exec_input(without).await, RefusalKind::ApprovalRequired);
    assert_eq!((refusal.field.as_deref(), refusal.reason.as_deref()), (Some("approval"), Some("git push")));

    let first = done(sandbox.exec_input(input.clone()).await);
    world.stack.witness().heard(&word).await;
    let again = done(sandbox.exec_input(input).await);

    assert!(!first.receipt.deduped && again.receipt.deduped);
    assert_eq!(first.receipt.exit_code, again.receipt.exit_code);
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn of_32_identical_approved_calls_one_runs_and_31_get_its_record(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (command, word) = floor_command();
    let input = approved_exec(&fresh_key(), &command, &approval_of(&command));
    let calls = join_all((0..32).map(|_| sandbox.exec_input(input.clone()))).await;

    let calls: Vec<ExecDone> = calls.into_iter().map(done).collect();
    assert_eq!(calls.iter().filter(|call| !call.receipt.deduped).count(), 1);
    world.stack.witness().heard(&word).await;
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn of_32_identical_approved_starts_one_starts_and_31_get_its_record(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (command, word) = floor_command();
    let input = approved_start(&fresh_key(), &command, &approval_of(&command));
    let start = || sandbox.call::<StartDetachedDone>("startDetached", std::slice::from_ref(&input));
    let calls: Vec<StartDetachedDone> =
        join_all((0..32).map(|_| start())).await.into_iter().map(done).collect();

    let ids: BTreeSet<_> = calls.iter().map(|call| call.process.id.clone()).collect();
    assert_eq!((ids.len(), calls.iter().filter(|call| !call.deduped).count()), (1, 1), "{calls:?}");
    world.stack.witness().heard(&word).await;
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn of_32_calls_under_other_keys_with_one_approval_one_runs_and_31_are_refused(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (command, word) = floor_command();
    let approval = approval_of(&command);
    let call = || sandbox.exec_input(approved_exec(&fresh_key(), &command, &approval));
    let calls = join_all((0..32).map(|_| call())).await;

    let (ran, rest): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|outcome| matches!(outcome, Outcome::Done(_)));
    assert_eq!(ran.len(), 1, "{rest:?}");
    for outcome in rest {
        let refusal = refused(outcome, RefusalKind::AttestationRejected);
        assert_eq!(refusal.reason.as_deref(), Some("already-used"), "{refusal:?}");
    }
    world.stack.witness().heard(&word).await;
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn an_approval_spent_by_an_exec_starts_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (command, word) = floor_command();
    let (key, approval) = (fresh_key(), approval_of(&command));
    done(sandbox.exec_input(approved_exec(&key, &command, &approval)).await);
    // Not even under the same key: an exec and a start are two calls.
    let start = [approved_start(&key, &command, &approval)];
    let refusal = refused(
        sandbox.call::<StartDetachedDone>("startDetached", &start).await,
        RefusalKind::AttestationRejected,
    );
    assert_eq!(refusal.reason.as_deref(), Some("already-used"));
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn an_approval_spent_for_one_command_is_refused_for_another(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let ((first, _), (second, word)) = (floor_command(), floor_command());
    let spent = approval_of(&first);
    done(sandbox.exec_input(approved_exec(&fresh_key(), &first, &spent)).await);

    let mut reused = approval_of(&second);
    reused["taskId"] = spent["taskId"].clone();
    let refusal = refused(
        sandbox.exec_input(approved_exec(&fresh_key(), &second, &reused)).await,
        RefusalKind::AttestationRejected,
    );
    assert_eq!(refusal.reason.as_deref(), Some("used-for-another-command"));
    // The next ordinal of the same task is another approval.
    reused["ordinal"] = json!(1);
    done(sandbox.exec_input(approved_exec(&fresh_key(), &second, &reused)).await);
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn an_approval_that_does_not_hold_is_refused_by_name_and_costs_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let (command, word) = floor_command();
    let good = approval_of(&command);
    let bad = [
        ("commandSha256", json!(hex::encode(Sha256::digest(format!("{command} ")))), "another-command"),
        ("commandSha256", json!("00"), "bad-digest"),
        ("approvedBy", json!(""), "nobody-approved"),
        ("approvedBy", json!("  "), "nobody-approved"),
        ("approvedAt", json!(now_ms() + 10 * MINUTE_MS), "approved-in-the-future"),
        ("approvedAt", json!("yesterday"), "bad-approval-time"),
        ("ordinal", json!(-1), "bad-ordinal"),
        ("taskId", json!(""), "bad-task-id"),
    ];
    for (field, value, reason) in bad {
        let mut approval = good.clone();
        approval[field] = value;
        let exec = approved_exec(&fresh_key(), &command, &approval);
        let start = approved_start(&fresh_key(), &command, &approval);
        for outcome in [
            sandbox.call::<Value>("execUnderGrant", std::slice::from_ref(&exec)).await,
            sandbox.call::<Value>("startDetached", &[start]).await,
            post_exec(&sandbox, &exec, 403).await,
        ] {
            let refusal = refused(outcome, RefusalKind::AttestationRejected);
            assert_eq!(refusal.reason.as_deref(), Some(reason), "{field}: {refusal:?}");
            assert_eq!(refusal.field.as_deref(), Some("approval"));
        }
    }
    sandbox.calls_since(since).await.assert_none("*");
    assert!(sandbox.container().await.is_none(), "nothing was booted");

    // None of it spent anything; and a digest holds in either case, a time in either form.
    let mut upper = good.clone();
    upper["commandSha256"] = json!(good["commandSha256"].as_str().expect("a digest").to_uppercase());
    upper["approvedAt"] = json!("2026-01-01T00:00:00Z");
    done(sandbox.exec_input(approved_exec(&fresh_key(), &command, &upper)).await);
    assert_ran_once(&world, &sandbox, &word).await;
}

async fn a_shell_that_reads_its_commands_from_its_input_needs_an_approval(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let word = fresh_word();
    let mut input = start_input(&fresh_key(), "exec sh");
    input["stdin"] = json!("pipe");
    let start = |input: Value| {
        let sandbox = sandbox.clone();
        async move { sandbox.call::<StartDetachedDone>("startDetached", &[input]).await }
    };
    let refusal = refused(start(input.clone()).await, RefusalKind::ApprovalRequired);
    assert_eq!(refusal.reason.as_deref(), Some("interactive-shell"));

    input["approval"] = approval_of("exec sh");
    let id = done(start(input).await).process.id;
    let line = json!({ "operationKey": "line", "data": format!("{}\n", say(&word)), "eof": true });
    done(sandbox.call::<InputDone>("detachedInput", &[json!(id), line]).await);
    world.stack.witness().heard(&word).await;
}

fn with_a_rule_more() -> Setup {
    Setup { vars: [("FLOOR_RULES".to_owned(), json!(r#"["helm upgrade"]"#))].into(), ..Setup::default() }
}

async fn a_rule_that_the_deployment_added_holds_beside_the_built_in_ones(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    for (command, rule) in [("cd x; helm upgrade app", "helm upgrade"), ("git push", "git push")] {
        let refusal = refused(sandbox.exec(command).await, RefusalKind::ApprovalRequired);
        assert_eq!(refusal.reason.as_deref(), Some(rule), "{command}");
    }
    done(sandbox.exec("echo helm list").await);
}

/// A command on the floor that does no harm, and the word that it says when it runs.
fn floor_command() -> (String, String) {
    let word = fresh_word();
    (format!("{}; git push nowhere || true", say(&word)), word)
}

fn approved_exec(key: &str, command: &str, approval: &Value) -> Value {
    let mut input = exec_input(key, command);
    input["approval"] = approval.clone();
    input
}

fn approved_start(key: &str, command: &str, approval: &Value) -> Value {
    let mut input = start_input(key, command);
    input["approval"] = approval.clone();
    input
}

async fn post_exec(sandbox: &Sandbox, body: &Value, status: u16) -> Outcome<Value> {
    let path = format!("/v1/sandboxes/{}/exec", sandbox.key);
    let answer =
        sandbox.stack.http("POST", &path, Some(sandbox.stack.token("alpha")), body.to_string()).await;
    assert_eq!(answer.status, status, "{}", answer.text());
    answer.json()
}

/// What a second run would have said is proven absent by a command that ran after it in the same sandbox.
async fn assert_ran_once(world: &World, sandbox: &Sandbox, word: &str) {
    let after = fresh_word();
    done(sandbox.exec(&say(&after)).await);
    world.stack.witness().heard(&after).await;
    assert_eq!(world.stack.witness().count(word), 1, "the command ran once");
}
