//! The Worker's configuration, read from its bindings once per isolate.
//!
//! A missing or bad entry is an error that names it and the remedy, on every call; never an open gate.
//! Messages name entries and places in them, never their values: some are secrets.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ringfence_core::admission::{Pool, Pools, PoolsFault};
use ringfence_core::approval::{ExtraRules, ExtraRulesFault};
use ringfence_core::canary::{self, Settings, SettingsFault};
use ringfence_core::egress;
use ringfence_core::key;
use ringfence_core::ticket::{Secrets, SecretsFault};
use ringfence_core::times::{Times, TimesFault};
use ringfence_wire::ids::ConsumerName;
use ringfence_wire::refusal::{Refusal, RefusalKind};
use serde::Deserialize;
use worker::Env;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Secrets(#[from] SecretsFault),
    #[error(transparent)]
    FloorRules(#[from] ExtraRulesFault),
    #[error(transparent)]
    Pools(#[from] PoolsFault),
    #[error(transparent)]
    Times(#[from] TimesFault),
    #[error(transparent)]
    Canary(#[from] SettingsFault),
    #[error("{entry} {fault}; {remedy}")]
    Entry { entry: &'static str, fault: String, remedy: &'static str },
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::new(RefusalKind::SandboxUnavailable, format!("the Worker is not configured: {error}"))
            .reason("configuration")
    }
}

/// The ways into the facade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Face {
    Rpc,
    Http,
}

impl std::fmt::Display for Face {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rpc => "rpc",
            Self::Http => "http",
        })
    }
}

/// What one consumer may do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerEntry {
    pub faces: Vec<Face>,
    /// The egress profiles it may select; absent: all.
    #[serde(default)]
    pub profiles: Option<Vec<String>>,
    /// The pool of its sandboxes, unless a recipe's profiles ask for another; absent: lean.
    #[serde(default)]
    pub pool: Option<Pool>,
}

pub struct Config {
    pub consumers: BTreeMap<ConsumerName, ConsumerEntry>,
    /// SHA-256 of each bearer token, and whose it is.
    pub tokens: Vec<([u8; 32], ConsumerName)>,
    pub secrets: Secrets,
    pub floor_rules: ExtraRules,
    pub pools: Pools,
    pub times: Times,
    pub canary: Settings,
}

const CONSUMERS: &str = "CONSUMERS";
const CONSUMERS_REMEDY: &str = r#"set the variable to JSON like {"dispatcher":{"faces":["rpc","http"]}}"#;
const API_TOKENS: &str = "API_TOKENS";
const API_TOKENS_REMEDY: &str = r#"set the secret to JSON like {"<SHA-256 of the token, 64 hex digits>":"dispatcher"}, or leave it unset"#;
const POOLS: &str = "POOLS";
const TIMES: &str = "TIMES";
const CANARY: &str = "CANARY";
const FLOOR_RULES: &str = "FLOOR_RULES";
const TICKET_SECRETS: &str = "TICKET_SECRETS";
/// Where a test build finds its origins; any other build must not be given it.
#[cfg(not(feature = "test-origins"))]
const EGRESS_ORIGINS: &str = "EGRESS_ORIGINS";

thread_local! {
    /// One Worker version has one set of bindings, so an isolate reads them once.
    static CONFIG: OnceCell<Result<Rc<Config>, ConfigError>> = const { OnceCell::new() };
}

impl Config {
    pub fn of(env: &Env) -> Result<Rc<Self>, ConfigError> {
        CONFIG.with(|cell| cell.get_or_init(|| Self::read(env).map(Rc::new)).clone())
    }

    fn read(env: &Env) -> Result<Self, ConfigError> {
        #[cfg(not(feature = "test-origins"))]
        if text(env, EGRESS_ORIGINS).is_some() {
            return Err(ConfigError::Entry {
                entry: EGRESS_ORIGINS,
                fault: "is for test builds alone".to_owned(),
                remedy: "remove the variable",
            });
        }
        let consumers = parse_consumers(text(env, CONSUMERS).as_deref())?;
        let tokens = parse_tokens(text(env, API_TOKENS).as_deref(), &consumers)?;
        let secrets = Secrets::parse(text(env, TICKET_SECRETS).as_deref())?;
        let floor_rules = ExtraRules::parse(text(env, FLOOR_RULES).as_deref())?;
        let pools = Pools::parse(text(env, POOLS).as_deref())?;
        let times = Times::parse(text(env, TIMES).as_deref())?;
        let canary = Settings::parse(text(env, CANARY).as_deref())?;
        Ok(Self { consumers, tokens, secrets, floor_rules, pools, times, canary })
    }

    #[cfg(test)]
    pub fn for_tests(consumers: &str, tokens: &str) -> Self {
        let consumers = parse_consumers(Some(consumers)).unwrap();
        let tokens = parse_tokens(Some(tokens), &consumers).unwrap();
        let secrets = Secrets::new(vec!["s".repeat(32)]).unwrap();
        let (floor_rules, pools, times, canary) = Default::default();
        Self { consumers, tokens, secrets, floor_rules, pools, times, canary }
    }
}

/// A variable and a secret of one name are the same binding; a variable may be a text of JSON or JSON itself.
fn text(env: &Env, entry: &str) -> Option<String> {
    let value = js_sys::Reflect::get(env, &entry.into()).ok()?;
    let text = match value.as_string() {
        Some(text) => text,
        None if value.is_object() => js_sys::JSON::stringify(&value).ok()?.into(),
        None => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn parse_consumers(json: Option<&str>) -> Result<BTreeMap<ConsumerName, ConsumerEntry>, ConfigError> {
    let error = |fault: String| ConfigError::Entry { entry: CONSUMERS, fault, remedy: CONSUMERS_REMEDY };
    let json = json.ok_or_else(|| error("is not set".to_owned()))?;
    let consumers: BTreeMap<ConsumerName, ConsumerEntry> =
        serde_json::from_str(json).map_err(|fault| error(format!("is malformed: {fault}")))?;
    for name in consumers.keys() {
        key::parse_consumer(name.as_str()).map_err(|fault| error(format!("names {name:?}: {fault}")))?;
        if name.as_str() == canary::CONSUMER {
            return Err(error(format!("names {name:?}, which is the canary's own")));
        }
    }
    let selectable = consumers.values().filter_map(|entry| entry.profiles.as_deref()).flatten();
    for name in selectable {
        if egress::profile(name).is_none() {
            return Err(error(format!("lets {name:?} be selected, which is no profile")));
        }
    }
    Ok(consumers)
}

/// Absent: no token is good.
fn parse_tokens(
    json: Option<&str>,
    consumers: &BTreeMap<ConsumerName, ConsumerEntry>,
) -> Result<Vec<([u8; 32], ConsumerName)>, ConfigError> {
    let error = |fault: String| ConfigError::Entry { entry: API_TOKENS, fault, remedy: API_TOKENS_REMEDY };
    let Some(json) = json else { return Ok(Vec::new()) };
    // Serde's message could quote a token that was put where its hash belongs.
    let tokens: BTreeMap<String, ConsumerName> =
        serde_json::from_str(json).map_err(|_| error("is not a JSON object of texts".to_owned()))?;
    let mut parsed = Vec::with_capacity(tokens.len());
    for (index, (hash, consumer)) in tokens.into_iter().enumerate() {
        let mut digest = [0; 32];
        hex::decode_to_slice(&hash, &mut digest).map_err(|_| {
            error(format!("has a key that is not the SHA-256 of a token, entry {}", index + 1))
        })?;
        if !consumers.contains_key(&consumer) {
            return Err(error(format!("names the consumer {consumer:?}, which CONSUMERS does not list")));
        }
        parsed.push((digest, consumer));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumers(json: &str) -> Result<BTreeMap<ConsumerName, ConsumerEntry>, String> {
        parse_consumers(Some(json)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_missing_entry_is_named_with_its_remedy() {
        let error = parse_consumers(None).unwrap_err().to_string();
        assert!(error.contains("CONSUMERS is not set; set the variable to JSON like"), "{error}");
    }

    #[test]
    fn a_typo_in_an_entry_is_an_error_and_never_ignored() {
        assert!(consumers(r#"{"ci":{"faces":["grpc"]}}"#).unwrap_err().contains("grpc"));
        assert!(consumers(r#"{"ci":{"faces":["rpc"],"profile":[]}}"#).unwrap_err().contains("profile"));
        assert!(consumers(r#"{"a:b":{"faces":["rpc"]}}"#).unwrap_err().contains("a:b"));
        let profile =
            |name: &str| consumers(&format!(r#"{{"ci":{{"faces":["rpc"],"profiles":["{name}"]}}}}"#));
        assert!(profile("js-instal").unwrap_err().contains("js-instal"));
        assert!(profile("js-install").is_ok());
        assert!(consumers("[]").is_err());
    }

    #[test]
    fn the_canarys_name_is_nobody_elses() {
        assert!(consumers(r#"{"_canary":{"faces":["http"]}}"#).unwrap_err().contains("_canary"));
    }

    #[test]
    fn a_bad_token_entry_is_refused_without_showing_it() {
        let known = consumers(r#"{"ci":{"faces":["http"]}}"#).unwrap();
        let error = |json: &str| parse_tokens(Some(json), &known).unwrap_err().to_string();
        for bad in [r#"{"hunter2":"ci"}"#, r#"{"hunter2":5}"#, r#"["hunter2"]"#] {
            assert!(!error(bad).contains("hunter2"), "{}", error(bad));
        }
        let hash = "ab".repeat(32);
        assert!(error(&format!(r#"{{"{hash}":"nobody"}}"#)).contains("nobody"));
        assert_eq!(parse_tokens(Some(&format!(r#"{{"{hash}":"ci"}}"#)), &known).unwrap().len(), 1);
        assert_eq!(parse_tokens(None, &known).unwrap().len(), 0);
    }
}
