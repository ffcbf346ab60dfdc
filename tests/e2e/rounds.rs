//! Seeded rounds of a consumer's work under faults, fifteen kinds of them, at every await of the object: no
//! declared record is lost, nothing runs twice, and no end is reported that did not happen.
//!
//! The truth is the witness's: each job says when it begins and, last of all, when it ends. Ringfence's records
//! are judged by it, never asked for it. A failing round names its seed:
//!
//!   RINGFENCE_SEED=N RINGFENCE_ROUNDS=1 cargo test -p ringfence-e2e -- rounds
//!
//! plays that round again, with the same work and the same faults at the same calls.

use crate::world::{Case, Which, World};
use futures::{FutureExt, StreamExt, stream};
use ringfence_e2e::control::Action;
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Rpc, Sandbox, done, exec_input, start_input};
use ringfence_e2e::processes;
use ringfence_e2e::stack::Setup;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{DetachedStatus, ExecDone, GoneReason, ReceiptEnd, StartDetachedDone};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::RwLock;

pub fn tests() -> Vec<Case> {
    let name =
        "rounds::two_hundred_seeded_rounds_lose_nothing_run_nothing_twice_and_invent_no_end".to_owned();
    let run =
        |world| two_hundred_seeded_rounds_lose_nothing_run_nothing_twice_and_invent_no_end(world).boxed();
    vec![Case { name, stack: Which::Own(Setup::default), deadline: DEADLINE, run }]
}

const ROUNDS: u64 = 200;
/// Of all rounds; a runtime that is killed takes seconds to come back.
const DEADLINE: Duration = Duration::from_secs(600);
/// Rounds under way at once, each in its own sandbox.
const LANES: usize = 3;
/// The work of one round.
const JOBS: usize = 3;
/// A consumer's durable step asks again, under the same key, until it has an answer.
const ATTEMPTS: usize = 12;

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

/// What goes wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    StartNeverArrives,
    StartAnswerLost,
    StartTwice,
    StartLate,
    LookNeverArrives,
    LookAnswerLost,
    TeardownRefused,
    TeardownAnswerLost,
    TeardownLate,
    StopAnswerLost,
    HelloNeverArrives,
    CommandKilled,
    SupervisorKilled,
    RuntimeKilled,
    AbortMeanwhile,
}

impl Fault {
    const ALL: [Self; 15] = [
        Self::StartNeverArrives,
        Self::StartAnswerLost,
        Self::StartTwice,
        Self::StartLate,
        Self::LookNeverArrives,
        Self::LookAnswerLost,
        Self::TeardownRefused,
        Self::TeardownAnswerLost,
        Self::TeardownLate,
        Self::StopAnswerLost,
        Self::HelloNeverArrives,
        Self::CommandKilled,
        Self::SupervisorKilled,
        Self::RuntimeKilled,
        Self::AbortMeanwhile,
    ];

    /// The request it meets and what it does to it; none for the ones that are signals or calls.
    fn at_the_socket(self) -> Option<(&'static str, &'static str, Action)> {
        let refusal = Action::Answer { status: 500, body: "{}".to_owned() };
        Some(match self {
            Self::StartNeverArrives => ("POST", "/v1/jobs", Action::DropBefore),
            Self::StartAnswerLost => ("POST", "/v1/jobs", Action::DropAfter),
            Self::StartTwice => ("POST", "/v1/jobs", Action::Double),
            Self::StartLate => ("POST", "/v1/jobs", Action::Delay { ms: 300 }),
            Self::LookNeverArrives => ("GET", "/v1/jobs", Action::DropBefore),
            Self::LookAnswerLost => ("GET", "/v1/jobs", Action::DropAfter),
            Self::TeardownRefused => ("POST", "/v1/teardown", refusal),
            Self::TeardownAnswerLost => ("POST", "/v1/teardown", Action::DropAfter),
            Self::TeardownLate => ("POST", "/v1/teardown", Action::Delay { ms: 300 }),
            Self::StopAnswerLost => ("DELETE", "/v1/jobs", Action::DropAfter),
            Self::HelloNeverArrives => ("GET", "/v1/hello", Action::DropBefore),
            Self::CommandKilled | Self::SupervisorKilled | Self::RuntimeKilled | Self::AbortMeanwhile => {
                return None;
            }
        })
    }

    /// Whether it can end a process that was declared, or leave an exec's end unknown.
    fn ends_processes(self) -> bool {
        use Fault::{
            AbortMeanwhile, HelloNeverArrives, SupervisorKilled, TeardownAnswerLost, TeardownRefused,
        };
        matches!(
            self,
            AbortMeanwhile | SupervisorKilled | TeardownRefused | TeardownAnswerLost | HelloNeverArrives
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// A fenced command that ends with this code.
    Exec(i32),
    /// A detached command that ends with this code.
    Short(i32),
    /// A detached command that goes on until it is ended.
    Long,
}

/// One piece of work and what its caller was told.
struct Job {
    work: Work,
    key: String,
    /// Names its processes and its lines.
    mark: String,
    begins: String,
    ends: String,
    command: String,
    told: Told,
}

#[derive(Debug)]
enum Told {
    Nothing,
    Started(StartDetachedDone),
    Ended(Box<ExecDone>),
    Unknown,
}

impl Job {
    fn draw(rng: &mut fastrand::Rng, seed: u64, n: usize) -> Self {
        let mark = format!("3600.{seed:010}{n}");
        let (begins, ends) = (format!("begin-{seed}-{n}"), format!("end-{seed}-{n}"));
        let code = rng.i32(0..100);
        let work = match rng.u8(0..3) {
            0 => Work::Exec(code),
            1 => Work::Short(code),
            _ => Work::Long,
        };
        let pause = rng.u32(0..80);
        let command = match work {
            // The last word before the exit: an end that was said is an end that came.
            Work::Exec(code) | Work::Short(code) => {
                format!("{}; sleep 0.{pause:03}; {}; exit {code}", say(&begins), say(&ends))
            }
            Work::Long => format!("{}; exec sleep {mark}", say(&begins)),
        };
        let key = format!("round-{seed}-{n}");
        Self { work, key, mark, begins, ends, command, told: Told::Nothing }
    }
}

/// One fault, and where in the work it falls.
#[derive(Clone, Copy)]
struct Planned {
    fault: Fault,
    times: u32,
    after_ms: u64,
}

/// Everything a round does, drawn before it begins.
fn plan(seed: u64) -> Vec<(Job, Option<Planned>)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..JOBS)
        .map(|n| {
            let job = Job::draw(&mut rng, seed, n);
            let fault = rng.choice(Fault::ALL);
            let (happens, times, after_ms) = (rng.u8(0..5) > 0, rng.u32(1..3), rng.u64(0..120));
            (job, fault.filter(|_| happens).map(|fault| Planned { fault, times, after_ms }))
        })
        .collect()
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
    sandbox.abort().await;
    for job in &jobs {
        let left = || processes::everywhere().into_iter().any(|p| p.has_arg(&job.mark));
        until("an abort ends everything", || !left()).await;
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
            if let Some(command) = commands.iter().find(|p| p.args.first().is_some_and(|a| a == "sleep")) {
                command.try_signal(Signal::KILL);
            }
        }
    }
}

/// The consumer's durable step: the same call under the same key until it is answered.
async fn work(sandbox: &Sandbox, job: &mut Job) {
    for _ in 0..ATTEMPTS {
        job.told = match job.work {
            Work::Exec(_) => match ask(sandbox, "execUnderGrant", exec_input(&job.key, &job.command)).await {
                Some(Outcome::Done(done)) => Told::Ended(done),
                Some(Outcome::Refused(refusal)) if refusal.kind == RefusalKind::EffectUnknown => {
                    Told::Unknown
                }
                _ => continue,
            },
            Work::Short(_) | Work::Long => {
                match ask(sandbox, "startDetached", start_input(&job.key, &job.command)).await {
                    Some(Outcome::Done(done)) => Told::Started(done),
                    Some(Outcome::Refused(refusal)) if refusal.kind == RefusalKind::EffectUnknown => {
                        Told::Unknown
                    }
                    _ => continue,
                }
            }
        };
        return;
    }
    panic!("no answer for {} in {ATTEMPTS} attempts", job.key);
}

/// None where the answer was lost with the runtime.
async fn ask<T: DeserializeOwned>(sandbox: &Sandbox, method: &str, input: Value) -> Option<Outcome<T>> {
    match sandbox.try_call(method, &[input]).await {
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
                let replay = done(sandbox.exec_as(&job.key, &job.command).await).receipt;
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
                let status = settled(sandbox, id, work == Work::Long).await;
                if (&status, work) == (&DetachedStatus::Running, Work::Long) {
                    // A start is answered before its command is executed: until then no process carries the mark.
                    world.stack.witness().heard(&job.begins).await;
                }
                let alive = processes::everywhere().into_iter().filter(|p| p.has_arg(&job.mark)).count();
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

/// A status that will not change by itself.
async fn settled(sandbox: &Sandbox, id: &str, may_run: bool) -> DetachedStatus {
    let look = || async {
        match sandbox.status(id).await {
            DetachedStatus::Running if !may_run => None,
            DetachedStatus::Gone { is_final: false, .. } => None,
            settled => Some(settled),
        }
    };
    eventually("a status settles", look).await
}
