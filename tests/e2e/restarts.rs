//! The Worker's runtime is killed (SIGKILL to workerd, by its pid) and starts again on the same storage: what ran
//! goes on running, the record of it is still there and still true, and the next fence still spares it.

use crate::world::{World, tests};
use ringfence_e2e::control::Action;
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, long_sleep, start_input};
use ringfence_e2e::processes::Process;
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{DetachedStatus, StartDetachedDone};
use std::sync::Arc;

tests! {
    own Setup::default =>
        a_restart_while_a_detached_process_runs_loses_nothing,
        a_restart_before_a_start_reached_the_supervisor_starts_it_once_at_most,
        a_restart_after_a_start_reached_the_supervisor_finds_the_process_it_started,
        a_restart_inside_an_open_fence_tears_down_before_anything_else,
        a_restart_of_wrangler_itself_finds_the_same_container;
}

async fn a_restart_while_a_detached_process_runs_loses_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let (process, init) = (sandbox.process_with(&mark).await, sandbox.init().await);

    world.stack.kill_workerd().await;

    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
    assert_same(&sandbox, &init, &process, &mark).await;
    assert_eq!(sandbox.list().await.processes.iter().map(|p| &p.id).collect::<Vec<_>>(), [&id]);
    assert_spared_by_the_next_fence(&sandbox, &process).await;
    // The record of an end survives as well.
    assert!(sandbox.stop(id.as_str()).await.stopped);
    assert!(!process.is_alive());
}

async fn a_restart_before_a_start_reached_the_supervisor_starts_it_once_at_most(world: Arc<World>) {
    interrupted_start(&world, Action::Delay { ms: 3_000 }).await;
}

async fn a_restart_after_a_start_reached_the_supervisor_finds_the_process_it_started(world: Arc<World>) {
    // It is started, and its answer kept back until the runtime is dead.
    interrupted_start(&world, Action::DelayAnswer { ms: 3_000 }).await;
}

async fn interrupted_start(world: &World, action: Action) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let init = sandbox.init().await;
    let (key, word) = (fresh_key(), fresh_word());
    let (sleep, mark) = long_sleep();
    let command = format!("{}; {sleep}", say(&word));

    let since = world.stack.control().now().await;
    world.stack.control().fault(sandbox.ingress("POST", "/v1/jobs"), action, 1).await;
    let (starting, again) = (sandbox.clone(), command.clone());
    let start = tokio::spawn({
        let key = key.clone();
        // Its caller loses the connection with the runtime; what it is told then is nothing.
        async move { starting.try_call("startDetached", &[start_input(&key, &command)]).await }
    });
    let asked =
        || async { (sandbox.calls_since(since).await.count("ingress POST /v1/jobs") > 0).then_some(()) };
    eventually("the start is on its way to the supervisor", asked).await;
    world.stack.kill_workerd().await;
    let _ = start.await;

    // The same call again: the same process, whichever of the two started it.
    let started: StartDetachedDone = done(sandbox.start_as(&key, &again).await);
    let id = started.process.id;
    world.stack.witness().heard(&word).await;
    let process = sandbox.process_with(&mark).await;
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
    assert_same(&sandbox, &init, &process, &mark).await;
    assert_spared_by_the_next_fence(&sandbox, &process).await;
    assert_eq!(world.stack.witness().count(&word), 1, "the command ran once");
}

async fn a_restart_inside_an_open_fence_tears_down_before_anything_else(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let declared = done(sandbox.start(&sleep).await).process.id;
    let spared = sandbox.process_with(&mark).await;
    let (left_sleep, left_mark) = long_sleep();
    let key = fresh_key();
    let exec = tokio::spawn({
        let (sandbox, key, command) = (sandbox.clone(), key.clone(), left_sleep.clone());
        async move { sandbox.try_call("execUnderGrant", &[exec_input(&key, &command)]).await }
    });
    let left = sandbox.process_with(&left_mark).await;
    let since = world.stack.control().now().await;

    world.stack.kill_workerd().await;
    let _ = exec.await;

    let after = done(sandbox.exec("echo after").await);
    assert_eq!(after.receipt.tail, "after\n");
    assert!(!left.is_alive(), "dead before anything else ran");
    assert!(spared.is_alive());
    assert_eq!(sandbox.status(declared.as_str()).await, DetachedStatus::Running);
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown*", "ingress POST /v1/jobs", "ingress POST /v1/teardown*"]);

    // The ledger says the truth about the one that was interrupted: killed, by recovery, with no code.
    let replay = done(sandbox.exec_input(exec_input(&key, &left_sleep)).await).receipt;
    assert!(replay.deduped, "{replay:?}");
    assert_eq!(replay.end, ringfence_wire::contract::ReceiptEnd::Killed, "{replay:?}");
    assert_eq!((replay.exit_code, replay.interrupted), (None, Some(true)), "{replay:?}");
}

async fn a_restart_of_wrangler_itself_finds_the_same_container(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let (process, init) = (sandbox.process_with(&mark).await, sandbox.init().await);

    world.stack.restart_wrangler().await;

    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
    assert_same(&sandbox, &init, &process, &mark).await;
    assert_spared_by_the_next_fence(&sandbox, &process).await;
}

/// The same supervisor and the same process, by pid and start time, and no second one.
async fn assert_same(sandbox: &Sandbox, init: &Process, process: &Process, mark: &str) {
    assert!(init.is_alive() && process.is_alive());
    assert_eq!(&sandbox.init().await, init);
    let alike: Vec<_> = sandbox.processes().await.into_iter().filter(|p| p.has_arg(mark)).collect();
    assert_eq!(alike, std::slice::from_ref(process));
}

async fn assert_spared_by_the_next_fence(sandbox: &Sandbox, process: &Process) {
    assert_eq!(done(sandbox.exec("echo fenced").await).receipt.tail, "fenced\n");
    assert!(process.is_alive(), "still declared, so still spared");
}
