//! Admission: pools of slots with caps, and a fair queue in front of each.
//!
//! Invariants, held by [`Gate`] over any SQL storage (the Admission object's own, or SQLite natively in tests):
//! - A pool never has more slots than its cap.
//! - A slot lives while its container does. It is freed by its id, and only on the sandbox's word that nothing
//!   runs under it and nothing will; a slot whose sandbox cannot be reached is kept, and reported.
//! - First come, first served: nobody takes a slot that an earlier live waiter is entitled to.
//! - The holder of a slot gets that slot again, whatever it asks for.
//! - Which pool a sandbox takes follows from consumer and recipe ([`pools::Pools::pool_for`]), from no payload.
//!
//! The owner of the rows is the Admission object. A slot is taken before its taker leaves the queue, and the statement
//! that takes it says the cap once more: cut short anywhere, a pool is never over its cap.

mod gate;
mod pools;
mod rows;

pub use gate::{Claimant, Gate, Heard, SlotToAsk};
pub use pools::{CEILING, MAX_WAITERS, Pool, Pools, PoolsFault};
pub use rows::{Bind, MIGRATIONS, SCHEMA_VERSION, SchemaFault, Sql, migrate};

/// A waiter that has not been heard of for so long loses its place.
pub const WAITER_TTL_MS: u64 = 100_000;
/// A slot that has not been renewed for so long is asked about.
pub const SLOT_LEASE_MS: u64 = 10 * 60 * 1000;
/// A touch renews a slot at most so often within its lease, and otherwise writes nothing.
pub const RENEWALS_IN_A_LEASE: u64 = 10;
/// How often an expired slot is asked about again.
pub const ASK_EVERY_MS: u64 = 30_000;
/// Slots asked about at once.
pub const MAX_ASKED: usize = 8;
/// What a waiter is told to wait before its next attempt.
pub const RETRY_WAITING_MS: u64 = 2_000;
/// What one who was refused is told to wait.
pub const RETRY_REFUSED_MS: u64 = 5_000;

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;
