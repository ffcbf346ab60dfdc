//! The facade's contract, version 1, as consumers see it over RPC and HTTP.
//!
//! Field names are fixed. Additions are optional fields. Unknown fields are ignored.

mod admission;
mod canary;
mod detached;
mod events;
mod exec;
mod recipe;
mod sandbox;

pub use admission::*;
pub use canary::*;
pub use detached::*;
pub use events::*;
pub use exec::*;
pub use recipe::*;
pub use sandbox::*;

pub const CONTRACT_VERSION: u32 = 1;
