//! What can be listed and read: sandboxes by their labels, by the HTTP face and by `ringfence ps`; the identity of
//! what runs; files a command left; and the end that a checkpoint is.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Sandbox, done, fresh_word, long_sleep, recipe, refused};
use ringfence_e2e::stack::{Setup, Stack};
use ringfence_wire::contract::{
    DetachedStatus, Done, Ensured, FileDone, GoneReason, PoolStatusDone, SandboxesDone,
};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared:
        sandboxes_are_listed_by_every_label_asked_for_and_to_their_consumer_alone,
        ps_lists_what_carries_the_label,
        a_process_says_that_it_runs_in_a_sandbox,
        a_file_that_a_command_left_is_read_by_either_face,
        a_path_that_leads_out_is_refused_naming_the_field;
    own Setup::default =>
        after_a_checkpoint_its_processes_are_gone_its_slot_free_and_the_next_call_boots;
}

async fn sandboxes_are_listed_by_every_label_asked_for_and_to_their_consumer_alone(world: Arc<World>) {
    let run = fresh_word();
    let (one, two) = (labelled(&world, &run, "a").await, labelled(&world, &run, "b").await);
    let stack = &world.stack;

    let both = listed(stack, "alpha", &format!("?label=run={run}")).await;
    let mut keys: Vec<_> = both.sandboxes.iter().map(|s| s.key.to_string()).collect();
    keys.sort();
    let mut expected = vec![one.key.clone(), two.key.clone()];
    expected.sort();
    assert_eq!(keys, expected);
    assert!(both.sandboxes.iter().all(|s| s.labels["run"] == run && s.expires_at > s.created_at));

    let last = listed(stack, "alpha", &format!("?label=run={run}&label=part=b")).await;
    assert_eq!(last.sandboxes.iter().map(|s| s.key.as_str()).collect::<Vec<_>>(), [two.key.as_str()]);
    let mixed = listed(stack, "alpha", &format!("?label=part=b&label=run={}", fresh_word())).await;
    assert_eq!(mixed.sandboxes, []);
    assert_eq!(listed(stack, "beta", &format!("?label=run={run}")).await.sandboxes, []);
    let answer = stack.http("GET", "/v1/sandboxes?label=run", Some(stack.token("alpha")), "").await;
    assert_eq!(answer.status, 422, "{}", answer.text());

    one.abort().await;
    let left = listed(stack, "alpha", &format!("?label=run={run}")).await;
    assert_eq!(left.sandboxes.len(), 1, "what ended is not listed: {left:?}");
}

async fn ps_lists_what_carries_the_label(world: Arc<World>) {
    let run = fresh_word();
    let (one, other) = (labelled(&world, &run, "a").await, labelled(&world, &fresh_word(), "a").await);
    let id = done(one.start("sleep 3600").await).process.id.to_string();
    let ps = world.stack.ringfence_said(&["ps", "--label", &format!("run={run}")]).await;
    assert_eq!(ps.code, Some(0), "{ps:?}");
    assert!(ps.out.contains(&one.key) && ps.out.contains(&id) && ps.out.contains("running"), "{}", ps.out);
    assert!(!ps.out.contains(&other.key), "{}", ps.out);
    let json = world.stack.ringfence_said(&["ps", "--json", "--label", &format!("run={run}")]).await;
    let rows: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(rows[0]["sandbox"]["key"], one.key.as_str());
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
}

async fn a_process_says_that_it_runs_in_a_sandbox(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.start("sleep 3600").await);
    let list = sandbox.call::<Value>("detachedList", &[]).await;
    assert_eq!(done(list)["processes"][0]["identity"], "sandboxed_workspace");
}

async fn a_file_that_a_command_left_is_read_by_either_face(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let text = format!("{}\nüber\n", fresh_word());
    for directory in ["/artifacts", "/workspace"] {
        let path = format!("{directory}/left.txt");
        let wrote = done(sandbox.exec(&format!("printf '%s' '{text}' > {path}")).await).receipt;
        assert_eq!(wrote.exit_code, Some(0), "{wrote:?}");
        assert_eq!(done(read(&sandbox, &path).await).content, text);
        assert_eq!(done(get(&sandbox, &path, 200).await).content, text);
    }
}

async fn a_path_that_leads_out_is_refused_naming_the_field(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    // Before anything was booted, and without booting it.
    let since = world.stack.control().now().await;
    refused(read(&sandbox, "/artifacts/x").await, RefusalKind::SandboxUnavailable);
    let log = sandbox.calls_since(since).await;
    log.assert_none("docker POST *");
    log.assert_none("ingress *");

    let links = "ln -s /etc/passwd /artifacts/link; ln -s /etc /artifacts/up; mkdir /artifacts/directory";
    done(sandbox.exec(links).await);
    for path in [
        "/etc/passwd",
        "/artifacts/../etc/passwd",
        "/artifacts/link",
        "/artifacts/up/passwd",
        "/artifacts/directory",
        "/artifacts/absent",
        "/proc/1/environ",
        "artifacts/x",
        "",
    ] {
        let refusal = refused(read(&sandbox, path).await, RefusalKind::RecipeRejected);
        assert_eq!(refusal.field.as_deref(), Some("path"), "{path}: {refusal:?}");
        let refusal = refused(get(&sandbox, path, 422).await, RefusalKind::RecipeRejected);
        assert_eq!(refusal.field.as_deref(), Some("path"), "{path}: {refusal:?}");
    }
}

async fn after_a_checkpoint_its_processes_are_gone_its_slot_free_and_the_next_call_boots(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let (process, init) = (sandbox.process_with(&mark).await, sandbox.init().await);
    assert!(process.is_alive() && init.is_alive());
    assert_eq!(busy(&world).await, 1);

    done(sandbox.call::<Done>("checkpoint", &[json!("the night begins")]).await);

    assert!(!process.is_alive() && !init.is_alive());
    assert_eq!(busy(&world).await, 0);
    match sandbox.status(id.as_str()).await {
        DetachedStatus::Gone { reason: GoneReason::Checkpointed, is_final: true, detail } => {
            assert!(detail.contains("the night begins"), "{detail}");
        }
        other => panic!("checkpointed was due, not {other:?}"),
    }
    for reason in [json!(""), json!("r".repeat(257)), json!(7)] {
        let refusal =
            refused(sandbox.call::<Done>("checkpoint", &[reason]).await, RefusalKind::RecipeRejected);
        assert_eq!(refusal.field.as_deref(), Some("reason"));
    }
    assert_eq!(done(sandbox.exec("echo anew").await).receipt.tail, "anew\n");
}

/// A sandbox that is up and labelled.
pub async fn labelled(world: &World, run: &str, part: &str) -> Sandbox {
    let sandbox = world.sandbox().await;
    let options = json!({ "labels": { "run": run, "part": part } });
    let args = [recipe(), json!({ "mode": "refuse" }), options];
    done(sandbox.call::<Ensured>("ensureSandbox", &args).await);
    sandbox
}

async fn listed(stack: &Stack, consumer: &str, query: &str) -> SandboxesDone {
    let answer = stack.http("GET", &format!("/v1/sandboxes{query}"), Some(stack.token(consumer)), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    done(answer.json())
}

async fn read(sandbox: &Sandbox, path: &str) -> Outcome<FileDone> {
    sandbox.call("readFile", &[json!(path)]).await
}

async fn get(sandbox: &Sandbox, path: &str, status: u16) -> Outcome<FileDone> {
    let path = format!("/v1/sandboxes/{}/files?path={path}", sandbox.key);
    let answer = sandbox.stack.http("GET", &path, Some(sandbox.stack.token("alpha")), "").await;
    assert_eq!(answer.status, status, "{}", answer.text());
    answer.json()
}

async fn busy(world: &World) -> u32 {
    let pools = done(world.stack.rpc("ALPHA", "poolStatus", json!([])).await.outcome::<PoolStatusDone>());
    pools.pools.iter().map(|pool| pool.busy).sum()
}
