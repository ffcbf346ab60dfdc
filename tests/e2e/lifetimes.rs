//! Every sandbox ends at its deadline, and each fuse does it alone: the object's alarm with the supervisor held, the
//! supervisor with the Worker held, the platform's inactivity timeout with the supervisor held and no alarm near.

use crate::world::{World, tests};
use ringfence_e2e::control::{Action, Match};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Sandbox, done, long_sleep, now_ms, recipe, refused};
use ringfence_e2e::stack::Setup;
use ringfence_wire::contract::{DetachedStatus, Ensured, GoneReason, PoolStatusDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests! {
    shared:
        a_lifetime_outside_its_limits_is_refused_naming_the_field,
        a_sandbox_that_was_given_more_time_outlives_its_first_deadline,
        asking_for_more_never_shortens_and_never_passes_the_maximum_from_creation;
    own Setup::default =>
        at_its_deadline_a_sandbox_expires_with_all_in_it_and_its_slot_is_free,
        with_its_supervisor_held_the_alarm_alone_ends_a_sandbox,
        with_the_worker_held_the_supervisor_alone_ends_its_container,
        a_container_built_anew_within_a_life_ends_at_that_lifes_deadline,
        an_alarm_that_fails_seven_times_comes_again_and_ends_the_sandbox;
    own soon_idle =>
        with_its_supervisor_held_and_no_alarm_near_the_inactivity_timeout_alone_ends_a_container,
        an_idle_container_is_let_go_and_a_declared_process_keeps_its_own;
}

const MIN_LIFETIME_MS: u64 = 1_000;
const MAX_LIFETIME_MS: u64 = 6 * 60 * 60 * 1_000;
/// Long enough to boot and start something in, short enough to wait for.
const SHORT_MS: u64 = 12_000;

async fn a_lifetime_outside_its_limits_is_refused_naming_the_field(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    for lifetime in [MIN_LIFETIME_MS - 1, MAX_LIFETIME_MS + 1] {
        let refusal = refused(ensure(&sandbox, lifetime).await, RefusalKind::RecipeRejected);
        assert_eq!(refusal.field.as_deref(), Some("options.lifetimeMs"), "{lifetime}");
    }
    sandbox.calls_since(since).await.assert_none("docker POST *");
    let before = now_ms();
    let expires_at = done(ensure(&sandbox, MAX_LIFETIME_MS).await).expires_at;
    assert!((before + MAX_LIFETIME_MS..=now_ms() + MAX_LIFETIME_MS).contains(&expires_at), "{expires_at}");
}

async fn a_sandbox_that_was_given_more_time_outlives_its_first_deadline(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let first = done(ensure(&sandbox, SHORT_MS).await).expires_at;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let process = sandbox.process_with(&mark).await;
    assert!(done(ensure(&sandbox, 10 * SHORT_MS).await).expires_at > first + SHORT_MS);

    // Both fuses were moved: a second after the first deadline nothing has ended.
    until("the first deadline has passed", || now_ms() > first + 1_000).await;
    assert!(process.is_alive());
    assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
}

async fn asking_for_more_never_shortens_and_never_passes_the_maximum_from_creation(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let first = done(ensure(&sandbox, 10 * SHORT_MS).await).expires_at;
    let created = first - 10 * SHORT_MS;
    assert_eq!(done(ensure(&sandbox, MIN_LIFETIME_MS).await).expires_at, first);
    assert_eq!(done(sandbox.ensure().await).expires_at, first);
    let most = done(ensure(&sandbox, MAX_LIFETIME_MS).await).expires_at;
    assert_eq!(most, created + MAX_LIFETIME_MS);
    assert_eq!(done(ensure(&sandbox, MAX_LIFETIME_MS).await).expires_at, most);
}

async fn at_its_deadline_a_sandbox_expires_with_all_in_it_and_its_slot_is_free(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let life = Life::begin(&sandbox).await;
    assert_eq!(busy(&world).await, 1);
    life.assert_ends_by_its_deadline().await;
    life.assert_expired(&sandbox).await;
    eventually("its slot is free", || async { (busy(&world).await == 0).then_some(()) }).await;
}

async fn with_its_supervisor_held_the_alarm_alone_ends_a_sandbox(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let life = Life::begin(&sandbox).await;
    life.init.signal(Signal::STOP);
    let since = world.stack.control().now().await;
    // It gets its grace to end by itself, which it does not use; then it is destroyed.
    life.assert_ends_by_its_deadline().await;
    sandbox.calls_since(since).await.assert_order(&["docker DELETE /containers/*"]);
    life.assert_expired(&sandbox).await;
}

async fn with_the_worker_held_the_supervisor_alone_ends_its_container(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let life = Life::begin(&sandbox).await;
    let workerd = world.stack.workerd().await;
    workerd.signal(Signal::STOP);
    let since = world.stack.control().now().await;
    life.assert_ends_by_its_deadline().await;
    world.stack.control().calls_since(since).await.assert_none("docker DELETE *");
    workerd.signal(Signal::CONT);
    world.stack.answers().await;
    life.assert_expired(&sandbox).await;
}

async fn a_container_built_anew_within_a_life_ends_at_that_lifes_deadline(world: Arc<World>) {
    const LIFE_MS: u64 = 25_000;
    let sandbox = world.sandbox().await;
    let first = done(ensure(&sandbox, LIFE_MS).await);
    let old = sandbox.init().await;
    old.signal(Signal::KILL);
    until("its container is gone", || !old.is_alive()).await;

    let (sleep, mark) = long_sleep();
    // Until the runtime has seen its end too, the dead supervisor is asked, and nobody can say what became of that.
    let command = format!("setsid {sleep}");
    let started = || async {
        match sandbox.start(&command).await {
            Outcome::Done(started) => Some(started.process.id.to_string()),
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.kind, RefusalKind::EffectUnknown, "{refusal:?}");
                None
            }
        }
    };
    let life = Life {
        expires_at: first.expires_at,
        id: eventually("it is started in a container anew", started).await,
        process: sandbox.process_with(&mark).await,
        init: sandbox.init().await,
    };
    assert!(!old.is_alive() && life.init.is_alive(), "it is another container");
    let anew = done(sandbox.ensure().await);
    assert_eq!((anew.generation, anew.expires_at), (first.generation + 1, first.expires_at));

    // Neither fuse of the second container counts from its own start: the inner one ends it while the Worker is held.
    let workerd = world.stack.workerd().await;
    workerd.signal(Signal::STOP);
    until_within(Duration::from_millis(LIFE_MS + 10_000), "it is dead", || !life.init.is_alive()).await;
    let ended_at = now_ms();
    workerd.signal(Signal::CONT);
    assert!((life.expires_at..life.expires_at + 10_000).contains(&ended_at), "{ended_at} {life:?}");
    assert!(!life.process.is_alive());
    world.stack.answers().await;
    life.assert_expired(&sandbox).await;
}

async fn an_alarm_that_fails_seven_times_comes_again_and_ends_the_sandbox(world: Arc<World>) {
    /// The platform drops an alarm that threw so often.
    const DROPPED_AFTER: u64 = 6;
    let sandbox = world.sandbox().await;
    let expires_at = done(ensure(&sandbox, SHORT_MS / 2).await).expires_at;
    let init = sandbox.init().await;
    // It does not end itself, and the engine ends nothing.
    init.signal(Signal::STOP);
    let destroy = Match {
        plane: "docker".to_owned(),
        method: Some("DELETE".to_owned()),
        container: sandbox.container().await.map(|container| container.name),
        ..Match::default()
    };
    let refuse = Action::Answer { status: 500, body: "no".to_owned() };
    world.stack.control().fault(destroy, refuse, 10_000).await;
    let before = sandbox.events().await.wakeups;
    let end = Instant::now() + Duration::from_secs(100);
    let failed = loop {
        let failed = sandbox.events().await.wakeups - before;
        if failed > DROPPED_AFTER + 1 {
            break failed;
        }
        assert!(Instant::now() < end, "only {failed} alarms");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert!(init.is_alive() && now_ms() > expires_at, "{failed} alarms failed to end it");
    let log = sandbox.calls_since(0).await;
    assert!(log.count("docker DELETE *") as u64 > DROPPED_AFTER, "{log}");
    // No wake loop: the alarms that fail are no closer than their pause.
    let since_deadline = (now_ms() - expires_at) / 1_000;
    assert!(failed <= since_deadline / 4 + 3, "{failed} alarms in {since_deadline} s");

    sandbox.clear_faults().await;
    until("the next alarm ends it", || !init.is_alive()).await;
}

const INACTIVITY_MS: u64 = 6_000;
const EVICTION_MS: u64 = 30_000;

/// A container that nobody needs is let go after seconds, and looked at long after that.
fn soon_idle() -> Setup {
    let times = json!({ "slotLeaseMs": 60_000, "inactivityMs": INACTIVITY_MS, "evictionMs": EVICTION_MS });
    Setup { vars: [("TIMES".to_owned(), times)].into(), ..Setup::default() }
}

async fn with_its_supervisor_held_and_no_alarm_near_the_inactivity_timeout_alone_ends_a_container(
    world: Arc<World>,
) {
    let sandbox = world.sandbox().await;
    done(ensure(&sandbox, MAX_LIFETIME_MS).await);
    let init = sandbox.init().await;
    // The alarms that follow a boot find that nobody needs it; the next is due INACTIVITY_MS + EVICTION_MS after them.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (wakeups, quiet_since) = (sandbox.events().await.wakeups, Instant::now());
    init.signal(Signal::STOP);
    let since = world.stack.control().now().await;

    // The object leaves memory ten seconds after its last call, and then the timeout counts.
    until_within(Duration::from_millis(EVICTION_MS), "it is dead", || !init.is_alive()).await;

    assert!(quiet_since.elapsed() >= Duration::from_millis(INACTIVITY_MS), "{:?}", quiet_since.elapsed());
    let log = sandbox.calls_since(since).await;
    log.assert_none("ingress *");
    assert!(wakeups > 0);
    assert_eq!(sandbox.events().await.wakeups, wakeups, "no alarm came meanwhile: {log}");
}

async fn an_idle_container_is_let_go_and_a_declared_process_keeps_its_own(world: Arc<World>) {
    let (idle, needed) = (world.sandbox().await, world.sandbox().await);
    done(idle.ensure().await);
    let (sleep, mark) = long_sleep();
    let id = done(needed.start(&sleep).await).process.id.to_string();
    let (idle_init, process) = (idle.init().await, needed.process_with(&mark).await);

    // Several times as long as it takes the idle one, which nobody asks about.
    until_within(Duration::from_secs(40), "the idle one is let go", || !idle_init.is_alive()).await;
    tokio::time::sleep(Duration::from_millis(3 * INACTIVITY_MS)).await;
    assert!(process.is_alive(), "a process that runs keeps its container");
    assert_eq!(needed.status(&id).await, DetachedStatus::Running);
    let alarms = needed.events().await.wakeups;
    assert!(alarms >= 10, "it is the alarm that keeps it: {alarms}");
    // Its slot comes back by the alarm that looks afterwards.
    until_async(Duration::from_secs(60), || async { busy(&world).await == 1 }).await;
}

async fn until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_async<F: Future<Output = bool>>(limit: Duration, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < end, "not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A sandbox with a short life, and a process in it that would outlive it.
#[derive(Debug)]
struct Life {
    expires_at: u64,
    id: String,
    init: ringfence_e2e::processes::Process,
    process: ringfence_e2e::processes::Process,
}

impl Life {
    async fn begin(sandbox: &Sandbox) -> Self {
        let expires_at = done(ensure(sandbox, SHORT_MS).await).expires_at;
        let (sleep, mark) = long_sleep();
        let id = done(sandbox.start(&format!("setsid {sleep}")).await).process.id.to_string();
        Self { expires_at, id, process: sandbox.process_with(&mark).await, init: sandbox.init().await }
    }

    /// Alive until then, dead soon after.
    async fn assert_ends_by_its_deadline(&self) {
        assert!(now_ms() < self.expires_at, "this machine is too slow for a life of {SHORT_MS} ms");
        assert!(self.init.is_alive() && self.process.is_alive());
        until("it is dead", || !self.init.is_alive() && !self.process.is_alive()).await;
        assert!(now_ms() >= self.expires_at, "not before its time");
    }

    async fn assert_expired(&self, sandbox: &Sandbox) {
        let gone = || async {
            match sandbox.status(&self.id).await {
                DetachedStatus::Gone { is_final: true, reason, .. } => Some(reason),
                _ => None,
            }
        };
        assert_eq!(eventually("its end is known", gone).await, GoneReason::Expired);
        assert!(sandbox.container().await.is_none_or(|c| !c.is_running()));
    }
}

async fn ensure(sandbox: &Sandbox, lifetime_ms: u64) -> Outcome<Ensured> {
    let args = [recipe(), json!({ "mode": "refuse" }), json!({ "lifetimeMs": lifetime_ms })];
    sandbox.call("ensureSandbox", &args).await
}

async fn busy(world: &World) -> u32 {
    let pools = done(world.stack.rpc("ALPHA", "poolStatus", json!([])).await.outcome::<PoolStatusDone>());
    pools.pools.iter().map(|pool| pool.busy).sum()
}
