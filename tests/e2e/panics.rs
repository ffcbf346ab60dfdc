//! A panic inside the Worker's Rust code, in a build that can be asked for one: it fails that one call and leaves
//! the others running. The release bundle does not hold the hook.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Rpc, done, exec_input, fresh_key, fresh_word, long_sleep, refused};
use ringfence_e2e::stack::{Setup, root};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::DetachedStatus;
use ringfence_wire::refusal::RefusalKind;
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared:
        the_release_bundle_does_not_hold_the_hook;
    own Setup::hooked =>
        a_panic_in_the_facade_fails_that_one_call_and_leaves_the_others_running,
        a_panic_in_an_object_fails_that_one_call_and_leaves_the_others_running,
        a_panic_inside_an_open_fence_is_recovered_from_before_the_next_command_runs;
}

/// What every panic of the hook says.
const MARK: &[u8] = b"ringfence-panic-hook";

async fn the_release_bundle_does_not_hold_the_hook(_world: Arc<World>) {
    let holds = |bundle: &str| {
        let wasm = std::fs::read(root().join(bundle)).unwrap_or_else(|e| panic!("{bundle}: {e}"));
        wasm.windows(MARK.len()).any(|w| w == MARK)
    };
    assert!(holds("target/worker-panic-hook/build/index_bg.wasm"), "else this looks for the wrong string");
    assert!(!holds("build/index_bg.wasm"));
}

async fn a_panic_in_the_facade_fails_that_one_call_and_leaves_the_others_running(world: Arc<World>) {
    panic_beside_others(&world, "panic-hook.facade", |answer| {
        assert!(matches!(answer, Rpc::Threw { .. }), "{answer:?}");
    })
    .await;
}

async fn a_panic_in_an_object_fails_that_one_call_and_leaves_the_others_running(world: Arc<World>) {
    panic_beside_others(&world, "panic-hook.sandbox", |answer| {
        refused(answer.outcome::<Value>(), RefusalKind::SandboxUnavailable);
    })
    .await;
}

async fn a_panic_inside_an_open_fence_is_recovered_from_before_the_next_command_runs(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let declared = sandbox.process_with(&mark).await;
    let (since, key) = (world.stack.control().now().await, fresh_key());

    refused(sandbox.exec_as(&key, "panic-hook.apply").await, RefusalKind::SandboxUnavailable);
    let next = done(sandbox.exec("echo next").await);
    assert_eq!(next.receipt.tail, "next\n");
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown*", "ingress POST /v1/jobs*"]);
    assert!(declared.is_alive(), "what is declared is spared");
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
    // Its command was proven not to have run: the key is free, and is another call's now.
    let again = done(sandbox.exec_as(&key, "echo again").await);
    assert_eq!((again.receipt.tail.as_str(), again.receipt.deduped), ("again\n", false));
}

/// Panics under one key while another sandbox is in the midst of its work.
async fn panic_beside_others(world: &World, key: &str, expect: impl Fn(Rpc)) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let process = sandbox.process_with(&mark).await;
    let (word, gate) = (fresh_word(), world.stack.witness().gate());
    let exec = sandbox.exec_meanwhile(&format!("{}; {}; echo finished", say(&word), gate.wait()));
    world.stack.witness().heard(&word).await;
    let runtime = world.stack.workerd().await;

    for _ in 0..3 {
        expect(
            world.stack.rpc("ALPHA", "execUnderGrant", json!([key, exec_input(&fresh_key(), "true")])).await,
        );
    }

    // The call that was under way meanwhile ends as it should, and so does one made after.
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
    gate.open();
    let exec = done(exec.await.expect("the call was not cancelled"));
    assert_eq!(exec.receipt.tail, "finished\n");
    assert_eq!(done(sandbox.exec("echo after").await).receipt.tail, "after\n");
    assert!(process.is_alive());
    assert_eq!(world.stack.workerd().await, runtime, "the runtime itself did not restart");
}
