//! TERM is nothing to it.

use super::*;

pub const CASE: Case = Case {
    name: "a process that ignores TERM",
    command: |stage, _| stage.command("sit-ignoring-term", &[]),
    born: 1,
    after: |_, _, claim| match claim.command {
        Some((code, signal)) if (code, signal) != (None, Some(9)) => Err(format!("{claim:?}")),
        _ => Ok(()),
    },
    ..Case::PLAIN
};
