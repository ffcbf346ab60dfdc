//! The command's first thread is gone: `/proc` shows a zombie that lives.

use super::*;

pub const CASE: Case = Case {
    name: "a command whose thread leader exited",
    command: |stage, _| stage.command("thread-leader-exits", &[]),
    born: 1,
    ..Case::PLAIN
};
