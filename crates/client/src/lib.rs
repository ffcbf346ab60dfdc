//! Typed client of the HTTP face.
//!
//! A [`Client`] knows one deployment and one token; [`Client::sandbox`] names one sandbox of that token's
//! consumer. Every call returns the contract's own types, and a refusal is an error variant
//! ([`CallError::Refused`]), so that `?` never mistakes a "no" for an answer.
//!
//! Dropping a call's future cancels nothing on the other side: an exec runs to its own end or timeout, and its
//! idempotency key joins it. Whoever wants the work ended says so, with [`Sandbox::abort`], or holds a
//! [`ScopedSandbox`], whose end, however it comes about, is an explicit abort.
//!
//! No global state and no detached task: what must outlive a dropped future is handed to a
//! [`TeardownRunner`] that the caller owns and awaits.

mod calls;
mod error;
mod scoped;
mod transport;

pub use calls::{Client, ExecRequest, Sandbox};
pub use error::{CallError, Problem, SetupError};
pub use ringfence_wire as wire;
pub use scoped::{
    OrphanedSandbox, ScopedSandbox, TeardownHandle, TeardownReport, TeardownRunner, teardown_pair,
};
