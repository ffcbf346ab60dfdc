//! The stack's side of one guarded program: started, watched, ended.
//!
//! Owns the control pipe. Dropping it is enough to end the program; [`Guarded::stop`] also waits until the
//! guard says that nothing is left.

use super::error::StackError;
use super::guard::{GuardReport, StopSignal};
use super::processes::{self, Process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Beyond the program's own grace, for the guard to sweep and report.
const SWEEP_MARGIN: Duration = Duration::from_secs(10);

/// What to start, and how to end it.
pub(super) struct Program<'a> {
    /// For messages: "engine", "wrangler".
    pub(super) name: &'static str,
    /// The `ringfence` executable, which holds the guard.
    pub(super) ringfence: &'a Path,
    pub(super) executable: &'a Path,
    pub(super) arguments: Vec<OsString>,
    /// The whole environment: nothing is inherited but `PATH`, `HOME` and the locale.
    pub(super) environment: BTreeMap<String, OsString>,
    pub(super) directory: &'a Path,
    pub(super) log: PathBuf,
    pub(super) stop: StopSignal,
    pub(super) grace: Duration,
}

pub(super) struct Guarded {
    name: &'static str,
    guard: Child,
    control: Option<ChildStdin>,
    reports: Lines<BufReader<ChildStdout>>,
    process: Process,
    log: PathBuf,
    grace: Duration,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
    /// The guard itself was killed; the kernel took the program with it.
    GuardLost,
}

impl Guarded {
    pub(super) async fn start(program: Program<'_>) -> Result<Self, StackError> {
        let name = program.name;
        let spawn = |source| StackError::Spawn { name, source };
        // Appended to, so that a restart keeps what the earlier run said.
        let log = File::options().create(true).append(true).open(&program.log).map_err(spawn)?;
        let mut command = Command::new(program.ringfence);
        command
            .arg("guard")
            .arg("--stop-signal")
            .arg(match program.stop {
                StopSignal::Int => "int",
                StopSignal::Term => "term",
            })
            .arg("--grace-ms")
            .arg(program.grace.as_millis().to_string())
            .arg("--")
            .arg(program.executable)
            .args(&program.arguments)
            .current_dir(program.directory)
            .env_clear()
            .envs(inherited())
            .envs(&program.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // A terminal's Ctrl-C is for the stack, which ends its parts in order.
            .process_group(0);
        let mut guard = command.spawn().map_err(spawn)?;
        let lost = || StackError::Spawn { name, source: std::io::Error::other("the guard has no pipes") };
        let control = guard.stdin.take().ok_or_else(lost)?;
        let mut reports = BufReader::new(guard.stdout.take().ok_or_else(lost)?).lines();
        let process = match next_report(&mut reports).await {
            Some(GuardReport::Started { pid }) => processes::one(pid),
            _ => None,
        };
        let Some(process) = process else {
            return Err(StackError::EndedEarly {
                name,
                log: program.log.clone(),
                tail: log_tail(&program.log),
            });
        };
        Ok(Self {
            name,
            guard,
            control: Some(control),
            reports,
            process,
            log: program.log,
            grace: program.grace,
        })
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn is_running(&self) -> bool {
        processes::is_alive(&self.process)
    }

    /// An error that says what the program last wrote, for when it ended and should not have.
    pub(super) fn ended_early(&self) -> StackError {
        StackError::EndedEarly { name: self.name, log: self.log.clone(), tail: log_tail(&self.log) }
    }

    /// Waits until the program ends by itself.
    pub(super) async fn ended(&mut self) -> ProgramEnd {
        let end = match next_report(&mut self.reports).await {
            Some(GuardReport::Ended { code: Some(code), .. }) => ProgramEnd::Exited { code },
            Some(GuardReport::Ended { signal: Some(signal), .. }) => ProgramEnd::Signaled { signal },
            _ => ProgramEnd::GuardLost,
        };
        let _ = self.guard.wait().await;
        end
    }

    /// Asks for the end and waits until nothing is left. Idempotent.
    pub(super) async fn stop(&mut self) -> Result<(), StackError> {
        self.control = None;
        let patience = self.grace + SWEEP_MARGIN;
        if tokio::time::timeout(patience, self.guard.wait()).await.is_ok() {
            return Ok(());
        }
        // The program dies with its guard; what else there was may not.
        let _ = self.guard.kill().await;
        Err(StackError::Unfinished { name: self.name, pid: self.process.pid })
    }
}

async fn next_report(reports: &mut Lines<BufReader<ChildStdout>>) -> Option<GuardReport> {
    let line = reports.next_line().await.ok()??;
    serde_json::from_str(&line).ok()
}

/// What a program needs of this process's environment, and no more: a stray variable must not change a run.
fn inherited() -> impl Iterator<Item = (String, OsString)> {
    ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR"]
        .into_iter()
        .filter_map(|name| std::env::var_os(name).map(|value| (name.to_owned(), value)))
}

/// The last lines of a log, for an error message.
pub(super) fn log_tail(log: &Path) -> String {
    const LINES: usize = 15;
    let text =
        std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LINES)).map(|line| format!("    {line}\n")).collect()
}
