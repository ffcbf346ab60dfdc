//! The title runs over the environment block, as in many daemons.

use super::*;

pub const CASE: Case = Case {
    name: "a title rewritten over the environment",
    command: |stage, _| stage.command("title-over-environment", &[]),
    born: 1,
    ..Case::PLAIN
};
