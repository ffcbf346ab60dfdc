//! Each process forks and ends at once: no look ever sees one that is still there at its end.

use super::*;

pub const CASE: Case = Case {
    name: "a fork storm that outruns a look",
    command: |stage, _| stage.command("storm", &["12"]),
    born: 200,
    escapes_a_process_group: true,
    ..Case::PLAIN
};
