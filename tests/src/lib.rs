//! What the end-to-end tests stand on. Every part is the real one; the tests reach them from outside, through
//! the two faces, the engine's control socket, signals and `/proc`.
//!
//! - [`stack`]: one engine and one `wrangler dev`, started and ended with its handle, also when a test panics.
//! - [`facade`]: the contract as a consumer calls it.
//! - [`command`]: `ringfence` as a user runs it.
//! - [`control`]: the engine's containers, its call log, its faults.
//! - [`processes`]: who is alive, by the host's kernel.
//! - [`witness`]: what jobs did, by their own word in the test's own pipe.
//! - [`origin`]: what stands in for the internet, and the log of what reached it.
//! - [`mirror`]: places that real clients speak to, and the log of what reached them.
//! - [`eventually`]: waiting for a condition, with a deadline.
//! - [`http`]: one bounded request.

pub mod command;
pub mod control;
pub mod eventually;
pub mod facade;
pub mod files;
pub mod http;
pub mod mirror;
pub mod origin;
pub mod processes;
pub mod stack;
pub mod witness;
