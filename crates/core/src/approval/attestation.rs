//! Attestations: a person's word that one exact command may run once.
//!
//! Invariants: an attestation is for the exact text of one command; (task, ordinal) is spent once, for one
//! idempotency key and one command; spending is decided here and stored by the Sandbox object in the same
//! transaction as the ledger row it pays for, so a refusal costs nothing and a retry finds the first record.

use ringfence_wire::contract::{Approval, ApprovedAt};
use ringfence_wire::ids::IdempotencyKey;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How far ahead of ours the clock of whoever approved may be.
pub const MAX_APPROVAL_SKEW_MS: u64 = 60_000;
pub const MAX_APPROVAL_TEXT_BYTES: usize = 128;

/// An attestation that holds for a command, in the form it is stored in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    pub task_id: String,
    pub ordinal: u64,
    /// Hex, lower case.
    pub command_sha256: String,
    pub approved_by: String,
    pub approved_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttestationFault {
    #[error("approval.taskId is 1 to {MAX_APPROVAL_TEXT_BYTES} bytes")]
    TaskId,
    #[error("approval.ordinal is an integer of at least 0")]
    Ordinal,
    #[error("approval.approvedBy is 1 to {MAX_APPROVAL_TEXT_BYTES} bytes; say who approved")]
    ApprovedBy,
    #[error("approval.approvedAt is milliseconds since the epoch or an RFC 3339 time")]
    ApprovedAt,
    #[error("approval.approvedAt lies in the future")]
    Future,
    #[error("approval.commandSha256 is 64 hex digits")]
    Digest,
    #[error(
        "approval.commandSha256 is not the SHA-256 of this command's exact text; it was approved for another"
    )]
    AnotherCommand,
}

impl AttestationFault {
    /// The machine-readable reason, as it stands in a refusal.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TaskId => "bad-task-id",
            Self::Ordinal => "bad-ordinal",
            Self::ApprovedBy => "nobody-approved",
            Self::ApprovedAt => "bad-approval-time",
            Self::Future => "approved-in-the-future",
            Self::Digest => "bad-digest",
            Self::AnotherCommand => "another-command",
        }
    }
}

/// Does this approval cover exactly this command, now?
pub fn check_attestation(
    approval: &Approval,
    command: &str,
    now_ms: u64,
) -> Result<Attestation, AttestationFault> {
    if !bounded(&approval.task_id) {
        return Err(AttestationFault::TaskId);
    }
    let ordinal = u64::try_from(approval.ordinal).map_err(|_| AttestationFault::Ordinal)?;
    if !bounded(&approval.approved_by) || approval.approved_by.trim().is_empty() {
        return Err(AttestationFault::ApprovedBy);
    }
    let approved_at_ms = millis(&approval.approved_at).ok_or(AttestationFault::ApprovedAt)?;
    if approved_at_ms > now_ms.saturating_add(MAX_APPROVAL_SKEW_MS) {
        return Err(AttestationFault::Future);
    }
    let told = approval.command_sha256.to_ascii_lowercase();
    if told.len() != 64 || !told.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(AttestationFault::Digest);
    }
    if told != hex::encode(Sha256::digest(command)) {
        return Err(AttestationFault::AnotherCommand);
    }
    Ok(Attestation {
        task_id: approval.task_id.clone(),
        ordinal,
        command_sha256: told,
        approved_by: approval.approved_by.clone(),
        approved_at_ms,
    })
}

/// Spending an attestation for a call that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spend {
    /// Nobody has spent it: store the spending, then go on.
    First,
    /// This call, or an earlier try of it, has: go on to its record.
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpendFault {
    #[error("this approval (task and ordinal) was already used by another call; ask for a new one")]
    AlreadyUsed,
    #[error("this approval (task and ordinal) was used for another command; ask for a new one")]
    UsedForAnother,
}

impl SpendFault {
    pub fn reason(self) -> &'static str {
        match self {
            Self::AlreadyUsed => "already-used",
            Self::UsedForAnother => "used-for-another-command",
        }
    }
}

/// May this call spend (task, ordinal)? `spent`: the idempotency key and the digest it was spent for before.
pub fn spend(
    spent: Option<(&IdempotencyKey, &str)>,
    key: &IdempotencyKey,
    attestation: &Attestation,
) -> Result<Spend, SpendFault> {
    match spent {
        None => Ok(Spend::First),
        Some((_, digest)) if !digest.eq_ignore_ascii_case(&attestation.command_sha256) => {
            Err(SpendFault::UsedForAnother)
        }
        Some((by, _)) if by != key => Err(SpendFault::AlreadyUsed),
        Some(_) => Ok(Spend::Retry),
    }
}

fn bounded(text: &str) -> bool {
    (1..=MAX_APPROVAL_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn millis(at: &ApprovedAt) -> Option<u64> {
    match at {
        ApprovedAt::Millis(ms) => Some(*ms),
        ApprovedAt::Text(text) => {
            let nanos = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos();
            u64::try_from(nanos / 1_000_000).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_796_000_000_000;

    fn approval(command: &str) -> Approval {
        Approval {
            task_id: "task-1".into(),
            ordinal: 0,
            command_sha256: hex::encode(Sha256::digest(command)),
            approved_by: "sam".into(),
            approved_at: ApprovedAt::Millis(NOW),
        }
    }

    fn check(change: impl FnOnce(&mut Approval)) -> Result<Attestation, AttestationFault> {
        let mut approval = approval("git push");
        change(&mut approval);
        check_attestation(&approval, "git push", NOW)
    }

    #[test]
    fn an_approval_holds_for_the_exact_text_and_its_digest_in_any_case() {
        assert!(check(|_| {}).is_ok());
        let upper = check(|a| a.command_sha256 = a.command_sha256.to_uppercase()).unwrap();
        assert_eq!(upper.command_sha256, hex::encode(Sha256::digest("git push")));
        let result = check_attestation(&approval("git push"), "git push ", NOW);
        assert_eq!(result, Err(AttestationFault::AnotherCommand));
    }

    #[test]
    fn each_bad_field_is_named() {
        use AttestationFault::{ApprovedBy, Digest, Ordinal, TaskId};
        assert_eq!(check(|a| a.task_id.clear()), Err(TaskId));
        assert_eq!(check(|a| a.task_id = "t".repeat(129)), Err(TaskId));
        assert_eq!(check(|a| a.ordinal = -1), Err(Ordinal));
        assert_eq!(check(|a| a.approved_by.clear()), Err(ApprovedBy));
        assert_eq!(check(|a| a.approved_by = "  ".into()), Err(ApprovedBy));
        assert_eq!(check(|a| a.command_sha256 = "zz".into()), Err(Digest));
        let result = check(|a| a.approved_at = ApprovedAt::Text("yesterday".into()));
        assert_eq!(result, Err(AttestationFault::ApprovedAt));
    }

    #[test]
    fn an_approval_from_the_future_is_refused_beyond_a_small_skew() {
        assert!(check(|a| a.approved_at = ApprovedAt::Millis(NOW + MAX_APPROVAL_SKEW_MS)).is_ok());
        let result = check(|a| a.approved_at = ApprovedAt::Millis(NOW + MAX_APPROVAL_SKEW_MS + 1));
        assert_eq!(result, Err(AttestationFault::Future));
    }

    #[test]
    fn a_time_may_be_written_as_rfc_3339() {
        let at =
            |text: &str| check(|a| a.approved_at = ApprovedAt::Text(text.into())).map(|a| a.approved_at_ms);
        assert_eq!(at("2026-11-30T00:53:20.5Z"), Ok(NOW + 500));
        assert_eq!(at("2026-11-30T01:53:20+01:00"), Ok(NOW));
        assert_eq!(at("2126-11-30T00:00:00Z"), Err(AttestationFault::Future));
        assert_eq!(at("1926-11-30T00:00:00Z"), Err(AttestationFault::ApprovedAt));
    }

    #[test]
    fn an_attestation_is_spent_once_and_its_own_retry_finds_it() {
        let held = check(|_| {}).unwrap();
        let (one, two): (IdempotencyKey, IdempotencyKey) = ("one".into(), "two".into());
        let digest = held.command_sha256.clone();
        assert_eq!(spend(None, &one, &held), Ok(Spend::First));
        assert_eq!(spend(Some((&one, &digest)), &one, &held), Ok(Spend::Retry));
        assert_eq!(spend(Some((&one, &digest)), &two, &held), Err(SpendFault::AlreadyUsed));
        assert_eq!(spend(Some((&one, &"0".repeat(64))), &one, &held), Err(SpendFault::UsedForAnother));
        assert_eq!(spend(Some((&one, &"0".repeat(64))), &two, &held), Err(SpendFault::UsedForAnother));
    }
}
