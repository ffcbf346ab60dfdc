//! What jobs left beneath the artifact path, and their whole logs: listed and read, the part that the ring in memory no
//! longer holds too.

use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, refused};
use ringfence_wire::contract::DetachedStatus;
use ringfence_wire::refusal::{Outcome, RefusalKind};
use ringfence_wire::supervisor::{ArtifactPage, ArtifactSource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;

tests! {
    shared:
        what_jobs_left_and_their_whole_logs_are_listed_and_read_page_by_page,
        the_whole_log_of_a_process_is_printed_by_the_command_line;
}

async fn what_jobs_left_and_their_whole_logs_are_listed_and_read_page_by_page(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    // More than is held in memory.
    let lines = 200_000;
    let mut input = exec_input(
        &fresh_key(),
        &format!("mkdir -p /artifacts/out; printf kept > /artifacts/out/file; seq {lines}"),
    );
    input["logPath"] = json!("ci/build.log");
    done(sandbox.exec_input(input).await);
    let whole: String = (1..=lines).map(|n| format!("{n}\n")).collect();

    let rpc: Value = done(sandbox.call("artifacts", &[]).await);
    let http: Value = done(get(&sandbox, "artifacts", 200).await);
    assert_eq!(rpc, http);
    assert_eq!(rpc["more"], false);
    let listed = |source: &str, path: &str, bytes: usize| {
        let row = json!({ "source": source, "path": path, "bytes": bytes });
        assert!(rpc["artifacts"].as_array().is_some_and(|all| all.contains(&row)), "{row} in {rpc}");
    };
    listed("log", "ci/build.log", whole.len());
    listed("file", "out/file", 4);

    // What a job writes under a log's name is not its log.
    done(sandbox.exec("mkdir -p /artifacts/ci; printf forged > /artifacts/ci/build.log").await);
    let (mut read, mut cursor) = (String::new(), 0);
    loop {
        let page: ArtifactPage =
            done(sandbox.call("artifact", &[json!("ci/build.log"), json!(cursor), json!(100_000)]).await);
        assert_eq!((page.source, page.truncated), (ArtifactSource::Log, None));
        read.push_str(&page.content);
        cursor = page.next.0;
        if page.eof {
            break;
        }
    }
    assert!(read == whole, "{} of {} bytes", read.len(), whole.len());
    let page: ArtifactPage = done(get(&sandbox, "artifacts/ci/build.log?source=file", 200).await);
    assert_eq!((page.content.as_str(), page.source), ("forged", ArtifactSource::File));
    let page: ArtifactPage = done(get(&sandbox, "artifacts/out/file?cursor=1&limit=4", 200).await);
    assert_eq!((page.content.as_str(), page.source, page.eof), ("ept", ArtifactSource::File, true));

    for (path, field) in [
        ("artifacts/absent", "path"),
        ("artifacts/ci_build.log", "path"),
        ("artifacts/out/file?source=log", "path"),
        ("artifacts/out/file?source=disk", "source"),
        ("artifacts/out/file?processId=a%20b", "processId"),
        ("artifacts/out/file?limit=3", "limit"),
        ("artifacts/out", "path"),
    ] {
        let refusal = refused(get::<ArtifactPage>(&sandbox, path, 422).await, RefusalKind::RecipeRejected);
        assert_eq!(refusal.field.as_deref(), Some(field), "{path}: {refusal:?}");
        assert!(!refusal.message.contains("os error"), "{refusal:?}");
    }
}

async fn the_whole_log_of_a_process_is_printed_by_the_command_line(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let lines = 200_000;
    let id = done(sandbox.start(&format!("seq {lines}; printf '\\377'")).await).process.id;
    eventually("the process has exited", async || {
        matches!(sandbox.status(id.as_str()).await, DetachedStatus::Exited { .. }).then_some(())
    })
    .await;
    let said = world.stack.ringfence(&["logs", "--whole", &sandbox.key]).output().await.expect("it ends");
    let mut whole: Vec<u8> = (1..=lines).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    whole.push(0xff);
    assert!(said.status.success() && said.stdout == whole, "{said:?}");
    // Another's log under the same path does not stand for it.
    done(sandbox.exec("echo another").await);
    done(sandbox.start("echo another").await);
    let again = world
        .stack
        .ringfence(&["logs", "--whole", &sandbox.key, id.as_str()])
        .output()
        .await
        .expect("it ends");
    assert!(again.status.success() && again.stdout == whole, "{again:?}");
    let both = world.stack.ringfence_said(&["logs", "--whole", "--follow", &sandbox.key]).await;
    assert_eq!(both.code, Some(2), "{both:?}");
}

async fn get<T: DeserializeOwned + Debug>(sandbox: &Sandbox, path: &str, status: u16) -> Outcome<T> {
    let path = format!("/v1/sandboxes/{}/{path}", sandbox.key);
    let answer = sandbox.stack.http("GET", &path, Some(sandbox.stack.token("alpha")), "").await;
    assert_eq!(answer.status, status, "{}", answer.text());
    answer.json()
}
