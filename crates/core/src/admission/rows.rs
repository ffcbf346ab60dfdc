//! The rows of admission, and the SQL over them as text: the same statements run in the Admission object and,
//! natively, over SQLite.
//!
//! Two tables. `slots`: one row for each slot taken, which is also the registry. `waiters`: one row for each
//! place in a queue, ordered by `seq`. `crowds` counts the waiters of each run of 64 places, kept by triggers, so
//! that a place is told without counting everybody before it.

use super::Pool;
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A value for a `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind<'a> {
    Text(&'a str),
    Number(u64),
}

impl<'a> From<&'a str> for Bind<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Bind<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// SQL storage. Statements run one after another with nothing between them; whoever implements this makes one
/// call of the gate one transaction where it can, and nothing depends on it for safety.
pub trait Sql {
    type Error;
    fn run(&self, query: &str, binds: &[Bind<'_>]) -> Result<(), Self::Error>;
    /// Each row as an object of its columns.
    fn rows<T: DeserializeOwned>(&self, query: &str, binds: &[Bind<'_>]) -> Result<Vec<T>, Self::Error>;
}

pub const SCHEMA_VERSION: u64 = 1;

/// What each version of the schema adds to the one before it.
pub const MIGRATIONS: [&[&str]; SCHEMA_VERSION as usize] = [&[
    "CREATE TABLE slots (
        slot TEXT PRIMARY KEY, consumer TEXT NOT NULL, key TEXT NOT NULL, pool TEXT NOT NULL,
        taken_at INTEGER NOT NULL, renewed_at INTEGER NOT NULL, asked_at INTEGER NOT NULL DEFAULT 0,
        unreachable INTEGER NOT NULL DEFAULT 0, expires_at INTEGER NOT NULL DEFAULT 0,
        labels TEXT NOT NULL DEFAULT '{}', UNIQUE (consumer, key))",
    "CREATE INDEX slots_by_pool ON slots (pool)",
    "CREATE TABLE waiters (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, consumer TEXT NOT NULL, key TEXT NOT NULL, pool TEXT NOT NULL,
        queued_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, UNIQUE (consumer, key))",
    "CREATE INDEX waiters_by_pool ON waiters (pool, seq)",
    "CREATE INDEX waiters_by_age ON waiters (seen_at)",
    "CREATE TABLE crowds (
        pool TEXT NOT NULL, run INTEGER NOT NULL, waiters INTEGER NOT NULL, PRIMARY KEY (pool, run))
        WITHOUT ROWID",
    "CREATE TRIGGER waiter_comes AFTER INSERT ON waiters BEGIN
        INSERT INTO crowds (pool, run, waiters) VALUES (new.pool, new.seq / 64, 1)
        ON CONFLICT (pool, run) DO UPDATE SET waiters = waiters + 1;
    END",
    "CREATE TRIGGER waiter_goes AFTER DELETE ON waiters BEGIN
        UPDATE crowds SET waiters = waiters - 1 WHERE pool = old.pool AND run = old.seq / 64;
        DELETE FROM crowds WHERE pool = old.pool AND run = old.seq / 64 AND waiters <= 0;
    END",
]];

#[derive(Debug, thiserror::Error)]
pub enum SchemaFault<E> {
    #[error(transparent)]
    Storage(E),
    #[error("the storage is of schema version {found}, newer than {SCHEMA_VERSION}; deploy the newer Worker")]
    Newer { found: u64 },
}

/// Brings the storage to this version's schema. Done before anything else; safe to do again.
pub fn migrate<S: Sql>(sql: &S) -> Result<(), SchemaFault<S::Error>> {
    let run = |query: &str, binds: &[Bind<'_>]| sql.run(query, binds).map_err(SchemaFault::Storage);
    run(
        "CREATE TABLE IF NOT EXISTS schema (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)",
        &[],
    )?;
    let version: Option<Counted> =
        first(sql, "SELECT version AS n FROM schema", &[]).map_err(SchemaFault::Storage)?;
    let version = version.map_or(0, |row| row.n);
    if version > SCHEMA_VERSION {
        return Err(SchemaFault::Newer { found: version });
    }
    for (steps, reached) in MIGRATIONS.iter().zip(1u64..).skip(version as usize) {
        for step in *steps {
            run(step, &[])?;
        }
        run("INSERT OR REPLACE INTO schema (one, version) VALUES (1, ?)", &[reached.into()])?;
    }
    Ok(())
}

fn first<S: Sql, T: DeserializeOwned>(
    sql: &S,
    query: &str,
    binds: &[Bind<'_>],
) -> Result<Option<T>, S::Error> {
    Ok(sql.rows(query, binds)?.into_iter().next())
}

#[derive(Debug, Deserialize)]
struct Counted {
    n: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct SlotRow {
    pub slot: String,
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    pub pool: Pool,
    pub taken_at: u64,
    pub renewed_at: u64,
    pub expires_at: u64,
    pub labels: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct WaiterRow {
    pub seq: u64,
    pub pool: Pool,
    pub queued_at: u64,
}

#[derive(Debug, Deserialize)]
pub struct PoolCount {
    pub pool: Pool,
    pub consumer: String,
    pub n: u32,
    pub unreachable: u32,
}

const SLOT: &str = "slot, consumer, key, pool, taken_at, renewed_at, expires_at, labels";

/// Every statement of admission but the schema's.
pub struct Rows<'a, S>(pub &'a S);

impl<S: Sql> Rows<'_, S> {
    pub fn slot_of(&self, consumer: &str, key: &str) -> Result<Option<SlotRow>, S::Error> {
        let query = format!("SELECT {SLOT} FROM slots WHERE consumer = ? AND key = ?");
        first(self.0, &query, &[consumer.into(), key.into()])
    }

    pub fn taken(&self, pool: Pool) -> Result<u32, S::Error> {
        let row: Option<Counted> =
            first(self.0, "SELECT count(*) AS n FROM slots WHERE pool = ?", &[pool.as_str().into()])?;
        Ok(row.map_or(0, |row| u32::try_from(row.n).unwrap_or(u32::MAX)))
    }

    /// Says the cap a second time, in the statement that takes the slot.
    pub fn take(
        &self,
        slot: &str,
        consumer: &str,
        key: &str,
        pool: Pool,
        cap: u32,
        now: u64,
    ) -> Result<(), S::Error> {
        let pool = pool.as_str();
        self.0.run(
            "INSERT INTO slots (slot, consumer, key, pool, taken_at, renewed_at)
             SELECT ?, ?, ?, ?, ?, ? WHERE (SELECT count(*) FROM slots WHERE pool = ?) < ?",
            &[
                slot.into(),
                consumer.into(),
                key.into(),
                pool.into(),
                now.into(),
                now.into(),
                pool.into(),
                u64::from(cap).into(),
            ],
        )
    }

    pub fn renew(&self, slot: &str, now: u64) -> Result<(), S::Error> {
        self.0.run(
            "UPDATE slots SET renewed_at = ?, unreachable = 0 WHERE slot = ?",
            &[now.into(), slot.into()],
        )
    }

    pub fn describe(&self, slot: &str, labels: &str, expires_at: u64) -> Result<(), S::Error> {
        self.0.run(
            "UPDATE slots SET labels = ?, expires_at = ? WHERE slot = ?",
            &[labels.into(), expires_at.into(), slot.into()],
        )
    }

    pub fn free(&self, slot: &str) -> Result<(), S::Error> {
        self.0.run("DELETE FROM slots WHERE slot = ?", &[slot.into()])
    }

    pub fn asked(&self, slot: &str, now: u64) -> Result<(), S::Error> {
        self.0.run("UPDATE slots SET asked_at = ? WHERE slot = ?", &[now.into(), slot.into()])
    }

    pub fn unreachable(&self, slot: &str) -> Result<(), S::Error> {
        self.0.run("UPDATE slots SET unreachable = 1 WHERE slot = ?", &[slot.into()])
    }

    /// Slots not renewed since `renewed_by` and not asked about since `asked_by`. There are at most as many rows
    /// as the ceiling, so no index is kept for it.
    pub fn silent(&self, renewed_by: u64, asked_by: u64, limit: usize) -> Result<Vec<SlotRow>, S::Error> {
        let query = format!(
            "SELECT {SLOT} FROM slots WHERE renewed_at <= ? AND asked_at <= ? ORDER BY renewed_at, slot LIMIT ?"
        );
        self.0.rows(&query, &[renewed_by.into(), asked_by.into(), (limit as u64).into()])
    }

    /// When the next slot wants asking about, given the lease and the pause between questions.
    pub fn next_silence(&self, lease: u64, pause: u64) -> Result<Option<u64>, S::Error> {
        #[derive(Deserialize)]
        struct Due {
            at: Option<u64>,
        }
        let due: Option<Due> = first(
            self.0,
            "SELECT min(max(renewed_at + ?, asked_at + ?)) AS at FROM slots",
            &[lease.into(), pause.into()],
        )?;
        Ok(due.and_then(|due| due.at))
    }

    pub fn slots_of(&self, consumer: &str) -> Result<Vec<SlotRow>, S::Error> {
        let query = format!("SELECT {SLOT} FROM slots WHERE consumer = ? ORDER BY taken_at, slot");
        self.0.rows(&query, &[consumer.into()])
    }

    pub fn use_by_consumer(&self) -> Result<Vec<PoolCount>, S::Error> {
        self.0.rows(
            "SELECT pool, consumer, count(*) AS n, sum(unreachable) AS unreachable FROM slots
             GROUP BY pool, consumer",
            &[],
        )
    }

    pub fn waiter_of(&self, consumer: &str, key: &str) -> Result<Option<WaiterRow>, S::Error> {
        first(
            self.0,
            "SELECT seq, pool, queued_at FROM waiters WHERE consumer = ? AND key = ?",
            &[consumer.into(), key.into()],
        )
    }

    pub fn queue(&self, consumer: &str, key: &str, pool: Pool, now: u64) -> Result<(), S::Error> {
        self.0.run(
            "INSERT INTO waiters (consumer, key, pool, queued_at, seen_at) VALUES (?, ?, ?, ?, ?)",
            &[consumer.into(), key.into(), pool.as_str().into(), now.into(), now.into()],
        )
    }

    pub fn heard_of(&self, seq: u64, now: u64) -> Result<(), S::Error> {
        self.0.run("UPDATE waiters SET seen_at = ? WHERE seq = ?", &[now.into(), seq.into()])
    }

    pub fn leave(&self, consumer: &str, key: &str) -> Result<(), S::Error> {
        self.0.run("DELETE FROM waiters WHERE consumer = ? AND key = ?", &[consumer.into(), key.into()])
    }

    /// Each waiter is dropped once, so the cost of this is its enqueueing's.
    pub fn drop_silent_waiters(&self, seen_by: u64) -> Result<(), S::Error> {
        self.0.run("DELETE FROM waiters WHERE seen_at <= ?", &[seen_by.into()])
    }

    /// How many wait before `seq`, counted no further than `limit`.
    pub fn ahead(&self, pool: Pool, seq: u64, limit: u32) -> Result<u32, S::Error> {
        let row: Option<Counted> = first(
            self.0,
            "SELECT count(*) AS n FROM (SELECT 1 FROM waiters WHERE pool = ? AND seq < ? LIMIT ?)",
            &[pool.as_str().into(), seq.into(), u64::from(limit).into()],
        )?;
        Ok(row.map_or(0, |row| u32::try_from(row.n).unwrap_or(u32::MAX)))
    }

    /// How many wait before `seq`, all of them: whole runs by their crowds, then the rest of its own run.
    pub fn place(&self, pool: Pool, seq: u64) -> Result<u64, S::Error> {
        let pool = pool.as_str();
        let row: Option<Counted> = first(
            self.0,
            "SELECT (SELECT coalesce(sum(waiters), 0) FROM crowds WHERE pool = ? AND run < ?)
                  + (SELECT count(*) FROM waiters WHERE pool = ? AND seq >= ? AND seq < ?) AS n",
            &[pool.into(), (seq / 64).into(), pool.into(), (seq / 64 * 64).into(), seq.into()],
        )?;
        Ok(row.map_or(0, |row| row.n))
    }

    pub fn waiting(&self, pool: Pool) -> Result<u64, S::Error> {
        let row: Option<Counted> = first(
            self.0,
            "SELECT coalesce(sum(waiters), 0) AS n FROM crowds WHERE pool = ?",
            &[pool.as_str().into()],
        )?;
        Ok(row.map_or(0, |row| row.n))
    }
}
