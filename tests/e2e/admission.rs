//! The gate in front of every sandbox, under a crowd and over time: never more containers than slots, first come
//! first served, a slot held exactly as long as its container lives. Containers are counted in the engine's log.

use crate::world::{World, tests};
use futures::future::join_all;
use ringfence_e2e::control::CallLog;
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, fresh_word, recipe, refused};
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{AdmissionDone, DetachedStatus, Done, Ensured, PoolStatusDone, PoolUse};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

tests! {
    own Setup::default =>
        sixty_four_sandboxes_share_six_slots_first_come_first_served,
        six_silent_jobs_hold_their_six_slots_to_the_end,
        a_slot_is_freed_by_abort_checkpoint_and_expiry_and_by_nothing_twice;
}

const CAP: usize = 6;
const CROWD: usize = 64;
/// Longer than an idle object stays in memory and than a container outlives one that forgot it (10 s each).
const SILENCE_S: u32 = 30;

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

async fn six_silent_jobs_hold_their_six_slots_to_the_end(world: Arc<World>) {
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
        tokio::time::sleep(std::time::Duration::from_millis(facts.retry_after_ms.min(500))).await;
    }
    for (sandbox, id, _) in &holders {
        let exited = DetachedStatus::Exited { exit_code: Some(0), signal: None };
        let look = || async { (sandbox.status(id.as_str()).await == exited).then_some(()) };
        eventually("a silent job's end is told", look).await;
    }
    refused(seventh.ensure().await, RefusalKind::AdmissionRefused);
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

async fn pool(world: &World) -> PoolUse {
    let status = world.stack.rpc("ALPHA", "poolStatus", json!([])).await.outcome::<PoolStatusDone>();
    let Outcome::Done(status) = status else { panic!("{status:?}") };
    status.pools.into_iter().find(|p| p.pool == "lean").expect("the pool of these tests")
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
