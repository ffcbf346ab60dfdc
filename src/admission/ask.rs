//! Asking a sandbox about its slot. No answer is not an answer: the slot is kept.

use ringfence_core::admission::{Heard, SlotToAsk};
use ringfence_core::seal::{Subject, seal};
use ringfence_wire::internal::{INTERNAL_VERSION, SandboxCall, SandboxRequest, SlotState};
use worker::{Env, console_warn};

use crate::config::Config;
use crate::objects;

/// How long a sandbox may take to say. It only looks at what it knows.
const DEADLINE_MS: u64 = 15_000;

pub async fn slot_state(env: &Env, config: &Config, asked: &SlotToAsk) -> Heard {
    let SlotToAsk { slot, consumer, key } = asked;
    let request = SandboxRequest {
        version: INTERNAL_VERSION,
        consumer: consumer.clone(),
        key: key.clone(),
        seal: seal(&config.secrets, Subject::Sandbox { consumer, key }),
        call: SandboxCall::SlotState { slot: slot.clone() },
    };
    let answer = objects::call_sandbox(env, consumer, key, &request, DEADLINE_MS).await;
    match answer.and_then(|text| Ok(serde_json::from_str(&text)?)) {
        Ok(SlotState::Gone) => Heard::Gone,
        Ok(SlotState::Held) => Heard::Held,
        Err(fault) => {
            console_warn!(
                "admission: {consumer}:{key} could not be asked about its slot, which is kept: {fault}"
            );
            Heard::Unreachable
        }
    }
}
