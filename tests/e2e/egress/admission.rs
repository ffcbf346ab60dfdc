//! When a request is let out: between a fence's apply and its close, under its grant, and never else.

use super::{Fence, WHILE_LONGER, client, is_refused_for, reading, refused_for};
use crate::world::{World, tests, with_origins};
use ringfence_e2e::control::{Action, Match};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, fresh_word, now_ms};
use ringfence_e2e::origin::Seen;
use ringfence_wire::contract::Granted;
use std::sync::Arc;
use tokio::time::sleep;

tests! {
    with origins:
        a_detached_process_that_dials_without_end_is_let_out_only_inside_a_fence_and_only_by_its_grant;
    own with_origins =>
        a_fence_whose_runtime_was_killed_lets_nothing_out_and_is_closed_before_anything_else,
        after_a_restart_a_granted_command_does_not_run_before_its_way_out_is_set;
}

async fn a_detached_process_that_dials_without_end_is_let_out_only_inside_a_fence_and_only_by_its_grant(
    world: Arc<World>,
) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    let urls = format!("https://pages.test/{word} https://other.test/{word}");
    done(sandbox.start(&client(&world, &format!("dial {urls}"))).await);

    // Before any fence it dials, and reaches nobody.
    is_refused_for(&sandbox, "pages.test", "no-grant").await;
    sleep(WHILE_LONGER).await;
    assert_eq!(origins.seen(&word).len(), 0, "nothing left before the fence");

    for (granted, denied) in [("pages.test", "other.test"), ("other.test", "pages.test")] {
        let before = (origins.seen(&word).len(), now_ms(), world.stack.control().now().await);
        let fence = Fence::open(&world, &sandbox, reading(&[granted], ""));
        let enough = || std::future::ready((origins.seen(&word).len() >= before.0 + 5).then_some(()));
        eventually("five requests leave inside the fence", enough).await;
        let exec = fence.close().await;
        let after = now_ms();
        assert_eq!(exec.granted, [Granted { host: granted.to_owned(), profile: "browser-fetch".to_owned() }]);

        let denied_before = refused_for(&sandbox, granted, "no-grant").await;
        sleep(WHILE_LONGER).await;
        let inside: Vec<Seen> = origins.seen(&word).split_off(before.0);
        assert!(inside.iter().all(|seen| seen.host == granted), "only the granted host: {inside:?}");
        assert!(refused_for(&sandbox, denied, "host").await > 0, "the other was asked for, and refused");
        let log = sandbox.calls_since(before.2).await;
        let torn_down = log.matching("ingress POST /v1/teardown")[0].at_ms;
        for seen in &inside {
            assert!(seen.at_ms >= before.1, "{seen:?} left before the exec was called");
            assert!(seen.at_ms <= after, "{seen:?} left after the exec was answered at {after}");
        }
        let late = inside.iter().filter(|seen| seen.at_ms > torn_down).count();
        assert!(late <= 1, "{late} requests reached their origin after the grant was closed");
        assert!(
            refused_for(&sandbox, granted, "no-grant").await > denied_before + 5,
            "it dialled on after the fence, and was refused"
        );
    }
}

async fn a_fence_whose_runtime_was_killed_lets_nothing_out_and_is_closed_before_anything_else(
    world: Arc<World>,
) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    done(sandbox.start(&client(&world, &format!("dial https://pages.test/{word}"))).await);
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    origins.met(&word).await;
    let since = world.stack.control().now().await;
    let Fence { gate: _closed, exec } = fence;

    world.stack.kill_workerd().await;
    let _ = exec.await;
    let (killed, left) = (now_ms(), origins.seen(&word).len());

    // The first call on the new incarnation looks; the dialler dials on, and nothing of it leaves.
    sandbox.list().await;
    sleep(WHILE_LONGER).await;
    assert_eq!(origins.seen(&word).len(), left, "no grant outlived the object that applied it");

    // A fence without a grant: it finds the stale one, closes it first, and opens nothing.
    done(sandbox.exec("true").await);
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown", "ingress POST /v1/jobs", "ingress POST /v1/teardown"]);
    is_refused_for(&sandbox, "pages.test", "no-grant").await;
    assert_eq!(origins.seen(&word).len(), left);

    // And the next grant works, for its own fence.
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    let again = || std::future::ready((origins.seen(&word).len() > left).then_some(()));
    eventually("it is let out again", again).await;
    fence.close().await;
    let last = origins.seen(&word).len();
    sleep(WHILE_LONGER).await;
    assert_eq!(origins.seen(&word).len(), last);
    assert!(origins.seen(&word)[left..].iter().all(|seen| seen.at_ms > killed));
}

async fn after_a_restart_a_granted_command_does_not_run_before_its_way_out_is_set(world: Arc<World>) {
    const LATE_MS: u64 = 2_000;
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    done(sandbox.ensure().await);
    let way_out = Match { plane: "sidecar".to_owned(), ..sandbox.ingress("PUT", "/egress") };
    world.stack.control().fault(way_out, Action::Delay { ms: LATE_MS }, 2).await;
    world.stack.kill_workerd().await;
    world.stack.answers().await;
    let since = world.stack.control().now().await;
    let ask = format!("curl -s -o /dev/null -w '%{{http_code}}' https://pages.test/{word}");

    let exec = done(sandbox.exec_input(reading(&["pages.test"], &ask)).await);

    assert_eq!(exec.receipt.tail, "200", "its first request is let out");
    let log = sandbox.calls_since(since).await;
    let at = |pattern: &str| log.matching(pattern)[0].at_ms;
    assert!(at("ingress POST /v1/jobs") >= at("sidecar PUT /egress") + LATE_MS, "{log}");
}
