//! Killing, with evidence: looks, signals and waits until nothing is left or time runs out.
//!
//! `ringfence_core::sweep` decides whose a process is and what comes next; this module looks, signals and writes
//! down what it saw. Order of each round: look → signal every member → only then the clock. A sweep whose jobs'
//! leaders all say that they have no child left needs no look at all.

mod evidence;
mod members;

pub use evidence::joined;

use crate::job::{JobNumber, JobRef, Leader};
use crate::reap::{self, Children};
use crate::scan::{Look, LookFailed};
use crate::signalling::{self, Sent};
use crate::supervisor::Shared;
use crate::{limits, sys};
use ringfence_core::sweep::{Next, Phase, Root, Round, Rounds, Verdict};
use ringfence_wire::evidence::{Evidence, KillMethod, KillScope, SeenProcess};
use ringfence_wire::ids::ProcessIdentity;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// What a sweep is after.
pub struct Targets {
    jobs: Vec<JobRef>,
    /// What is below no leader, too (PID 1 of its own namespace: default deny).
    strays: bool,
    everyone: Everyone,
}

/// Whether a sweep may use `kill(-1, SIGKILL)`, which spares nobody: only as PID 1, and only while no job but the
/// targets lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Everyone {
    Never,
    /// With each round of KILL.
    WithKill,
    /// At the end in any case.
    Always,
}

impl Targets {
    pub fn one(job: &JobRef) -> Self {
        Self { jobs: vec![job.clone()], strays: false, everyone: Everyone::Never }
    }

    pub fn fence(jobs: Vec<JobRef>, everyone: Everyone) -> Self {
        Self { jobs, strays: true, everyone }
    }
}

/// Empty looks after which a leader that does not say `Empty` is told to go on, and then given up.
const LOOKS_BEFORE_GIVING_A_LEADER_UP: u32 = 20;

/// Whose a member is, for the evidence of each job.
type Owner = Option<JobNumber>;

struct Sweep<'a> {
    supervisor: &'a Shared,
    targets: Targets,
    began: Instant,
    methods: BTreeSet<KillMethod>,
    /// Every process this sweep signalled.
    signalled: BTreeMap<ProcessIdentity, (SeenProcess, Owner)>,
    alive: BTreeSet<ProcessIdentity>,
    unreadable: BTreeMap<ProcessIdentity, SeenProcess>,
    scans: u64,
    unfinished: Option<String>,
    looks_without_member: u32,
}

/// Sweeps until the targets are gone or the time is up. The targets' states are told of it.
pub async fn run(supervisor: &Shared, targets: Targets, grace_ms: u64) -> Evidence {
    for job in &targets.jobs {
        job.change(|job| job.sweeps += 1);
    }
    supervisor.sweeps.set(supervisor.sweeps.get() + 1);
    let mut sweep = Sweep {
        supervisor,
        targets,
        began: Instant::now(),
        methods: BTreeSet::new(),
        signalled: BTreeMap::new(),
        alive: BTreeSet::new(),
        unreadable: BTreeMap::new(),
        scans: 0,
        unfinished: None,
        looks_without_member: 0,
    };
    let verdict = sweep.rounds(grace_ms.min(limits::MAX_GRACE_MS)).await;
    let evidence = sweep.settle(verdict);
    supervisor.sweeps.set(supervisor.sweeps.get() - 1);
    if supervisor.sweeps.get() == 0 {
        supervisor.termed.take();
    }
    evidence
}

impl Sweep<'_> {
    async fn rounds(&mut self, grace_ms: u64) -> Verdict {
        let mut rounds = Rounds::begin(0, grace_ms);
        loop {
            let proven = self.proven();
            let round =
                if proven && !self.everyone_must_go() { None } else { self.look_and_signal(rounds.phase()) };
            let (members, new, unsettled) = round.unwrap_or_default();
            let next = rounds.after(Round {
                now_ms: self.elapsed_ms(),
                members,
                new,
                unsettled,
                proven: proven && !self.everyone_must_go(),
            });
            match next {
                Next::Done(verdict) => return verdict,
                Next::LookWithKill => {}
                Next::WaitThenLook(ms) => self.wait(Duration::from_millis(ms)).await,
            }
        }
    }

    /// Until the time is up, or the leaders' word makes another look needless.
    async fn wait(&self, pause: Duration) {
        if pause.is_zero() {
            tokio::task::yield_now().await;
            return;
        }
        let proof = async {
            loop {
                let news = self.supervisor.leader_news.notified();
                if self.proven() {
                    return;
                }
                news.await;
            }
        };
        let _ = timeout(pause, proof).await;
    }

    /// The kernel's own word that nothing is left: every leader said that it has no child; or, where leaders were
    /// lost and what they led fell to the supervisor, the supervisor itself has none.
    fn proven(&self) -> bool {
        let all = |is: fn(Leader) -> bool| self.targets.jobs.iter().all(|job| is(job.read(|job| job.leader)));
        let strays = self.targets.strays && self.supervisor.strays_possible.get();
        if all(|leader| leader == Leader::Empty) && !strays {
            return true;
        }
        all(|leader| !matches!(leader, Leader::Alive { .. }))
            && reap::children(self.supervisor) == Children::None
    }

    /// A kill-all by its own name ends with `kill(-1)`, which spares nobody: so only where nobody is to be spared.
    fn everyone_must_go(&self) -> bool {
        self.targets.everyone == Everyone::Always
            && self.supervisor.ground.scope == KillScope::Namespace
            && !self.methods.contains(&KillMethod::KillEveryone)
            && self.nobody_else_lives()
    }

    fn nobody_else_lives(&self) -> bool {
        let mine: HashSet<JobNumber> = self.targets.jobs.iter().map(|job| job.number).collect();
        let roots = self.supervisor.roots.borrow();
        // A file worker that is hit is a file call that fails.
        roots.values().all(|root| match root {
            Root::Own => true,
            Root::Leader(number) => mine.contains(number),
        })
    }

    /// One round: what was found alive, what of it is new, and what could not be placed.
    fn look_and_signal(&mut self, phase: Phase) -> Option<(usize, usize, usize)> {
        let look = match self.look(phase) {
            Ok(look) => look,
            Err(failed) => {
                self.unfinished = Some(failed.to_string());
                self.without_a_look(phase);
                // Nothing is known: neither empty nor found.
                return Some((0, 0, 1));
            }
        };
        self.unfinished = None;
        self.scans += 1;
        let (members, mut unsettled) = match self.supervisor.ground.scope {
            KillScope::Namespace => self.members_by_ancestry(&look),
            KillScope::Session => (self.members_of_sessions(&look), 0),
        };
        self.alive.clear();
        let mut new = 0;
        for (at, owner, method) in &members {
            let (Some(seen), Some(named)) = (look.seen.get(*at), look.named(*at)) else { continue };
            self.alive.insert(seen.identity);
            let used = [*method, if phase == Phase::Term { KillMethod::Term } else { KillMethod::Kill }];
            self.methods.extend(used);
            if let Some(job) = owner.and_then(|number| self.target(number)) {
                job.change(|job| {
                    job.signalled.insert(seen.identity, named.clone());
                    job.methods.extend(used);
                });
            }
            if self.signalled.insert(seen.identity, (named, *owner)).is_none() {
                new += 1;
            }
            self.signal(seen.identity, seen.stopped, phase);
        }
        if phase == Phase::Kill && !members.is_empty() {
            self.kill_everyone();
        }
        if members.is_empty() {
            self.looks_without_member += 1;
            // An empty look is no proof while a leader that could give the kernel's has not.
            unsettled += self.rouse_silent_leaders();
        } else {
            self.looks_without_member = 0;
        }
        // A kill-all by name ends so even where nothing was found.
        if self.everyone_must_go() && members.is_empty() {
            self.kill_everyone();
        }
        Some((members.len(), new, unsettled))
    }

    /// While it looks, it signals at once what is plainly below a targeted leader: a process that forks and exits
    /// within less time than a whole look is never there any more when the look is over.
    fn look(&self, phase: Phase) -> Result<Look, LookFailed> {
        let mut below: HashSet<i32> =
            self.targets.jobs.iter().filter_map(|job| self.supervisor.leader_pid(job)).collect();
        Look::take_and(|seen| {
            // A leader's pid is its own until it is reaped; the others were seen in this very look.
            if below.contains(&seen.parent) {
                below.insert(seen.identity.pid);
                if seen.alive {
                    self.signal(seen.identity, seen.stopped, phase);
                }
            }
        })
    }

    fn signal(&self, to: ProcessIdentity, stopped: bool, phase: Phase) {
        match phase {
            Phase::Term if !self.supervisor.termed.borrow_mut().insert(to) => {}
            Phase::Term => {
                let sent = signalling::send(to, Signal::TERM);
                if stopped && sent == Sent::Delivered {
                    // It hears the TERM only when it goes on.
                    signalling::send(to, Signal::CONT);
                }
            }
            Phase::Kill => {
                signalling::send(to, Signal::KILL);
            }
        }
    }

    /// `/proc` is of no use: what is known without it is signalled, and the evidence says so. The command leads a
    /// process group of its own; it has not been heard to end.
    fn without_a_look(&mut self, phase: Phase) {
        if phase == Phase::Kill {
            self.kill_everyone();
        }
        for job in &self.targets.jobs {
            let command = job.read(|job| job.pid.filter(|_| job.machine.command_end().is_none()));
            if let Some(pid) = command.and_then(rustix::process::Pid::from_raw) {
                let signal = if phase == Phase::Term { Signal::TERM } else { Signal::KILL };
                let _ = rustix::process::kill_process_group(pid, signal);
            }
        }
    }

    fn kill_everyone(&mut self) {
        let namespace = self.supervisor.ground.scope == KillScope::Namespace;
        if self.targets.everyone != Everyone::Never
            && namespace
            && self.nobody_else_lives()
            && sys::kill_everyone().is_ok()
        {
            self.methods.insert(KillMethod::KillEveryone);
        }
    }

    /// Nothing is seen of a job, and yet its leader does not say so: it may still be reaping, or was stopped, or
    /// worse. It is told to go on, and at last given up: what it led falls to the supervisor. Returns how many.
    fn rouse_silent_leaders(&mut self) -> usize {
        let silent: Vec<i32> =
            self.targets.jobs.iter().filter_map(|job| self.supervisor.leader_pid(job)).collect();
        for pid in silent.iter().copied().filter_map(rustix::process::Pid::from_raw) {
            let given_up = self.looks_without_member >= LOOKS_BEFORE_GIVING_A_LEADER_UP;
            if given_up {
                self.methods.insert(KillMethod::Kill);
            }
            // An unreaped child's pid is its own.
            let _ = rustix::process::kill_process(pid, if given_up { Signal::KILL } else { Signal::CONT });
        }
        silent.len()
    }

    fn target(&self, number: JobNumber) -> Option<&JobRef> {
        self.targets.jobs.iter().find(|job| job.number == number)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
