//! Profiles: named, reviewed sets of rules, compiled in from `profiles/*.json`.
//!
//! Their schema is [`Profile`]: an unknown field, a malformed host, path or credential, or a rule without its
//! reason fails the tests, so none is ever shipped.

use super::hop::Method;
use super::{Credential, HostPattern, PathPattern, Query};
use serde::{Deserialize, Serialize};

/// One thing a grant admits on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    pub methods: Vec<Method>,
    pub path: PathPattern,
    #[serde(default)]
    pub query: Query,
    /// The most a request may send. None for a rule that only reads.
    #[serde(default)]
    pub max_request_bytes: u64,
    /// Look into the request's body before it is sent on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspect: Option<Inspect>,
    /// For the reviewer, and for whoever asks which rule it was.
    pub why: String,
}

/// What a body is looked into for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inspect {
    /// A Git LFS batch that asks for downloads only.
    LfsDownload,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileHost {
    pub host: HostPattern,
    pub rules: Vec<Rule>,
    #[serde(default)]
    pub credential: Option<Credential>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    pub what: String,
    #[serde(default)]
    pub hosts: Vec<ProfileHost>,
    /// Rules for each host of the recipe's `targets`. A profile without them takes no targets.
    #[serde(default)]
    pub target_rules: Vec<Rule>,
}

const SOURCES: &[(&str, &str)] = &[
    ("public-repo-read", include_str!("../../profiles/public-repo-read.json")),
    ("js-install", include_str!("../../profiles/js-install.json")),
    ("rust-install", include_str!("../../profiles/rust-install.json")),
    ("browser-fetch", include_str!("../../profiles/browser-fetch.json")),
    ("cf-api", include_str!("../../profiles/cf-api.json")),
    ("github-api-read", include_str!("../../profiles/github-api-read.json")),
];

pub fn profile_names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(name, _)| *name)
}

/// The profile of this name. `None` for an unknown one.
pub fn profile(name: &str) -> Option<Profile> {
    let (_, text) = SOURCES.iter().find(|(known, _)| *known == name)?;
    parse(text).ok()
}

pub(super) fn parse(text: &str) -> serde_json::Result<Profile> {
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::super::sink::is_sink;
    use super::*;

    #[test]
    fn every_profile_is_well_formed_and_says_why() {
        for (name, text) in SOURCES {
            let profile = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, *name);
            assert!(!profile.what.is_empty());
            assert!(!profile.hosts.is_empty() || !profile.target_rules.is_empty(), "{name} grants nothing");
            let rules = profile.hosts.iter().flat_map(|host| &host.rules).chain(&profile.target_rules);
            for rule in rules {
                assert!(!rule.methods.is_empty() && !rule.why.is_empty(), "{name} {}", rule.path.as_str());
                let reads = rule.methods.iter().all(|m| matches!(m, Method::Get | Method::Head));
                assert_eq!(reads, rule.max_request_bytes == 0, "{name} {}", rule.path.as_str());
            }
            for host in &profile.hosts {
                assert!(!host.rules.is_empty(), "{name} {}", host.host);
                assert!(!is_sink(host.host.as_str().trim_start_matches("*."), &[]), "{name} {}", host.host);
                if let Some(credential) = &host.credential {
                    assert_eq!(credential.check(), Ok(()), "{name} {}", host.host);
                    assert_eq!(credential.host, host.host, "{name}");
                }
            }
        }
    }

    #[test]
    fn the_six_are_there_and_nothing_else_is_a_profile() {
        assert_eq!(profile_names().filter(|name| profile(name).is_some()).count(), 6);
        assert_eq!(profile("no-such"), None);
        assert_eq!(profile("JS-install"), None);
    }

    #[test]
    fn a_profile_with_a_field_its_schema_does_not_know_is_refused() {
        let with = |extra: &str| parse(&format!(r#"{{"name":"x","what":"y","hosts":[]{extra}}}"#));
        assert!(with("").is_ok());
        assert!(with(r#","host":[]"#).is_err());
        assert!(with(r#","targetRules":[{"methods":["GET"],"path":"a","why":"z"}]"#).is_err());
        assert!(with(r#","targetRules":[{"methods":["get"],"path":"/","why":"z"}]"#).is_err());
        assert!(with(r#","targetRules":[{"methods":["GET"],"path":"/"}]"#).is_err());
    }
}
