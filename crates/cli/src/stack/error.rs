//! Why a stack could not be started, changed or ended. Each says what to do next.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error("{what} is missing: {path}; run scripts/setup (and scripts/build-worker for the bundle)")]
    Missing { what: &'static str, path: PathBuf },
    #[error("{path}: {why}")]
    Config { path: PathBuf, why: String },
    #[error("{what} {path}: {source}")]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another stack is running in {run}; stop it first", run = .run.display())]
    InUse { run: PathBuf },
    #[error("interrupted before everything was ready; what was started has been ended")]
    Interrupted,
    #[error("no free port on 127.0.0.1: {0}")]
    Port(#[source] io::Error),
    #[error("port {port} on 127.0.0.1 cannot be had: {source}; give another with --port, or 0 for any")]
    PortTaken {
        port: u16,
        #[source]
        source: io::Error,
    },
    #[error("{name} could not be started: {source}")]
    Spawn {
        name: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{name} ended and should not have; the last lines of {log}:\n{tail}", log = .log.display())]
    EndedEarly { name: &'static str, log: PathBuf, tail: String },
    #[error("{what} was not ready within {after:?} ({last}); the last lines of {log}:\n{tail}", log = .log.display())]
    NotReady { what: &'static str, after: Duration, last: String, log: PathBuf, tail: String },
    #[error("{name} (pid {pid}) was killed because it would not end; look for what it may have left")]
    Unfinished { name: &'static str, pid: i32 },
    #[error("no {name} process was found")]
    NoProcess { name: &'static str },
    #[error("looking at processes: {0}")]
    Processes(#[source] io::Error),
    #[error("the engine's control socket: {0}")]
    Control(String),
    #[error("the client could not be made: {0}")]
    Client(#[from] ringfence_client::SetupError),
}
