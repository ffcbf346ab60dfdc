//! `abort` at each await of a boot and of a start: every call the object makes on its way is held up in turn, and
//! the abort is fired inside it. Afterwards nothing runs, nothing boots again, and the slot is free, once.
//!
//! The calls are not listed here: an undisturbed boot is recorded first, and each of its calls gets its turn.

use crate::world::{World, tests};
use ringfence_e2e::control::{Action, Call, CallLog, Match};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{
    Sandbox, done, fresh_key, fresh_word, long_sleep, now_ms, recipe, refused, start_input,
};
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{Ensured, ExecDone, PoolStatusDone, SandboxesDone, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

tests! {
    shared:
        an_exec_whose_container_an_abort_could_not_end_does_not_say_that_it_was_destroyed,
        an_abort_of_a_sandbox_that_was_never_booted_says_so_and_boots_nothing,
        a_teardown_over_its_time_is_an_orphan_by_name_and_keeps_its_slot_until_the_alarm_has_ended_it;
    own Setup::default =>
        an_abort_at_each_await_of_a_boot_leaves_nothing_running_and_the_slot_free_once,
        an_abort_at_each_await_of_a_start_leaves_nothing_running_and_the_slot_free_once;
}

/// Longer than an abort takes, so that it is over before the held call goes on.
const HOLD_MS: u64 = 1_500;

async fn an_abort_at_each_await_of_a_boot_leaves_nothing_running_and_the_slot_free_once(world: Arc<World>) {
    let model = world.sandbox().await;
    let since = world.stack.control().now().await;
    done(model.start("true").await);
    let turns = turns(&world.stack.control().calls_since(since).await, &model);
    model.abort().await;
    assert!(turns.len() >= 8, "a boot creates, starts, greets and asks: {turns:#?}");

    let mut met = 0;
    for turn in turns {
        met += usize::from(abort_inside(&world, &turn, false).await);
    }
    assert!(met >= 8, "an abort fell into {met} calls");
}

async fn an_abort_at_each_await_of_a_start_leaves_nothing_running_and_the_slot_free_once(world: Arc<World>) {
    let model = world.sandbox().await;
    done(model.ensure().await);
    let since = world.stack.control().now().await;
    done(model.start("true").await);
    let turns = turns(&world.stack.control().calls_since(since).await, &model);
    model.abort().await;
    assert!(!turns.is_empty());

    let mut met = 0;
    for turn in turns {
        met += usize::from(abort_inside(&world, &turn, true).await);
    }
    assert!(met >= 1, "an abort fell into {met} calls");
}

/// Holds up the one call, aborts inside it, and looks at what is left. False: this start did not make the call, as
/// one that is made only once, or only on a new connection.
async fn abort_inside(world: &World, turn: &Turn, booted: bool) -> bool {
    let sandbox = world.sandbox().await;
    let word = fresh_word();
    let free = busy(world).await;
    if booted {
        done(sandbox.ensure().await);
    }
    let control = world.stack.control();
    let since = control.now().await;
    control.fault(turn.meets(&sandbox), Action::Delay { ms: HOLD_MS }, 1).await;

    let mut starting = tokio::spawn({
        let (sandbox, input) =
            (sandbox.clone(), start_input(&fresh_key(), &format!("{}; sleep 3600", say(&word))));
        async move { sandbox.call::<StartDetachedDone>("startDetached", &[input]).await }
    });
    let held = || async { turn.first(&control.calls_since(since).await, &sandbox).map(|call| call.n) };
    let what = format!("the start comes to {turn:?}");
    let held = tokio::select! {
        held = eventually(&what, held) => held,
        outcome = &mut starting => {
            done(outcome.expect("the call was not cancelled"));
            sandbox.clear_faults().await;
            sandbox.abort().await;
            return false;
        }
    };

    let aborted = sandbox.abort().await;

    assert!(aborted.container_gone, "inside {turn:?}: {aborted:?}");
    match starting.await.expect("the call was not cancelled") {
        Outcome::Refused(_) => {}
        Outcome::Done(done) => panic!("inside {turn:?}: the start came through the abort: {done:?}"),
    }
    assert_nothing_runs(&sandbox, turn).await;
    assert_eq!(busy(world).await, free, "inside {turn:?}");

    // The held call goes on, and any retry with it: still nothing.
    let ended = control.now().await;
    let gone_on = || async {
        let log = control.calls_since(held - 1).await;
        log.0.first().is_some_and(|call| call.status.is_some() || held_for(call) > 2 * HOLD_MS).then_some(())
    };
    eventually("the held call goes on", gone_on).await;
    assert_nothing_runs(&sandbox, turn).await;
    let log = sandbox.calls_since(ended).await;
    log.assert_none("docker POST /containers/*/start");
    log.assert_none("ingress POST /v1/jobs");
    assert_eq!(world.stack.witness().count(&word), 0, "inside {turn:?}: the command ran");
    // Once: a second abort frees no other's slot.
    let other = world.sandbox().await;
    done(other.ensure().await);
    sandbox.abort().await;
    assert_eq!(busy(world).await, free + 1, "inside {turn:?}");
    other.abort().await;
    true
}

/// How long ago a call that has no answer arrived.
fn held_for(call: &Call) -> u64 {
    now_ms().saturating_sub(call.at_ms)
}

async fn an_exec_whose_container_an_abort_could_not_end_does_not_say_that_it_was_destroyed(
    world: Arc<World>,
) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (sleep, mark) = long_sleep();
    let exec = sandbox.exec_meanwhile(&sleep);
    let process = sandbox.process_with(&mark).await;
    refuse_every_destroy(&sandbox).await;

    let aborted = sandbox.abort().await;

    assert!(!aborted.container_gone, "{aborted:?}");
    assert!(!process.is_alive());
    assert!(sandbox.try_init().await.is_some(), "the container runs on");
    refused::<ExecDone>(exec.await.expect("the call was not cancelled"), RefusalKind::EffectUnknown);

    sandbox.clear_faults().await;
    assert!(sandbox.abort().await.container_gone);
    assert!(sandbox.try_init().await.is_none());
}

async fn a_teardown_over_its_time_is_an_orphan_by_name_and_keeps_its_slot_until_the_alarm_has_ended_it(
    world: Arc<World>,
) {
    let (sandbox, run) = (world.sandbox().await, fresh_word());
    let options = json!({ "labels": { "run": run } });
    let args = [recipe(), json!({ "mode": "refuse" }), options];
    done(sandbox.call::<Ensured>("ensureSandbox", &args).await);
    let init = sandbox.init().await;
    refuse_every_destroy(&sandbox).await;

    for _ in 0..2 {
        let aborted = sandbox.abort().await;
        assert!(!aborted.container_gone && aborted.detail.is_some(), "{aborted:?}");
    }

    assert!(init.is_alive());
    let trail = sandbox.events().await.events;
    let orphans: Vec<_> = trail.iter().filter(|event| event.operation == "OrphanedSandbox").collect();
    assert_eq!(orphans.len(), 2, "one for each teardown that was given up: {trail:?}");
    for orphan in orphans {
        assert_eq!((orphan.consumer.as_str(), orphan.key.as_str()), ("alpha", sandbox.key.as_str()));
        assert_eq!(orphan.labels.as_ref().and_then(|labels| labels.get("run")), Some(&run));
        assert_eq!((orphan.ok, orphan.reason.as_deref()), (false, Some("container-not-gone")));
        assert!(orphan.duration_ms > 0, "{orphan:?}");
    }
    let line = || async {
        let log = world.stack.worker_log();
        log.lines()
            .any(|l| l.contains("OrphanedSandbox") && l.contains(&run) && l.contains(&sandbox.key))
            .then_some(())
    };
    eventually("the log names it", line).await;

    // Its slot is not said to be free, and nothing boots beside what may still run.
    let since = world.stack.control().now().await;
    let refusal = refused(sandbox.ensure().await, RefusalKind::SandboxUnavailable);
    assert_eq!(refusal.reason.as_deref(), Some("slot-ending"), "{refusal:?}");
    assert!(refusal.retry_after_ms.is_some_and(|ms| ms > 0), "{refusal:?}");
    sandbox.calls_since(since).await.assert_none("docker POST /containers/*");
    assert!(listed(&sandbox).await, "the registry shows it");

    // Nobody calls: the alarm ends it.
    sandbox.clear_faults().await;
    until("the alarm has ended its container", || !init.is_alive()).await;
    let slot = || async { (!listed(&sandbox).await).then_some(()) };
    eventually("its slot is free", slot).await;
    let ended = sandbox.events().await.events;
    assert!(ended.iter().any(|event| event.operation == "destroy" && event.ok), "{ended:?}");
    done(sandbox.ensure().await);
}

async fn listed(sandbox: &Sandbox) -> bool {
    let answer = sandbox.stack.http("GET", "/v1/sandboxes", Some(sandbox.stack.token("alpha")), "").await;
    done(answer.json::<Outcome<SandboxesDone>>()).sandboxes.iter().any(|s| s.key.as_str() == sandbox.key)
}

/// Each try to remove its container, however often, until its faults are cleared.
async fn refuse_every_destroy(sandbox: &Sandbox) {
    let container = sandbox.container().await.expect("it was booted");
    let destroy = Match {
        plane: "docker".to_owned(),
        method: Some("DELETE".to_owned()),
        container: Some(container.name),
        ..Match::default()
    };
    let refuse = Action::Answer { status: 500, body: "no".to_owned() };
    sandbox.stack.control().fault(destroy, refuse, 1_000).await;
}

async fn an_abort_of_a_sandbox_that_was_never_booted_says_so_and_boots_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let aborted = sandbox.abort().await;
    assert!(aborted.container_gone);
    assert_eq!(aborted.killed, 0);
    sandbox.calls_since(since).await.assert_none("docker POST /containers/create*");
}

async fn assert_nothing_runs(sandbox: &Sandbox, turn: &Turn) {
    let containers = sandbox.stack.control().containers().await;
    let left: Vec<_> =
        containers.iter().filter(|c| c.name.contains(&sandbox.object) && c.is_running()).collect();
    let left: Vec<_> = left.into_iter().filter(|c| !c.name.ends_with("-proxy")).collect();
    assert!(left.is_empty(), "inside {turn:?}: {left:?}");
    assert!(sandbox.processes().await.is_empty());
}

/// Slots taken in all pools.
async fn busy(world: &World) -> u32 {
    let pools = done(world.stack.rpc("ALPHA", "poolStatus", json!([])).await.outcome::<PoolStatusDone>());
    pools.pools.iter().map(|p| p.busy).sum()
}

/// One call of a boot or a start, told from the others by what it asks; of whichever sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    plane: String,
    method: String,
    /// With [`NAME`] for the container's name.
    path: String,
    container: Option<String>,
}

const NAME: &str = "{container}";

/// The calls of an undisturbed boot, each once.
fn turns(log: &CallLog, model: &Sandbox) -> BTreeSet<Turn> {
    let name = model.stack.container_name(&model.object);
    let of = |call: &Call| Turn {
        plane: call.plane.clone(),
        method: call.method.clone(),
        path: call.path.replace(&name, NAME),
        container: call.container.as_ref().map(|c| c.replace(&name, NAME)),
    };
    // `wait` is the runtime's own watch on a container; nothing on the way to a boot waits for it.
    log.0.iter().filter(|c| c.plane != "engine" && !c.path.ends_with("/wait")).map(of).collect()
}

impl Turn {
    fn meets(&self, sandbox: &Sandbox) -> Match {
        let name = sandbox.stack.container_name(&sandbox.object);
        Match {
            plane: self.plane.clone(),
            method: Some(self.method.clone()),
            path_prefix: Some(self.path.replace(NAME, &name)),
            container: self.container.as_ref().map(|c| c.replace(NAME, &name)),
        }
    }

    /// The first such call of this sandbox in the log: the one that is held.
    fn first<'l>(&self, log: &'l CallLog, sandbox: &Sandbox) -> Option<&'l Call> {
        let meets = self.meets(sandbox);
        log.0.iter().find(|call| {
            call.plane == meets.plane
                && Some(&call.method) == meets.method.as_ref()
                && Some(&call.path) == meets.path_prefix.as_ref()
                && call.container == meets.container
        })
    }
}
