//! What decisions cost, natively: admission over SQLite as its queue grows, the approval floor, one egress hop.
//!
//! `cargo bench -p ringfence-core` prints p50 and p99 of each. No threshold is asserted here: the machine decides
//! the figures, and the test `an_attempt_looks_at_no_more_rows_when_more_are_waiting` holds the shape of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench"
)]
#![allow(dead_code, reason = "the storage is the tests', which use more of it")]

// The path by which the tests' storage knows it.
#[cfg(not(target_arch = "wasm32"))]
use ringfence_core::admission;

#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../../src/admission/tests/sqlite.rs"]
mod sqlite;

fn main() {
    #[cfg(not(target_arch = "wasm32"))]
    native::run();
}
