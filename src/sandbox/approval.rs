//! Spending an attestation: a person's word that one exact command may run once.
//!
//! Invariant: (task, ordinal) is spent once, in the transaction that reserves the call's key, before anything boots.
//! A retry under the same key finds it spent by itself and goes on to its own record. A command that is proven not to
//! have run gives its attestation back with its key.

use ringfence_core::approval::{self, Spend};
use ringfence_wire::contract::Approval;
use ringfence_wire::ids::IdempotencyKey;
use ringfence_wire::refusal::{Refusal, RefusalKind};

use super::Object;
use super::store::ledger::KeyKind;
use crate::clock;

/// A call that may be on the approval floor.
pub struct Asked<'a> {
    pub kind: KeyKind,
    pub key: &'a IdempotencyKey,
    pub command: &'a str,
    pub approval: Option<&'a Approval>,
    /// The rule it crosses, as the facade decided.
    pub floor_rule: Option<&'a str>,
}

impl Object {
    pub fn spend(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        let Some(rule) = asked.floor_rule else { return Ok(()) };
        let Some(word) = asked.approval else {
            let message = format!("the command is on the approval floor ({rule}) and needs an approval");
            return Err(Refusal::new(RefusalKind::ApprovalRequired, message).field("approval").reason(rule));
        };
        let now = clock::now_ms();
        let attestation = approval::check_attestation(word, asked.command, now)
            .map_err(|fault| rejected(fault.to_string(), fault.reason()))?;
        let spender = IdempotencyKey(asked.kind.spender(asked.key));
        let spent = self.store.attestation(&attestation)?;
        let spent = spent.as_ref().map(|spent| (&spent.spender, spent.command_sha256.as_str()));
        match approval::spend(spent, &spender, &attestation) {
            Ok(Spend::First) => Ok(self.store.spend_attestation(&attestation, &spender, now)?),
            Ok(Spend::Retry) => Ok(()),
            Err(fault) => Err(rejected(fault.to_string(), fault.reason())),
        }
    }
}

fn rejected(message: String, reason: &str) -> Refusal {
    Refusal::new(RefusalKind::AttestationRejected, message).field("approval").reason(reason)
}
