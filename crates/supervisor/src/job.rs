//! One job as the supervisor holds it: the decided state, the leader, the output, the end record.
//!
//! Invariant: the end record is written once, when the state machine says that the job is terminal and no sweep of
//! it is under way; everything a reader sees comes from here. Whoever changes a job rings `news`.

use crate::output::Output;
use crate::stdin::Stdin;
use ringfence_core::job::{Event, Job as Machine};
use ringfence_wire::evidence::{Evidence, KillMethod, SeenProcess};
use ringfence_wire::ids::{BootId, Nonce, Order, ProcessId, ProcessIdentity};
use ringfence_wire::supervisor::{
    EndRecord, ExecutionIdentity, JobKind, JobState, JobView, OutputStream, TrackedJob,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// A job's number within this boot: what a process's place in the tree is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobNumber(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    Alive {
        pid: i32,
    },
    /// It said that no child is left.
    Empty,
    /// It ended without saying so: what it led fell to the supervisor.
    Lost,
}

pub struct Job {
    pub number: JobNumber,
    pub id: ProcessId,
    pub kind: JobKind,
    pub order: Order,
    pub nonce: Nonce,
    /// Of the whole start request: a replay must equal it.
    pub fingerprint: [u8; 32],
    pub identity: ExecutionIdentity,
    /// `RINGFENCE_JOB_<hash>=1`.
    pub marker: String,
    pub machine: Machine,
    pub leader: Leader,
    pub pid: Option<i32>,
    pub timeout: Option<Instant>,
    pub started: Instant,
    pub started_at_ms: u64,
    /// The leader's start time, in the kernel's ticks.
    pub started_ticks: u64,
    pub command_ended: Option<(Instant, u64)>,
    pub output: Output,
    pub stdin: Stdin,
    /// Processes that earlier looks found to be this job's (a shared pid namespace only).
    pub known: HashSet<ProcessIdentity>,
    /// Processes of this job that any sweep signalled, and by what methods they were found and ended.
    pub signalled: BTreeMap<ProcessIdentity, SeenProcess>,
    pub methods: BTreeSet<KillMethod>,
    /// Sweeps of this job under way.
    pub sweeps: usize,
    /// What sweeps of this job did, together.
    pub swept: Option<Evidence>,
    /// A teardown has already told of it.
    pub told: bool,
    pub end: Option<EndRecord>,
    pub acknowledged: bool,
}

pub struct JobCell {
    pub number: JobNumber,
    pub id: ProcessId,
    inner: RefCell<Job>,
    pub news: Notify,
    /// Stop reading the pipes: whoever still holds them is not this job's.
    pub cut: Notify,
}

pub type JobRef = Rc<JobCell>;

impl JobCell {
    pub fn new(job: Job) -> JobRef {
        Rc::new(Self {
            number: job.number,
            id: job.id.clone(),
            inner: RefCell::new(job),
            news: Notify::new(),
            cut: Notify::new(),
        })
    }

    pub fn read<T>(&self, look: impl FnOnce(&Job) -> T) -> T {
        look(&self.inner.borrow())
    }

    /// Changes the job and wakes whoever waits for news of it.
    pub fn change<T>(&self, change: impl FnOnce(&mut Job) -> T) -> T {
        let result = change(&mut self.inner.borrow_mut());
        self.news.notify_waiters();
        result
    }

    pub fn apply(&self, event: Event) {
        self.change(|job| job.machine.apply(event));
    }

    /// Waits until the job satisfies a condition.
    pub async fn until(&self, mut condition: impl FnMut(&Job) -> bool) {
        loop {
            let news = self.news.notified();
            if self.read(&mut condition) {
                return;
            }
            news.await;
        }
    }
}

impl Job {
    pub fn state(&self) -> JobState {
        match (&self.end, self.machine.state()) {
            // All is known but the record is not written yet.
            (None, state) if state.is_terminal() => JobState::Stopping,
            (_, state) => state,
        }
    }

    pub fn tracked(&self) -> TrackedJob {
        TrackedJob { id: self.id.clone(), state: self.state(), order: self.order }
    }

    pub fn view(&self, boot_id: &BootId, tail_bytes: u64) -> JobView {
        let tail = (tail_bytes > 0 && self.end.is_some()).then(|| self.output.ring.tail(tail_bytes));
        JobView {
            id: self.id.clone(),
            kind: self.kind,
            order: self.order,
            boot_id: boot_id.clone(),
            nonce: self.nonce.clone(),
            state: self.state(),
            identity: self.identity,
            pid: self.pid,
            started_at_ms: self.started_at_ms,
            command_ended_at_ms: self.command_ended.map(|(_, at_ms)| at_ms),
            end: self.end.clone(),
            output_base: self.output.ring.base(),
            output_end: self.output.ring.end(),
            tail,
        }
    }

    /// Writes the end record.
    pub fn finish(&mut self, boot_id: &BootId, now: Instant, now_ms: u64, sweep: Evidence) {
        let command = self.machine.command_end();
        // A command that never ended by itself ran until now.
        let command_ended = self.command_ended.map_or(now, |(at, _)| at);
        self.end = Some(EndRecord {
            nonce: self.nonce.clone(),
            boot_id: boot_id.clone(),
            state: self.machine.state(),
            exit_code: command.and_then(|end| end.exit_code()),
            signal: command.and_then(|end| end.signal()),
            started_at_ms: self.started_at_ms,
            ended_at_ms: now_ms,
            duration_ms: u64::try_from((command_ended - self.started).as_millis()).unwrap_or(u64::MAX),
            stdout: self.output.digest(OutputStream::Stdout),
            stderr: self.output.digest(OutputStream::Stderr),
            log_truncated: self.output.log_truncated(),
            output_cut: self.output.was_cut(),
            sweep,
        });
        self.known = HashSet::new();
        self.signalled = BTreeMap::new();
    }
}
