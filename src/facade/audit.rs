//! A call that is refused before it reaches its sandbox has no storage to be recorded in: it is one line of the log, in
//! the form of the sandbox's own records.

use ringfence_wire::contract::SandboxEvent;
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use ringfence_wire::refusal::Refusal;
use worker::console_log;

use super::call::Call;
use crate::clock;

/// What a call that changes something is about.
pub struct About {
    operation: &'static str,
    key: SandboxKey,
    id: Option<String>,
    began: u64,
}

impl About {
    /// `None` for a look-up, and for what always reaches its sandbox.
    pub fn of(call: &Call) -> Option<Self> {
        let (operation, key, id) = match call {
            Call::Ensure { key, .. } => ("ensureSandbox", key, None),
            Call::Exec { key, input } => ("execUnderGrant", key, Some(&input.idempotency_key)),
            Call::StartDetached { key, input } => ("startDetached", key, Some(&input.idempotency_key)),
            _ => return None,
        };
        Some(Self { operation, key: key.clone(), id: id.map(|id| id.0.clone()), began: clock::now_ms() })
    }

    pub fn refused(self, consumer: &ConsumerName, refusal: &Refusal) {
        let now = clock::now_ms();
        let event = SandboxEvent {
            seq: 0,
            at: now,
            consumer: consumer.clone(),
            key: self.key,
            operation: self.operation.to_owned(),
            id: self.id,
            ok: false,
            kind: Some(refusal.kind),
            reason: refusal.reason.clone(),
            duration_ms: now.saturating_sub(self.began),
            generation: 0,
            labels: None,
            swept: None,
        };
        if let Ok(text) = serde_json::to_string(&event) {
            console_log!("{text}");
        }
    }
}
