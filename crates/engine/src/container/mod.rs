//! Containers as the engine sees them: the record of one, its life, and the processes that make it.

pub mod boot;
pub mod cgroup;
pub mod handle;
pub mod ids;
pub mod log;
pub mod record;
pub mod spawner;

pub use record::{Container, Life};
