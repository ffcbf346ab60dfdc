//! It uses its grace: its own exit code is what counts.

use super::*;

pub const CASE: Case = Case {
    name: "a process that ends slowly on TERM, with its own code",
    command: |stage, _| stage.command("end-slowly-on-term", &[]),
    born: 1,
    after: |_, _, claim| match claim.command {
        Some((code, signal)) if (code, signal) != (Some(42), None) => Err(format!("{claim:?}")),
        _ => Ok(()),
    },
    ..Case::PLAIN
};
