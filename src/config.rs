//! The Worker's configuration, read from its bindings once per isolate.
//!
//! A missing or bad entry is an error that names it and the remedy, on every call; never an open gate.
//! Messages name entries, never their values: some are secrets.

use std::collections::BTreeMap;

use ringfence_wire::ids::ConsumerName;
use serde::Deserialize;
use worker::Env;

/// The shortest ticket secret that is accepted, in bytes.
pub const MIN_SECRET_BYTES: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry} {fault}; {remedy}")]
pub struct ConfigError {
    pub entry: &'static str,
    pub fault: String,
    pub remedy: &'static str,
}

/// The ways into the facade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Face {
    Rpc,
    Http,
}

/// What one consumer may do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ConsumerEntry {
    pub faces: Vec<Face>,
    /// The egress profiles it may select; absent: all.
    #[serde(default)]
    pub profiles: Option<Vec<String>>,
}

pub type Consumers = BTreeMap<ConsumerName, ConsumerEntry>;

/// The secrets tickets and seals are made with, newest first. The newest signs; each verifies.
pub fn ticket_secrets(env: &Env) -> Result<Vec<String>, ConfigError> {
    const ENTRY: &str = "TICKET_SECRETS";
    const REMEDY: &str = "set the secret TICKET_SECRETS to a JSON array of strings of at least 32 bytes each, the newest first";
    let error = |fault: String| ConfigError { entry: ENTRY, fault, remedy: REMEDY };
    let text = env.secret(ENTRY).map_err(|_| error("is not set".to_owned()))?.to_string();
    let secrets: Vec<String> =
        serde_json::from_str(&text).map_err(|_| error("is not a JSON array of strings".to_owned()))?;
    if secrets.is_empty() {
        return Err(error("is empty".to_owned()));
    }
    if let Some(short) = secrets.iter().position(|secret| secret.len() < MIN_SECRET_BYTES) {
        return Err(error(format!("has a secret that is too short, at index {short}")));
    }
    Ok(secrets)
}

/// Who may call, and by which face.
pub fn consumers(env: &Env) -> Result<Consumers, ConfigError> {
    const ENTRY: &str = "CONSUMERS";
    const REMEDY: &str = r#"set it to JSON like {"dispatcher":{"faces":["rpc","http"]}}"#;
    let error = |fault: String| ConfigError { entry: ENTRY, fault, remedy: REMEDY };
    let text = env.var(ENTRY).map_err(|_| error("is not set".to_owned()))?.to_string();
    serde_json::from_str(&text).map_err(|e| error(format!("is malformed: {e}")))
}
