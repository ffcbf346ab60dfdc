//! The same further down the tree.

use super::*;

pub const CASE: Case = Case {
    name: "a zombie leader with live threads below the command",
    command: |stage, _| stage.command("parent-of-thread-leader-that-exits", &[]),
    born: 2,
    ..Case::PLAIN
};
