//! A new session leaves process group and terminal behind.

use super::*;

pub const CASE: Case = Case {
    name: "a child in its own session",
    command: |stage, _| stage.shell("setsid $SIT & wait"),
    born: 1,
    escapes_a_process_group: true,
    ..Case::PLAIN
};
