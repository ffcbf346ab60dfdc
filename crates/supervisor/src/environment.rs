//! The start environment: read once, copied out, then erased before the port opens.
//!
//! Invariant: without a boot key, a generation and a deadline there is no supervisor. A refusal names the variable
//! and the remedy, and never repeats a secret's value.

use crate::limits;
use ringfence_wire::supervisor::{ExecutionIdentity, PORT, start_env};
use std::path::PathBuf;

/// The key the object proves itself with. Not printable by accident.
pub struct BootKey(Vec<u8>);

impl std::fmt::Debug for BootKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootKey(…)")
    }
}

impl BootKey {
    pub const BYTES: usize = 32;

    /// Constant-time comparison with what a request carries.
    pub fn admits(&self, offered: &[u8]) -> bool {
        use subtle::ConstantTimeEq;
        let mut decoded = [0u8; Self::BYTES];
        hex::decode_to_slice(offered, &mut decoded).is_ok() && bool::from(self.0.as_slice().ct_eq(&decoded))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobUser {
    /// Another uid where the user namespace maps one.
    Separate,
    Root,
}

#[derive(Debug)]
pub struct StartEnvironment {
    pub boot_key: BootKey,
    pub generation: u64,
    pub deadline_at_ms: u64,
    pub port: u16,
    pub job_user: JobUser,
    pub identity: Option<ExecutionIdentity>,
    pub workspace: PathBuf,
    pub artifacts: PathBuf,
    pub run: PathBuf,
    pub max_jobs: usize,
    /// What jobs are given of it: the image's PATH, its language and where it looks for certificates.
    pub passed_on: Vec<(String, String)>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StartRefused {
    #[error("{0} is not set: the Sandbox object passes it when it starts the container")]
    Missing(&'static str),
    #[error("{name} must be {expected}")]
    Malformed { name: &'static str, expected: &'static str },
}

/// Variables of the container that jobs inherit. Everything else stays with the supervisor.
const PASSED_ON: [&str; 11] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
];

impl StartEnvironment {
    pub fn read(look_up: impl Fn(&str) -> Option<String>) -> Result<Self, StartRefused> {
        let required = |name| look_up(name).ok_or(StartRefused::Missing(name));
        let number = |name, text: &str| {
            text.parse::<u64>().map_err(|_| StartRefused::Malformed { name, expected: "a decimal number" })
        };
        let key = hex::decode(required(start_env::BOOT_KEY)?).ok().filter(|key| key.len() == BootKey::BYTES);
        let directory = |name, default: &str| match look_up(name) {
            None => Ok(PathBuf::from(default)),
            Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
            Some(_) => Err(StartRefused::Malformed { name, expected: "an absolute path" }),
        };
        Ok(Self {
            boot_key: BootKey(key.ok_or(StartRefused::Malformed {
                name: start_env::BOOT_KEY,
                expected: "32 bytes in hexadecimal",
            })?),
            generation: number(start_env::GENERATION, &required(start_env::GENERATION)?)?,
            deadline_at_ms: number(start_env::DEADLINE_MS, &required(start_env::DEADLINE_MS)?)?,
            port: match look_up(start_env::PORT) {
                None => PORT,
                Some(text) => text
                    .parse()
                    .map_err(|_| StartRefused::Malformed { name: start_env::PORT, expected: "a TCP port" })?,
            },
            job_user: match look_up(start_env::JOB_USER).as_deref() {
                None | Some("separate") => JobUser::Separate,
                Some("root") => JobUser::Root,
                Some(_) => {
                    return Err(StartRefused::Malformed {
                        name: start_env::JOB_USER,
                        expected: "`separate` or `root`",
                    });
                }
            },
            identity: match look_up(start_env::IDENTITY).as_deref() {
                None => None,
                Some("sandboxed_workspace") => Some(ExecutionIdentity::SandboxedWorkspace),
                Some("host_unsandboxed") => Some(ExecutionIdentity::HostUnsandboxed),
                Some(_) => {
                    return Err(StartRefused::Malformed {
                        name: start_env::IDENTITY,
                        expected: "`sandboxed_workspace` or `host_unsandboxed`",
                    });
                }
            },
            workspace: directory(start_env::WORKSPACE, "/workspace")?,
            artifacts: directory(start_env::ARTIFACTS, "/artifacts")?,
            run: directory(start_env::RUN, "/run/ringfence")?,
            max_jobs: match look_up(start_env::MAX_JOBS) {
                None => limits::DEFAULT_RUNNING_JOBS,
                Some(text) => {
                    text.parse().ok().filter(|jobs| (1..=limits::MAX_RUNNING_JOBS).contains(jobs)).ok_or(
                        StartRefused::Malformed {
                            name: start_env::MAX_JOBS,
                            expected: "a number from 1 to 1024",
                        },
                    )?
                }
            },
            passed_on: PASSED_ON
                .iter()
                .filter_map(|name| look_up(name).map(|value| ((*name).to_owned(), value)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(changes: &[(&str, Option<&str>)]) -> Result<StartEnvironment, StartRefused> {
        let mut given: HashMap<String, String> = HashMap::from([
            (start_env::BOOT_KEY.into(), "ab".repeat(32)),
            (start_env::GENERATION.into(), "3".into()),
            (start_env::DEADLINE_MS.into(), "1000".into()),
        ]);
        for (name, value) in changes {
            match value {
                Some(value) => given.insert((*name).into(), (*value).into()),
                None => given.remove(*name),
            };
        }
        StartEnvironment::read(|name| given.get(name).cloned())
    }

    fn refusal(changes: &[(&str, Option<&str>)]) -> String {
        read(changes).expect_err("refused").to_string()
    }

    #[test]
    fn each_required_variable_is_named_when_it_is_missing() {
        for name in [start_env::BOOT_KEY, start_env::GENERATION, start_env::DEADLINE_MS] {
            assert!(refusal(&[(name, None)]).starts_with(&format!("{name} is not set")));
        }
    }

    #[test]
    fn a_malformed_variable_is_named_with_what_it_should_be_and_a_key_is_never_repeated() {
        let short = "cd".repeat(31);
        let message = refusal(&[(start_env::BOOT_KEY, Some(&short))]);
        assert_eq!(message, "RINGFENCE_BOOT_KEY must be 32 bytes in hexadecimal");
        assert!(!message.contains(&short));
        for (name, bad) in [
            (start_env::GENERATION, "-1"),
            (start_env::DEADLINE_MS, "soon"),
            (start_env::PORT, "70000"),
            (start_env::JOB_USER, "nobody"),
            (start_env::IDENTITY, "legacy_unbound"),
            (start_env::WORKSPACE, "workspace"),
            (start_env::MAX_JOBS, "0"),
            (start_env::MAX_JOBS, "1025"),
        ] {
            assert!(refusal(&[(name, Some(bad))]).starts_with(&format!("{name} must be ")), "{name}");
        }
        assert_eq!(read(&[(start_env::MAX_JOBS, Some("1024"))]).map(|read| read.max_jobs), Ok(1024));
    }

    #[test]
    fn only_the_exact_key_is_admitted() {
        let key = read(&[]).expect("complete").boot_key;
        assert!(key.admits("ab".repeat(32).as_bytes()));
        assert!(key.admits("AB".repeat(32).as_bytes()));
        assert!(!key.admits("ab".repeat(31).as_bytes()));
        assert!(!key.admits("ab".repeat(33).as_bytes()));
        assert!(!key.admits("ac".repeat(32).as_bytes()));
        assert!(!key.admits(b""));
    }

    #[test]
    fn jobs_are_given_nothing_but_the_listed_variables() {
        let read = read(&[("PATH", Some("/image/bin")), ("AWS_SECRET", Some("x"))]).expect("complete");
        assert_eq!(read.passed_on, [("PATH".to_owned(), "/image/bin".to_owned())]);
    }
}
