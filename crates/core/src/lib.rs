//! Decisions only: no I/O, no clock, no randomness, no async runtime.
//!
//! Time, ids and random bytes are arguments. The same compiled decision (which jobs a fence kills, whether a
//! ticket holds, what a status is) runs in the Worker as wasm and in the supervisor natively, and the vectors
//! in `cases/` are run against both.

pub mod admission;
pub mod approval;
pub mod canary;
pub mod candidate;
pub mod checkout;
pub mod detached;
pub mod egress;
pub mod fingerprint;
pub mod job;
pub mod key;
pub mod lifetime;
pub mod recipe;
pub mod seal;
pub mod settle;
pub mod status;
pub mod sweep;
pub mod ticket;
pub mod times;
