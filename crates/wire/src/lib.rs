//! Types only: everything Ringfence says over a wire, and nothing that decides.
//!
//! - [`ids`]: the names of things, as newtypes.
//! - [`refusal`]: the one shape of "no".
//! - [`evidence`]: what a teardown saw.
//! - [`contract`]: the facade, version 1, as consumers see it.
//! - [`supervisor`]: what the Sandbox object and the supervisor say to each other.
//! - [`internal`]: what the facade, the Sandbox object and the Admission object say to each other.
//!
//! Field names are camelCase on the wire. A field a reader does not know is ignored; all times are
//! milliseconds since the Unix epoch unless a name says otherwise.

pub mod contract;
pub mod evidence;
pub mod ids;
pub mod internal;
pub mod refusal;
pub mod supervisor;
