//! The command stays; its child runs beside it.

use super::*;

pub const CASE: Case = Case {
    name: "a child in the background",
    command: |stage, _| stage.shell("$SIT & $SIT & wait"),
    born: 2,
    ..Case::PLAIN
};
