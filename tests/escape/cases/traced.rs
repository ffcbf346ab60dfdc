//! A traced process is stopped for its tracer and reaped by it first.

use super::*;

pub const CASE: Case = Case {
    name: "a traced process and its tracer",
    command: |stage, _| stage.command("traced", &[]),
    born: 2,
    ..Case::PLAIN
};
