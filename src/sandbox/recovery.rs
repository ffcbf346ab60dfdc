//! Settling what an earlier incarnation of the object, or a panic in this one, left open.
//!
//! Invariant: nothing new runs before it is done: exec and start wait for it, abort, stop and stored status do not,
//! and every alarm drives it. It runs once at a time, under the fence lock, and never in the constructor. It only
//! ends things and writes down what is proven; it starts nothing.
//!
//! Order of effects: reservations that were never sent are released → an open fence is torn down → execs that were
//! sent are settled → starts that were sent are settled → the fence is marked closed.

use std::rc::Rc;

use ringfence_core::recipe::DEFAULT_TAIL_BYTES;
use ringfence_core::settle::{self, Settlement};
use ringfence_core::status::Record;
use ringfence_wire::contract::{Ensured, ExecDone, GoneReason, TeardownSummary};
use ringfence_wire::ids::Order;
use ringfence_wire::refusal::Refusal;
use ringfence_wire::supervisor::TeardownMode;
use worker::console_error;

use super::boot::Up;
use super::fence::Torn;
use super::lifetime::RETRY_MS;
use super::lock::Hold;
use super::settle::Unproven;
use super::store::head::Boot;
use super::store::ledger::{Entry, LedgerState};
use super::store::processes::Process;
use super::store::tables::Task;
use super::{Object, refusals};
use crate::clock;
use crate::sql::StoreError;
use crate::supervisor::Until;

const WHY: &str = "the object was restarted before its start was confirmed";

/// What nobody in this incarnation is working on.
struct Left {
    entries: Vec<Entry>,
    starts: Vec<Process>,
    fence: Option<Order>,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.entries.is_empty() && self.starts.is_empty() && self.fence.is_none()
    }
}

impl Object {
    /// Waits until nothing is left open. For callers that do not hold the fence lock.
    pub async fn recovered(self: &Rc<Self>, epoch: u64) -> Result<(), Refusal> {
        if self.recovered.get() {
            return Ok(());
        }
        if !self.lock.is_held() && self.left()?.is_nothing() {
            self.recovered.set(true);
            return Ok(());
        }
        let object = Rc::clone(self);
        let flight = self.recoveries.join(epoch, || async move {
            let hold = object.lock.acquire().await.map_err(refusals::busy)?;
            object.still(epoch)?;
            object.recovered_held(epoch, &hold).await
        });
        flight.await
    }

    /// Likewise, for the holder of the fence lock: with it, an open fence is a stale one.
    pub async fn recovered_held(&self, epoch: u64, _hold: &Hold) -> Result<(), Refusal> {
        if self.recovered.get() {
            return Ok(());
        }
        let left = self.left()?;
        if !left.is_nothing() {
            self.plan(Task::Recover, clock::now_ms() + RETRY_MS)?;
            self.settle_left(epoch, left).await?;
        }
        self.recovered.set(true);
        Ok(())
    }

    /// Something was left open: whoever comes next settles it first, and an alarm comes if nobody does.
    pub fn must_recover(&self) {
        self.recovered.set(false);
        if let Err(error) = self.plan(Task::Recover, clock::now_ms() + RETRY_MS) {
            console_error!("{error}");
        }
    }

    fn left(&self) -> Result<Left, StoreError> {
        let mut entries = self.store.open_entries()?;
        entries.retain(|entry| self.execs.get(&entry.job.0).is_none());
        let mut starts = self.store.open_processes()?;
        starts.retain(|start| start.record == Record::Starting && self.starts.get(&start.id.0).is_none());
        let fence = self.store.head()?.and_then(|head| head.fence_order);
        Ok(Left { entries, starts, fence })
    }

    async fn settle_left(&self, epoch: u64, left: Left) -> Result<(), Refusal> {
        let (reserved, entries): (Vec<_>, Vec<_>) =
            left.entries.into_iter().partition(|entry| entry.state == LedgerState::Reserved);
        for entry in reserved {
            self.store.release_entry(&entry.job)?;
        }
        let (unsent, starts): (Vec<_>, Vec<_>) =
            left.starts.into_iter().partition(|start| start.boot_id.is_none());
        for start in unsent {
            self.store.release_process(&start.id)?;
        }
        if entries.is_empty() && starts.is_empty() && left.fence.is_none() {
            return Ok(());
        }

        let head = self.known_head()?;
        let Some(up) = self.up(&head)? else {
            // Whatever was sent went to a container that is gone, or that is ended now.
            for start in &starts {
                self.store.set_effect_unknown(&start.id)?;
            }
            if self.container_runs() && head.boot != Boot::None {
                return self
                    .end_container(GoneReason::ContainerStopped, "it was left in an unknown state")
                    .await;
            }
            return Ok(self.container_is_gone(GoneReason::ContainerStopped, "its container stopped")?);
        };
        let torn = match left.fence {
            Some(_) => {
                let order = self.store.take_orders(1)?;
                let torn = self.tear_down(epoch, &up, order).await?;
                self.still(epoch)?;
                torn
            }
            None => Torn::nothing(),
        };
        for entry in entries {
            self.settle_entry(epoch, &up, entry, &torn).await?;
            self.still(epoch)?;
        }
        for start in starts {
            let sent = start.sent(&up.boot_id, up.identity);
            let found = self.find_or_forbid(&up, &sent, WHY).await;
            self.still(epoch)?;
            if let Err(Unproven::Unknown(detail)) = &found
                && self.container_runs()
            {
                // Not settled, and it may yet be: the next call or alarm tries again.
                return Err(refusals::unavailable("recovering", detail.clone()));
            }
            // What it says is for the caller that is gone.
            let _ = self.conclude_start(epoch, &start, found);
        }
        Ok(self.store.close_fence()?)
    }

    /// The fence it ran in is torn down: it has ended, or never runs.
    async fn settle_entry(&self, epoch: u64, up: &Up, entry: Entry, torn: &Torn) -> Result<(), Refusal> {
        let now = clock::now_ms();
        let (Some(order), Some(boot_id)) = (entry.order, entry.boot_id.clone()) else {
            return Ok(self.store.release_entry(&entry.job)?);
        };
        let sent = entry.sent(order, &boot_id, up.identity);
        if sent.boot_id != up.boot_id || torn.mode == TeardownMode::Destroyed {
            let detail = "the object was restarted and the container it ran in is gone";
            return Ok(self.store.record_unknown(&entry.job, detail, now)?);
        }
        let seen = match self.find_or_forbid(up, &sent, WHY).await {
            Ok(job) => self.follow(epoch, up, job, DEFAULT_TAIL_BYTES, Until::Terminal, 0).await,
            Err(unproven) => Err(unproven),
        };
        let job = match seen {
            Ok(job) => self.with_tail(up, job, DEFAULT_TAIL_BYTES).await,
            Err(Unproven::NotRun(_)) => return Ok(self.store.release_entry(&entry.job)?),
            Err(Unproven::Unknown(detail)) => {
                return Ok(self.store.record_unknown(&entry.job, &detail, now)?);
            }
        };
        let Settlement::Ended(end) = settle::settle(&sent, settle::Answer::Job(&job)) else {
            return Ok(self.store.record_unknown(&entry.job, "its end has no proof", now)?);
        };
        let done = ExecDone {
            receipt: settle::receipt(&job, end, true),
            ensured: Ensured { generation: up.generation, rebuilt: false, expires_at: up.expires_at },
            granted: Vec::new(),
            killed: settle::killed(&end.sweep, torn.evidence.as_ref()),
            teardown: TeardownSummary { mode: torn.mode, evidence: torn.evidence.clone() },
        };
        Ok(self.store.record_receipt(&entry.job, &done, clock::now_ms())?)
    }
}
