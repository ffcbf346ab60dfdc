//! Another name in `argv[0]` and in `comm`.

use super::*;

pub const CASE: Case = Case {
    name: "a child that renamed itself",
    command: |stage, _| {
        let renamed = stage.command("sit-renamed", &[]).join(" ");
        let script = format!("(exec -a '[kworker/0:1]' {renamed}) & (exec -a '' $SIT) & wait");
        stage.shell(&script)
    },
    born: 2,
    ..Case::PLAIN
};
