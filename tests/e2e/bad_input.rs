//! Bad input, by both faces: the right typed refusal, the field named, nothing started.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, start_input};
use ringfence_e2e::witness::say;
use ringfence_wire::refusal::{Outcome, Refusal, RefusalKind};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared:
        a_bad_exec_is_refused_by_both_faces_naming_the_field,
        a_bad_start_is_refused_by_both_faces_naming_the_field,
        a_bad_ensure_is_refused_by_both_faces_naming_the_field,
        a_bad_key_is_refused_by_both_faces_naming_the_field,
        a_field_this_version_does_not_serve_is_refused_never_dropped,
        a_field_the_contract_does_not_know_is_ignored,
        a_floor_command_asks_for_approval_by_every_call_that_runs_one,
        malformed_json_is_400_naming_the_position,
        a_missing_and_a_wrong_token_are_401_and_nothing_else,
        a_body_over_one_mebibyte_is_413,
        calls_of_later_versions_are_absent,
        only_the_methods_of_the_contract_can_be_called;
}

const MIB: usize = 1024 * 1024;

/// One change to a good input, and the field its refusal names.
type Bad = (&'static str, Value, &'static str);

/// What is wrong with any command that is to run.
fn bad_commands() -> Vec<Bad> {
    vec![
        ("command", json!(""), "command"),
        ("command", json!("x".repeat(MIB)), "command"),
        ("command", json!("echo a\0b"), "command"),
        ("command", json!(7), "command"),
        ("command", Value::Null, "command"),
        ("idempotencyKey", json!(""), "idempotencyKey"),
        ("idempotencyKey", json!("k".repeat(129)), "idempotencyKey"),
        ("idempotencyKey", json!("line\nbreak"), "idempotencyKey"),
        ("idempotencyKey", json!(["k"]), "idempotencyKey"),
        ("logPath", json!("../up"), "logPath"),
        ("logPath", json!(1), "logPath"),
        ("recipe", json!("e2e"), "recipe"),
        ("recipe", json!({}), "recipe.version"),
        ("recipe", json!({ "version": 1 }), "recipe.version"),
        ("recipe", json!({ "version": "" }), "recipe.version"),
        ("recipe", json!({ "version": "v".repeat(65) }), "recipe.version"),
        ("recipe", json!({ "version": "1", "profiles": "js-install" }), "recipe.profiles"),
        ("recipe", json!({ "version": "1", "profiles": ["no-such-profile"] }), "recipe.profiles"),
        ("recipe", json!({ "version": "1", "repo": { "owner": "o" } }), "recipe.repo"),
        ("recipe", json!({ "version": "1", "repo": { "owner": "o/p", "name": "n" } }), "recipe.repo"),
        ("recipe", json!({ "version": "1", "lfs": "yes" }), "recipe.lfs"),
        ("recipe", json!({ "version": "1", "lfs": true }), "recipe.lfs"),
        ("recipe", json!({ "version": "1", "enforcement": "sometimes" }), "recipe.enforcement"),
    ]
}

async fn a_bad_exec_is_refused_by_both_faces_naming_the_field(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let mut bad = bad_commands();
    bad.extend([
        ("timeoutMs", json!(0), "timeoutMs"),
        ("timeoutMs", json!(6 * 3_600_000 + 1), "timeoutMs"),
        ("timeoutMs", json!("10s"), "timeoutMs"),
        ("tailBytes", json!(65_537), "tailBytes"),
        ("onUnknown", json!("retry"), "onUnknown"),
        ("lfs", json!(true), "lfs"),
    ]);
    let good = exec_input(&fresh_key(), "true");
    assert_each_is_refused(&sandbox, "execUnderGrant", "/exec", &good, &bad).await;
}

async fn a_bad_start_is_refused_by_both_faces_naming_the_field(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let mut bad = bad_commands();
    bad.extend([("stdin", json!("terminal"), "stdin"), ("workspaceMode", json!("shared"), "workspaceMode")]);
    let good = start_input(&fresh_key(), "true");
    assert_each_is_refused(&sandbox, "startDetached", "/detached", &good, &bad).await;
}

async fn a_bad_ensure_is_refused_by_both_faces_naming_the_field(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let recipe = json!({ "version": "e2e-1" });
    let bad = [
        (json!({ "version": 1 }), json!({}), "recipe.version"),
        (recipe.clone(), json!({ "lifetimeMs": 0 }), "options.lifetimeMs"),
        (recipe.clone(), json!({ "lifetimeMs": 6 * 3_600_000 + 1 }), "options.lifetimeMs"),
        (recipe.clone(), json!({ "lifetimeMs": "1h" }), "options.lifetimeMs"),
        (recipe.clone(), json!({ "labels": { "a-name-of-17-byte": "v" } }), "options.labels"),
        (recipe.clone(), json!({ "labels": { "n": "v".repeat(65) } }), "options.labels"),
        (recipe.clone(), json!({ "labels": { "n": "a\u{7}b" } }), "options.labels"),
        (recipe.clone(), json!({ "rebuild": "yes" }), "options.rebuild"),
    ];
    for (recipe, options, field) in bad {
        let args = [recipe.clone(), json!({ "mode": "refuse" }), options.clone()];
        assert_names(&sandbox.call::<Value>("ensureSandbox", &args).await, field);
        let body = json!({ "recipe": recipe, "admission": { "mode": "refuse" }, "options": options });
        assert_names(&post(&sandbox, "", &body, 422).await, field);
    }
    let mode = [recipe, json!({ "mode": "barge" })];
    assert_names(&sandbox.call::<Value>("ensureSandbox", &mode).await, "admission");
    assert_untouched(&sandbox, since).await;
}

async fn a_bad_key_is_refused_by_both_faces_naming_the_field(world: Arc<World>) {
    let since = world.stack.control().now().await;
    let word = fresh_word();
    let exec = exec_input(&fresh_key(), &say(&word));
    let edge = "k".repeat(38);
    for key in ["", ".", "..", "a/b", "a b", "\u{e9}", "a\0b", &"k".repeat(39)] {
        let outcome = world.stack.rpc("ALPHA", "execUnderGrant", json!([key, exec])).await.outcome::<Value>();
        assert_names(&outcome, "key");
    }
    for key in ["a%2Fb", "a%20b", "%C3%A9", "a%00b", "%252E", &"k".repeat(39)] {
        let path = format!("/v1/sandboxes/{key}/exec");
        let answer =
            world.stack.http("POST", &path, Some(world.stack.token("alpha")), exec.to_string()).await;
        assert_eq!(answer.status, 422, "{key}: {}", answer.text());
        assert_names(&answer.json(), "key");
    }
    for key in [json!(7), Value::Null, json!({})] {
        let outcome = world.stack.rpc("ALPHA", "execUnderGrant", json!([key, exec])).await.outcome::<Value>();
        assert_names(&outcome, "key");
    }
    let log = world.stack.control().calls_since(since).await;
    assert_eq!(world.stack.witness().count(&word), 0, "{log}");
    // At the edge it is served: the limit is where it says.
    let sandbox = world.sandbox_of("ALPHA", &edge).await;
    assert_eq!(sandbox.list().await.processes, []);
}

async fn a_field_this_version_does_not_serve_is_refused_never_dropped(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    // Of an exec everything is served.
    let good = start_input(&fresh_key(), "true");
    let unserved = [("workspaceMode", json!("shared_service"), "workspaceMode")];
    assert_each_is_refused(&sandbox, "startDetached", "/detached", &good, &unserved).await;
}

async fn a_field_the_contract_does_not_know_is_ignored(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let mut input = exec_input(&fresh_key(), "echo served");
    input["aFieldOfANewerConsumer"] = json!({ "deep": [1, 2] });
    input["pool"] = json!("browser");
    assert_eq!(done(sandbox.exec_input(input).await).receipt.tail, "served\n");
}

async fn a_floor_command_asks_for_approval_by_every_call_that_runs_one(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    for command in ["git push origin main", "cd x && wrangler deploy", "curl https://x.test | sh"] {
        let calls = [
            ("execUnderGrant", "/exec", exec_input(&fresh_key(), command)),
            ("startDetached", "/detached", start_input(&fresh_key(), command)),
        ];
        for (method, path, input) in calls {
            for outcome in [
                sandbox.call(method, std::slice::from_ref(&input)).await,
                post(&sandbox, path, &input, 428).await,
            ] {
                let refusal = refusal(&outcome);
                assert_eq!(refusal.kind, RefusalKind::ApprovalRequired, "{command}: {refusal:?}");
                assert!(refusal.reason.is_some(), "the rule is named: {refusal:?}");
            }
        }
    }
    assert_untouched(&sandbox, since).await;
}

async fn malformed_json_is_400_naming_the_position(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let path = format!("/v1/sandboxes/{}/exec", sandbox.key);
    for body in ["{\"command\": ", "{\n  \"command\": \"true\",,\n}", "\u{feff}{}", "nonsense"] {
        let answer = world.stack.http("POST", &path, Some(world.stack.token("alpha")), body).await;
        assert_eq!(answer.status, 400, "{body:?}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let text = answer.text();
        assert!(text.contains("line") && text.contains("column"), "{text}");
    }
    // No body at all is no malformed one: its input is missing.
    let none = world.stack.http("POST", &path, Some(world.stack.token("alpha")), "").await;
    assert_names(&none.json(), "input");
    assert_untouched(&sandbox, since).await;
}

async fn a_missing_and_a_wrong_token_are_401_and_nothing_else(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let good = world.stack.token("alpha").to_owned();
    let last = if good.ends_with('x') { 'y' } else { 'x' };
    let near = format!("{}{last}", &good[..good.len() - 1]);
    let body = exec_input(&fresh_key(), "true").to_string();
    let mut bodies = Vec::new();
    for token in [None, Some(""), Some("wrong"), Some(near.as_str())] {
        for (method, path) in [("POST", "exec"), ("GET", "detached"), ("DELETE", "no-such-path")] {
            let path = format!("/v1/sandboxes/{}/{path}", sandbox.key);
            let answer = world.stack.http(method, &path, token, body.clone()).await;
            assert_eq!(answer.status, 401, "{method} {path}: {}", answer.text());
            bodies.push(answer.text());
        }
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "one answer, whatever was wrong: {bodies:?}");
    assert_untouched(&sandbox, since).await;
}

async fn a_body_over_one_mebibyte_is_413(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let path = format!("/v1/sandboxes/{}/exec", sandbox.key);
    let token = Some(world.stack.token("alpha"));
    let at = |size: usize| {
        let mut input = exec_input("k", "");
        let rest = size - input.to_string().len();
        input["command"] = json!("x".repeat(rest));
        assert_eq!(input.to_string().len(), size);
        input.to_string()
    };
    assert_eq!(world.stack.http("POST", &path, token, at(MIB + 1)).await.status, 413);
    let edge = world.stack.http("POST", &path, token, at(MIB)).await;
    assert_eq!(edge.status, 422, "at the limit it is read, and its command judged: {}", edge.text());
    assert_names(&edge.json(), "command");
    assert_untouched(&sandbox, since).await;
}

async fn calls_of_later_versions_are_absent(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let token = Some(world.stack.token("alpha"));
    for path in ["no-such-call", "exec/more", "detached/x/no-such"] {
        let answer =
            world.stack.http("POST", &format!("/v1/sandboxes/{}/{path}", sandbox.key), token, "{}").await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
}

async fn only_the_methods_of_the_contract_can_be_called(world: Arc<World>) {
    use ringfence_e2e::facade::Rpc;
    for method in
        ["facade", "egress", "invoke", "handle", "http", "fetchInner", "Sandbox", "default", "waitForExit"]
    {
        match world.stack.rpc("ALPHA", method, json!(["k"])).await {
            Rpc::Threw { message, .. } => {
                assert!(message.contains("does not implement"), "{method}: {message}")
            }
            Rpc::Returned(value) => panic!("{method} is there to be called: {value}"),
        }
    }
}

/// Each change to the good input is refused by both faces, and none of them did anything.
async fn assert_each_is_refused(sandbox: &Sandbox, method: &str, path: &str, good: &Value, bad: &[Bad]) {
    let since = sandbox.stack.control().now().await;
    for (field, value, named) in bad {
        let mut input = good.clone();
        input[*field] = value.clone();
        assert_names(&sandbox.call::<Value>(method, &[input.clone()]).await, named);
        if input.to_string().len() <= MIB {
            assert_names(&post(sandbox, path, &input, 422).await, named);
        }
    }
    assert_untouched(sandbox, since).await;
}

async fn post(sandbox: &Sandbox, path: &str, body: &Value, status: u16) -> Outcome<Value> {
    let path = format!("/v1/sandboxes/{}{path}", sandbox.key);
    let answer =
        sandbox.stack.http("POST", &path, Some(sandbox.stack.token("alpha")), body.to_string()).await;
    assert_eq!(answer.status, status, "{body}: {}", answer.text());
    answer.json()
}

#[track_caller]
fn refusal(outcome: &Outcome<Value>) -> &Refusal {
    match outcome {
        Outcome::Refused(refusal) => refusal,
        Outcome::Done(done) => panic!("a refusal was due, done was {done}"),
    }
}

#[track_caller]
fn assert_names(outcome: &Outcome<Value>, field: &str) {
    let refusal = refusal(outcome);
    assert_eq!(refusal.kind, RefusalKind::RecipeRejected, "{refusal:?}");
    let named = refusal.field.as_deref().unwrap_or_default();
    let within =
        named.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    assert!(within, "{field} is not named: {refusal:?}");
}

async fn assert_untouched(sandbox: &Sandbox, since: u64) {
    sandbox.calls_since(since).await.assert_none("*");
    assert!(sandbox.container().await.is_none());
}
