//! A daemon whose marker is gone with its environment.

use super::*;

pub const CASE: Case = Case {
    name: "a double fork with a cleared environment",
    command: |stage, _| stage.command("double-fork-without-environment", &[]),
    born: 2,
    escapes_a_process_group: true,
    ..Case::PLAIN
};
