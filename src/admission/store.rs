//! The Admission object's storage: slots, waiters and the registry. The truth; memory is a cache of it.
//!
//! Invariant: each method is one step with no `await` in it, so the steps of one call are one transaction and no
//! answer leaves before they are durable.

use ringfence_wire::ids::{ConsumerName, SandboxKey};
use serde::Deserialize;
use worker::State;

use crate::sql::{Sql, StoreError};

pub struct Store {
    sql: Sql,
}

#[derive(Deserialize)]
struct SlotRow {
    slot: String,
}

impl Store {
    pub fn open(state: &State) -> Result<Self, StoreError> {
        let sql = Sql::of(state)?;
        sql.run(
            "CREATE TABLE IF NOT EXISTS slots (
                slot TEXT PRIMARY KEY, consumer TEXT NOT NULL, key TEXT NOT NULL, pool TEXT NOT NULL,
                renewed_at INTEGER NOT NULL, UNIQUE (consumer, key))",
            [],
        )?;
        Ok(Self { sql })
    }

    pub fn slot_of(&self, consumer: &ConsumerName, key: &SandboxKey) -> Result<Option<String>, StoreError> {
        let row: Option<SlotRow> = self.sql.row(
            "SELECT slot FROM slots WHERE consumer = ? AND key = ?",
            [consumer.as_str().into(), key.as_str().into()],
        )?;
        Ok(row.map(|row| row.slot))
    }

    pub fn taken(&self, pool: &str) -> Result<u32, StoreError> {
        #[derive(Deserialize)]
        struct Count {
            count: u32,
        }
        let row: Option<Count> =
            self.sql.row("SELECT count(*) AS count FROM slots WHERE pool = ?", [pool.into()])?;
        Ok(row.map_or(0, |row| row.count))
    }

    pub fn insert(
        &self,
        slot: &str,
        consumer: &ConsumerName,
        key: &SandboxKey,
        pool: &str,
        now: u64,
    ) -> Result<(), StoreError> {
        self.sql.run(
            "INSERT INTO slots (slot, consumer, key, pool, renewed_at) VALUES (?, ?, ?, ?, ?)",
            [slot.into(), consumer.as_str().into(), key.as_str().into(), pool.into(), now.into()],
        )
    }

    pub fn release(&self, slot: &str) -> Result<(), StoreError> {
        self.sql.run("DELETE FROM slots WHERE slot = ?", [slot.into()])
    }
}
