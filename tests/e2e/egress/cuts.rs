//! What a revoke does to requests under way: each is cut, at its origin and at its client.

use super::{Fence, client, reading, refused_for};
use crate::world::{World, tests};
use ringfence_e2e::facade::{done, fresh_word, now_ms};
use ringfence_e2e::origin::Ended;
use ringfence_wire::supervisor::TeardownMode;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

tests! {
    with origins:
        every_request_under_way_is_cut_at_the_revoke_after_quiet_seconds;
}

/// Longer than the runtime keeps an object that nothing asks of.
const QUIET: Duration = Duration::from_secs(16);
const CUT_WITHIN_MS: u64 = 1_000;

/// A request that a detached process holds open.
struct Held {
    kind: &'static str,
    host: &'static str,
    path: String,
}

async fn every_request_under_way_is_cut_at_the_revoke_after_quiet_seconds(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    let download =
        |name: &str| Held { kind: "download", host: "pages.test", path: format!("/{word}/{name}") };
    let upload = |kind, owner: &str| Held {
        kind,
        host: "github.com",
        path: format!("/{owner}/{word}/git-upload-pack"),
    };
    let held = [
        download("quiet-known"),
        download("quiet-chunked"),
        upload("upload-known", "known"),
        upload("upload-chunked", "chunked"),
    ];
    for (at, Held { kind, host, path }) in held.iter().enumerate() {
        done(sandbox.start(&client(&world, &format!("hold {word}-{at} {kind} {host} {path}"))).await);
    }
    let mut input = reading(&["pages.test"], "");
    input["recipe"]["profiles"] = json!(["browser-fetch", "public-repo-read"]);
    let fence = Fence::open(&world, &sandbox, input);
    for (at, Held { path, .. }) in held.iter().enumerate() {
        world.stack.witness().heard(&format!("{word}-{at} held")).await;
        assert_eq!(origins.met(path).await.ended, None);
    }
    sleep(QUIET).await;
    for Held { path, .. } in &held {
        assert_eq!(origins.met(path).await.ended, None, "alive before: {path}");
    }

    let since = world.stack.control().now().await;
    let exec = fence.close().await;
    let answered = now_ms();

    assert_eq!(exec.teardown.mode, TeardownMode::Selective, "nobody was tainted");
    let torn_down = sandbox.calls_since(since).await.matching("ingress POST /v1/teardown")[0].at_ms;
    for (at, Held { path, kind, host }) in held.iter().enumerate() {
        let (ended, how) = origins.ended(path).await;
        assert_eq!(how, Ended::Cut, "{path}");
        assert!(ended >= torn_down, "{path} was cut before the teardown");
        assert!(ended <= answered + CUT_WITHIN_MS, "{path} ended {} ms late", ended - answered);
        let over = world.stack.witness().heard_after(&format!("{word}-{at} over ")).await;
        let how = over.split(' ').nth(1).unwrap_or_default();
        // PLATFORM §5.1: a cut body of unknown length looks whole to the client; the denial is what tells.
        let seen = if path.ends_with("quiet-chunked") { "whole" } else { "short" };
        assert!(how == seen || how.ends_with("Error"), "{path}: {over}");
        let recorded = refused_for(&sandbox, host, "cut").await;
        assert_eq!(recorded, 2, "{kind} of {host}");
    }
    assert_eq!(origins.seen(&word).len(), held.len(), "each left once");
}
