//! The exec ledger and the attestations.
//!
//! Invariant: a key's row is reserved, and its attestation spent, in one transaction before anything boots; the row
//! says `running` before the job is sent. A row leaves the table only when the command is proven not to have run, by
//! its caller's own word (`onUnknown`), or for space, and then its key is remembered. Each reservation has its own
//! job id, so that a late hand cannot touch a newer reservation of the same key.

use ringfence_core::approval::Attestation;
use ringfence_core::settle::Sent;
use ringfence_wire::contract::ExecDone;
use ringfence_wire::ids::{BootId, IdempotencyKey, Nonce, Order, ProcessId};
use ringfence_wire::supervisor::{ExecutionIdentity, JobKind};
use serde::{Deserialize, Serialize};

use super::Store;
use crate::sql::StoreError;

/// How many ended execs are remembered with their receipts.
const MAX_RECEIPTS: u64 = 10_000;
/// Of how many dropped execs and processes the key is still known. One that is older yet is taken for new.
const MAX_FORGOTTEN: u64 = 100_000;

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub receipts: u64,
    pub forgotten: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self { receipts: MAX_RECEIPTS, forgotten: MAX_FORGOTTEN }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerState {
    /// The key is taken; the job was not sent.
    Reserved,
    /// The job was sent, or was about to be.
    Running,
    /// The receipt is recorded.
    Done,
    /// Whether or how the command ran cannot be known.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub idempotency_key: IdempotencyKey,
    pub fingerprint: String,
    pub state: LedgerState,
    pub job: ProcessId,
    pub nonce: Nonce,
    pub order: Option<Order>,
    pub boot_id: Option<BootId>,
    pub outcome: Option<ExecDone>,
    /// Of an unknown row: why. Of an open one: its key ran before, and how that ended stays unknown.
    pub detail: Option<String>,
    pub reserved_at: u64,
}

impl Entry {
    /// What is sent to this boot under the fence's order.
    pub fn sent(&self, order: Order, boot_id: &BootId, identity: ExecutionIdentity) -> Sent {
        Sent {
            id: self.job.clone(),
            kind: JobKind::Fenced,
            order,
            nonce: self.nonce.clone(),
            boot_id: boot_id.clone(),
            identity,
        }
    }
}

#[derive(Deserialize)]
struct Row {
    idempotency_key: IdempotencyKey,
    fingerprint: String,
    state: LedgerState,
    job: ProcessId,
    nonce: Nonce,
    start_order: Option<Order>,
    boot_id: Option<BootId>,
    outcome: Option<String>,
    detail: Option<String>,
    reserved_at: u64,
}

impl TryFrom<Row> for Entry {
    type Error = StoreError;
    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            outcome: row.outcome.as_deref().map(serde_json::from_str).transpose()?,
            idempotency_key: row.idempotency_key,
            fingerprint: row.fingerprint,
            state: row.state,
            job: row.job,
            nonce: row.nonce,
            order: row.start_order,
            boot_id: row.boot_id,
            detail: row.detail,
            reserved_at: row.reserved_at,
        })
    }
}

/// An attestation as it was spent.
#[derive(Clone, Debug, Deserialize)]
pub struct Spent {
    pub spender: IdempotencyKey,
    pub command_sha256: String,
}

/// Which kind of call a key was used for: an exec and a start may use the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Exec,
    Process,
}

impl KeyKind {
    fn text(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Process => "process",
        }
    }

    /// Who spent an attestation.
    pub fn spender(self, key: &IdempotencyKey) -> String {
        format!("{}:{key}", self.text())
    }
}

impl Store {
    pub fn entry(&self, key: &IdempotencyKey) -> Result<Option<Entry>, StoreError> {
        let row: Option<Row> =
            self.sql.row("SELECT * FROM ledger WHERE idempotency_key = ?", [key.as_str().into()])?;
        row.map(Entry::try_from).transpose()
    }

    /// Those whose end is not recorded.
    pub fn open_entries(&self) -> Result<Vec<Entry>, StoreError> {
        if self.blank.get() {
            return Ok(Vec::new());
        }
        let rows: Vec<Row> =
            self.sql.rows("SELECT * FROM ledger WHERE state IN ('reserved', 'running')", [])?;
        rows.into_iter().map(Entry::try_from).collect()
    }

    pub fn reserve(&self, entry: &Entry) -> Result<(), StoreError> {
        self.sql.run(
            "INSERT INTO ledger (idempotency_key, fingerprint, state, job, nonce, reserved_at)
             VALUES (?, ?, 'reserved', ?, ?, ?)",
            [
                entry.idempotency_key.as_str().into(),
                (&entry.fingerprint).into(),
                entry.job.as_str().into(),
                entry.nonce.as_str().into(),
                entry.reserved_at.into(),
            ],
        )
    }

    /// The job is about to be sent.
    pub fn mark_running(
        &self,
        job: &ProcessId,
        order: Order,
        generation: u64,
        boot_id: &BootId,
    ) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE ledger SET state = 'running', start_order = ?, generation = ?, boot_id = ? WHERE job = ?",
            [order.0.into(), generation.into(), boot_id.as_str().into(), job.as_str().into()],
        )
    }

    /// A receipt may also replace an `unknown`: a proof that came late is a proof.
    pub fn record_receipt(&self, job: &ProcessId, done: &ExecDone, now: u64) -> Result<(), StoreError> {
        let outcome = serde_json::to_string(done)?;
        self.sql.run(
            "UPDATE ledger SET state = 'done', outcome = ?, detail = NULL, ended_at = ? WHERE job = ?",
            [(&outcome).into(), now.into(), job.as_str().into()],
        )?;
        self.forget_oldest_receipts()
    }

    pub fn record_unknown(&self, job: &ProcessId, detail: &str, now: u64) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE ledger SET state = 'unknown', detail = ?, ended_at = ?
             WHERE job = ? AND state IN ('reserved', 'running')",
            [detail.into(), now.into(), job.as_str().into()],
        )
    }

    /// Everything that was sent and has no receipt becomes unknown. What is only reserved is its own call's affair.
    pub fn bury_running_entries(&self, detail: &str, now: u64) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE ledger SET state = 'unknown', detail = ?, ended_at = ? WHERE state = 'running'",
            [detail.into(), now.into()],
        )
    }

    /// Its caller's own word that the command may run twice: a new reservation in the place of one whose effect is not
    /// known. What the key had spent stays spent. One statement: cut short, the row is the one or the other.
    pub fn reserve_again(&self, earlier: &ProcessId, entry: &Entry) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE ledger SET state = 'reserved', job = ?, nonce = ?, reserved_at = ?, start_order = NULL,
                generation = NULL, boot_id = NULL, outcome = NULL, detail = ?, acknowledged = 0, ended_at = NULL
             WHERE job = ?",
            [
                entry.job.as_str().into(),
                entry.nonce.as_str().into(),
                entry.reserved_at.into(),
                entry.detail.as_deref().into(),
                earlier.as_str().into(),
            ],
        )
    }

    /// The command is proven not to have run under this reservation: the key is free, and the attestation it had spent
    /// is unspent with it. If it was reserved again, the key is what it was before: unknown.
    pub fn release_entry(&self, job: &ProcessId) -> Result<(), StoreError> {
        self.sql.run(
            "DELETE FROM attestations WHERE spender IN
                (SELECT 'exec:' || idempotency_key FROM ledger WHERE job = ? AND detail IS NULL)",
            [job.as_str().into()],
        )?;
        self.sql.run(
            "UPDATE ledger SET state = 'unknown' WHERE job = ? AND detail IS NOT NULL",
            [job.as_str().into()],
        )?;
        self.sql.run("DELETE FROM ledger WHERE job = ? AND detail IS NULL", [job.as_str().into()])
    }

    /// Jobs of this boot whose ends are recorded here and whose end records the supervisor still keeps for us. The
    /// newest `keep` detached ones are left to it: their output may yet be read.
    pub fn unacknowledged(
        &self,
        boot_id: &BootId,
        keep: u64,
        limit: u64,
    ) -> Result<Vec<ProcessId>, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            id: ProcessId,
        }
        let rows: Vec<Row> = self.sql.rows(
            "SELECT job AS id FROM ledger WHERE acknowledged = 0 AND state = 'done' AND boot_id = ?1
             UNION ALL
             SELECT id FROM (SELECT id FROM processes WHERE acknowledged = 0 AND settled = 1 AND boot_id = ?1
                             ORDER BY started_at DESC LIMIT -1 OFFSET ?2)
             LIMIT ?3",
            [boot_id.as_str().into(), keep.into(), limit.into()],
        )?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    }

    pub fn set_acknowledged(&self, jobs: &[ProcessId]) -> Result<(), StoreError> {
        let jobs = serde_json::to_string(jobs)?;
        for (table, id) in [("ledger", "job"), ("processes", "id")] {
            self.sql.run(
                &format!(
                    "UPDATE {table} SET acknowledged = 1 WHERE {id} IN (SELECT value FROM json_each(?))"
                ),
                [(&jobs).into()],
            )?;
        }
        Ok(())
    }

    /// By row id, which grows; the `+` keeps SQLite from going by the state instead, through every row that is done.
    fn forget_oldest_receipts(&self) -> Result<(), StoreError> {
        const OLDEST: &str = "rowid <= (SELECT MAX(rowid) FROM ledger) - ? AND +state IN ('done', 'unknown')";
        self.sql.run(
            &format!(
                "INSERT OR IGNORE INTO forgotten (kind, idempotency_key, id)
                 SELECT 'exec', idempotency_key, job FROM ledger WHERE {OLDEST}"
            ),
            [self.kept.receipts.into()],
        )?;
        self.sql.run(&format!("DELETE FROM ledger WHERE {OLDEST}"), [self.kept.receipts.into()])?;
        self.forget_oldest_keys()
    }

    pub(super) fn forget_oldest_keys(&self) -> Result<(), StoreError> {
        self.sql.run(
            "DELETE FROM forgotten WHERE rowid <= (SELECT MAX(rowid) FROM forgotten) - ?",
            [self.kept.forgotten.into()],
        )
    }

    /// The key was used and no more than that is known.
    pub fn key_was_forgotten(&self, kind: KeyKind, key: &IdempotencyKey) -> Result<bool, StoreError> {
        #[derive(Deserialize)]
        struct Found {}
        let found: Option<Found> = self.sql.row(
            "SELECT 1 AS found FROM forgotten WHERE kind = ? AND idempotency_key = ?",
            [kind.text().into(), key.as_str().into()],
        )?;
        Ok(found.is_some())
    }

    /// How this task's approval of this number was spent, if it was.
    pub fn attestation(&self, attestation: &Attestation) -> Result<Option<Spent>, StoreError> {
        self.sql.row(
            "SELECT spender, command_sha256 FROM attestations WHERE task_id = ? AND ordinal = ?",
            [(&attestation.task_id).into(), attestation.ordinal.into()],
        )
    }

    pub fn spend_attestation(
        &self,
        attestation: &Attestation,
        spender: &IdempotencyKey,
        now: u64,
    ) -> Result<(), StoreError> {
        self.sql.run(
            "INSERT INTO attestations
                (task_id, ordinal, command_sha256, spender, approved_by, approved_at, spent_at)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (&attestation.task_id).into(),
                attestation.ordinal.into(),
                (&attestation.command_sha256).into(),
                spender.as_str().into(),
                (&attestation.approved_by).into(),
                attestation.approved_at_ms.into(),
                now.into(),
            ],
        )
    }
}
