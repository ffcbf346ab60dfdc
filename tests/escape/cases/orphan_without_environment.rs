//! Every ancestor but the command is gone before anyone looks, and the environment with them.

use super::*;

pub const CASE: Case = Case {
    name: "a cleared environment and the parent gone before the look",
    command: |stage, _| stage.command("generations-without-environment", &[]),
    born: 2,
    escapes_a_process_group: true,
    ..Case::PLAIN
};
