//! What the ledger says to an exec, and the one transaction in which an exec takes its key.
//!
//! Invariant: nothing here awaits. A key is taken, and an attestation spent, by one call and by no other until the
//! command is proven not to have run. What was refused has changed nothing.

use ringfence_core::approval::{self, Attestation, Spend};
use ringfence_core::fingerprint::{self, Call, Comparison};
use ringfence_wire::contract::{Approval, ExecDone, ExecInput, OnUnknown};
use ringfence_wire::ids::{IdempotencyKey, Nonce, ProcessId};
use ringfence_wire::refusal::{Refusal, RefusalKind};

use super::Store;
use super::ledger::{Entry, KeyKind, LedgerState};
use crate::sandbox::refusals;
use crate::sql::StoreError;

/// What the ledger says to a call.
#[derive(Debug)]
pub enum Found {
    /// The key is free; or `unknown` is what it ran before, and the caller says that it may run twice.
    Free {
        unknown: Option<Box<Entry>>,
    },
    Answer(Box<Result<ExecDone, Refusal>>),
    /// Reserved or running.
    Open(Box<Entry>),
}

/// A person's word that is there to be spent, and who spends it.
pub struct Word {
    attestation: Attestation,
    spender: IdempotencyKey,
}

/// A call that may be on the approval floor.
pub struct Asked<'a> {
    pub kind: KeyKind,
    pub key: &'a IdempotencyKey,
    pub command: &'a str,
    pub approval: Option<&'a Approval>,
    /// The rule it crosses, as the facade decided.
    pub floor_rule: Option<&'a str>,
}

/// What is new for each reservation.
pub struct Fresh {
    pub job: ProcessId,
    pub nonce: Nonce,
    pub now: u64,
}

impl Store {
    pub fn look_up(&self, input: &ExecInput) -> Result<Found, Refusal> {
        let key = &input.idempotency_key;
        let Some(entry) = self.entry(key)? else {
            if self.key_was_forgotten(KeyKind::Exec, key)? {
                return Ok(unknown("it was used long ago, and its receipt was dropped"));
            }
            return Ok(Found::Free { unknown: None });
        };
        match fingerprint::matches(&entry.fingerprint, Call::Exec(input)) {
            Comparison::Same => {}
            Comparison::Different => return Ok(answer(Err(refusals::conflict()))),
            Comparison::UnknownVersion => return Ok(unknown("it was used under another version")),
        }
        Ok(match (entry.state, &entry.outcome) {
            (LedgerState::Done, Some(done)) => answer(Ok(deduped(done.clone()))),
            (LedgerState::Reserved | LedgerState::Running, _) => Found::Open(Box::new(entry)),
            (LedgerState::Done | LedgerState::Unknown, _) if input.on_unknown == Some(OnUnknown::Rerun) => {
                Found::Free { unknown: Some(Box::new(entry)) }
            }
            (LedgerState::Done | LedgerState::Unknown, _) => {
                unknown(entry.detail.as_deref().unwrap_or("its receipt is missing"))
            }
        })
    }

    /// One transaction: the key is taken and the attestation spent. In this order: storage that fails between the two
    /// leaves a key that recovery frees, and not an approval that nothing was done with. `unknown` as
    /// [`Store::look_up`] found it, with no await since.
    pub fn take_key(
        &self,
        input: &ExecInput,
        floor_rule: Option<&str>,
        unknown: Option<Box<Entry>>,
        fresh: Fresh,
    ) -> Result<Entry, Refusal> {
        let key = &input.idempotency_key;
        let word = self.may_spend(
            &Asked {
                kind: KeyKind::Exec,
                key,
                command: &input.command,
                approval: input.approval.as_ref(),
                floor_rule,
            },
            fresh.now,
        )?;
        let ran_before = "it ran before under this key, and how that ended is not known";
        let earlier = unknown.map(|entry| (entry.job, entry.detail.unwrap_or_else(|| ran_before.to_owned())));
        let (earlier, detail) = earlier.unzip();
        let entry = Entry {
            idempotency_key: key.clone(),
            fingerprint: fingerprint::exec(input),
            state: LedgerState::Reserved,
            job: fresh.job,
            nonce: fresh.nonce,
            order: None,
            boot_id: None,
            outcome: None,
            detail,
            reserved_at: fresh.now,
        };
        match earlier {
            None => self.reserve(&entry)?,
            Some(earlier) => self.reserve_again(&earlier, &entry)?,
        }
        self.spend(word.as_ref(), fresh.now)?;
        Ok(entry)
    }

    /// May a call that crosses the floor spend the person's word it brings? (task, ordinal) is spent once. `None`: it
    /// needs none, or is a retry that finds the word spent by itself and goes on to its own record.
    pub fn may_spend(&self, asked: &Asked<'_>, now: u64) -> Result<Option<Word>, Refusal> {
        let Some(rule) = asked.floor_rule else { return Ok(None) };
        let Some(word) = asked.approval else {
            let message = format!("the command is on the approval floor ({rule}) and needs an approval");
            return Err(Refusal::new(RefusalKind::ApprovalRequired, message).field("approval").reason(rule));
        };
        let attestation = approval::check_attestation(word, asked.command, now)
            .map_err(|fault| rejected(fault.to_string(), fault.reason()))?;
        let spender = IdempotencyKey(asked.kind.spender(asked.key));
        match self.would_spend(&attestation, &spender)? {
            Ok(Spend::First) => Ok(Some(Word { attestation, spender })),
            Ok(Spend::Retry) => Ok(None),
            Err(fault) => Err(rejected(fault.to_string(), fault.reason())),
        }
    }

    /// With no await since [`Store::may_spend`].
    pub fn spend(&self, word: Option<&Word>, now: u64) -> Result<(), StoreError> {
        match word {
            Some(Word { attestation, spender }) => self.spend_attestation(attestation, spender, now),
            None => Ok(()),
        }
    }

    fn would_spend(
        &self,
        attestation: &Attestation,
        spender: &IdempotencyKey,
    ) -> Result<Result<Spend, approval::SpendFault>, StoreError> {
        let spent = self.attestation(attestation)?;
        let spent = spent.as_ref().map(|spent| (&spent.spender, spent.command_sha256.as_str()));
        Ok(approval::spend(spent, spender, attestation))
    }
}

fn answer(result: Result<ExecDone, Refusal>) -> Found {
    Found::Answer(Box::new(result))
}

fn unknown(detail: &str) -> Found {
    answer(Err(refusals::effect_unknown(detail)))
}

/// As a joined or later call gets it.
pub fn deduped(mut done: ExecDone) -> ExecDone {
    done.receipt.deduped = true;
    done
}

fn rejected(message: String, reason: &str) -> Refusal {
    Refusal::new(RefusalKind::AttestationRejected, message).field("approval").reason(reason)
}
