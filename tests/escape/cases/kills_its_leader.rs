//! Where it shares the leader's uid it succeeds: what the leader led must not get away.

use super::*;

pub const CASE: Case = Case {
    name: "a job that kills its own leader",
    command: |stage, _| stage.command("kill-own-leader", &[]),
    born: 2,
    after: |_, host, _| match host.still_works() {
        true => Ok(()),
        false => Err("the next command does not run".to_owned()),
    },
    ..Case::PLAIN
};
