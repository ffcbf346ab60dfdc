//! Every signal at the supervisor, its port without the key, its environment and memory.

use super::*;

pub const CASE: Case = Case {
    name: "a job that attacks the supervisor",
    command: |stage, host| {
        let (pid, port) = host.supervisor().unwrap();
        stage.command("attack", &[&pid.to_string(), &port.to_string()])
    },
    born: 1,
    after: |stage, host, _| {
        let attack = std::fs::read_to_string(stage.path().join("attack")).unwrap();
        match (attack.as_str(), host.still_works()) {
            ("HTTP/1.1 401 Unauthorized closed", true) => Ok(()),
            (attack, works) => Err(format!("it got {attack:?}; the next command runs: {works}")),
        }
    },
    applies: |system| system.promises(),
    ..Case::PLAIN
};
