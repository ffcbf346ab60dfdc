//! Its environment and its memory are closed to every look.

use super::*;

pub const CASE: Case = Case {
    name: "a process that is not dumpable",
    command: |stage, _| stage.command("sit-undumpable", &[]),
    born: 1,
    ..Case::PLAIN
};
