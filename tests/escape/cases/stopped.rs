//! A stopped process takes no TERM until it goes on.

use super::*;

pub const CASE: Case = Case {
    name: "a stopped process",
    command: |stage, _| stage.command("sit-stopped", &[]),
    born: 1,
    after: |_, _, claim| match claim.command {
        // It went on, heard the TERM and died of that: no KILL was needed.
        Some((code, signal)) if (code, signal) != (None, Some(15)) => Err(format!("{claim:?}")),
        _ => Ok(()),
    },
    ..Case::PLAIN
};
