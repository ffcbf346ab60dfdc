//! What the whole supervisor shares, and the table of jobs.
//!
//! Everything runs on one thread: tasks share this through `Rc`, borrow its cells only between awaits, and spawn
//! onto the same local set. Invariants: a job that was admitted stays in the table until the object acknowledged
//! its end; forgetting it afterwards raises the forgetting mark first.

use crate::environment::BootKey;
use crate::ground::Ground;
use crate::job::{JobNumber, JobRef, Leader};
use crate::limits;
use crate::orders::Orders;
use ringfence_core::sweep::Root;
use ringfence_wire::ids::{BootId, Order, ProcessId, ProcessIdentity};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::Notify;

pub struct Supervisor {
    pub boot_id: BootId,
    pub boot_key: BootKey,
    pub generation: u64,
    pub ground: Ground,
    pub logs: OwnedFd,
    pub max_jobs: usize,
    pub passed_on: Vec<(String, String)>,
    /// The soft limit on descriptors that the container was given: what jobs get back.
    pub job_descriptors: Option<u64>,
    pub orders: RefCell<Orders>,
    pub jobs: RefCell<Jobs>,
    /// Processes the supervisor answers for, by pid, from their start until they are reaped.
    pub roots: RefCell<HashMap<i32, Root<JobNumber>>>,
    /// Processes that were sent TERM by a sweep under way.
    pub termed: RefCell<HashSet<ProcessIdentity>>,
    pub sweeps: Cell<usize>,
    /// A leader was lost and no look since has shown that nothing strayed.
    pub strays_possible: Cell<bool>,
    /// A leader said that nothing is left, or was lost.
    pub leader_news: Notify,
    pub deadline_at_ms: Cell<u64>,
    pub deadline_moved: Notify,
    pub ignored_signals: Cell<u64>,
    /// Reads pass through here. A pipe holds 64 KiB; reading it whole keeps wake-ups few.
    pub scratch: RefCell<Vec<u8>>,
    pub ending: Cell<bool>,
    pub end_wanted: Notify,
}

pub type Shared = Rc<Supervisor>;

#[derive(Default)]
pub struct Jobs {
    by_id: HashMap<ProcessId, JobRef>,
    by_number: BTreeMap<JobNumber, JobRef>,
    next: u64,
    /// Ended and acknowledged, oldest first.
    acknowledged: VecDeque<JobRef>,
}

impl Jobs {
    pub fn next_number(&mut self) -> JobNumber {
        self.next += 1;
        JobNumber(self.next)
    }

    pub fn insert(&mut self, job: &JobRef) {
        self.by_id.insert(job.id.clone(), job.clone());
        self.by_number.insert(job.number, job.clone());
    }

    pub fn get(&self, id: &ProcessId) -> Option<JobRef> {
        self.by_id.get(id).cloned()
    }

    /// All, in order of start.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &JobRef> {
        self.by_number.values()
    }

    pub fn running(&self) -> usize {
        self.all().filter(|job| job.read(|job| job.end.is_none())).count()
    }

    pub fn unacknowledged(&self) -> usize {
        self.all().filter(|job| job.read(|job| job.end.is_some() && !job.acknowledged)).count()
    }

    /// The object has this end in storage. Returns the order of the job that had to be forgotten for it.
    pub fn acknowledge(&mut self, id: &ProcessId) -> Option<Order> {
        let job = self.get(id)?;
        let newly = job.change(|job| job.end.is_some() && !std::mem::replace(&mut job.acknowledged, true));
        if !newly {
            return None;
        }
        self.acknowledged.push_back(job);
        if self.acknowledged.len() <= limits::MAX_ACKNOWLEDGED_ENDS {
            return None;
        }
        let oldest = self.acknowledged.pop_front()?;
        self.by_id.remove(&oldest.id);
        self.by_number.remove(&oldest.number);
        Some(oldest.read(|job| job.order))
    }
}

impl Supervisor {
    /// Jobs whose processes may live.
    pub fn live_jobs(&self) -> Vec<JobRef> {
        self.jobs.borrow().all().filter(|job| job.read(|job| job.end.is_none())).cloned().collect()
    }

    /// Keeps all rings together within their bound: ended jobs give way first, the longest ring then.
    pub fn bound_rings(&self) {
        let jobs = self.jobs.borrow();
        let mut total: usize = jobs.all().map(|job| job.read(|job| job.output.ring.cost())).sum();
        while total > limits::ALL_RINGS_BYTES {
            let cost = |job: &&JobRef| job.read(|job| (job.end.is_some(), job.output.ring.cost()));
            let Some(job) = jobs.all().filter(|job| cost(job).1 > 0).max_by_key(cost) else { return };
            let (_, before) = cost(&job);
            job.change(|job| job.output.ring.shrink_to(before / 2));
            total -= before - job.read(|job| job.output.ring.cost());
        }
    }

    /// The pid of a job's leader, while that is surely the leader's own: until it is reaped.
    pub fn leader_pid(&self, job: &JobRef) -> Option<i32> {
        let Leader::Alive { pid } = job.read(|job| job.leader) else { return None };
        let roots = self.roots.borrow();
        (roots.get(&pid) == Some(&Root::Leader(job.number))).then_some(pid)
    }
}
