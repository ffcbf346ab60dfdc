//! Tracing another job, its descriptors, its environment and memory: all jobs have one uid, and yet none opens.

use super::*;

pub const CASE: Case = Case {
    name: "a job that attacks its neighbour",
    command: |stage, _| stage.command("attack-neighbour", &[]),
    born: 1,
    after: |stage, _, _| match std::fs::read_to_string(stage.path().join("opened")).unwrap().as_str() {
        "" => Ok(()),
        opened => Err(format!("of the neighbour it got {opened}")),
    },
    applies: |system| system.promises() && landlock_is_there(),
    ..Case::PLAIN
};

/// What keeps jobs apart; `ringfence doctor` says where it is missing.
fn landlock_is_there() -> bool {
    use landlock::{AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessFs::Refer).and_then(Ruleset::create).is_ok()
}
