//! Detached processes: declared records, the ends of those that ended, and tombstones that say why.
//!
//! Invariant: a record is written before its start is asked for, and holds its idempotency key until the start is
//! proven not to have happened. What a record became is decided by `ringfence_core::status`; here it is kept.
//! `settled` says that it cannot change any more. At most [`MAX_SETTLED`] settled records are kept, the newest.

use ringfence_core::detached::{Declared, Phase};
use ringfence_core::settle::Sent;
use ringfence_core::status::Record;
use ringfence_wire::contract::GoneReason;
use ringfence_wire::ids::{BootId, IdempotencyKey, Nonce, Order, ProcessId};
use ringfence_wire::supervisor::{ExecutionIdentity, JobKind};
use serde::Deserialize;

use super::Store;
use crate::sql::StoreError;

/// The schema of a row. One of an older schema is told and stopped, and nothing is run from it: the first wrote an
/// identity that no answer was compared with, so it reads as `legacy_unbound`.
pub const ROW_SCHEMA: u64 = 2;
/// How many ended processes and tombstones are remembered.
pub const MAX_SETTLED: u64 = 1_000;

#[derive(Clone, Debug)]
pub struct Process {
    pub id: ProcessId,
    pub idempotency_key: IdempotencyKey,
    pub fingerprint: String,
    pub record: Record,
    /// False where it could not be settled whether the start happened.
    pub effect_known: bool,
    pub order: Order,
    pub generation: u64,
    pub boot_id: Option<BootId>,
    pub nonce: Nonce,
    pub identity: ExecutionIdentity,
    pub log_path: String,
    pub stdin: bool,
    pub started_at: u64,
}

impl Process {
    /// As a fence sees it; `None` for one that is settled.
    pub fn declared(&self) -> Option<Declared> {
        let phase = match self.record {
            Record::Starting => Phase::Starting,
            Record::Running => Phase::Confirmed,
            Record::Stopping => Phase::Stopping,
            Record::Exited { .. } | Record::Gone { .. } => return None,
        };
        Some(Declared { id: self.id.clone(), order: self.order, phase })
    }

    /// What is sent to this boot, whose jobs run so.
    pub fn sent(&self, boot_id: &BootId, identity: ExecutionIdentity) -> Sent {
        Sent {
            id: self.id.clone(),
            kind: JobKind::Detached,
            order: self.order,
            nonce: self.nonce.clone(),
            boot_id: boot_id.clone(),
            identity,
        }
    }

    /// Where it runs, if its row says so: one of an earlier schema says nothing that could be contradicted.
    pub fn runs_as(&self, seen: ExecutionIdentity) -> bool {
        self.identity == ExecutionIdentity::LegacyUnbound || self.identity == seen
    }
}

#[derive(Deserialize)]
struct Row {
    id: ProcessId,
    idempotency_key: IdempotencyKey,
    fingerprint: String,
    record: String,
    effect_known: u8,
    start_order: Order,
    generation: u64,
    boot_id: Option<BootId>,
    nonce: Nonce,
    identity: ExecutionIdentity,
    log_path: String,
    stdin: u8,
    started_at: u64,
    row_schema: u64,
}

impl TryFrom<Row> for Process {
    type Error = StoreError;
    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            record: serde_json::from_str(&row.record)?,
            id: row.id,
            idempotency_key: row.idempotency_key,
            fingerprint: row.fingerprint,
            effect_known: row.effect_known != 0,
            order: row.start_order,
            generation: row.generation,
            boot_id: row.boot_id,
            nonce: row.nonce,
            identity: if row.row_schema == ROW_SCHEMA {
                row.identity
            } else {
                ExecutionIdentity::LegacyUnbound
            },
            log_path: row.log_path,
            stdin: row.stdin != 0,
            started_at: row.started_at,
        })
    }
}

fn settled(record: &Record) -> bool {
    matches!(record, Record::Exited { .. } | Record::Gone { .. })
}

impl Store {
    pub fn process(&self, id: &ProcessId) -> Result<Option<Process>, StoreError> {
        if self.blank.get() {
            return Ok(None);
        }
        let row: Option<Row> = self.sql.row("SELECT * FROM processes WHERE id = ?", [id.as_str().into()])?;
        row.map(Process::try_from).transpose()
    }

    pub fn process_of_key(&self, key: &IdempotencyKey) -> Result<Option<Process>, StoreError> {
        let row: Option<Row> =
            self.sql.row("SELECT * FROM processes WHERE idempotency_key = ?", [key.as_str().into()])?;
        row.map(Process::try_from).transpose()
    }

    /// Those whose end is not known, oldest first.
    pub fn open_processes(&self) -> Result<Vec<Process>, StoreError> {
        if self.blank.get() {
            return Ok(Vec::new());
        }
        let rows: Vec<Row> =
            self.sql.rows("SELECT * FROM processes WHERE settled = 0 ORDER BY started_at, id", [])?;
        rows.into_iter().map(Process::try_from).collect()
    }

    /// All, newest first.
    pub fn processes(&self) -> Result<Vec<Process>, StoreError> {
        if self.blank.get() {
            return Ok(Vec::new());
        }
        let rows: Vec<Row> = self.sql.rows("SELECT * FROM processes ORDER BY started_at DESC, id", [])?;
        rows.into_iter().map(Process::try_from).collect()
    }

    pub fn declare(&self, process: &Process) -> Result<(), StoreError> {
        let record = serde_json::to_string(&process.record)?;
        let identity = serde_json::to_value(process.identity)?;
        self.sql.run(
            "INSERT INTO processes (id, idempotency_key, fingerprint, record, start_order, generation, boot_id,
                nonce, identity, log_path, stdin, started_at, row_schema)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                process.id.as_str().into(),
                process.idempotency_key.as_str().into(),
                (&process.fingerprint).into(),
                (&record).into(),
                process.order.0.into(),
                process.generation.into(),
                process.boot_id.as_ref().map(BootId::as_str).into(),
                process.nonce.as_str().into(),
                identity.as_str().into(),
                (&process.log_path).into(),
                process.stdin.into(),
                process.started_at.into(),
                ROW_SCHEMA.into(),
            ],
        )
    }

    /// The boot a record's start is about to be sent to. False if the record waits for a start no more.
    pub fn bind_to_boot(
        &self,
        id: &ProcessId,
        generation: u64,
        boot_id: &BootId,
        identity: ExecutionIdentity,
    ) -> Result<bool, StoreError> {
        #[derive(Deserialize)]
        struct Bound {}
        let identity = serde_json::to_value(identity)?;
        let starting = serde_json::to_string(&Record::Starting)?;
        let bound: Option<Bound> = self.sql.row(
            "UPDATE processes SET generation = ?, boot_id = ?, identity = ? WHERE id = ? AND record = ? RETURNING id",
            [
                generation.into(),
                boot_id.as_str().into(),
                identity.as_str().into(),
                id.as_str().into(),
                (&starting).into(),
            ],
        )?;
        Ok(bound.is_some())
    }

    /// The start is proven to have happened. A stop that was asked for meanwhile stays asked for.
    pub fn confirm_start(&self, id: &ProcessId, record: &Record, started_at: u64) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE processes SET started_at = ? WHERE id = ? AND settled = 0",
            [started_at.into(), id.as_str().into()],
        )?;
        let starting = serde_json::to_string(&Record::Starting)?;
        self.write_record(id, record, started_at, "record", &starting)
    }

    /// A settled record never changes again.
    pub fn set_record(&self, id: &ProcessId, record: &Record, now: u64) -> Result<(), StoreError> {
        self.write_record(id, record, now, "settled", "0")
    }

    fn write_record(
        &self,
        id: &ProcessId,
        record: &Record,
        now: u64,
        column: &str,
        still: &str,
    ) -> Result<(), StoreError> {
        let (text, settled) = (serde_json::to_string(record)?, settled(record));
        self.sql.run(
            &format!(
                "UPDATE processes SET record = ?, settled = ?, ended_at = ? WHERE id = ? AND {column} = ?"
            ),
            [(&text).into(), settled.into(), settled.then_some(now).into(), id.as_str().into(), still.into()],
        )?;
        if settled { self.forget_oldest_processes() } else { Ok(()) }
    }

    /// Whether the start happened cannot be known any more, and that is the answer for its key.
    pub fn set_effect_unknown(&self, id: &ProcessId) -> Result<(), StoreError> {
        self.sql.run("UPDATE processes SET effect_known = 0 WHERE id = ?", [id.as_str().into()])
    }

    /// The start is proven not to have happened: its key is free again, and what attestation it had spent.
    pub fn release_process(&self, id: &ProcessId) -> Result<(), StoreError> {
        self.sql.run(
            "DELETE FROM attestations WHERE spender IN
                (SELECT 'process:' || idempotency_key FROM processes WHERE id = ? AND settled = 0)",
            [id.as_str().into()],
        )?;
        self.sql.run("DELETE FROM processes WHERE id = ? AND settled = 0", [id.as_str().into()])
    }

    /// Likewise of every start that was not sent to any container.
    pub fn release_unsent_processes(&self) -> Result<(), StoreError> {
        self.sql.run(
            "DELETE FROM attestations WHERE spender IN
                (SELECT 'process:' || idempotency_key FROM processes WHERE settled = 0 AND boot_id IS NULL)",
            [],
        )?;
        self.sql.run("DELETE FROM processes WHERE settled = 0 AND boot_id IS NULL", [])
    }

    /// Every record whose start was sent and whose end is not known becomes a tombstone that says why.
    pub fn bury_processes(&self, reason: GoneReason, detail: &str, now: u64) -> Result<(), StoreError> {
        let record = serde_json::to_string(&Record::Gone { reason, detail: detail.to_owned() })?;
        self.sql.run(
            "UPDATE processes SET record = ?, settled = 1, ended_at = ? WHERE settled = 0 AND boot_id IS NOT NULL",
            [(&record).into(), now.into()],
        )?;
        self.forget_oldest_processes()
    }

    /// The content of the oldest goes; that their keys and ids were used stays known. By row id, as the ledger.
    fn forget_oldest_processes(&self) -> Result<(), StoreError> {
        const OLDEST: &str = "rowid <= (SELECT MAX(rowid) FROM processes) - ? AND +settled = 1";
        self.sql.run(
            &format!(
                "INSERT OR IGNORE INTO forgotten (kind, idempotency_key, id)
                 SELECT 'process', idempotency_key, id FROM processes WHERE {OLDEST}"
            ),
            [MAX_SETTLED.into()],
        )?;
        self.sql.run(&format!("DELETE FROM processes WHERE {OLDEST}"), [MAX_SETTLED.into()])?;
        self.forget_oldest_keys()
    }

    /// A process of this id was here and its record is gone.
    pub fn process_was_forgotten(&self, id: &ProcessId) -> Result<bool, StoreError> {
        #[derive(Deserialize)]
        struct Found {}
        if self.blank.get() {
            return Ok(false);
        }
        let found: Option<Found> =
            self.sql.row("SELECT 1 AS found FROM forgotten WHERE id = ?", [id.as_str().into()])?;
        Ok(found.is_some())
    }
}
