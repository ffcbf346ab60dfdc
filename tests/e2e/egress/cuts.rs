//! What a revoke does to requests under way: each is cut, at its origin and at its client.

use super::{Fence, client, reading, refused_for};
use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, fresh_word, now_ms};
use ringfence_e2e::origin::{Ended, Seen};
use ringfence_wire::contract::ReceiptEnd;
use ringfence_wire::supervisor::TeardownMode;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

tests! {
    with origins:
        every_request_under_way_is_cut_at_the_revoke_after_quiet_seconds,
        a_kept_connection_and_a_long_download_get_next_to_nothing_after_the_revoke,
        a_command_that_ignores_term_is_let_out_no_more_once_it_timed_out,
        what_a_command_left_and_ignores_term_is_let_out_no_more_once_the_command_ended;
}

/// Longer than the runtime keeps an object that nothing asks of.
const QUIET: Duration = Duration::from_secs(16);
const CUT_WITHIN_MS: u64 = 1_000;
/// What may reach a client after the cut: what was already on its way to it.
const STRAY_BYTES: u64 = 1 << 20;
/// TERM to KILL.
const GRACE_MS: u64 = 5_000;
/// From a timeout inside the container to the object's hearing of it, on a loaded machine.
const HEARD_WITHIN_MS: u64 = 500;

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

async fn a_kept_connection_and_a_long_download_get_next_to_nothing_after_the_revoke(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    const LENGTH: u64 = 1 << 30;
    // One reads as fast as it can, one slowly enough that every buffer on the way is full, one tires when the buffers
    // have grown for a fast reader, one asks for a larger buffer; of either framing.
    let drains: Vec<(String, String, &str)> = ["long", "long-chunked"]
        .into_iter()
        .flat_map(|kind| {
            let paces = [
                ("fast", "0 0 0"),
                ("slow", "0.05 0 0"),
                ("tired", "0.05 33554432 0"),
                ("greedy", "0.05 0 16777216"),
            ];
            paces.map(|(name, pace)| {
                (format!("{word}-{kind}-{name}"), format!("/{word}/{name}/{kind}-{LENGTH}"), pace)
            })
        })
        .collect();
    let kept = format!("/{word}/kept");
    done(sandbox.start(&client(&world, &format!("keep {word}-kept pages.test {kept}"))).await);
    for (name, path, pace) in &drains {
        let drain = format!("drain {name} pages.test {path} {pace}");
        done(sandbox.start(&client(&world, &drain)).await);
    }
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    for name in drains.iter().map(|(name, ..)| name.clone()).chain([format!("{word}-kept")]) {
        world.stack.witness().heard(&format!("{name} held")).await;
    }
    let often = || std::future::ready((origins.seen(&kept).len() > 3).then_some(()));
    eventually("it asks again and again on its connection", often).await;

    let exec = fence.close().await;
    let answered = now_ms();
    assert_eq!(exec.teardown.mode, TeardownMode::Selective, "nobody was tainted");

    let over = world.stack.witness().heard_after(&format!("{word}-kept over ")).await;
    let asked: u64 = over.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
    // The last that its origin saw may have been cut under way.
    assert!(asked >= 3, "it was let out while the fence was open: {over}");
    assert!(!over.ends_with(" 200"), "and refused after: {over}");
    assert!(origins.seen(&kept).iter().all(|seen| seen.at_ms <= answered));
    for (name, path, _) in &drains {
        let (ended, how) = origins.ended(path).await;
        assert_eq!(how, Ended::Cut, "{name}");
        assert!(
            ended <= answered + CUT_WITHIN_MS,
            "{name}: its origin saw the end {} ms late",
            ended - answered
        );
        world.stack.witness().show(&format!("{name}.end"), &ended.to_string());
        let over = world.stack.witness().heard_after(&format!("{name} over ")).await;
        let counts: Vec<u64> = over.split(' ').map(|count| count.parse().expect("a count")).collect();
        assert!(counts[0] > 0 && counts[0] < LENGTH, "{name}: {over}");
        eprintln!("{name}: {} of {} bytes came after the cut", counts[1], counts[0]);
        assert!(counts[1] < STRAY_BYTES, "{name}: {} bytes came after the cut", counts[1]);
    }
}

async fn a_command_that_ignores_term_is_let_out_no_more_once_it_timed_out(world: Arc<World>) {
    const TIMEOUT_MS: u64 = 6_000;
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    done(sandbox.ensure().await);
    let since = world.stack.control().now().await;
    let mut input = reading(&["pages.test"], &client(&world, &format!("deaf https://pages.test/{word}")));
    input["timeoutMs"] = json!(TIMEOUT_MS);
    let exec = done(sandbox.exec_input(input).await);
    let answered = now_ms();

    assert_eq!(exec.receipt.end, ReceiptEnd::TimedOut);
    let begun = sandbox.calls_since(since).await.matching("ingress POST /v1/jobs")[0].at_ms;
    let timed_out = begun + TIMEOUT_MS;
    assert!(answered >= timed_out + GRACE_MS, "it lived through its grace");
    assert_let_out_until(&origins.seen(&word), timed_out + HEARD_WITHIN_MS);
    assert!(refused_for(&sandbox, "pages.test", "no-grant").await > 5, "it dialled on meanwhile");
}

async fn what_a_command_left_and_ignores_term_is_let_out_no_more_once_the_command_ended(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    done(sandbox.ensure().await);
    let since = world.stack.control().now().await;
    let deaf = client(&world, &format!("deaf https://pages.test/{word}"));
    let gate = world.stack.witness().gate();
    let command = format!("setsid {} & {}", deaf.trim_start_matches("exec "), gate.wait());
    let exec = tokio::spawn({
        let (sandbox, input) = (sandbox.clone(), reading(&["pages.test"], &command));
        async move { sandbox.exec_input(input).await }
    });
    let often = || std::future::ready((origins.seen(&word).len() > 3).then_some(()));
    eventually("it is let out while the command runs", often).await;
    gate.open();
    let exec = done(exec.await.expect("the call was not cancelled"));
    let answered = now_ms();

    assert_eq!(exec.receipt.exit_code, Some(0));
    let torn_down = sandbox.calls_since(since).await.matching("ingress POST /v1/teardown")[0].at_ms;
    assert!(answered >= torn_down + GRACE_MS, "what it left lived through its grace");
    assert_let_out_until(&origins.seen(&word), torn_down + HEARD_WITHIN_MS);
    assert!(refused_for(&sandbox, "pages.test", "no-grant").await > 5, "it dialled on meanwhile");
}

#[track_caller]
fn assert_let_out_until(seen: &[Seen], end: u64) {
    assert!(seen.len() > 3, "it was let out while it might be: {seen:?}");
    let late = seen.iter().filter(|seen| seen.at_ms > end).count();
    assert_eq!(late, 0, "{late} of {} requests left too late", seen.len());
}
