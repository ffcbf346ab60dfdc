//! A world around the ledger: calls that come again, an object that is lost between any two writes, a supervisor, and
//! messages to it that are lost, late or doubled. What ran is counted at the supervisor, never read from the ledger.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use ringfence_wire::contract::{Approval, ApprovedAt, OnUnknown};
use ringfence_wire::ids::{BootId, Order};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use sha2::{Digest, Sha256};

use super::super::Store;
use super::super::exec::Found;
use super::super::ledger::{Entry, Kept, LedgerState};
use super::{done, fresh, input};
use crate::sql::StoreError;
use crate::sql::sqlite::{CUT, Cut, Sql};

const KEYS: usize = 5;
const TASKS: usize = 2;
/// The second needs a person's word.
const COMMANDS: [&str; 2] = ["true", "git push"];
const NOW: u64 = 1_000_000;
/// Fewer than there are keys, so that receipts are dropped; their keys are all remembered.
const KEPT: Kept = Kept { receipts: 2, forgotten: 100 };

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Exec {
        key: usize,
        command: usize,
        task: usize,
        rerun: bool,
        cut: Option<Cut>,
    },
    /// The fence's turn: the row says running, the start is on its way.
    Send {
        cut: Option<Cut>,
    },
    /// The boot fails: proven not to have run.
    BootFails {
        cut: Option<Cut>,
    },
    /// What the start became is heard, or asked for; if nobody can be asked, the container goes.
    Conclude {
        reach: bool,
        cut: Option<Cut>,
    },
    Deliver {
        message: usize,
    },
    Double {
        message: usize,
    },
    Lose {
        message: usize,
    },
    End {
        job: usize,
    },
    /// The object is lost with all that it had in memory.
    Crash,
    Recover {
        reach: bool,
        cut: Option<Cut>,
    },
    Abort {
        cut: Option<Cut>,
    },
    /// The container stops by itself.
    Stop,
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let writes = 0u32..5;
    let cut = prop_oneof![
        6 => Just(None),
        1 => writes.clone().prop_map(|writes| Some(Cut::RolledBack { writes })),
        1 => writes.prop_map(|writes| Some(Cut::Kept { writes })),
    ];
    let reach = prop::bool::weighted(0.7);
    let n = 0usize..8;
    let op = prop_oneof![
        8 => (0..KEYS, 0..COMMANDS.len(), 0..TASKS, prop::bool::weighted(0.3), cut.clone())
            .prop_map(|(key, command, task, rerun, cut)| Op::Exec { key, command, task, rerun, cut }),
        6 => cut.clone().prop_map(|cut| Op::Send { cut }),
        1 => cut.clone().prop_map(|cut| Op::BootFails { cut }),
        4 => (reach, cut.clone()).prop_map(|(reach, cut)| Op::Conclude { reach, cut }),
        6 => n.clone().prop_map(|message| Op::Deliver { message }),
        1 => n.clone().prop_map(|message| Op::Double { message }),
        1 => n.clone().prop_map(|message| Op::Lose { message }),
        3 => n.prop_map(|job| Op::End { job }),
        1 => Just(Op::Crash),
        3 => (reach, cut.clone()).prop_map(|(reach, cut)| Op::Recover { reach, cut }),
        1 => cut.prop_map(|cut| Op::Abort { cut }),
        1 => Just(Op::Stop),
    ];
    prop::collection::vec(op, 1..100)
}

/// A call in the object's memory.
#[derive(Clone, Debug)]
struct Flight {
    entry: Entry,
    /// Where its start was sent.
    sent: Option<Start>,
}

#[derive(Clone, Debug)]
struct Start {
    job: String,
    boot: u64,
    order: u64,
}

/// What is known of a reservation beside the ledger.
#[derive(Clone, Debug)]
struct Reservation {
    key: usize,
    /// The approval it was made with, if its command needs one.
    task: Option<usize>,
    /// Its caller said that the command may run twice.
    rerun: bool,
}

#[derive(Default)]
struct Supervisor {
    boot: u64,
    /// Starts at or below this order are refused.
    closed: u64,
    /// By id: has it ended?
    jobs: BTreeMap<String, bool>,
    tombstones: BTreeSet<String>,
}

struct World {
    sql: Sql,
    store: Store,
    flights: Vec<Flight>,
    recovered: bool,
    supervisor: Supervisor,
    messages: Vec<Start>,
    reservations: HashMap<String, Reservation>,
    /// Every job that ran, in order.
    ran: Vec<String>,
    /// The receipt a key was answered with.
    answered: HashMap<usize, String>,
    made: u64,
}

type Step<T = ()> = Result<T, TestCaseError>;

fn open(sql: &Sql) -> Store {
    let store = Store { kept: KEPT, ..Store::over(sql.clone()).unwrap() };
    store.head_of(&"ci".into(), &"k".into()).unwrap();
    store
}

fn is_cut(message: &str) -> bool {
    message.contains(CUT)
}

fn approval(command: &str, task: usize) -> Approval {
    Approval {
        task_id: format!("task-{task}"),
        ordinal: 0,
        command_sha256: hex::encode(Sha256::digest(command)),
        approved_by: "sam".to_owned(),
        approved_at: ApprovedAt::Millis(NOW),
    }
}

impl World {
    fn new(sql: &Sql) -> Self {
        Self {
            sql: sql.clone(),
            store: open(sql),
            flights: Vec::new(),
            recovered: true,
            supervisor: Supervisor::default(),
            messages: Vec::new(),
            reservations: HashMap::new(),
            ran: Vec::new(),
            answered: HashMap::new(),
            made: 0,
        }
    }

    /// One transaction of the object's. `None`: it was cut short, and if its writes went with it so did the object.
    fn transact<T>(
        &mut self,
        cut: Option<Cut>,
        run: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Step<Option<T>> {
        let store = &self.store;
        match self.sql.call(cut, || run(store)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_cut(&error.0) => {
                self.was_cut(cut);
                Ok(None)
            }
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    }

    fn was_cut(&mut self, cut: Option<Cut>) {
        if matches!(cut, Some(Cut::RolledBack { .. })) {
            self.crash();
        }
    }

    fn crash(&mut self) {
        self.flights.clear();
        self.recovered = false;
        self.store = open(&self.sql);
    }

    fn step(&mut self, op: Op) -> Step {
        match op {
            Op::Exec { key, command, task, rerun, cut } => {
                self.exec(key, command, task, rerun, cut).map(drop)
            }
            Op::Send { cut } => self.send(cut),
            Op::BootFails { cut } => match self.flights.iter().position(|flight| flight.sent.is_none()) {
                Some(at) => self.not_run(at, cut),
                None => Ok(()),
            },
            Op::Conclude { reach, cut } => match self.flights.iter().position(|flight| flight.sent.is_some())
            {
                Some(at) => self.conclude(at, reach, cut),
                None => Ok(()),
            },
            Op::Deliver { message } => {
                if !self.messages.is_empty() {
                    let start = self.messages.remove(message % self.messages.len());
                    self.deliver(&start)?;
                }
                Ok(())
            }
            Op::Double { message } => {
                let at = message % self.messages.len().max(1);
                self.messages.extend(self.messages.get(at).cloned());
                Ok(())
            }
            Op::Lose { message } => {
                if !self.messages.is_empty() {
                    self.messages.remove(message % self.messages.len());
                }
                Ok(())
            }
            Op::End { job } => {
                let at = job % self.supervisor.jobs.len().max(1);
                if let Some(ended) = self.supervisor.jobs.values_mut().nth(at) {
                    *ended = true;
                }
                Ok(())
            }
            Op::Crash => {
                self.crash();
                Ok(())
            }
            Op::Recover { reach, cut } => self.recover(reach, cut),
            Op::Abort { cut } => self.abort(cut),
            Op::Stop => {
                self.lose_container();
                Ok(())
            }
        }
    }

    /// As `Object::exec`: what the ledger says, and if the key is free it is taken, with no await between.
    fn exec(
        &mut self,
        key: usize,
        command: usize,
        task: usize,
        rerun: bool,
        cut: Option<Cut>,
    ) -> Step<Heard> {
        let text = COMMANDS[command];
        let mut call = input(&format!("key-{key}"), text);
        let floor_rule = (command == 1).then_some("git-push");
        let task = (command == 1).then_some(task);
        call.approval = task.map(|task| approval(text, task));
        call.on_unknown = rerun.then_some(OnUnknown::Rerun);
        self.made += 1;
        let (fresh, recovered) = (fresh(self.made, NOW), self.recovered);
        let job = fresh.job.to_string();
        let store = &self.store;
        let found = self.sql.call(cut, || {
            Ok::<_, Refusal>(match store.look_up(&call)? {
                Found::Free { unknown } if recovered => {
                    let again = unknown.is_some();
                    Ok((store.take_key(&call, floor_rule, unknown, fresh)?, again))
                }
                other => Err(other),
            })
        });
        match found {
            Ok(Ok((entry, again))) => {
                // Only its caller's word lets a key that ran run again.
                let ran = self.ran.iter().filter(|job| self.reservations[*job].key == key).count();
                prop_assert!(again || ran == 0, "key {} ran and was taken for free", key);
                self.reservations.insert(job, Reservation { key, task, rerun: again });
                self.flights.push(Flight { entry, sent: None });
                Ok(Heard::Taken)
            }
            Ok(Err(Found::Free { .. })) => {
                // It waits for recovery first.
                Ok(Heard::Open)
            }
            Ok(Err(Found::Open(entry))) => {
                if !self.flights.iter().any(|flight| flight.entry.job == entry.job) {
                    self.recovered = false;
                }
                Ok(Heard::Open)
            }
            Ok(Err(Found::Answer(answer))) => self.heard(key, *answer),
            Err(refusal) if is_cut(&refusal.message) => {
                self.was_cut(cut);
                Ok(Heard::Open)
            }
            Err(refusal) => {
                prop_assert_eq!(refusal.kind, RefusalKind::AttestationRejected);
                Ok(Heard::Rejected)
            }
        }
    }

    fn heard(
        &mut self,
        key: usize,
        answer: Result<ringfence_wire::contract::ExecDone, Refusal>,
    ) -> Step<Heard> {
        match answer {
            Ok(done) => {
                let job = done.receipt.tail;
                prop_assert!(done.receipt.deduped);
                prop_assert_eq!(self.reservations[&job].key, key, "another key's receipt");
                prop_assert!(self.ran.contains(&job), "a receipt of what never ran");
                let first = self.answered.entry(key).or_insert_with(|| job.clone()).clone();
                prop_assert_eq!(first, job, "a key answered with two receipts");
                Ok(Heard::Done)
            }
            Err(refusal) => {
                let conflict = refusal.kind == RefusalKind::IdempotencyConflict;
                prop_assert!(conflict || refusal.kind == RefusalKind::EffectUnknown, "{:?}", refusal);
                Ok(if conflict { Heard::Conflict } else { Heard::Unknown })
            }
        }
    }

    /// One fence at a time.
    fn send(&mut self, cut: Option<Cut>) -> Step {
        if !self.recovered || self.flights.iter().any(|flight| flight.sent.is_some()) {
            return Ok(());
        }
        let Some(at) = self.flights.iter().position(|flight| flight.sent.is_none()) else { return Ok(()) };
        let (job, boot) = (self.flights[at].entry.job.clone(), self.supervisor.boot);
        let boot_id = BootId(format!("boot-{boot}"));
        let order = self.transact(cut, |store| {
            let order = store.open_fence()?;
            store.mark_running(&job, order, boot, &boot_id)?;
            Ok(order)
        })?;
        match order {
            Some(order) => {
                let start = Start { job: job.to_string(), boot, order: order.0 };
                self.messages.push(start.clone());
                self.flights[at].sent = Some(start);
                Ok(())
            }
            // The statement failed and the object lives: nothing was sent.
            None if !self.flights.is_empty() => self.not_run(at, None),
            None => Ok(()),
        }
    }

    fn not_run(&mut self, at: usize, cut: Option<Cut>) -> Step {
        let job = self.flights[at].entry.job.clone();
        self.transact(cut, |store| store.release_entry(&job))?;
        self.land(&job.0);
        Ok(())
    }

    /// The call is over, whatever storage says: its row is recovery's if it is still open.
    fn land(&mut self, job: &str) {
        self.flights.retain(|flight| flight.entry.job.as_str() != job);
    }

    /// As a fence ends: its teardown, then what is proven.
    fn conclude(&mut self, at: usize, reach: bool, cut: Option<Cut>) -> Step {
        let Some(start) = self.flights[at].sent.clone() else { return Ok(()) };
        let job = self.flights[at].entry.job.clone();
        if start.boot == self.supervisor.boot && !reach {
            self.lose_container();
        }
        let proof = self.proof(&start, start.order + 1);
        let concluded = self.transact(cut, |store| {
            match proof {
                Proof::Ended => store.record_receipt(&job, &done(job.as_str()), NOW)?,
                Proof::NeverRan => store.release_entry(&job)?,
                Proof::Nothing => store.record_unknown(&job, "nobody could be asked", NOW)?,
            }
            store.close_fence()
        })?;
        if concluded.is_some() && matches!(proof, Proof::Ended) {
            // The caller is given its receipt: so is whoever asks again.
            let state = self.row(self.reservations[&job.0].key).map(|entry| entry.state);
            prop_assert!(
                state.is_none_or(|state| state == LedgerState::Done),
                "a receipt that was given is not kept: {:?}",
                state
            );
        }
        self.land(&job.0);
        Ok(())
    }

    /// What the supervisor that it was sent to can say once a teardown of this order is over: a job it does not know gets
    /// a tombstone.
    fn proof(&mut self, start: &Start, order: u64) -> Proof {
        let supervisor = &mut self.supervisor;
        if start.boot != supervisor.boot {
            return Proof::Nothing;
        }
        supervisor.closed = supervisor.closed.max(order);
        supervisor.jobs.values_mut().for_each(|ended| *ended = true);
        if supervisor.jobs.contains_key(&start.job) {
            Proof::Ended
        } else {
            supervisor.tombstones.insert(start.job.clone());
            Proof::NeverRan
        }
    }

    fn deliver(&mut self, start: &Start) -> Step {
        let supervisor = &mut self.supervisor;
        let refused = start.boot != supervisor.boot
            || start.order <= supervisor.closed
            || supervisor.tombstones.contains(&start.job)
            || supervisor.jobs.contains_key(&start.job);
        if refused {
            return Ok(());
        }
        supervisor.jobs.insert(start.job.clone(), false);
        let mine = self.reservations[&start.job].clone();
        let by = |of: &dyn Fn(&Reservation) -> bool| {
            self.ran.iter().filter(|job| of(&self.reservations[*job])).count()
        };
        let ran = by(&|other| other.key == mine.key);
        prop_assert!(mine.rerun || ran == 0, "key {} runs twice", mine.key);
        if let Some(task) = mine.task {
            // A rerun may use its key's own approval again, no other's.
            let others = by(&|other| other.task == Some(task) && other.key != mine.key);
            prop_assert!(others == 0, "the approval of task {} is used by two keys", task);
        }
        self.ran.push(start.job.clone());
        Ok(())
    }

    fn lose_container(&mut self) {
        self.supervisor = Supervisor { boot: self.supervisor.boot + 1, ..Supervisor::default() };
    }

    /// As `recovery`: what nobody in this incarnation works on is released if it was not sent, and settled if it was.
    fn recover(&mut self, reach: bool, cut: Option<Cut>) -> Step {
        if self.flights.iter().any(|flight| flight.sent.is_some()) {
            // The fence lock is held.
            return Ok(());
        }
        let mut left = self.store.open_entries().map_err(|e| TestCaseError::fail(e.to_string()))?;
        left.retain(|entry| self.flights.iter().all(|flight| flight.entry.job != entry.job));
        let (reserved, sent): (Vec<Entry>, Vec<Entry>) =
            left.into_iter().partition(|entry| entry.state == LedgerState::Reserved);
        let released = self
            .transact(cut, |store| reserved.iter().try_for_each(|entry| store.release_entry(&entry.job)))?;
        if released.is_none() || !reach {
            return Ok(());
        }
        let order = self.transact(None, |store| store.take_orders(1))?.unwrap_or(Order(0));
        for entry in sent {
            let boot = entry.boot_id.and_then(|boot| boot.0.strip_prefix("boot-")?.parse().ok());
            let (Some(boot), Some(own)) = (boot, entry.order) else {
                return Err(TestCaseError::fail("a sent row without its boot and order"));
            };
            let start = Start { job: entry.job.to_string(), boot, order: own.0 };
            let proof = self.proof(&start, order.0);
            let job = entry.job;
            let settled = self.transact(cut, |store| match proof {
                Proof::Ended => store.record_receipt(&job, &done(job.as_str()), NOW),
                Proof::NeverRan => store.release_entry(&job),
                Proof::Nothing => store.record_unknown(&job, "its container is gone", NOW),
            })?;
            if settled.is_none() {
                return Ok(());
            }
        }
        self.transact(None, |store| store.close_fence())?;
        self.recovered = true;
        for key in 0..KEYS + TASKS {
            let Some(entry) = self.row(key) else { continue };
            let open = matches!(entry.state, LedgerState::Reserved | LedgerState::Running);
            let worked_on = self.flights.iter().any(|flight| flight.entry.job == entry.job);
            prop_assert!(!open || worked_on, "key {} is left open by a recovery", key);
        }
        Ok(())
    }

    /// As `Object::end`, whose first step is one transaction.
    fn abort(&mut self, cut: Option<Cut>) -> Step {
        let ended = self.transact(cut, |store| {
            store.bump_epoch(NOW)?;
            store.bury_running_entries("the sandbox was aborted", NOW)
        })?;
        if ended.is_none() {
            return Ok(());
        }
        self.lose_container();
        for flight in std::mem::take(&mut self.flights) {
            let job = flight.entry.job;
            // Whoever awaited finds another epoch.
            self.transact(None, |store| match flight.sent {
                Some(_) => store.record_unknown(&job, "the sandbox was aborted while it ran", NOW),
                None => store.release_entry(&job),
            })?;
        }
        Ok(())
    }

    /// With the faults over every key has an answer, and no approval is lost that nothing was done with.
    fn heal(&mut self) -> Step {
        self.abort(None)?;
        for _ in 0..2 {
            self.recover(true, None)?;
        }
        for key in 0..KEYS {
            for command in 0..COMMANDS.len() {
                let heard = self.exec(key, command, 0, false, None)?;
                prop_assert!(heard != Heard::Open, "key {} is stuck", key);
                self.abort(None)?;
            }
        }
        for task in 0..TASKS {
            let used =
                self.reservations.values().any(|made| made.task == Some(task) && self.may_have_run(made.key));
            let heard = self.exec(KEYS + task, 1, task, false, None)?;
            prop_assert!(used || heard == Heard::Taken, "the approval of task {} is lost: {:?}", task, heard);
        }
        Ok(())
    }

    fn row(&self, key: usize) -> Option<Entry> {
        self.store.entry(&format!("key-{key}").as_str().into()).unwrap()
    }

    /// The key is taken by a receipt or an unknown.
    fn may_have_run(&self, key: usize) -> bool {
        let key = format!("key-{key}");
        let entry = self.store.entry(&key.as_str().into()).unwrap();
        entry.is_some()
            || self
                .store
                .key_was_forgotten(super::super::ledger::KeyKind::Exec, &key.as_str().into())
                .unwrap()
    }
}

#[derive(Clone, Copy)]
enum Proof {
    Ended,
    NeverRan,
    Nothing,
}

/// How a call goes on or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Taken,
    Open,
    Done,
    Unknown,
    Conflict,
    Rejected,
}

pub fn survives(sql: &Sql, ops: &[Op]) -> Step {
    let mut world = World::new(sql);
    for op in ops {
        world.step(*op)?;
    }
    world.heal()
}

proptest! {
    #[test]
    fn whatever_is_lost_late_doubled_or_cut_short_no_key_runs_twice_and_none_is_stuck(ops in ops()) {
        survives(&Sql::new(), &ops)?;
    }
}
