//! Every sandbox ends at its deadline, and each fuse does it alone: the object's alarm with the supervisor held, the
//! supervisor with the Worker held.

use crate::world::{World, tests};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Sandbox, done, long_sleep, recipe, refused};
use ringfence_e2e::stack::Setup;
use ringfence_wire::contract::{DetachedStatus, Ensured, GoneReason, PoolStatusDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

tests! {
    shared:
        a_lifetime_outside_its_limits_is_refused_naming_the_field,
        a_sandbox_that_was_given_more_time_outlives_its_first_deadline,
        asking_for_more_never_shortens_and_never_passes_the_maximum_from_creation;
    own Setup::default =>
        at_its_deadline_a_sandbox_expires_with_all_in_it_and_its_slot_is_free,
        with_its_supervisor_held_the_alarm_alone_ends_a_sandbox,
        with_the_worker_held_the_supervisor_alone_ends_its_container;
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

/// A sandbox with a short life, and a process in it that would outlive it.
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

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_millis()).expect("it fits for long")
}
