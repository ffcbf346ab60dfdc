//! `execUnderGrant` up to the fence and after it: approval, idempotency, joining, receipts.
//!
//! Invariant: a key runs its command at most once. A recorded receipt is replayed and boots nothing; a call in
//! flight is joined, also one that an earlier incarnation left, once recovery has settled it; another call under the
//! key is a conflict. What cannot be known is answered for the key from then on.
//!
//! Order of effects: ticket → ledger looked up → in one transaction the attestation is spent and the row reserved →
//! the fence. A command proven not to have run frees its key and its attestation.

use std::rc::Rc;

use ringfence_core::fingerprint::{self, Call, Comparison};
use ringfence_wire::contract::{ExecDone, ExecInput, OnUnknown};
use ringfence_wire::ids::Nonce;
use ringfence_wire::internal::Pass;
use ringfence_wire::refusal::Refusal;

use super::approval::Asked;
use super::boot::Up;
use super::settle::Unproven;
use super::store::ledger::{Entry, KeyKind, LedgerState};
use super::{Object, new_id, random_hex, refusals};
use crate::clock;

/// End records are acknowledged so many at a time.
const ACKNOWLEDGE_BATCH: u64 = 8;
/// Ids in one acknowledgement.
const ACKNOWLEDGE_LIMIT: u64 = 512;
/// Ended detached processes whose output the supervisor goes on keeping.
const ENDED_PROCESSES_KEPT: u64 = 256;

pub type ExecResult = Result<ExecDone, Refusal>;

/// What the ledger says to a call.
enum Found {
    /// Nothing: the key is free.
    Free,
    Answer(Box<ExecResult>),
    /// Reserved or running.
    Open(Box<Entry>),
}

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
            match self.look_up(&input)? {
                Found::Answer(answer) => return *answer,
                Found::Open(entry) => match self.execs.get(&entry.job.0) {
                    Some(flight) => return flight.await.map(deduped),
                    // An earlier incarnation left it: recovery settles it, and then the ledger knows.
                    None => self.must_recover(),
                },
                // From here to the reservation nothing awaits.
                Found::Free if self.recovered.get() => break self.reserve(&input, floor_rule)?,
                Found::Free => {}
            }
            self.recovered(epoch).await?;
            self.still(epoch)?;
        };
        let object = Rc::clone(self);
        let job = entry.job.0.clone();
        self.execs.launch(job, async move { object.run_entry(epoch, entry, input).await }).await
    }

    fn look_up(&self, input: &ExecInput) -> Result<Found, Refusal> {
        let key = &input.idempotency_key;
        let Some(entry) = self.store.entry(key)? else {
            if self.store.key_was_forgotten(KeyKind::Exec, key)? {
                return Ok(answer(Err(refusals::effect_unknown(
                    "it was used long ago, and its receipt was dropped",
                ))));
            }
            return Ok(Found::Free);
        };
        match fingerprint::matches(&entry.fingerprint, Call::Exec(input)) {
            Comparison::Same => {}
            Comparison::Different => return Ok(answer(Err(refusals::conflict()))),
            Comparison::UnknownVersion => {
                return Ok(answer(Err(refusals::effect_unknown("it was used under another version"))));
            }
        }
        Ok(match (entry.state, &entry.outcome) {
            (LedgerState::Done, Some(done)) => answer(Ok(deduped(done.clone()))),
            (LedgerState::Reserved | LedgerState::Running, _) => Found::Open(Box::new(entry)),
            (LedgerState::Done | LedgerState::Unknown, _) if input.on_unknown == Some(OnUnknown::Rerun) => {
                self.store.release_entry(&entry.job)?;
                Found::Free
            }
            (LedgerState::Done | LedgerState::Unknown, _) => answer(Err(refusals::effect_unknown(
                entry.detail.as_deref().unwrap_or("its receipt is missing"),
            ))),
        })
    }

    /// One transaction: the attestation is spent and the key taken.
    fn reserve(&self, input: &ExecInput, floor_rule: Option<&str>) -> Result<Entry, Refusal> {
        let key = &input.idempotency_key;
        self.spend(&Asked {
            kind: KeyKind::Exec,
            key,
            command: &input.command,
            approval: input.approval.as_ref(),
            floor_rule,
        })?;
        let entry = Entry {
            idempotency_key: key.clone(),
            fingerprint: fingerprint::exec(input),
            state: LedgerState::Reserved,
            job: new_id(),
            nonce: Nonce(random_hex()?),
            order: None,
            boot_id: None,
            outcome: None,
            detail: None,
            reserved_at: clock::now_ms(),
        };
        self.store.reserve(&entry)?;
        Ok(entry)
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

fn answer(result: ExecResult) -> Found {
    Found::Answer(Box::new(result))
}

fn deduped(mut done: ExecDone) -> ExecDone {
    done.receipt.deduped = true;
    done
}
