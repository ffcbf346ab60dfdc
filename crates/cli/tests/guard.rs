//! The guard, as a process among processes: whatever way it or its program ends, nothing is left.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are not inside a test function, which is all that clippy.toml allows"
)]

use ringfence_cli::stack::guard::GuardReport;
use ringfence_cli::stack::processes::{self, Process};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

struct Guarded {
    guard: Child,
    /// Kept apart: `Child::wait` would close it.
    control: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
    program: Process,
    directory: tempfile::TempDir,
}

impl Guarded {
    /// Runs `script` under a guard with a grace of 300 ms, in a directory of its own. The script makes the file
    /// `ready` when all its processes run.
    fn start(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut guard = Command::new(env!("CARGO_BIN_EXE_ringfence"))
            .args(["guard", "--stop-signal", "term", "--grace-ms", "300", "--", "sh", "-c", script])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let control = guard.stdin.take();
        let mut reports = BufReader::new(guard.stdout.take().unwrap());
        let GuardReport::Started { pid } = report(&mut reports) else { panic!("the program did not start") };
        let program = processes::one(pid).unwrap();
        eventually("the script is ready", || directory.path().join("ready").exists());
        Self { guard, control, reports, program, directory }
    }

    fn guard(&self) -> Process {
        processes::one(i32::try_from(self.guard.id()).unwrap()).unwrap()
    }

    /// The program and all beneath it, alive now.
    fn family(&self) -> Vec<Process> {
        let mut family = vec![self.program.clone()];
        family.extend(
            processes::descendants(self.guard().pid).unwrap().into_iter().filter(|p| *p != self.program),
        );
        for process in &family {
            assert!(processes::is_alive(process), "alive before: {process:?}");
        }
        family
    }
}

fn report(reports: &mut BufReader<ChildStdout>) -> GuardReport {
    let mut line = String::new();
    reports.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < until, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_all_dead(family: &[Process]) {
    for process in family {
        assert!(!processes::is_alive(process), "dead after: {process:?}");
    }
}

/// A child, one in its own session, and one that lost its parent.
const FAMILY: &str = "sleep 300 & setsid sleep 300 & (setsid sleep 300 & ) ; : > ready; wait";

#[test]
fn closing_the_control_pipe_ends_the_program_and_everything_it_forked() {
    let mut guarded = Guarded::start(FAMILY);
    let family = guarded.family();
    assert!(family.len() >= 4, "{family:?}");
    drop(guarded.control.take());
    guarded.guard.wait().unwrap();
    assert_all_dead(&family);
    let GuardReport::Ended { signal, swept, .. } = report(&mut guarded.reports) else { panic!() };
    assert_eq!(signal, Some(Signal::TERM.as_raw()), "it ended of the signal it was asked with");
    assert!(swept >= 3, "{swept}");
}

#[test]
fn a_program_that_ends_by_itself_leaves_nothing_behind() {
    let mut guarded = Guarded::start("mkfifo seen; setsid sleep 300 & : > ready; read line < seen; exit 7");
    let family = guarded.family();
    std::fs::write(guarded.directory.path().join("seen"), "yes\n").unwrap();
    let status = guarded.guard.wait().unwrap();
    assert_eq!(status.code(), Some(7));
    assert_all_dead(&family);
}

#[test]
fn a_program_that_ignores_the_signal_is_killed_after_the_grace() {
    let mut guarded = Guarded::start("trap '' TERM; sleep 300 & : > ready; while :; do wait; done");
    let family = guarded.family();
    let asked = Instant::now();
    drop(guarded.control.take());
    guarded.guard.wait().unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(300), "the grace was given");
    assert_all_dead(&family);
}

#[test]
fn a_signal_to_the_guard_ends_everything_too() {
    let mut guarded = Guarded::start(FAMILY);
    let family = guarded.family();
    assert!(processes::signal(&guarded.guard(), Signal::TERM).unwrap());
    guarded.guard.wait().unwrap();
    assert_all_dead(&family);
}

#[test]
fn the_program_dies_with_a_guard_that_is_killed() {
    let mut guarded = Guarded::start(": > ready; exec sleep 300");
    let program = guarded.program.clone();
    assert!(processes::is_alive(&program), "alive before");
    guarded.guard.kill().unwrap();
    guarded.guard.wait().unwrap();
    eventually("the program is dead", || !processes::is_alive(&program));
}
