//! The escape corpus: processes that try to outlive the fence they were started in, against any supervisor.
//!
//! Each case is one file under `cases/`, named by a sentence. A case is alive before and dead after, the system's
//! own claim is complete, and a spared neighbour lives on. Life is witnessed by the kernel and not by the system
//! under test: each process of a case holds a record lock, which dies with it (see `witness`). Every system under
//! test is an adapter (see `systems`); the run ends with a table `case × system`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../crates/supervisor/tests/harness/mod.rs"]
mod harness;

mod cases;
mod part;
mod stage;
mod systems;
mod witness;

use cases::Case;
use libtest_mimic::{Arguments, Failed, Trial};
use stage::Stage;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use systems::System;

type Cells = BTreeMap<(usize, usize), String>;
type Table = Arc<Mutex<Cells>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == part::PLAY) {
        part::play(&arguments[2..]);
    }
    let table = Table::default();
    let systems = systems::all();
    let mut trials = Vec::new();
    for (column, system) in systems.iter().enumerate() {
        for (row, case) in cases::ALL.iter().enumerate() {
            if !(case.applies)(system.as_ref()) {
                continue;
            }
            let (table, system) = (table.clone(), system.clone());
            let missing: Vec<&str> =
                case.needs.iter().copied().filter(|path| !Path::new(path).exists()).collect();
            let mut name = format!("{}: {}", system.name(), case.name);
            if !missing.is_empty() {
                name += &format!(" (not installed: {})", missing.join(", "));
                table.lock().unwrap().insert((row, column), "not installed".to_owned());
            }
            let trial = Trial::test(name, move || {
                let outcome = run(case, system.as_ref());
                let cell = match &outcome {
                    Ok(elapsed) => format!("dead in {} ms", elapsed.as_millis()),
                    Err(failure) => failure.cell().to_owned(),
                };
                table.lock().unwrap().insert((row, column), cell);
                judge(case, system.as_ref(), outcome)
            });
            trials.push(trial.with_ignored_flag(!missing.is_empty()));
        }
    }
    // Each case starts its own supervisor; more at a time only measure the machine.
    let arguments =
        Arguments { test_threads: Arguments::from_args().test_threads.or(Some(2)), ..Arguments::from_args() };
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        print_table(&table.lock().unwrap(), &systems);
    }
    conclusion.exit_code()
}

/// Why a case is not held.
enum Failure {
    /// It could not be played: nothing is said about the system.
    NotPlayed(String),
    /// Something lives that must not.
    Escaped(String),
    /// Everyone who must be is dead, but something else does not hold.
    Wrong(String),
}

impl Failure {
    fn cell(&self) -> &'static str {
        match self {
            Self::NotPlayed(_) => "not played",
            Self::Escaped(_) => "ESCAPED",
            Self::Wrong(_) => "WRONG",
        }
    }
}

/// A system that promises nothing is in the table only; what it is known to lose it must be seen to lose, else the
/// corpus proves nothing.
fn judge(case: &Case, system: &dyn System, outcome: Result<Duration, Failure>) -> Result<(), Failed> {
    match outcome {
        Err(Failure::NotPlayed(why)) => Err(Failed::from(format!("not played: {why}"))),
        Err(Failure::Escaped(why) | Failure::Wrong(why)) if system.promises() => Err(Failed::from(why)),
        Ok(_) if case.escapes_a_process_group && !system.promises() => Err(Failed::from(
            "a process group is not enough to end this, and yet it did: the case has lost its point",
        )),
        _ => Ok(()),
    }
}

/// How long the fence's end took.
fn run(case: &Case, system: &dyn System) -> Result<Duration, Failure> {
    let stage = Stage::new();
    let mut host = system.host(&stage);
    host.spared(&stage.command("sit-spared", &[]));
    stage.witness.wait_until_born(1).map_err(Failure::NotPlayed)?;
    let spared = stage.witness.alive();

    host.start(&(case.command)(&stage, host.as_ref()));
    stage.witness.wait_until_born(1 + case.born).map_err(Failure::NotPlayed)?;
    (case.before)(&stage, host.as_ref()).map_err(Failure::NotPlayed)?;

    let claim = host.end_fence();
    // What never stays is seen by its births.
    let born = stage.witness.born();
    std::thread::sleep(Duration::from_millis(100));
    if stage.witness.born() > born {
        let more = stage.witness.born() - born;
        return Err(Failure::Escaped(format!("{more} were born after the end; it claims {claim:?}")));
    }
    let left: Vec<_> = stage.witness.alive().difference(&spared).copied().collect();
    if !left.is_empty() {
        return Err(Failure::Escaped(format!("{} live on: {left:?}; it claims {claim:?}", left.len())));
    }
    (case.dead)(&stage).map_err(Failure::Escaped)?;
    if !stage.witness.alive().is_superset(&spared) {
        return Err(Failure::Wrong(format!("the spared neighbour is dead; it claims {claim:?}")));
    }
    if claim.complete == Some(false) {
        return Err(Failure::Wrong(format!("all are dead, and yet it cannot say so: {claim:?}")));
    }
    (case.after)(&stage, host.as_mut(), &claim).map_err(Failure::Wrong)?;
    Ok(claim.elapsed)
}

fn print_table(table: &Cells, systems: &[Arc<dyn System>]) {
    if table.is_empty() {
        return;
    }
    let width = cases::ALL.iter().map(|case| case.name.len()).max().unwrap_or(0);
    print!("{:width$}", "case");
    systems.iter().for_each(|system| print!(" | {:>16}", system.name()));
    println!();
    for (row, case) in cases::ALL.iter().enumerate() {
        print!("{:width$}", case.name);
        for column in 0..systems.len() {
            print!(" | {:>16}", table.get(&(row, column)).map_or("-", String::as_str));
        }
        println!();
    }
}
