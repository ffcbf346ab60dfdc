//! `nohup` guards against a hang-up, and against nothing else.

use super::*;

pub const CASE: Case = Case {
    name: "a child under nohup",
    command: |stage, _| stage.shell("nohup $SIT >/dev/null 2>&1 & wait"),
    born: 1,
    ..Case::PLAIN
};
