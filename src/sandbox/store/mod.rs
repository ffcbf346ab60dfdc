//! The sandbox's storage: the truth. What the object holds in memory is a cache of it, except the open grant.
//!
//! Invariant: no state of record lives outside these tables. Each method is one step with no `await` in it, so the
//! steps a caller takes between two awaits are one transaction, and nothing the caller sends leaves before they are
//! durable. A row this version cannot read is an error, never a guess.
//!
//! - [`head`]: the one row about the object and its container.
//! - [`processes`]: detached processes.
//! - [`ledger`]: execs by idempotency key, and spent attestations; [`exec`]: what they say to a call.
//! - [`tables`]: slots given up, what the alarm is for, denials, events.

pub mod exec;
pub mod head;
pub mod ledger;
pub mod processes;
mod schema;
pub mod tables;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use worker::State;

use crate::sql::{Sql, StoreError};
use ledger::Kept;

#[derive(Debug)]
pub struct Store {
    sql: Sql,
    /// Nothing was ever written: every table is still to be made.
    blank: Cell<bool>,
    kept: Kept,
}

impl Store {
    pub fn open(state: &State) -> Result<Self, StoreError> {
        Self::over(Sql::of(state)?)
    }

    fn over(sql: Sql) -> Result<Self, StoreError> {
        let version = schema::version(&sql)?;
        if version > 0 {
            schema::migrate(&sql, version)?;
        }
        Ok(Self { sql, blank: Cell::new(version == 0), kept: Kept::default() })
    }

    /// Makes the tables, before the first write.
    pub(super) fn prepare(&self) -> Result<(), StoreError> {
        if self.blank.get() {
            schema::migrate(&self.sql, 0)?;
            self.blank.set(false);
        }
        Ok(())
    }
}
