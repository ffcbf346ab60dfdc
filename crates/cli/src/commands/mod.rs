//! One file per command: its arguments, its help, and what it does.

pub(crate) mod abort;
pub(crate) mod canary;
pub(crate) mod demo;
pub(crate) mod denials;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod egress;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod guard;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod reap;
pub(crate) mod run;
pub(crate) mod stop;

/// A sandbox's key, as the service would take it.
pub(crate) fn key(text: &str) -> Result<String, String> {
    match ringfence_core::key::parse_key(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

/// `--label NAME=VALUE`
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
