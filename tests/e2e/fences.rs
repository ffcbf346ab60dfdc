//! A fence's teardown, on real processes and on the engine's log: kill-all with nothing declared, exactly the
//! declared spared, kill-all where the look failed, and the container's end where even that did.

use crate::world::{World, tests};
use ringfence_e2e::control::Action;
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, long_sleep, refused, start_input};
use ringfence_e2e::processes::Process;
use ringfence_wire::contract::{DetachedStatus, ExecDone, GoneReason, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use ringfence_wire::supervisor::TeardownMode;
use serde_json::json;
use std::sync::Arc;
use tokio::task::JoinHandle;

tests! {
    shared:
        every_log_path_that_passes_is_one_an_exec_and_a_start_take,
        with_nothing_declared_a_teardown_is_kill_all,
        with_one_declared_a_teardown_spares_exactly_that_one,
        a_declared_process_that_exited_is_kept_and_its_look_alike_is_killed,
        where_the_teardown_fails_everything_is_killed_the_declared_too,
        where_kill_all_fails_too_the_container_is_destroyed,
        where_the_container_is_destroyed_before_the_end_was_proven_the_effect_is_unknown,
        a_fence_runs_its_job_then_tears_down_and_then_answers,
        a_second_exec_waits_for_the_first_fence_to_close;
}

async fn every_log_path_that_passes_is_one_an_exec_and_a_start_take(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    for path in ["/artifacts/run.log", "ci/run.log", ".hidden", "\u{e9}t\u{e9} 1.log", &"l".repeat(200)] {
        let mut exec = exec_input(&fresh_key(), "echo logged");
        exec["logPath"] = json!(path);
        assert_eq!(done(sandbox.exec_input(exec).await).receipt.tail, "logged\n", "{path}");
        let mut start = start_input(&fresh_key(), "true");
        start["logPath"] = json!(path);
        done(sandbox.call::<StartDetachedDone>("startDetached", &[start]).await);
    }
}

/// An exec that leaves a process behind, seen while it is still open.
struct OpenFence {
    left: Process,
    gate: ringfence_e2e::witness::Gate,
    exec: JoinHandle<Outcome<ExecDone>>,
}

impl OpenFence {
    async fn open(world: &World, sandbox: &Sandbox) -> Self {
        let (sleep, mark) = long_sleep();
        let gate = world.stack.witness().gate();
        let exec = sandbox.exec_meanwhile(&format!("setsid {sleep} & {}", gate.wait()));
        let left = sandbox.process_with(&mark).await;
        Self { left, gate, exec }
    }

    async fn close(self) -> (Process, ExecDone) {
        assert!(self.left.is_alive(), "alive while the fence is open");
        self.gate.open();
        let exec = done(self.exec.await.expect("the call was not cancelled"));
        (self.left, exec)
    }
}

async fn with_nothing_declared_a_teardown_is_kill_all(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (left, exec) = OpenFence::open(&world, &sandbox).await.close().await;

    assert!(!left.is_alive(), "dead once the exec answered");
    assert_eq!(exec.teardown.mode, TeardownMode::KillAll);
    assert_eq!(exec.receipt.exit_code, Some(0), "what the command left does not change how it ended");
    assert!(exec.killed >= 1, "{exec:?}");
    let evidence = exec.teardown.evidence.expect("a teardown says what it saw");
    assert!(evidence.complete && evidence.survivors.is_empty(), "{evidence:?}");
    let named = evidence.killed.iter().map(|p| (p.identity.pid, p.identity.start_time));
    assert!(
        named.collect::<Vec<_>>().contains(&(left.pid, left.start_time)),
        "{left:?} is not in {evidence:?}"
    );
    let init = sandbox.init().await;
    let others = sandbox.processes().await.into_iter().filter(|p| p.host_pid != init.host_pid);
    assert_eq!(others.collect::<Vec<_>>(), [], "only the supervisor is left");
}

async fn with_one_declared_a_teardown_spares_exactly_that_one(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let declared = done(sandbox.start(&sleep).await).process;
    let spared = sandbox.process_with(&mark).await;

    let (left, exec) = OpenFence::open(&world, &sandbox).await.close().await;

    assert_eq!(exec.teardown.mode, TeardownMode::Selective);
    assert!(!left.is_alive(), "what the fence left is dead");
    assert!(spared.is_alive(), "the declared process lives, the same one");
    assert_eq!(sandbox.status(declared.id.as_str()).await, DetachedStatus::Running);
}

async fn a_declared_process_that_exited_is_kept_and_its_look_alike_is_killed(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let exited = done(sandbox.start("exit 7").await).process;
    let running = done(sandbox.start(&sleep).await).process;
    let spared = sandbox.process_with(&mark).await;

    // The same command as the declared one, word for word, but inside a fence.
    let gate = world.stack.witness().gate();
    let exec = sandbox.exec_meanwhile(&format!("{sleep} & {}", gate.wait()));
    let look = || async {
        let alike =
            sandbox.processes().await.into_iter().filter(|p| p.args.first().is_some_and(|a| a == "sleep"));
        alike.into_iter().find(|p| p.has_arg(&mark) && p.host_pid != spared.host_pid)
    };
    let look_alike = ringfence_e2e::eventually::eventually("the look-alike lives", look).await;
    gate.open();
    done(exec.await.expect("the call was not cancelled"));

    assert!(!look_alike.is_alive());
    assert!(spared.is_alive());
    assert_eq!(sandbox.status(running.id.as_str()).await, DetachedStatus::Running);
    let kept = sandbox.status(exited.id.as_str()).await;
    assert_eq!(kept, DetachedStatus::Exited { exit_code: Some(7), signal: None });
}

async fn where_the_teardown_fails_everything_is_killed_the_declared_too(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let declared = done(sandbox.start(&sleep).await).process;
    let unspared = sandbox.process_with(&mark).await;
    let fence = OpenFence::open(&world, &sandbox).await;
    assert!(unspared.is_alive());

    let since = world.stack.control().now().await;
    let answer = Action::Answer { status: 500, body: "{}".to_owned() };
    world.stack.control().fault(sandbox.ingress("POST", "/v1/teardown"), answer, 1).await;
    let (left, exec) = fence.close().await;

    assert_eq!(exec.teardown.mode, TeardownMode::KillAll);
    assert!(!left.is_alive());
    assert!(!unspared.is_alive(), "with the list unreadable, no one is spared");
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown", "ingress POST /v1/kill-all"]);
    log.assert_none("docker DELETE *");
    assert_gone(&sandbox, declared.id.as_str(), GoneReason::FenceKilled).await;
}

async fn where_kill_all_fails_too_the_container_is_destroyed(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let declared = done(sandbox.start(&sleep).await).process;
    let unspared = sandbox.process_with(&mark).await;
    let init = sandbox.init().await;
    let since = world.stack.control().now().await;
    refuse_every_teardown(&sandbox).await;
    assert!(unspared.is_alive() && init.is_alive());

    let exec = done(sandbox.exec("exit 4").await);

    assert_eq!(exec.receipt.exit_code, Some(4), "its end was proven before");
    assert_eq!(exec.teardown.mode, TeardownMode::Destroyed);
    assert!(!unspared.is_alive() && !init.is_alive(), "the container is gone, and all in it");
    let log = sandbox.calls_since(since).await;
    log.assert_order(&[
        "ingress POST /v1/teardown",
        "ingress POST /v1/kill-all",
        "docker DELETE /containers/*",
    ]);
    assert_gone(&sandbox, declared.id.as_str(), GoneReason::FenceKilled).await;
}

/// A command that left something has no end record before it is swept; nothing else proves its end.
async fn where_the_container_is_destroyed_before_the_end_was_proven_the_effect_is_unknown(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let fence = OpenFence::open(&world, &sandbox).await;
    let init = sandbox.init().await;
    refuse_every_teardown(&sandbox).await;
    assert!(fence.left.is_alive() && init.is_alive());

    fence.gate.open();
    refused(fence.exec.await.expect("the call was not cancelled"), RefusalKind::EffectUnknown);

    assert!(!fence.left.is_alive() && !init.is_alive());
}

/// Both ways to end a fence fail from now on, however often they are tried.
async fn refuse_every_teardown(sandbox: &Sandbox) {
    for path in ["/v1/teardown", "/v1/kill-all"] {
        let answer = Action::Answer { status: 500, body: "{}".to_owned() };
        sandbox.stack.control().fault(sandbox.ingress("POST", path), answer, 8).await;
    }
}

async fn a_fence_runs_its_job_then_tears_down_and_then_answers(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let since = world.stack.control().now().await;
    let exec = done(sandbox.exec("echo out; echo err >&2; exit 3").await);

    assert_eq!(exec.receipt.exit_code, Some(3));
    assert!(
        exec.receipt.tail.contains("out\n") && exec.receipt.tail.contains("err\n"),
        "{:?}",
        exec.receipt.tail
    );
    assert!(exec.granted.is_empty(), "no profile, no grant");
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/jobs", "ingress POST /v1/teardown"]);
    assert_eq!(log.count("ingress POST /v1/jobs"), 1, "{log}");
    assert_eq!(log.count("ingress POST /v1/teardown"), 1, "{log}");
}

async fn a_second_exec_waits_for_the_first_fence_to_close(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let fence = OpenFence::open(&world, &sandbox).await;
    let since = world.stack.control().now().await;
    let second = sandbox.exec_meanwhile("true");
    // Another call of the same sandbox is served meanwhile: the object is not stuck, only its fence is taken.
    assert_eq!(sandbox.list().await.processes, []);
    sandbox.calls_since(since).await.assert_none("ingress POST /v1/jobs");

    fence.close().await;
    done(second.await.expect("the call was not cancelled"));
    let log = sandbox.calls_since(since).await;
    log.assert_order(&["ingress POST /v1/teardown", "ingress POST /v1/jobs", "ingress POST /v1/teardown"]);
}

async fn assert_gone(sandbox: &Sandbox, id: &str, why: GoneReason) {
    match sandbox.status(id).await {
        DetachedStatus::Gone { reason, is_final: true, .. } => assert_eq!(reason, why),
        other => panic!("gone for good was due, not {other:?}"),
    }
}
