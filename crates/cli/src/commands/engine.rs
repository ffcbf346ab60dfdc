//! `ringfence engine`: serves containers to workerd until interrupted. The main thread does the work and no runtime is
//! started here: the engine forks its containers from a thread of its own choosing.

use crate::exit::Exit;
use crate::print;
use ringfence_engine::{BindReadOnly, Bounds, EngineConfig};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(after_help = "\
Point wrangler at it with WRANGLER_DOCKER_HOST=unix://SOCKET and WRANGLER_DOCKER_BIN=a link named `docker` to this \
executable. `ringfence dev` does all of it.")]
pub(crate) struct Arguments {
    /// The unix socket that workerd and wrangler speak Docker's API on
    #[arg(long)]
    socket: PathBuf,
    /// The unix socket that `ringfence` asks about containers, calls and denials on
    #[arg(long)]
    control: PathBuf,
    /// A directory of the engine's own; one engine at a time
    #[arg(long)]
    state_dir: PathBuf,
    /// PID 1 of every container [default: ringfenced beside this executable]
    #[arg(long)]
    supervisor: Option<PathBuf>,
    /// Show a host path inside, read-only; may be repeated
    #[arg(long, value_name = "SRC:DST")]
    bind_ro: Vec<BindReadOnly>,
    /// Most processes and threads in one container
    #[arg(long, default_value_t = Bounds::default().pids)]
    pids_max: u32,
    /// Let faults be injected on the control socket, and record each request to a supervisor
    #[arg(long)]
    faults: bool,
    /// End when the process that started the engine ends
    #[arg(long)]
    exit_with_parent: bool,
}

pub(crate) fn main(arguments: Arguments) -> ExitCode {
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("ringfenced");
    let config = EngineConfig {
        socket: arguments.socket,
        control: arguments.control,
        state_dir: arguments.state_dir,
        supervisor: arguments.supervisor.unwrap_or_else(beside),
        bind_ro: arguments.bind_ro,
        faults: arguments.faults,
        exit_with_parent: arguments.exit_with_parent,
        bounds: Bounds { pids: arguments.pids_max, ..Bounds::default() },
    };
    match ringfence_engine::run(config) {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            print::warn(format_args!("ringfence engine: {error}"));
            Exit::Failed.into()
        }
    }
}
