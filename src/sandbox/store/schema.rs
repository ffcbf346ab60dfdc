//! The shape of a sandbox's storage, versioned.
//!
//! Invariant: a version is never edited once released; a new one is a new step in [`STEPS`]. Steps only add, so an
//! older row stays readable; [`super::processes::ROW_SCHEMA`] says which rows may still be acted on. Nothing is
//! created before the first write, so a look-up at a key that was never used leaves no trace.

use serde::Deserialize;

use crate::sql::{Sql, StoreError};

/// One entry for each version, in order; version n is the n-th.
const STEPS: [&[&str]; 3] = [
    &[
        // One row: what the object knows of itself and of its container.
        "CREATE TABLE head (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        consumer TEXT NOT NULL, key TEXT NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        last_order INTEGER NOT NULL DEFAULT 0,
        generation INTEGER NOT NULL DEFAULT 0,
        ticket TEXT, pool TEXT, slot TEXT,
        boot TEXT NOT NULL DEFAULT 'none',
        boot_key TEXT, boot_id TEXT, egress_secret TEXT,
        identity TEXT, protocol INTEGER,
        fence_order INTEGER,
        recipe_version TEXT,
        labels TEXT NOT NULL DEFAULT '{}',
        created_at INTEGER, expires_at INTEGER,
        wakeups INTEGER NOT NULL DEFAULT 0)",
        // Detached processes: live ones, ended ones, tombstones.
        "CREATE TABLE processes (
        id TEXT PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL,
        record TEXT NOT NULL, settled INTEGER NOT NULL DEFAULT 0, effect_known INTEGER NOT NULL DEFAULT 1,
        start_order INTEGER NOT NULL, generation INTEGER NOT NULL, boot_id TEXT, nonce TEXT NOT NULL,
        identity TEXT NOT NULL, log_path TEXT NOT NULL, stdin INTEGER NOT NULL,
        started_at INTEGER NOT NULL, ended_at INTEGER, acknowledged INTEGER NOT NULL DEFAULT 0,
        row_schema INTEGER NOT NULL)",
        "CREATE INDEX processes_settled ON processes (settled, started_at)",
        // Execs by idempotency key.
        "CREATE TABLE ledger (
        idempotency_key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, state TEXT NOT NULL,
        job TEXT NOT NULL, nonce TEXT NOT NULL, start_order INTEGER, generation INTEGER, boot_id TEXT,
        outcome TEXT, detail TEXT, acknowledged INTEGER NOT NULL DEFAULT 0,
        reserved_at INTEGER NOT NULL, ended_at INTEGER)",
        "CREATE INDEX ledger_state ON ledger (state, reserved_at)",
        "CREATE TABLE attestations (
        task_id TEXT NOT NULL, ordinal INTEGER NOT NULL, command_sha256 TEXT NOT NULL,
        spender TEXT NOT NULL, approved_by TEXT NOT NULL, approved_at INTEGER NOT NULL,
        spent_at INTEGER NOT NULL, PRIMARY KEY (task_id, ordinal))",
        "CREATE TABLE denials (
        host TEXT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL,
        count INTEGER NOT NULL, PRIMARY KEY (host, method, path, reason))",
        // Keys and ids whose rows were dropped for space: used, and no more than that is known.
        "CREATE TABLE forgotten (
        kind TEXT NOT NULL, idempotency_key TEXT NOT NULL, id TEXT NOT NULL UNIQUE,
        PRIMARY KEY (kind, idempotency_key))",
        // Slots that admit nobody any more: 'ending' while the container may live, then 'releasing' until the
        // Admission object took it back, then 'released'.
        "CREATE TABLE slots (slot TEXT PRIMARY KEY, state TEXT NOT NULL, since INTEGER NOT NULL)",
        // What the alarm is for.
        "CREATE TABLE due (task TEXT PRIMARY KEY, at INTEGER NOT NULL)",
        "CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, event TEXT NOT NULL)",
        "CREATE TABLE schema (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)",
    ],
    // What an exec finds by its job, and what it had spent, without a look at every row.
    &[
        "CREATE UNIQUE INDEX ledger_job ON ledger (job)",
        "CREATE INDEX ledger_kept_by_supervisor ON ledger (boot_id) WHERE acknowledged = 0 AND state = 'done'",
        "CREATE INDEX processes_kept_by_supervisor ON processes (boot_id, started_at)
            WHERE acknowledged = 0 AND settled = 1",
        "CREATE INDEX attestations_spender ON attestations (spender)",
    ],
    // Which repository the container is made with, and whether its clone is done.
    &[
        "ALTER TABLE head ADD COLUMN repository TEXT",
        "ALTER TABLE head ADD COLUMN cloned INTEGER NOT NULL DEFAULT 0",
    ],
];

#[derive(Deserialize)]
struct Version {
    version: usize,
}

/// The version the storage has; 0 when nothing was ever written.
pub fn version(sql: &Sql) -> Result<usize, StoreError> {
    #[derive(Deserialize)]
    struct Table {}
    let table: Option<Table> =
        sql.row("SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'schema'", [])?;
    if table.is_none() {
        return Ok(0);
    }
    let row: Option<Version> = sql.row("SELECT version FROM schema WHERE one = 1", [])?;
    Ok(row.map_or(0, |row| row.version))
}

/// Takes the storage from `from` to the newest version, in one transaction.
pub fn migrate(sql: &Sql, from: usize) -> Result<(), StoreError> {
    if from > STEPS.len() {
        return Err(StoreError(format!(
            "version {from} was written by a newer deployment; this one knows {}",
            STEPS.len()
        )));
    }
    for statement in STEPS.iter().skip(from).copied().flatten() {
        sql.run(statement, [])?;
    }
    if from < STEPS.len() {
        let version = STEPS.len() as u64;
        sql.run("INSERT INTO schema (one, version) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET version = excluded.version", [version.into()])?;
    }
    Ok(())
}
