//! Wide and deep trees: one of 1,000 processes, and one of 10,000 where the bound on processes is raised for it.

use super::*;

const LARGE: usize = 1_000;
const HUGE: usize = 10_000;

pub const CASE: Case = Case {
    name: "a large tree",
    command: |stage, _| stage.command("tree", &[&LARGE.to_string()]),
    born: LARGE,
    after: |_, _, claim| all_are_counted(claim, LARGE),
    ..Case::PLAIN
};

/// On one ground: it asks much of the machine, and what differs between the grounds shows with fewer.
pub const HUGE_CASE: Case = Case {
    name: "a tree of 10,000",
    command: |stage, _| stage.command("tree", &[&HUGE.to_string()]),
    born: HUGE,
    applies: |system| system.name() == "namespace",
    after: |_, _, claim| all_are_counted(claim, HUGE),
    ..Case::PLAIN
};

fn all_are_counted(claim: &Claim, size: usize) -> Result<(), String> {
    match claim.killed {
        Some(killed) if killed < size as u64 => Err(format!("{claim:?}")),
        _ => Ok(()),
    }
}
