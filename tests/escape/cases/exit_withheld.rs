//! A tracer reaps before the parent does: the leader never hears that its command exited.

use super::*;

pub const CASE: Case = Case {
    name: "a tracer that withholds its own command's exit",
    command: |stage, _| stage.command("withhold-exit", &[]),
    born: 2,
    // The neighbour and the tracer.
    before: |stage, _| stage.witness.wait_until_only(2),
    after: |_, _, claim| match (claim.command, claim.by_itself) {
        (Some((Some(7), None)), Some(true)) => Ok(()),
        other => {
            Err(format!("the command exited with 7 by itself, and is said to have ended with {other:?}"))
        }
    },
    applies: |system| system.promises(),
    ..Case::PLAIN
};
