//! The engine's side of a container's network: the sidecar that workerd speaks to, the relay that every outbound
//! connection ends at, and the responder that answers every name.

pub mod authority;
pub mod classify;
mod copy;
pub mod denials;
pub mod dns;
pub mod relay;
pub mod sidecar;
pub mod worker;
