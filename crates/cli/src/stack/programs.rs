//! With what arguments and environment the stack's two programs are started.

use super::guard::StopSignal;
use super::guarded::Program;
use super::{ENGINE, Layout, StackOptions, WRANGLER};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const ENGINE_GRACE: Duration = Duration::from_secs(5);
const WRANGLER_GRACE: Duration = Duration::from_secs(8);

/// The engine, which is another face of our own executable.
pub fn engine<'a>(options: &'a StackOptions, layout: &Layout) -> Program<'a> {
    let mut arguments: Vec<OsString> = vec!["engine".into()];
    let mut pair = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    pair("--socket", layout.docker_socket.clone().into());
    pair("--control", layout.control_socket.clone().into());
    pair("--state-dir", options.run.join("engine").into());
    if let Some(supervisor) = &options.supervisor {
        pair("--supervisor", supervisor.into());
    }
    for bind in &options.bind_read_only {
        let mut text = bind.source.clone().into_os_string();
        text.push(":");
        text.push(&bind.target);
        pair("--bind-ro", text);
    }
    if options.faults {
        arguments.push("--faults".into());
    }
    arguments.push("--exit-with-parent".into());
    Program {
        name: ENGINE,
        ringfence: &options.ringfence,
        executable: &options.ringfence,
        arguments,
        environment: BTreeMap::new(),
        directory: &options.run,
        log: layout.engine_log.clone(),
        stop: StopSignal::Term,
        grace: ENGINE_GRACE,
    }
}

/// `wrangler dev` with every prepared configuration; the first one has the port.
pub fn wrangler<'a>(
    options: &'a StackOptions,
    layout: &Layout,
    prepared: &[PathBuf],
    port: u16,
) -> Program<'a> {
    let run = &options.run;
    let mut arguments: Vec<OsString> =
        vec!["--no-warnings".into(), options.tools.wrangler.clone().into(), "dev".into()];
    for config in prepared {
        arguments.extend(["-c".into(), config.into()]);
    }
    for argument in
        ["--ip", "127.0.0.1", "--inspector-port", "0", "--show-interactive-dev-session=false", "--port"]
    {
        arguments.push(argument.into());
    }
    arguments.push(port.to_string().into());
    arguments.push("--persist-to".into());
    arguments.push(run.join("storage").into());

    let docker_host = format!("unix://{}", layout.docker_socket.display());
    let path = match std::env::var_os("PATH") {
        Some(path) => {
            let mut joined = options.tools.bin.clone().into_os_string();
            joined.push(":");
            joined.push(path);
            joined
        }
        None => options.tools.bin.clone().into(),
    };
    let environment: BTreeMap<String, OsString> = [
        ("PATH", path),
        ("WRANGLER_DOCKER_BIN", layout.docker_link.clone().into()),
        ("WRANGLER_DOCKER_HOST", docker_host.clone().into()),
        ("DOCKER_HOST", docker_host.into()),
        ("WRANGLER_SEND_METRICS", "false".into()),
        ("WRANGLER_SEND_ERROR_REPORTS", "false".into()),
        ("WRANGLER_HIDE_BANNER", "true".into()),
        // A trace of every event in every Worker costs more than all they do (docs/decisions/2026-11-30-local-traces.md).
        ("X_LOCAL_OBSERVABILITY", "false".into()),
        ("X_LOCAL_EXPLORER", "false".into()),
        ("WRANGLER_LOG_PATH", run.join("logs").into()),
        // What it prints is kept; a second log of every message it meets is another third of a core.
        ("WRANGLER_WRITE_LOGS", "false".into()),
        // A registry of its own: two stacks on one machine run Workers of the same names.
        ("WRANGLER_REGISTRY_PATH", run.join("registry").into()),
        ("CI", "1".into()),
        ("NO_COLOR", "1".into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    Program {
        name: WRANGLER,
        ringfence: &options.ringfence,
        executable: &options.tools.node,
        arguments,
        environment,
        directory: run,
        log: layout.wrangler_log.clone(),
        stop: StopSignal::Int,
        grace: WRANGLER_GRACE,
    }
}
