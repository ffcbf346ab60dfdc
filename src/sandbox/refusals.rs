//! The object's refusals, each made in one place.

use ringfence_core::ticket::TicketFault;
use ringfence_wire::refusal::{Refusal, RefusalKind};

use super::lock::{Busy, WAIT_DEADLINE_MS};
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

pub fn busy(busy: Busy) -> Refusal {
    let Busy { waiting, held_for_ms, waited_ms } = busy;
    let message = format!(
        "another fence is open: held for {held_for_ms} ms, {waiting} calls wait, this one waited {waited_ms} of at \
         most {WAIT_DEADLINE_MS} ms; call again later"
    );
    Refusal::new(RefusalKind::FenceBusy, message).retry_after_ms(RETRY_MS)
}

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
