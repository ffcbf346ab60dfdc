//! `execUnderGrant` up to the fence and after it: approval, idempotency, joining, receipts.
//!
//! Invariant: a key runs its command at most once. A recorded receipt is replayed and boots nothing; a call in
//! flight is joined, also one that an earlier incarnation left, once recovery has settled it; another call under the
//! key is a conflict. What cannot be known is answered for the key from then on.
//!
//! Order of effects: ticket → ledger looked up → in one transaction the attestation is spent and the row reserved →
//! the fence. A command proven not to have run frees its key and its attestation.

use std::rc::Rc;

use ringfence_wire::contract::{ExecDone, ExecInput};
use ringfence_wire::ids::Nonce;
use ringfence_wire::internal::Pass;
use ringfence_wire::refusal::Refusal;

use super::boot::Up;
use super::settle::Unproven;
use super::store::exec::{Found, Fresh, deduped};
use super::store::ledger::Entry;
use super::{Object, new_id, random_hex, refusals};
use crate::clock;

/// End records are acknowledged so many at a time.
const ACKNOWLEDGE_BATCH: u64 = 8;
/// Ids in one acknowledgement.
const ACKNOWLEDGE_LIMIT: u64 = 512;
/// Ended detached processes whose output the supervisor goes on keeping.
const ENDED_PROCESSES_KEPT: u64 = 256;

pub type ExecResult = Result<ExecDone, Refusal>;

impl Object {
    pub async fn exec(
        self: &Rc<Self>,
        pass: Option<&Pass>,
        input: ExecInput,
        floor_rule: Option<&str>,
    ) -> ExecResult {
        let head = self.known_head()?;
        self.admit(&head, pass)?;
        let epoch = self.epoch.get();
        let entry = loop {
            match self.store.look_up(&input)? {
                Found::Answer(answer) => return *answer,
                Found::Open(entry) => match self.execs.get(&entry.job.0) {
                    Some(flight) => return flight.await.map(deduped),
                    // An earlier incarnation left it: recovery settles it, and then the ledger knows.
                    None => self.must_recover(),
                },
                // From here to the reservation nothing awaits.
                Found::Free { unknown } if self.recovered.get() => {
                    let fresh = Fresh { job: new_id(), nonce: Nonce(random_hex()?), now: clock::now_ms() };
                    break self.store.take_key(&input, floor_rule, unknown, fresh)?;
                }
                Found::Free { .. } => {}
            }
            self.recovered(epoch).await?;
            self.still(epoch)?;
        };
        let object = Rc::clone(self);
        let job = entry.job.0.clone();
        self.execs.launch(job, async move { object.run_entry(epoch, entry, input).await }).await
    }

    async fn run_entry(self: Rc<Self>, epoch: u64, entry: Entry, input: ExecInput) -> ExecResult {
        match self.run_fenced(epoch, &entry, &input).await {
            Ok(done) => Ok(done),
            Err(Unproven::NotRun(refusal)) => {
                self.store.release_entry(&entry.job)?;
                Err(refusal)
            }
            Err(Unproven::Unknown(detail)) => {
                self.store.record_unknown(&entry.job, &detail, clock::now_ms())?;
                Err(refusals::effect_unknown(&detail))
            }
        }
    }

    /// Lets the supervisor forget ends that are recorded here. Off the caller's way; what fails is told later.
    pub fn acknowledge_later(self: &Rc<Self>, up: &Up) {
        let pending = self.unacknowledged.get() + 1;
        self.unacknowledged.set(pending);
        if pending < ACKNOWLEDGE_BATCH {
            return;
        }
        self.unacknowledged.set(0);
        let (object, up) = (Rc::clone(self), up.clone());
        self.later(async move { object.acknowledge(&up).await });
    }

    pub async fn acknowledge(&self, up: &Up) {
        let Ok(ends) = self.store.unacknowledged(&up.boot_id, ENDED_PROCESSES_KEPT, ACKNOWLEDGE_LIMIT) else {
            return;
        };
        if !ends.is_empty() && up.supervisor.acknowledge(ends.clone()).await.is_ok() {
            // What is not marked is told again: harmless.
            let _ = self.store.set_acknowledged(&ends);
        }
    }
}
