//! The order of effects around a grant when a part of it fails: nothing is left open, and what cannot be proven ended
//! takes its container with it.

use super::{Fence, WHILE_LONGER, client, is_refused_for, reading, refused_for};
use crate::world::{World, tests, with_origins};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{FIXTURE, Rpc, done, exec_input, fresh_word, refused};
use ringfence_e2e::http::send;
use ringfence_wire::contract::{DetachedStatus, ExecDone};
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use ringfence_wire::internal::{
    AskedHop, EgressCall, INTERNAL_VERSION, PassageEnd, SandboxCall, SandboxRequest,
};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use ringfence_wire::supervisor::TeardownMode;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::sleep;

tests! {
    with origins:
        a_fence_with_a_grant_runs_closes_tears_down_and_revokes_in_that_order,
        legacy_forwards_what_enforce_refuses_and_says_nothing,
        a_panic_after_the_grant_was_applied_leaves_nothing_open,
        a_request_whose_end_is_never_told_takes_the_container_with_it,
        another_worker_that_poses_as_a_sandboxs_egress_gets_nothing_while_its_fence_is_open,
        a_worker_bound_straight_to_the_object_gets_no_passage_while_its_fence_is_open;
    own with_origins =>
        a_stale_fence_of_any_position_lets_nothing_out_and_is_closed_before_anything_else;
}

async fn a_fence_with_a_grant_runs_closes_tears_down_and_revokes_in_that_order(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    // The request is held by a process that the teardown spares: what ends it can only be the revoke.
    let path = format!("/{word}/quiet-known");
    let held = client(&world, &format!("hold {word} download pages.test {path}"));
    done(sandbox.start(&held).await);
    let since = world.stack.control().now().await;
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    let seen = origins.met(&path).await;
    world.stack.witness().heard(&format!("{word} held")).await;

    let exec = fence.close().await;

    assert_eq!(exec.teardown.mode, TeardownMode::Selective);
    let (ended, _) = origins.ended(&path).await;
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/jobs", "ingress POST /v1/teardown"]);
    let at = |pattern: &str| log.matching(pattern)[0].at_ms;
    assert!(seen.at_ms >= at("ingress POST /v1/jobs") - 50, "nothing is let out before the command runs");
    assert!(ended >= at("ingress POST /v1/teardown"), "cut only after the kill");
    assert_eq!(log.count("ingress POST /v1/teardown"), 1, "{log}");
}

async fn legacy_forwards_what_enforce_refuses_and_says_nothing(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let ask = |host: &str| format!("curl -s -w '%{{http_code}}\\n' -o /dev/null https://{host}/{word}; ");
    let mut input = reading(&["pages.test"], &(ask("pages.test") + &ask("unlisted.test")));
    input["recipe"]["enforcement"] = json!("legacy");
    assert_eq!(done(sandbox.exec_input(input).await).receipt.tail, "200\n200\n");
    assert_eq!(sandbox.denials().await, []);
    // A position opens nothing by itself: without a profile there is no egress.
    let mut input = exec_input(&fresh_word(), &ask("pages.test"));
    input["recipe"]["enforcement"] = json!("legacy");
    assert_eq!(done(sandbox.exec_input(input).await).receipt.tail, "403\n");
    assert_eq!(world.stack.origins().seen(&word).len(), 2);
}

async fn a_panic_after_the_grant_was_applied_leaves_nothing_open(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    let id =
        done(sandbox.start(&client(&world, &format!("dial https://pages.test/{word}"))).await).process.id;
    is_refused_for(&sandbox, "pages.test", "no-grant").await;
    let since = world.stack.control().now().await;

    refused(
        sandbox.exec_input(reading(&["pages.test"], "panic-hook.apply")).await,
        RefusalKind::SandboxUnavailable,
    );

    let refusals = refused_for(&sandbox, "pages.test", "no-grant").await;
    sleep(WHILE_LONGER).await;
    assert!(refused_for(&sandbox, "pages.test", "no-grant").await > refusals + 5, "it dials on");
    assert_eq!(origins.seen(&word).len(), 0, "the grant went with the call");
    assert_eq!(done(sandbox.exec("echo after").await).receipt.tail, "after\n");
    // The fence was found open, and closed before the next job.
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown", "ingress POST /v1/jobs", "ingress POST /v1/teardown"]);
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running, "and the declared one lives");
}

async fn a_request_whose_end_is_never_told_takes_the_container_with_it(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    done(sandbox.ensure().await);
    let (init, since) = (sandbox.init().await, world.stack.control().now().await);
    assert!(init.is_alive());
    let command = format!("curl -s https://pages.test/{word}/panic-hook.passage-end");

    let exec = done(sandbox.exec_input(reading(&["pages.test"], &command)).await);

    assert_eq!(world.stack.origins().seen(&word).len(), 1);
    assert_eq!(exec.receipt.exit_code, Some(0), "its end was proven before");
    assert_eq!(exec.teardown.mode, TeardownMode::Destroyed);
    assert!(!init.is_alive(), "nobody can say that nothing of it moves, so nothing of it is left");
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown", "docker DELETE /containers/*"]);
    assert_eq!(done(sandbox.exec("echo anew").await).receipt.tail, "anew\n");
}

/// Under the name that the fixture's forged props say.
async fn another_worker_that_poses_as_a_sandboxs_egress_gets_nothing_while_its_fence_is_open(
    world: Arc<World>,
) {
    let (sandbox, word) = (world.sandbox_of("ALPHA", "forged").await, fresh_word());
    let url = format!("https://pages.test/{word}");
    done(sandbox.start(&client(&world, &format!("dial {url}"))).await);
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    world.stack.origins().met(&word).await;

    let denied = sandbox.denials().await;
    for (binding, word) in [("EGRESS", "bound"), ("EGRESS_FORGED", "forged")] {
        let path = format!("{FIXTURE}/fetch-url/{binding}");
        let answer = send(world.stack.front(), "POST", &path, &[], format!("{url}-{word}")).await;
        let answer = answer.expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (403, "denied"), "{binding}");
        assert_eq!(world.stack.origins().seen(&format!("{}-{word}", url)).len(), 0);
    }
    assert_eq!(
        world.stack.origins().seen("-forged").len() + world.stack.origins().seen("-bound").len(),
        0,
        "nothing left in its name"
    );
    let told = |denials: &[ringfence_wire::contract::DenialEvent]| {
        denials.iter().filter(|d| d.reason != "no-grant").cloned().collect::<Vec<_>>()
    };
    assert_eq!(told(&sandbox.denials().await), told(&denied), "and nothing is counted as this sandbox's");
    fence.close().await;
}

async fn a_worker_bound_straight_to_the_object_gets_no_passage_while_its_fence_is_open(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    done(sandbox.start(&client(&world, &format!("dial https://pages.test/{word}"))).await);
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    world.stack.origins().met(&word).await;
    let hop = AskedHop {
        method: "GET".to_owned(),
        url: "https://pages.test/".to_owned(),
        declared_bytes: None,
        has_body: false,
        upgrade: false,
    };
    let passage = "0".to_owned();
    for call in [
        EgressCall::Open {
            generation: 1,
            secret: "0".repeat(64),
            hop: hop.clone(),
            finished: vec![passage.clone()],
        },
        EgressCall::Next { passage: passage.clone(), hop },
        EgressCall::Hold { passage: passage.clone() },
        EgressCall::Finished { passages: vec![passage.clone()] },
        EgressCall::End { passage, end: PassageEnd::Finished },
    ] {
        let request = SandboxRequest {
            version: INTERNAL_VERSION,
            consumer: ConsumerName("alpha".to_owned()),
            key: SandboxKey(sandbox.key.clone()),
            seal: "0".repeat(64),
            call: SandboxCall::Egress { call },
        };
        let text = serde_json::to_string(&request).expect("it serialises");
        match world.stack.object("SANDBOX", &sandbox.name, "invoke", json!([text])).await {
            Rpc::Returned(Value::String(text)) => {
                let outcome: Outcome<Value> = serde_json::from_str(&text).expect("an outcome");
                refused(outcome, RefusalKind::TicketRejected);
            }
            other => panic!("{other:?}"),
        }
    }
    fence.close().await;
}

async fn a_stale_fence_of_any_position_lets_nothing_out_and_is_closed_before_anything_else(
    world: Arc<World>,
) {
    let mut open = Vec::new();
    for position in ["enforce", "report", "legacy"] {
        let (sandbox, word) = (world.sandbox().await, fresh_word());
        done(sandbox.start(&client(&world, &format!("dial https://pages.test/{word}"))).await);
        let mut input = reading(&["pages.test"], "");
        input["recipe"]["enforcement"] = json!(position);
        let fence = Fence::open(&world, &sandbox, input);
        world.stack.origins().met(&word).await;
        open.push((position, sandbox, word, fence));
    }
    let since = world.stack.control().now().await;
    world.stack.kill_workerd().await;
    let mut left = Vec::new();
    for (position, sandbox, word, fence) in open {
        let Fence { gate, exec } = fence;
        let _ = exec.await;
        let seen = world.stack.origins().seen(&word).len();
        left.push((position, sandbox, word, gate, seen));
    }
    sleep(WHILE_LONGER).await;
    for (position, sandbox, word, _gate, seen) in left {
        assert_eq!(world.stack.origins().seen(&word).len(), seen, "{position}: no grant outlived its object");
        let next: ExecDone = done(sandbox.exec("echo next").await);
        assert_eq!(next.receipt.tail, "next\n");
        let log = sandbox.calls_since(since).await;
        log.assert_order(&[
            "ingress POST /v1/teardown",
            "ingress POST /v1/jobs",
            "ingress POST /v1/teardown",
        ]);
        let denied = || async { (refused_for(&sandbox, "pages.test", "no-grant").await > 0).then_some(()) };
        eventually("it dials on and is refused", denied).await;
        assert_eq!(world.stack.origins().seen(&word).len(), seen, "{position}");
    }
}
