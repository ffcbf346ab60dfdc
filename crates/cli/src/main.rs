//! `ringfence`. Three of its invocations are the engine's and must run before any thread starts: called through a link
//! named `docker` it answers wrangler's Docker calls; the two hidden subcommands make namespaces.

use ringfence_engine::{INIT_SUBCOMMAND, PROBE_SUBCOMMAND};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    if Path::new(&program).file_name().is_some_and(|name| name == "docker") {
        return ringfence_engine::docker_cli(&arguments.collect::<Vec<_>>());
    }
    match arguments.next().as_deref() {
        Some(INIT_SUBCOMMAND) => ringfence_engine::container_init(),
        Some(PROBE_SUBCOMMAND) => ringfence_engine::namespace_probe(),
        _ => ringfence_cli::cli::main(),
    }
}
