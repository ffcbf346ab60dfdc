//! `ensureSandbox` with a repository: cloned under a grant of its own, scrubbed, whole or not there at all.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, refused, start_input};
use ringfence_e2e::mirror::{LFS_TEXT, Mirror, README, SIDE_README};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{Ensured, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    mirrored:
        ensure_clones_the_repository_and_leaves_no_remote_no_credential_and_no_grant,
        a_reference_is_a_branch_a_tag_or_a_commit,
        a_second_ensure_finds_what_is_there_and_another_version_is_built_anew,
        another_repository_waits_for_what_is_declared_unless_a_rebuild_is_asked_for,
        a_clone_that_fails_is_refused_with_gits_last_lines_and_leaves_no_container,
        a_process_that_is_started_finds_the_repository,
        large_files_come_only_when_asked_for,
        an_lfs_upload_is_refused_whatever_it_is_called;
    own crate::world::mirrored =>
        a_clone_that_was_lost_half_way_is_begun_anew;
}

fn repo(name: &str) -> Value {
    json!({ "owner": "acme", "name": name })
}

fn recipe(version: &str, repo: Value) -> Value {
    json!({ "version": version, "repo": repo })
}

async fn ensure(sandbox: &Sandbox, recipe: &Value, options: Value) -> Outcome<Ensured> {
    sandbox.call("ensureSandbox", &[recipe.clone(), json!({ "mode": "refuse" }), options]).await
}

/// What a command says that runs without any grant, in the container that is there.
async fn look(sandbox: &Sandbox, version: &str, command: &str) -> String {
    let mut input = exec_input(&fresh_key(), command);
    input["recipe"] = json!({ "version": version });
    done(sandbox.exec_input(input).await).receipt.tail
}

async fn ensure_clones_the_repository_and_leaves_no_remote_no_credential_and_no_grant(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    let since = world.stack.control().now().await;
    let before = mirror.arrived("github.com", "/acme/widget.git/git-upload-pack").len();
    let ensured = done(ensure(&sandbox, &recipe("1", repo("widget")), json!({})).await);
    assert_eq!((ensured.generation, ensured.rebuilt), (1, true));
    assert!(mirror.arrived("github.com", "/acme/widget.git/git-upload-pack").len() > before);

    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/jobs", "ingress POST /v1/teardown"]);
    assert_eq!(log.count("ingress POST /v1/jobs"), 1, "the clone, as a fence: {log}");

    let state = look(
        &sandbox,
        "1",
        "cat README sub/dir/file; git status --porcelain; git log --format=%s; echo \"remotes [$(git remote)]\"; \
         grep -rl -e github.com -e acme .git | grep -v -e '^.git/objects' ; \
         ls -A ~ | grep -e netrc -e git-credentials; git config --local --get-regexp 'credential|remote|url'; \
         curl -s -o /dev/null -w '%{http_code}\\n' 'https://github.com/acme/widget.git/info/refs?service=git-upload-pack'",
    )
    .await;
    assert_eq!(state, format!("{README}deep\nBegin\nremotes []\n403\n"));
    let refused = sandbox.denials().await;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].reason, "no-grant");
}

async fn a_reference_is_a_branch_a_tag_or_a_commit(world: Arc<World>) {
    let mirror = Mirror::of_this_process();
    let commit = std::fs::read_to_string(mirror.repository("acme/widget.git").join("packed-refs"))
        .expect("a bare clone packs its references")
        .lines()
        .find_map(|line| line.strip_suffix(" refs/heads/side").map(str::to_owned))
        .expect("the branch");
    for (reference, text) in [("side", SIDE_README), ("v1", README), (commit.as_str(), SIDE_README)] {
        let sandbox = world.sandbox().await;
        let mut repo = repo("widget");
        repo["ref"] = json!(reference);
        done(ensure(&sandbox, &recipe("1", repo), json!({})).await);
        assert_eq!(look(&sandbox, "1", "cat README; git remote").await, text, "{reference}");
        sandbox.abort().await;
    }
}

async fn a_second_ensure_finds_what_is_there_and_another_version_is_built_anew(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let first = done(ensure(&sandbox, &recipe("1", repo("other")), json!({})).await);
    look(&sandbox, "1", "echo kept > mine").await;
    let since = world.stack.control().now().await;
    let again = done(ensure(&sandbox, &recipe("1", repo("other")), json!({})).await);
    assert_eq!((again.generation, again.rebuilt), (first.generation, false));
    sandbox.calls_since(since).await.assert_none("ingress POST /v1/jobs");
    assert_eq!(look(&sandbox, "1", "cat mine README").await, "kept\nanother's\n");

    let next = done(ensure(&sandbox, &recipe("2", repo("other")), json!({})).await);
    assert_eq!((next.generation, next.rebuilt), (first.generation + 1, true));
    assert_eq!(look(&sandbox, "2", "ls; git status --porcelain").await, "README\n");
}

async fn another_repository_waits_for_what_is_declared_unless_a_rebuild_is_asked_for(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let first = done(ensure(&sandbox, &recipe("e2e-1", repo("widget")), json!({})).await);
    let process = done(sandbox.start("sleep 600").await).process;
    let other = recipe("e2e-1", repo("other"));
    let refusal = refused(ensure(&sandbox, &other, json!({})).await, RefusalKind::RecipeRejected);
    assert_eq!(
        (refusal.field.as_deref(), refusal.reason.as_deref()),
        (Some("recipe.repo"), Some("rebuild-needed"))
    );
    let rebuilt = done(ensure(&sandbox, &other, json!({ "rebuild": true })).await);
    assert_eq!((rebuilt.generation, rebuilt.rebuilt), (first.generation + 1, true));
    assert_eq!(look(&sandbox, "e2e-1", "cat README").await, "another's\n");
    let status = sandbox.status(process.id.as_str()).await;
    assert!(matches!(status, ringfence_wire::contract::DetachedStatus::Gone { .. }), "{status:?}");
}

async fn a_clone_that_fails_is_refused_with_gits_last_lines_and_leaves_no_container(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let refusal = refused(
        ensure(&sandbox, &recipe("1", repo("no-such")), json!({})).await,
        RefusalKind::SandboxUnavailable,
    );
    assert_eq!(
        (refusal.field.as_deref(), refusal.reason.as_deref()),
        (Some("recipe.repo"), Some("clone-failed"))
    );
    assert!(refusal.message.contains("not found"), "git's own words: {}", refusal.message);
    assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));

    let mut missing = repo("widget");
    missing["ref"] = json!("no-such-branch");
    let refusal =
        refused(ensure(&sandbox, &recipe("1", missing), json!({})).await, RefusalKind::SandboxUnavailable);
    assert!(refusal.message.contains("no-such-branch"), "{}", refusal.message);
    assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));

    // An exec is refused likewise and its key is free again.
    let word = fresh_word();
    let mut input = exec_input(&fresh_key(), &say(&word));
    input["recipe"] = recipe("1", repo("no-such"));
    let refusal = refused(sandbox.exec_input(input.clone()).await, RefusalKind::SandboxUnavailable);
    assert_eq!(refusal.reason.as_deref(), Some("clone-failed"));
    assert_eq!(world.stack.witness().count(&word), 0, "the command did not run");

    done(ensure(&sandbox, &recipe("1", repo("widget")), json!({})).await);
    assert_eq!(look(&sandbox, "1", "cat README").await, README);
}

async fn a_process_that_is_started_finds_the_repository(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let mut input = start_input(&fresh_key(), &format!("test -f README && {}; sleep 600", say(&word)));
    input["recipe"] = recipe("1", repo("widget"));
    done(sandbox.call::<StartDetachedDone>("startDetached", &[input]).await);
    world.stack.witness().heard(&word).await;
}

async fn large_files_come_only_when_asked_for(world: Arc<World>) {
    let (with, without) = (world.sandbox().await, world.sandbox().await);
    let mut asked = recipe("1", repo("large"));
    asked["lfs"] = json!(true);
    done(ensure(&with, &asked, json!({})).await);
    let state = look(&with, "1", "cat large.bin; git status --porcelain; git remote; git config --local --get-regexp '^lfs\\.http|remote'").await;
    assert_eq!(state, LFS_TEXT);
    done(ensure(&without, &recipe("1", repo("large")), json!({})).await);
    let pointer = look(&without, "1", "head -n 1 large.bin").await;
    assert_eq!(pointer, "version https://git-lfs.github.com/spec/v1\n");
}

async fn an_lfs_upload_is_refused_whatever_it_is_called(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    let at = "https://github.com/acme/upload.git/info/lfs/objects/batch";
    let post = |body: &str| {
        format!(
            "curl -sS -o /dev/null -w '%{{http_code}} ' -H 'Content-Type: application/vnd.git-lfs+json' -d '{body}' {at}; "
        )
    };
    let command = [
        r#"{"operation":"download","objects":[]}"#,
        r#"{"operation":"upload","objects":[]}"#,
        r#"{"operation":"download","operation":"upload"}"#,
        r#"{"operation":"download"}{"operation":"upload"}"#,
    ]
    .map(post)
    .concat();
    let asks = |lfs: bool| {
        let mut input = exec_input(&fresh_key(), &command);
        input["recipe"] = recipe("1", repo("upload"));
        input["lfs"] = json!(lfs);
        input
    };
    let before = mirror.arrived("github.com", "/acme/upload.git/info/lfs").len();
    assert_eq!(done(sandbox.exec_input(asks(false)).await).receipt.tail, "403 403 403 403 ");
    assert_eq!(
        mirror.arrived("github.com", "/acme/upload.git/info/lfs").len(),
        before,
        "without the wish nothing leaves"
    );
    assert_eq!(done(sandbox.exec_input(asks(true)).await).receipt.tail, "200 403 403 403 ");
    assert_eq!(
        mirror.arrived("github.com", "/acme/upload.git/info/lfs").len(),
        before + 1,
        "the download alone left"
    );
    let denials = sandbox.denials().await;
    let of = |reason: &str| denials.iter().filter(|d| d.reason == reason).map(|d| d.count).sum::<u64>();
    assert_eq!((of("path"), of("upload-intent")), (4, 3), "{denials:?}");
}

async fn a_clone_that_was_lost_half_way_is_begun_anew(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    // A repository of this test's own: what is held is held for everyone.
    const PATH: &str = "/acme/held.git/git-upload-pack";
    mirror.hold(PATH);
    let meanwhile = {
        let sandbox = sandbox.clone();
        tokio::spawn(async move {
            sandbox.try_call("ensureSandbox", &[recipe("1", repo("held")), json!({ "mode": "refuse" })]).await
        })
    };
    mirror.met("github.com", PATH).await;
    let init = sandbox.init().await;
    world.stack.kill_workerd().await;
    mirror.release();
    // Its caller lost the answer with the runtime.
    drop(meanwhile.await);
    let ensured = done(ensure(&sandbox, &recipe("1", repo("held")), json!({})).await);
    assert_eq!((ensured.generation, ensured.rebuilt), (2, true));
    assert!(!init.is_alive(), "the half checkout went with its container");
    assert_eq!(look(&sandbox, "1", "cat README; git remote; git status --porcelain").await, README);
}
