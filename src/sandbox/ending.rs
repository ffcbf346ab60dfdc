//! The ends a sandbox can be given: abort, checkpoint, expiry.
//!
//! Invariant: the first step is one transaction that nothing can undo: the epoch grows, the ticket is erased, the
//! slot can admit nobody any more, every process that was sent becomes a tombstone (one that was not frees its key),
//! and the container is marked to be destroyed. Whatever awaits in a boot, a start or an exec then finds another epoch
//! and gives up; an exec that ran is told `destroyed` only once this end is over and the container gone. If the object
//! is lost after it, the alarm does the rest.
//!
//! Order of effects: that transaction → no grant admits → kill-all, within a bound, for its evidence → destroy →
//! the container seen gone → slot given back, by its id. Where it is not seen gone in time: an `OrphanedSandbox` event,
//! and the alarm goes on.

use std::cell::RefCell;

use futures::channel::oneshot;
use futures::future::{FutureExt, Shared};
use ringfence_wire::contract::{AbortDone, Done, GoneReason};
use ringfence_wire::evidence::Evidence;
use ringfence_wire::refusal::Refusal;
use ringfence_wire::supervisor::TeardownRequest;

use super::boot::Up;
use super::fence::END_DEADLINE_MS;
use super::store::tables::Task;
use super::{Object, refusals};
use crate::clock;

/// What a kill-all may take before the container is destroyed without its evidence.
const KILL_DEADLINE_MS: u64 = 5_500;
/// TERM to KILL in it. KILL may take three seconds more.
const KILL_GRACE_MS: u64 = 2_000;

/// The latest end under way. Dropping what [`Endings::begin`] gives, also by a panic, says that it is over.
#[derive(Default)]
pub struct Endings(RefCell<Option<Shared<oneshot::Receiver<()>>>>);

impl Endings {
    fn begin(&self) -> oneshot::Sender<()> {
        let (over, wait) = oneshot::channel();
        self.0.replace(Some(wait.shared()));
        over
    }

    async fn over(&self) {
        let wait = self.0.borrow().clone();
        if let Some(wait) = wait {
            let _ = wait.await;
        }
    }
}

impl Object {
    /// Never refuses: what went wrong is in the answer.
    pub async fn abort(&self) -> AbortDone {
        self.end(GoneReason::Aborted, "the sandbox was aborted").await.unwrap_or_else(|refusal| AbortDone {
            killed: 0,
            evidence: None,
            container_gone: false,
            detail: Some(refusal.message),
        })
    }

    pub async fn checkpoint(&self, reason: &str) -> Result<Done, Refusal> {
        let ended =
            self.end(GoneReason::Checkpointed, &format!("the sandbox was checkpointed: {reason}")).await?;
        match ended.detail {
            None => Ok(Done {}),
            Some(detail) => Err(refusals::unavailable(refusals::CONTAINER_NOT_GONE, detail)),
        }
    }

    pub async fn end(&self, reason: GoneReason, detail: &str) -> Result<AbortDone, Refusal> {
        let Some(head) = self.store.head()? else {
            // Nothing was ever asked of this sandbox. A container there all the same is one that storage forgot.
            let destroyed = self.destroy().await;
            return Ok(AbortDone {
                killed: 0,
                evidence: None,
                container_gone: destroyed.is_ok(),
                detail: destroyed.err().map(|error| error.to_string()),
            });
        };
        let up = self.up(&head)?;
        let now = clock::now_ms();
        self.epoch.set(self.store.bump_epoch(now)?);
        self.store.release_unsent_processes()?;
        self.store.bury_processes(reason, detail, now)?;
        self.store.bury_running_entries(detail, now)?;
        self.done(Task::Expire)?;
        self.plan(Task::Destroy, now + super::lifetime::RETRY_MS)?;
        self.gate.cut();
        let _over = self.endings.begin();

        let evidence = match up {
            Some(up) => self.kill_for_evidence(&up).await,
            None => None,
        };
        let destroyed = self.destroy().await;
        if destroyed.is_ok() {
            self.ended_container_is_gone(head.generation, reason, detail)?;
            // What Admission does not answer now, the alarm tells it again.
            let _ = self.release_slots().await;
        } else {
            // Its slot stays taken, and the alarm goes on.
            self.orphaned(&head, now);
        }
        Ok(AbortDone {
            killed: evidence.as_ref().map_or(0, |evidence| evidence.killed_count),
            evidence,
            container_gone: destroyed.is_ok(),
            detail: destroyed.err().map(|error| error.to_string()),
        })
    }

    /// For a fence that finds itself ended: whoever changed the epoch destroys the container, and only that it is gone
    /// lets the fence say `destroyed`. The caller holds the fence lock, so that nobody has built another meanwhile.
    pub async fn destroyed_by_its_end(&self) -> Result<(), Refusal> {
        let _ = clock::within(END_DEADLINE_MS, self.endings.over()).await;
        if self.container_runs() {
            let message = "the sandbox was ended, and the end of its container was not seen";
            return Err(refusals::unavailable(refusals::CONTAINER_NOT_GONE, message));
        }
        Ok(())
    }

    /// The container is destroyed in any case: silence costs no more than the evidence.
    async fn kill_for_evidence(&self, up: &Up) -> Option<Evidence> {
        let order = self.store.take_orders(1).ok()?;
        let request = TeardownRequest { order, spare: Vec::new(), grace_ms: Some(KILL_GRACE_MS) };
        let report = up.supervisor.kill_all(&request, KILL_DEADLINE_MS).await.ok()?;
        self.record_sweep(None, &report.evidence);
        Some(report.evidence)
    }
}
