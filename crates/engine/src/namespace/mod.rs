//! What runs inside a container's namespaces: the keeper, which makes them, and what it builds there.
//!
//! One keeper process per container, single-threaded, re-executed from this binary as `__container-init`. It
//! makes the namespaces, forks PID 1, and stays beside it (outside its pid namespace, so no job can see or signal
//! it) to hand out sockets and start execs. It dies with the engine, and PID 1 with it.

pub mod channel;
pub mod etc;
pub mod exec;
pub mod init;
pub mod keeper;
pub mod network;
pub mod privileges;
pub mod protocol;
pub mod rootfs;
pub mod trust;
pub mod unpack;
