//! No text makes the reader of commands panic or run away, and no text after a floor command takes it off the floor.

use ringfence_core::approval::{ExtraRules, floor_rule};
use ringfence_wire::supervisor::StdinMode;

pub fn holds(bytes: &[u8]) {
    let Ok(command) = std::str::from_utf8(bytes) else { return };
    let none = ExtraRules::default();
    let _ = floor_rule(command, StdinMode::Pipe, &none);
    let after = format!("git push\n{command}");
    assert!(floor_rule(&after, StdinMode::None, &none).is_some(), "{after:?}");
}
