//! The command has ended; its child holds the output.

use super::*;

pub const CASE: Case = Case {
    name: "a child that holds the output after the command ended",
    command: |stage, _| stage.command("leave-child-and-exit", &[]),
    born: 2,
    // The neighbour and the child.
    before: |stage, _| stage.witness.wait_until_only(2),
    after: |_, _, claim| match claim.command {
        Some((code, signal)) if (code, signal) != (Some(7), None) => Err(format!("{claim:?}")),
        _ => Ok(()),
    },
    ..Case::PLAIN
};
