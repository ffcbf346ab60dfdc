//! The secrets of one local stack: made at its first start, kept in its run directory (mode 0600) so that a
//! restart finds its containers and tickets good, and never written into a tracked file.

use super::error::StackError;
use base64::Engine as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "secrets.json";

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Secrets {
    /// Newest first; the Worker's `TICKET_SECRETS`.
    pub(super) ticket_secrets: Vec<String>,
    /// Consumer → bearer token.
    pub(super) tokens: BTreeMap<String, String>,
}

impl Secrets {
    /// Reads what an earlier start of this run directory made, and makes what is missing.
    pub(super) fn load_or_make(run: &Path, consumers: &[String]) -> Result<Self, StackError> {
        let path = run.join(FILE);
        let mut secrets = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| StackError::Config { path: path.clone(), why: error.to_string() })?,
            Err(_) => Self { ticket_secrets: vec![random(32)?], tokens: BTreeMap::new() },
        };
        for consumer in consumers {
            if !secrets.tokens.contains_key(consumer) {
                secrets.tokens.insert(consumer.clone(), format!("rf_{}", random(24)?));
            }
        }
        let bytes = serde_json::to_vec_pretty(&secrets).unwrap_or_default();
        write_private(&path, &bytes)?;
        Ok(secrets)
    }

    /// `TICKET_SECRETS`, as the Worker reads it.
    pub(super) fn ticket_secrets_json(&self) -> String {
        serde_json::json!(self.ticket_secrets).to_string()
    }

    /// `API_TOKENS`: SHA-256 of each token, in hex → consumer.
    pub(super) fn api_tokens_json(&self, consumers: &[String]) -> String {
        let table: BTreeMap<String, &String> = self
            .tokens
            .iter()
            .filter(|(consumer, _)| consumers.contains(consumer))
            .map(|(consumer, token)| (hex::encode(Sha256::digest(token.as_bytes())), consumer))
            .collect();
        serde_json::json!(table).to_string()
    }
}

/// Writes a file that only its owner can read, in one step: a reader sees the old one or the new one.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StackError> {
    let file = |source| StackError::File { what: "writing", path: path.to_path_buf(), source };
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let mut out =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(file)?;
    out.write_all(bytes).map_err(file)?;
    fs::rename(&beside, path).map_err(file)
}

fn random(bytes: usize) -> Result<String, StackError> {
    let mut buffer = vec![0_u8; bytes];
    getrandom::fill(&mut buffer).map_err(|error| StackError::File {
        what: "reading random bytes for",
        path: FILE.into(),
        source: std::io::Error::other(error),
    })?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_second_start_in_the_same_run_directory_keeps_the_secrets() {
        let run = tempfile::tempdir().unwrap();
        let names = ["local".to_owned()];
        let first = Secrets::load_or_make(run.path(), &names).unwrap();
        let second = Secrets::load_or_make(run.path(), &["local".to_owned(), "other".to_owned()]).unwrap();
        assert_eq!(first.ticket_secrets, second.ticket_secrets);
        assert_eq!(first.tokens["local"], second.tokens["local"]);
        assert_ne!(second.tokens["local"], second.tokens["other"]);
        assert!(first.ticket_secrets[0].len() >= 32);
    }

    #[test]
    fn only_the_owner_can_read_the_secrets() {
        let run = tempfile::tempdir().unwrap();
        Secrets::load_or_make(run.path(), &["local".to_owned()]).unwrap();
        let mode = fs::metadata(run.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_worker_is_given_the_hash_of_a_token_and_not_the_token() {
        let run = tempfile::tempdir().unwrap();
        let names = ["local".to_owned()];
        let secrets = Secrets::load_or_make(run.path(), &names).unwrap();
        let table = secrets.api_tokens_json(&names);
        assert!(!table.contains(&secrets.tokens["local"]));
        assert!(table.contains(&hex::encode(Sha256::digest(secrets.tokens["local"].as_bytes()))));
    }
}
