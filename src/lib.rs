//! The Worker: the facade's two faces, the Sandbox object, the Admission object and the egress entrypoint.
//!
//! Storage is the truth and memory a cache; nothing of record lives in a static. A decision belongs in
//! `ringfence_core`; this crate owns the effects and their order. `src/entry.js` exports the classes and hands
//! `(this.env, this.ctx, arguments)` to what is exported here; none of these exports is itself an RPC method.

mod admission;
mod clock;
mod config;
#[cfg(feature = "test-origins")]
mod connections;
mod container;
mod egress;
mod facade;
mod http;
mod objects;
#[cfg(feature = "panic-hook")]
mod panic_hook;
mod rpc;
mod sandbox;
mod sql;
mod supervisor;

/// Panics are written to the log with their place before they unwind into the one call that caused them.
#[worker::event(start)]
fn start() {
    console_error_panic_hook::set_once();
}
