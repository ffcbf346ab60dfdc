//! The gate in front of every sandbox, under a crowd and over time: never more containers than slots, first come
//! first served, a slot held exactly as long as its container lives. Containers are counted in the engine's log.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::control::CallLog;
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Sandbox, done, fresh_word, recipe, refused};
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{AdmissionDone, DetachedStatus, Done, Ensured, PoolStatusDone, PoolUse};
use ringfence_wire::refusal::{AdmissionFacts, Outcome, RefusalKind};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

tests! {
    own Setup::default =>
        sixty_four_sandboxes_share_six_slots_first_come_first_served,
        sixty_four_at_once_are_served_in_their_order_however_those_before_them_end,
        a_slot_is_freed_by_abort_checkpoint_and_expiry_and_by_nothing_twice,
        pools_are_told_by_consumer_and_a_payload_chooses_none,
        a_refusal_says_when_to_come_back_by_either_face;
    own short_lease =>
        six_silent_jobs_of_two_leases_hold_their_six_slots_to_the_end,
        a_slot_that_its_consumer_never_came_to_use_is_freed_when_its_lease_has_ended;
    own hooked_short_lease =>
        a_slot_whose_sandbox_cannot_be_asked_is_kept_and_reported;
}

const CAP: usize = 6;
const CROWD: usize = 64;
/// A twenty-fourth of the default, so that what takes 20 minutes takes 50 s.
const LEASE_MS: u64 = 25_000;
/// Two leases: with the default it would be 20 minutes. Many times as long as an idle object stays in memory and as a
/// container outlives one that forgot it.
const SILENCE_S: u64 = 2 * LEASE_MS / 1_000;

fn short_lease() -> Setup {
    let times = json!({ "slotLeaseMs": LEASE_MS, "inactivityMs": 10_000, "evictionMs": 14_000 });
    Setup { vars: [("TIMES".to_owned(), times)].into(), ..Setup::default() }
}

async fn sixty_four_sandboxes_share_six_slots_first_come_first_served(world: Arc<World>) {
    let mut waiting = Vec::new();
    for n in 0..CROWD {
        let sandbox = world.sandbox().await;
        let place: AdmissionDone = done(sandbox.call("admissionEnqueue", &[recipe()]).await);
        assert_eq!(place.admitted, n < CAP, "the first six are let in, the rest queue: {place:?}");
        if n >= CAP {
            assert_eq!(place.facts.position, u32::try_from(n - CAP + 1).ok(), "{place:?}");
            assert_eq!((place.facts.pool_busy as usize, place.facts.cap as usize), (CAP, CAP), "{place:?}");
        }
        waiting.push((n, sandbox));
    }
    // Whoever is done is out of this set before its slot can be.
    let unfinished: Arc<Mutex<BTreeSet<usize>>> = Arc::new(Mutex::new((0..CROWD).collect()));
    let mut at_work = Vec::new();
    let mut rng = fastrand::Rng::with_seed(64);
    while !waiting.is_empty() {
        rng.shuffle(&mut waiting);
        let mut still = Vec::new();
        for (n, sandbox) in waiting {
            let attempt: AdmissionDone = done(sandbox.call("admissionAttempt", &[recipe()]).await);
            if !attempt.admitted {
                still.push((n, sandbox));
                continue;
            }
            // First come, first served, however often the others ask: all who came before it fit in beside it.
            let before = unfinished.lock().expect("nobody panics here").range(..n).count();
            assert!(before < CAP, "{n} was let in with {before} before it");
            let unfinished = unfinished.clone();
            at_work.push(tokio::spawn(async move {
                let word = fresh_word();
                done(sandbox.exec(&say(&word)).await);
                sandbox.stack.witness().heard(&word).await;
                unfinished.lock().expect("nobody panics here").remove(&n);
                assert!(sandbox.abort().await.container_gone);
            }));
        }
        waiting = still;
    }
    for work in join_all(at_work).await {
        work.expect("every one that was let in did its work");
    }

    let most = most_containers(&world.stack.control().calls_since(0).await);
    assert!((1..=CAP).contains(&most), "{most} containers ran at once");
    assert_eq!(pool(&world).await.busy, 0);
}

/// How one of the crowd ends, by its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Abort,
    Checkpoint,
    /// It walks away from its sandbox, whose deadline ends it.
    Expiry,
    /// It stops asking while it waits.
    NeverAsksAgain,
}

impl End {
    fn of(n: usize) -> Self {
        match n {
            // Each holds a place until it has been silent for its time to live; the rest share what is left.
            9 | 40 => Self::NeverAsksAgain,
            n if n % 4 == 1 => Self::Checkpoint,
            n if n % 8 == 3 => Self::Expiry,
            _ => Self::Abort,
        }
    }
}

async fn sixty_four_at_once_are_served_in_their_order_however_those_before_them_end(world: Arc<World>) {
    // Who was let in, and who is still in line, in the order of the line.
    let waiting: Arc<Mutex<BTreeSet<usize>>> = Arc::new(Mutex::new((0..CROWD).collect()));
    let mut crowd = Vec::new();
    for n in 0..CROWD {
        let sandbox = world.sandbox_of(["ALPHA", "BETA", "A"][n % 3], &fresh_word()).await;
        // The line is formed one by one, so that its order is known; all that follows is at once.
        let place: AdmissionDone = done(sandbox.call("admissionEnqueue", &[recipe()]).await);
        assert_eq!(place.admitted, n < CAP, "{place:?}");
        crowd.push((n, sandbox, place.admitted));
    }
    let calls = crowd.into_iter().map(|(n, sandbox, admitted)| {
        let waiting = waiting.clone();
        tokio::spawn(async move { one_of_the_crowd(n, sandbox, admitted, &waiting).await })
    });
    let served: Vec<bool> =
        join_all(calls).await.into_iter().map(|one| one.expect("its facts were true")).collect();
    let vanished = (0..CROWD).filter(|n| End::of(*n) == End::NeverAsksAgain).count();
    assert_eq!(
        served.iter().filter(|served| **served).count(),
        CROWD - vanished,
        "everybody else was served"
    );

    let most = most_containers(&world.stack.control().calls_since(0).await);
    assert!((1..=CAP).contains(&most), "{most} containers ran at once");
    let free = || async { (pool(&world).await.busy == 0).then_some(()) };
    eventually("every slot is given back", free).await;
    // Those who never asked again lose their places by themselves; whoever comes now need not wait for them.
    assert!(pool(&world).await.waiting as usize <= vanished);
    done(world.sandbox().await.ensure().await);
}

/// Asks until it is let in, does its work, and ends as it does. False: it never asked again.
async fn one_of_the_crowd(
    n: usize,
    sandbox: Sandbox,
    mut admitted: bool,
    waiting: &Mutex<BTreeSet<usize>>,
) -> bool {
    let end = End::of(n);
    if end == End::NeverAsksAgain {
        return false;
    }
    while !admitted {
        let attempt: AdmissionDone = done(sandbox.call("admissionAttempt", &[recipe()]).await);
        let AdmissionFacts { pool_busy, cap, position, .. } = attempt.facts;
        assert!(pool_busy <= cap && cap as usize == CAP, "{n}: {pool_busy} of {cap}");
        assert_eq!(position.is_none(), attempt.admitted, "{n}: {position:?}");
        admitted = attempt.admitted;
        if !admitted {
            tokio::time::sleep(Duration::from_millis(attempt.facts.retry_after_ms)).await;
        }
    }
    let before = {
        let mut waiting = waiting.lock().expect("nobody panics here");
        waiting.remove(&n);
        waiting.range(..n).count()
    };
    // Each of the first in line for whom there is a slot is let in, and nobody else.
    assert!(before < CAP, "{n} was let in with {before} before it still waiting");
    let lifetime = if end == End::Expiry { 8_000 } else { 60_000 };
    let args = [recipe(), json!({ "mode": "refuse" }), json!({ "lifetimeMs": lifetime })];
    match sandbox.call::<Ensured>("ensureSandbox", &args).await {
        // On a loaded machine the deadline may come before the boot is over.
        Outcome::Refused(refusal) if end == End::Expiry => {
            assert_eq!(refusal.reason.as_deref(), Some("aborted"), "{n}: {refusal:?}");
        }
        outcome => drop(done(outcome)),
    }
    match end {
        End::Abort => assert!(sandbox.abort().await.container_gone),
        End::Checkpoint => drop(done(sandbox.call::<Done>("checkpoint", &[json!("a test")]).await)),
        End::Expiry | End::NeverAsksAgain => {}
    }
    true
}

fn hooked_short_lease() -> Setup {
    Setup { vars: short_lease().vars, ..Setup::hooked() }
}

async fn a_slot_whose_sandbox_cannot_be_asked_is_kept_and_reported(world: Arc<World>) {
    // Whatever this sandbox is asked fails, so nobody knows what runs under its slot.
    let args = json!(["panic-hook.sandbox", recipe()]);
    let place = world.stack.rpc("ALPHA", "admissionEnqueue", args).await.outcome::<AdmissionDone>();
    assert!(done(place).admitted);
    let since = Instant::now();
    while pool(&world).await.unreachable == 0 {
        assert!(since.elapsed() < Duration::from_millis(3 * LEASE_MS), "it is not reported");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(since.elapsed() >= Duration::from_millis(LEASE_MS), "{:?}", since.elapsed());
    for _ in 1..CAP {
        done(world.sandbox().await.ensure().await);
    }
    let PoolUse { busy, unreachable, .. } = pool(&world).await;
    assert_eq!((busy as usize, unreachable), (CAP, 1), "kept, and reported");
    refused(world.sandbox().await.ensure().await, RefusalKind::AdmissionRefused);
}

async fn six_silent_jobs_of_two_leases_hold_their_six_slots_to_the_end(world: Arc<World>) {
    let begun = Instant::now();
    let mut holders = Vec::new();
    for _ in 0..CAP {
        let (sandbox, word) = (world.sandbox().await, fresh_word());
        let id = done(sandbox.start(&format!("sleep {SILENCE_S}; {}", say(&word))).await).process.id;
        holders.push((sandbox, id, word));
    }
    let seventh = world.sandbox().await;
    // Nobody asks about the six; the seventh asks all the while.
    while holders.iter().any(|(_, _, word)| world.stack.witness().count(word) == 0) {
        let refusal = refused(seventh.ensure().await, RefusalKind::AdmissionRefused);
        let facts = refusal.admission.expect("a refusal of the gate says what it knew");
        assert_eq!((facts.pool_busy as usize, facts.cap as usize), (CAP, CAP), "{facts:?}");
        tokio::time::sleep(Duration::from_millis(facts.retry_after_ms.min(500))).await;
    }
    for (sandbox, id, _) in &holders {
        let exited = DetachedStatus::Exited { exit_code: Some(0), signal: None };
        let look = || async { (sandbox.status(id.as_str()).await == exited).then_some(()) };
        eventually("a silent job's end is told", look).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(2 * LEASE_MS), "{:?}", begun.elapsed());
    refused(seventh.ensure().await, RefusalKind::AdmissionRefused);
    let most = most_containers(&world.stack.control().calls_since(0).await);
    assert_eq!(most, CAP, "no seventh container ran");
    holders[0].0.abort().await;
    done(seventh.ensure().await);
}

async fn a_slot_is_freed_by_abort_checkpoint_and_expiry_and_by_nothing_twice(world: Arc<World>) {
    let (aborted, saved, expired) = (world.sandbox().await, world.sandbox().await, world.sandbox().await);
    let kept = world.sandbox().await;
    done(kept.ensure().await);
    for sandbox in [&aborted, &saved] {
        done(sandbox.ensure().await);
    }
    assert_eq!(pool(&world).await.busy, 3);
    aborted.abort().await;
    aborted.abort().await;
    assert_eq!(pool(&world).await.busy, 2);
    done(saved.call::<Done>("checkpoint", &[json!("a test")]).await);
    done(saved.call::<Done>("checkpoint", &[json!("a test")]).await);
    assert_eq!(pool(&world).await.busy, 1);

    let options = json!({ "lifetimeMs": 3_000 });
    let short =
        expired.call::<Ensured>("ensureSandbox", &[recipe(), json!({ "mode": "refuse" }), options]).await;
    done(short);
    let init = expired.init().await;
    let freed = || async { (pool(&world).await.busy == 1).then_some(()) };
    eventually("a sandbox's deadline frees its slot", freed).await;
    assert!(!init.is_alive());
    assert!(kept.init().await.is_alive(), "the one that nobody ended holds the slot that is left");
    assert_ne!(kept.container().await.map(|c| c.state), None);
}

async fn a_slot_that_its_consumer_never_came_to_use_is_freed_when_its_lease_has_ended(world: Arc<World>) {
    let (vanished, since) = (world.sandbox().await, Instant::now());
    let place: AdmissionDone = done(vanished.call("admissionEnqueue", &[recipe()]).await);
    assert!(place.admitted);
    assert_eq!(pool(&world).await.busy, 1);
    loop {
        let PoolUse { busy, unreachable, .. } = pool(&world).await;
        if busy == 0 {
            break;
        }
        assert_eq!(unreachable, 0, "its sandbox answers, though it was never made");
        assert!(since.elapsed() < Duration::from_millis(2 * LEASE_MS), "it is kept for ever");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(since.elapsed() >= Duration::from_millis(LEASE_MS), "{:?}", since.elapsed());
    // It comes back late, and is admitted anew.
    done(vanished.ensure().await);
}

async fn pools_are_told_by_consumer_and_a_payload_chooses_none(world: Arc<World>) {
    let mut wish = recipe();
    wish["pool"] = json!("task");
    for (binding, n) in [("ALPHA", 2), ("BETA", 1)] {
        for _ in 0..n {
            let sandbox = world.sandbox_of(binding, &fresh_word()).await;
            let options = json!({ "pool": "task", "labels": { "pool": "task" } });
            let args = [wish.clone(), json!({ "mode": "refuse", "pool": "task" }), options];
            done(sandbox.call::<Ensured>("ensureSandbox", &args).await);
        }
    }
    let by_consumer = BTreeMap::from([("alpha".to_owned(), 2), ("beta".to_owned(), 1)]);
    let answer = world.stack.http("GET", "/v1/pools", Some(world.stack.token("beta")), "").await;
    let Outcome::Done(over_http) = answer.json::<Outcome<PoolStatusDone>>() else {
        panic!("{}", answer.text())
    };
    for pools in [over_http.pools, pools(&world).await] {
        let lean = pools.iter().find(|pool| pool.pool == "lean").expect("the pool of these consumers");
        assert_eq!((lean.cap as usize, lean.busy, lean.waiting, lean.unreachable), (CAP, 3, 0, 0));
        assert_eq!(lean.consumers, by_consumer);
        assert!(pools.iter().filter(|pool| pool.pool != "lean").all(|pool| pool.busy == 0), "{pools:?}");
    }
}

async fn a_refusal_says_when_to_come_back_by_either_face(world: Arc<World>) {
    for _ in 0..CAP {
        let place: AdmissionDone = done(world.sandbox().await.call("admissionEnqueue", &[recipe()]).await);
        assert!(place.admitted);
    }
    let late = world.sandbox().await;
    let refusal = refused(late.ensure().await, RefusalKind::AdmissionRefused);
    let facts = refusal.admission.expect("a refusal of the gate says what it knew");
    assert_eq!((facts.pool.as_str(), facts.pool_busy as usize, facts.position), ("lean", CAP, None));
    assert!(refusal.retry_after_ms == Some(facts.retry_after_ms) && facts.retry_after_ms > 0, "{facts:?}");
    let path = format!("/v1/sandboxes/{}", late.key);
    let body = json!({ "recipe": recipe(), "admission": { "mode": "queue" } }).to_string();
    let answer = world.stack.http("POST", &path, Some(world.stack.token("alpha")), body).await;
    let queued = refused(answer.json::<Outcome<Ensured>>(), RefusalKind::AdmissionRefused);
    let facts = queued.admission.expect("it waits, and is told where");
    assert_eq!(facts.position, Some(1), "{facts:?}");
    let seconds = facts.retry_after_ms.div_ceil(1_000).to_string();
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some(seconds.as_str())));
}

async fn pools(world: &World) -> Vec<PoolUse> {
    done(world.stack.rpc("ALPHA", "poolStatus", json!([])).await.outcome::<PoolStatusDone>()).pools
}

async fn pool(world: &World) -> PoolUse {
    pools(world).await.into_iter().find(|p| p.pool == "lean").expect("the pool of these tests")
}

/// The most sandboxes whose container ran at the same time, by the engine's log.
fn most_containers(log: &CallLog) -> usize {
    let (mut running, mut most) = (BTreeSet::new(), 0);
    for call in &log.0 {
        let Some(name) = call.container.clone().filter(|n| !n.ends_with("-proxy")) else { continue };
        match (call.plane.as_str(), call.method.as_str()) {
            ("docker", "POST") if call.path.ends_with("/start") => drop(running.insert(name)),
            ("engine", "ENDED") => drop(running.remove(&name)),
            _ => {}
        }
        most = most.max(running.len());
    }
    most
}
