//! The daemon's classic: the parent in between is gone.

use super::*;

pub const CASE: Case = Case {
    name: "a double fork",
    command: |stage, _| stage.command("double-fork", &[]),
    born: 2,
    escapes_a_process_group: true,
    ..Case::PLAIN
};
