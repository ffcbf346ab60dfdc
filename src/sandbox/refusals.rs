//! The object's refusals, each made in one place.

use ringfence_core::ticket::TicketFault;
use ringfence_wire::refusal::{FenceFacts, Refusal, RefusalKind};

use super::store::tables::SlotEnd;
use crate::sql::StoreError;
use crate::supervisor::CallError;

/// When a caller that was told to come back may do so.
const RETRY_MS: u64 = 1_000;

pub fn unavailable(reason: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::SandboxUnavailable, message).reason(reason).retry_after_ms(RETRY_MS)
}

/// The epoch changed while the call waited: nothing of it goes on.
pub fn interrupted() -> Refusal {
    unavailable("aborted", "the sandbox was aborted, checkpointed or expired while this call waited")
}

/// The reason is the supervisor's own code, or what kept it from answering.
pub fn supervisor(error: &CallError) -> Refusal {
    let code = match error {
        CallError::Refused { code, .. } => serde_json::to_value(code).ok(),
        _ => None,
    };
    let reason = match (error, code.as_ref().and_then(|code| code.as_str())) {
        (_, Some(code)) => code,
        (CallError::Lost, _) => "lost",
        _ => "unreachable",
    };
    unavailable(reason, error.to_string())
}

pub fn ticket(fault: TicketFault) -> Refusal {
    Refusal::new(RefusalKind::TicketRejected, fault.to_string()).reason(fault.reason())
}

pub fn busy(facts: FenceFacts) -> Refusal {
    let FenceFacts { waiting, most_waiting, held_for_ms, waited_ms, limit_ms, retry_after_ms } = facts;
    let message = format!(
        "another fence is open: held for {held_for_ms} ms, {waiting} of at most {most_waiting} calls wait, this one \
         waited {waited_ms} of at most {limit_ms} ms; call again later"
    );
    let mut refusal = Refusal::new(RefusalKind::FenceBusy, message).retry_after_ms(retry_after_ms);
    refusal.fence = Some(Box::new(facts));
    refusal
}

/// The slot that the call was admitted to is being taken from this sandbox, because its container was ended.
pub fn slot_given_up(state: SlotEnd) -> Refusal {
    match state {
        SlotEnd::Ending => unavailable(
            "slot-ending",
            "the sandbox is being ended and its container was not seen gone yet; until then it boots nothing",
        ),
        SlotEnd::Releasing => slot_released("is being given back"),
        SlotEnd::Released => slot_released("was given back meanwhile"),
    }
}

fn slot_released(how: &str) -> Refusal {
    let message = format!("the slot this call was admitted to {how}; call again to be admitted anew");
    Refusal::new(RefusalKind::AdmissionRefused, message).reason("slot-released").retry_after_ms(RETRY_MS)
}

/// The reason of a refusal, and of an orphan: a container was to be ended and its end was not seen.
pub const CONTAINER_NOT_GONE: &str = "container-not-gone";

pub fn conflict() -> Refusal {
    Refusal::new(
        RefusalKind::IdempotencyConflict,
        "this idempotency key was used for another call; use a new key for a new effect",
    )
    .field("idempotencyKey")
}

pub fn effect_unknown(detail: &str) -> Refusal {
    Refusal::new(
        RefusalKind::EffectUnknown,
        format!("it cannot be known whether or how this ran ({detail}); it is not run again under this key"),
    )
    .field("idempotencyKey")
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        unavailable("storage", error.to_string())
    }
}
