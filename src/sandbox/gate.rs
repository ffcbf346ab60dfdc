//! The ticket gate, and the slot a ticket stands for.
//!
//! Invariant: nothing boots without a ticket that was verified when it was stored and again at the boot. A slot is
//! the object's from the ticket that names it until the container that used it is proven gone; then it is given up,
//! once, by its id: written down first, so that no late ticket brings it back, and told to the Admission object
//! until that answers.

use ringfence_core::seal::{self, Subject};
use ringfence_core::ticket::{self, Secrets};
use ringfence_wire::internal::{
    AdmissionCall, AdmissionRequest, INTERNAL_VERSION, Pass, RenewAnswer, SlotState,
};
use ringfence_wire::refusal::Refusal;

use super::store::head::{Boot, Head};
use super::store::tables::{SlotEnd, Task};
use super::{Object, refusals};
use crate::clock;
use crate::objects::{self, ObjectFault};
use crate::sql::StoreError;

/// A call to the Admission object.
const ADMISSION_DEADLINE_MS: u64 = 5_000;
/// How long a slot may stand without a container before it is given up.
pub const UNUSED_SLOT_MS: u64 = 2_000;
/// A stored ticket that lives at least so much longer need not be replaced.
const TICKET_SLACK_MS: u64 = 5 * 60 * 1_000;

impl Object {
    /// Takes in what the facade learned at admission. Nothing boots yet.
    pub fn admit(&self, head: &Head, pass: Option<&Pass>) -> Result<(), Refusal> {
        let now = clock::now_ms();
        let secrets = &self.secrets()?;
        let text = pass.map(|pass| pass.ticket.as_str());
        let claims =
            ticket::verify(secrets, text, &head.consumer, &head.key, now).map_err(refusals::ticket)?;
        let Some(pass) = pass else { return Err(refusals::ticket(ticket::TicketFault::None)) };
        if let Some(end) = self.store.slot_end(&pass.slot)? {
            return Err(refusals::slot_given_up(end));
        }
        let same_slot = head.slot.as_ref() == Some(&pass.slot);
        if same_slot && self.stored_ticket_outlives(head, secrets, claims.expires_at) {
            return Ok(());
        }
        if let Some(old) = head.slot.as_ref().filter(|_| !same_slot) {
            // Admission gave this sandbox another slot: the old one is no longer ours to hold.
            self.store.give_up_slot(old, now)?;
            self.plan(Task::Release, now)?;
        }
        self.store.admit(pass)?;
        if !self.container_runs() {
            self.plan(Task::Slot, now + UNUSED_SLOT_MS)?;
        }
        Ok(())
    }

    fn stored_ticket_outlives(&self, head: &Head, secrets: &Secrets, expires_at: u64) -> bool {
        let stored = ticket::verify(
            secrets,
            head.ticket.as_deref(),
            &head.consumer,
            &head.key,
            expires_at.saturating_sub(TICKET_SLACK_MS),
        );
        stored.is_ok()
    }

    /// Before every boot.
    pub fn check_ticket(&self, head: &Head) -> Result<(), Refusal> {
        let now = clock::now_ms();
        ticket::verify(&self.secrets()?, head.ticket.as_deref(), &head.consumer, &head.key, now)
            .map(drop)
            .map_err(refusals::ticket)
    }

    /// The container that used the slot is proven gone, or never was: the slot is given up.
    pub fn give_up_slot(&self) -> Result<(), StoreError> {
        let now = clock::now_ms();
        if let Some(slot) = self.store.head()?.and_then(|head| head.slot) {
            self.store.give_up_slot(&slot, now)?;
            self.plan(Task::Release, now)?;
        }
        Ok(())
    }

    /// Likewise for the slots of containers that were ended.
    pub fn give_up_ending_slots(&self) -> Result<(), StoreError> {
        if self.store.release_ending_slots()? {
            self.plan(Task::Release, clock::now_ms())?;
        }
        Ok(())
    }

    /// Tells the Admission object of every slot given up. What it does not answer is told again by the alarm.
    pub async fn release_slots(&self) -> Result<(), ObjectFault> {
        let slots = self.store.slots_to_release().map_err(|e| ObjectFault::Failed(e.to_string()))?;
        for slot in slots {
            self.admission(AdmissionCall::Release { slot: slot.clone() }).await?;
            self.store.slot_released(&slot).map_err(|e| ObjectFault::Failed(e.to_string()))?;
        }
        self.done(Task::Release).map_err(|e| ObjectFault::Failed(e.to_string()))
    }

    /// The slot lives on, and this is what the registry may show.
    pub async fn renew_slot(&self, head: &Head) -> Result<RenewAnswer, ObjectFault> {
        let (Some(slot), Some(expires_at)) = (head.slot.clone(), head.expires_at) else {
            return Ok(RenewAnswer::Renewed);
        };
        let answer = self.admission(AdmissionCall::Renew {
            consumer: head.consumer.clone(),
            key: head.key.clone(),
            slot,
            labels: head.labels(),
            expires_at,
        });
        Ok(serde_json::from_str(&answer.await?)?)
    }

    /// Does anything run under this slot, or will it? A slot that is not held now is given up for good.
    pub fn slot_state(&self, slot: &str) -> Result<SlotState, StoreError> {
        let now = clock::now_ms();
        let Some(head) = self.store.head()? else {
            self.store.give_up_slot(slot, now)?;
            self.store.slot_released(slot)?;
            return Ok(SlotState::Gone);
        };
        if self.store.slot_end(slot)? == Some(SlotEnd::Ending) {
            return Ok(SlotState::Held);
        }
        let current = head.slot.as_deref() == Some(slot);
        if current && (self.container_runs() || head.boot != Boot::None || self.is_busy()) {
            return Ok(SlotState::Held);
        }
        self.store.give_up_slot(slot, now)?;
        self.store.slot_released(slot)?;
        Ok(SlotState::Gone)
    }

    async fn admission(&self, call: AdmissionCall) -> Result<String, ObjectFault> {
        let secrets = self.secrets().map_err(|refusal| ObjectFault::Failed(refusal.message))?;
        let request = AdmissionRequest {
            version: INTERNAL_VERSION,
            seal: seal::seal(&secrets, Subject::Admission),
            call,
        };
        objects::call_admission(&self.env, &request, ADMISSION_DEADLINE_MS).await
    }
}
