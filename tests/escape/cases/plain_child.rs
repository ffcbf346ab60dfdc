//! A child like any other.

use super::*;

pub const CASE: Case =
    Case { name: "a plain child", command: |stage, _| stage.shell("$SIT"), born: 1, ..Case::PLAIN };
