//! Pids go round while the fence ends; the neighbour makes processes as well.

use super::*;

pub const CASE: Case = Case {
    name: "pid reuse under load",
    command: |stage, _| {
        let churn = stage.command("churn", &[]).join(" ");
        stage.shell(&format!("{churn} & {churn} & $SIT & wait"))
    },
    born: 3,
    ..Case::PLAIN
};
