//! The command has ended; its child holds the output.

use super::*;

pub const CASE: Case = Case {
    name: "a child that holds the output after the command ended",
    command: |stage, _| {
        stage.shell(&format!("$SIT & sleep 0.2; touch {}/ended; exit 7", stage.path().display()))
    },
    born: 1,
    before: |stage, _| {
        crate::harness::wait_for("the command ends", || stage.path().join("ended").exists().then_some(()));
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    },
    after: |_, _, claim| match claim.command {
        Some((code, signal)) if (code, signal) != (Some(7), None) => Err(format!("{claim:?}")),
        _ => Ok(()),
    },
    ..Case::PLAIN
};
