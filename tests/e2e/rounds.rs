//! Seeded rounds of a consumer's work under faults, fifteen kinds of them, at every await of the object: no
//! declared record is lost, nothing runs twice, and no end is reported that did not happen.
//!
//! The truth is the witness's: each job says when it begins and, last of all, when it ends; and the origin's, which every
//! job calls: the fenced ones under a grant, the detached ones without. Ringfence's records are judged by these two,
//! never asked for it. A failing round names its seed:
//!
//!   RINGFENCE_SEED=N RINGFENCE_ROUNDS=1 cargo test -p ringfence-e2e -- rounds
//!
//! plays that round again, with the same work and the same faults at the same calls.

mod plan;

use crate::world::{Case, Which, World, with_origins};
use futures::{FutureExt, StreamExt, stream};
use plan::{Fault, Job, PAUSE, Planned, Told, Work, plan};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Rpc, Sandbox, done, now_ms};
use ringfence_e2e::processes::{self, Process};
use ringfence_wire::contract::{DetachedStatus, GoneReason, ReceiptEnd};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::RwLock;

pub fn tests() -> Vec<Case> {
    let name =
        "rounds::two_hundred_seeded_rounds_lose_nothing_run_nothing_twice_and_invent_no_end".to_owned();
    let run =
        |world| two_hundred_seeded_rounds_lose_nothing_run_nothing_twice_and_invent_no_end(world).boxed();
    vec![Case { name, stack: Which::Own(with_origins), deadline: DEADLINE, run }]
}

const ROUNDS: u64 = 200;
/// Of all rounds; a runtime that is killed takes seconds to come back.
const DEADLINE: Duration = Duration::from_secs(600);
/// Rounds under way at once, each in its own sandbox.
const LANES: usize = 3;
/// A consumer's durable step asks again, under the same key, until it has an answer.
const ATTEMPTS: usize = 12;
const ORIGIN: &str = "pages.test";
/// From a grant's end, which its caller is told of, to the last request it let out as the origin's clock has it: how late
/// a loaded machine may be to look.
const ORIGIN_LATE_MS: u64 = 1_000;

async fn two_hundred_seeded_rounds_lose_nothing_run_nothing_twice_and_invent_no_end(world: Arc<World>) {
    let first = from_environment("RINGFENCE_SEED").unwrap_or_else(|| fastrand::u64(0..1 << 32));
    let rounds = from_environment("RINGFENCE_ROUNDS").unwrap_or(ROUNDS);
    println!("rounds: seeds {first} to {}", first + rounds - 1);
    let runtime = Arc::new(RwLock::new(()));
    let kinds = stream::iter(first..first + rounds)
        .map(|seed| {
            let round = tokio::spawn(round(world.clone(), seed, runtime.clone()));
            async move { round.await.map_err(|e| (seed, e)) }
        })
        .buffer_unordered(LANES)
        .fold(BTreeMap::<_, usize>::new(), |mut kinds, round| async move {
            match round {
                Ok(met) => met.into_iter().for_each(|fault| *kinds.entry(fault).or_default() += 1),
                Err((seed, error)) => panic!("the round of seed {seed}: {error}"),
            }
            kinds
        })
        .await;
    println!("rounds: faults met: {kinds:?}");
    if rounds >= ROUNDS {
        assert_eq!(kinds.len(), Fault::ALL.len(), "every kind of fault was met");
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

async fn round(world: Arc<World>, seed: u64, runtime: Arc<RwLock<()>>) -> Vec<Fault> {
    let plan = plan(seed);
    let met: Vec<Fault> = plan.iter().filter_map(|(_, planned)| Some(planned.as_ref()?.fault)).collect();
    // Whoever kills the runtime has it alone, so that each round meets its own faults and no other's.
    let (_alone, _shared) = match met.contains(&Fault::RuntimeKilled) {
        true => (Some(runtime.write().await), None),
        false => (None, Some(runtime.read().await)),
    };
    let sandbox = world.sandbox_of("ALPHA", &format!("round-{seed}")).await;
    let mut jobs = Vec::new();
    for (mut job, planned) in plan {
        let meanwhile = planned.map(|p| tokio::spawn(make(world.clone(), sandbox.clone(), p)));
        work(&sandbox, &mut job).await;
        if let Some(meanwhile) = meanwhile {
            meanwhile.await.expect("the fault was made");
        }
        jobs.push(job);
    }
    sandbox.clear_faults().await;
    judge(&world, &sandbox, &jobs, &met).await;
    judge_what_left(&world, &jobs, &met);
    sandbox.abort().await;
    for job in &jobs {
        until("an abort ends everything", || processes_of(job) == 0).await;
    }
    met
}

/// Makes one fault: at the engine's socket before the work, or by a signal or a call in the midst of it.
async fn make(world: Arc<World>, sandbox: Sandbox, planned: Planned) {
    let Planned { fault, times, after_ms } = planned;
    if let Some((method, path, action)) = fault.at_the_socket() {
        return world.stack.control().fault(sandbox.ingress(method, path), action, times).await;
    }
    // Where in the work it falls is drawn with the seed; this is the fault's own time, not a wait for anything.
    tokio::time::sleep(Duration::from_millis(after_ms)).await;
    match fault {
        Fault::RuntimeKilled => world.stack.kill_workerd().await,
        Fault::AbortMeanwhile => drop(sandbox.try_call("abort", &[]).await),
        Fault::SupervisorKilled => {
            if let Some(init) = sandbox.try_init().await {
                init.try_signal(Signal::KILL);
            }
        }
        _ => {
            let commands = sandbox.processes().await;
            if let Some(command) = commands.iter().find(|p| is_the_command(p)) {
                command.try_signal(Signal::KILL);
            }
        }
    }
}

/// Not the pause of its calls.
fn is_the_command(process: &Process) -> bool {
    process.args.first().is_some_and(|name| name == "sleep") && !process.has_arg(PAUSE)
}

/// The consumer's durable step: the same call under the same key until it is answered.
async fn work(sandbox: &Sandbox, job: &mut Job) {
    job.asked_ms = now_ms();
    for _ in 0..ATTEMPTS {
        let told = match job.work {
            Work::Exec(_) => ask(sandbox, job).await.map(|outcome| told(outcome, Told::Ended)),
            Work::Short(_) | Work::Long => {
                ask(sandbox, job).await.map(|outcome| told(outcome, Told::Started))
            }
        };
        if let Some(Some(told)) = told {
            job.told = told;
            job.told_ms = now_ms();
            return;
        }
    }
    panic!("no answer for {} in {ATTEMPTS} attempts", job.key);
}

/// None: to be asked again.
fn told<T>(outcome: Outcome<T>, done: fn(T) -> Told) -> Option<Told> {
    match outcome {
        Outcome::Done(value) => Some(done(value)),
        Outcome::Refused(refusal) if refusal.kind == RefusalKind::EffectUnknown => Some(Told::Unknown),
        Outcome::Refused(_) => None,
    }
}

/// None where the answer was lost with the runtime.
async fn ask<T: DeserializeOwned>(sandbox: &Sandbox, job: &Job) -> Option<Outcome<T>> {
    match sandbox.try_call(job.method(), &[job.input()]).await {
        Ok(Rpc::Returned(value)) => Some(Rpc::Returned(value).outcome()),
        Ok(Rpc::Threw { .. }) | Err(_) => {
            sandbox.stack.answers().await;
            None
        }
    }
}

/// What was told and what is recorded, held against what the witness heard and the kernel shows.
async fn judge(world: &World, sandbox: &Sandbox, jobs: &[Job], met: &[Fault]) {
    let calm = !met.iter().any(|f| f.ends_processes());
    let list = sandbox.list().await.processes;
    for job in jobs {
        let begun = world.stack.witness().count(&job.begins);
        assert!(begun <= 1, "{} ran {begun} times; faults {met:?}", job.key);
        match (&job.told, job.work) {
            (Told::Ended(exec), Work::Exec(code)) => {
                if exec.receipt.end == ReceiptEnd::Exited {
                    assert_eq!(exec.receipt.exit_code, Some(code), "{exec:?}; faults {met:?}");
                    world.stack.witness().heard(&job.ends).await;
                }
                let replay = done(sandbox.exec_input(job.input()).await).receipt;
                assert!(replay.deduped);
                assert_eq!((replay.end, replay.exit_code), (exec.receipt.end, exec.receipt.exit_code));
            }
            (Told::Unknown, _) => {
                assert!(
                    !calm || met.contains(&Fault::RuntimeKilled),
                    "unknown without a reason; faults {met:?}"
                );
            }
            (Told::Started(start), work) => {
                let id = start.process.id.as_str();
                let listed = list.iter().find(|p| p.id == start.process.id);
                assert!(
                    listed.is_some_and(|l| l.idempotency_key.as_str() == job.key),
                    "a record was lost: {list:?}"
                );
                let status = settled(sandbox, job, id).await;
                let alive = processes_of(job);
                match (status, work) {
                    (DetachedStatus::Running, Work::Long) => {
                        assert_eq!(alive, 1, "running is a process, one; faults {met:?}");
                    }
                    (DetachedStatus::Exited { exit_code: Some(told), signal: None }, Work::Short(code)) => {
                        assert!(told == code, "{told} told, {code} due; faults {met:?}");
                        world.stack.witness().heard(&job.ends).await;
                    }
                    (DetachedStatus::Exited { exit_code: None, signal: Some(9) }, Work::Long) => {
                        assert!(met.contains(&Fault::CommandKilled) && alive == 0, "{met:?}");
                    }
                    (DetachedStatus::Gone { reason: GoneReason::NeverStarted, .. }, _) => {
                        assert_eq!(begun, 0, "never started, yet it began; faults {met:?}");
                    }
                    (DetachedStatus::Gone { is_final: true, .. }, _) => {
                        assert_eq!(alive, 0, "gone for good, yet alive; faults {met:?}");
                        assert!(!calm, "nothing here ends a declared process; faults {met:?}");
                    }
                    (status, _) => panic!("{status:?} is no state of {}; faults {met:?}", job.key),
                }
            }
            (told, work) => panic!("{told:?} is no answer to {work:?}"),
        }
    }
}

/// What reached the origin: each fenced command once, and anything at all only while one of the fences might be open.
fn judge_what_left(world: &World, jobs: &[Job], met: &[Fault]) {
    let fenced = |job: &&Job| matches!(job.work, Work::Exec(_));
    for job in jobs {
        let seen = world.stack.origins().seen(&format!("/{}/", job.key));
        for seen in &seen {
            let inside = |fence: &Job| (fence.asked_ms..fence.told_ms + ORIGIN_LATE_MS).contains(&seen.at_ms);
            assert!(
                jobs.iter().filter(fenced).any(inside),
                "let out without a grant: {seen:?}; faults {met:?}"
            );
        }
        let once = job.work != Work::Long;
        assert!(!once || seen.len() <= 1, "{} called {} times; faults {met:?}", job.key, seen.len());
        if let Told::Ended(exec) = &job.told {
            // Without the runtime nothing is let out, nor once an abort has closed the grant; the command goes on.
            let closed =
                met.iter().any(|fault| matches!(fault, Fault::RuntimeKilled | Fault::AbortMeanwhile));
            let due = exec.receipt.end == ReceiptEnd::Exited && !closed;
            assert!(!due || seen.len() == 1, "{} ran and its call did not arrive; faults {met:?}", job.key);
        }
    }
}

/// A status that will not change by itself. Before its command is executed, and while what it left is swept, a process
/// is running and none of it carries the mark.
async fn settled(sandbox: &Sandbox, job: &Job, id: &str) -> DetachedStatus {
    let look = || async {
        match sandbox.status(id).await {
            DetachedStatus::Running if processes_of(job) == 0 => None,
            DetachedStatus::Gone { is_final: false, .. } => None,
            settled => Some(settled),
        }
    };
    eventually("a status settles", look).await
}

fn processes_of(job: &Job) -> usize {
    processes::everywhere().into_iter().filter(|p| p.has_arg(&job.mark)).count()
}
