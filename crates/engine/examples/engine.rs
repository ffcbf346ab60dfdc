//! The smallest program around the engine: the invocations it must hand over before any thread starts, and an
//! engine with its settings from the command line. The tests of this crate run it.

use ringfence_engine::{Bounds, EngineConfig, INIT_SUBCOMMAND, PROBE_SUBCOMMAND};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let arguments: Vec<String> = words.collect();
    if program.ends_with("/docker") {
        return ringfence_engine::docker_cli(&arguments);
    }
    match arguments.first().map(String::as_str) {
        Some(INIT_SUBCOMMAND) => return ringfence_engine::container_init(),
        Some(PROBE_SUBCOMMAND) => return ringfence_engine::namespace_probe(),
        _ => {}
    }
    let value = |name: &str| arguments.iter().skip_while(|word| *word != name).nth(1).cloned();
    let (Some(directory), Some(supervisor)) = (value("--dir"), value("--supervisor")) else {
        eprintln!(
            "usage: engine --dir DIR --supervisor PATH [--pids N] [--workspace BYTES] [--bind-ro SRC:DST] [--faults] [--exit-with-parent]"
        );
        return ExitCode::FAILURE;
    };
    let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok());
    let defaults = Bounds::default();
    let directory = std::path::PathBuf::from(directory);
    let config = EngineConfig {
        socket: directory.join("docker.sock"),
        control: directory.join("control.sock"),
        state_dir: directory.join("state"),
        supervisor: supervisor.into(),
        bind_ro: value("--bind-ro").and_then(|text| text.parse().ok()).into_iter().collect(),
        faults: arguments.iter().any(|word| word == "--faults"),
        exit_with_parent: arguments.iter().any(|word| word == "--exit-with-parent"),
        bounds: Bounds {
            pids: number("--pids").and_then(|n| u32::try_from(n).ok()).unwrap_or(defaults.pids),
            memory_bytes: number("--memory").unwrap_or(defaults.memory_bytes),
            workspace_bytes: number("--workspace").unwrap_or(defaults.workspace_bytes),
            ..defaults
        },
    };
    match ringfence_engine::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine: {error}");
            ExitCode::FAILURE
        }
    }
}
