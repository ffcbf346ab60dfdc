//! Grants: what one exec may reach, composed from its recipe.
//!
//! Invariants: no repository and no profile is no egress; a repository's grant is for the recipe's repository and
//! no other; rules for a host that is named twice are merged; a grant holds descriptors of credentials, never a
//! secret. It is plain data, so the object can hand it to the egress entrypoint.

use super::profile::{Inspect, Rule, profile, profile_names};
use super::{Credential, HostPattern, MAX_LFS_BATCH_BYTES, Method, PathPattern, Query};
use crate::recipe::FieldError;
use ringfence_wire::contract::{Enforcement, Granted, Recipe, Repo};
use serde::{Deserialize, Serialize};

const GIT_HOST: &str = "github.com";
const LFS_HOSTS: &[&str] = &["github-cloud.githubusercontent.com", "github-cloud.s3.amazonaws.com"];
/// What a fetch sends: the objects it wants and has.
const MAX_FETCH_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    pub position: Enforcement,
    pub hosts: Vec<GrantedHost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedHost {
    pub host: HostPattern,
    /// The profiles that named it, or `repository`.
    pub sources: Vec<Source>,
    pub rules: Vec<Rule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Source(pub String);

impl Grant {
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// What a receipt tells of it: each host with each profile that named it.
    pub fn granted(&self) -> Vec<Granted> {
        self.hosts
            .iter()
            .flat_map(|granted| {
                granted.sources.iter().map(|source| Granted {
                    host: granted.host.as_str().to_owned(),
                    profile: source.0.clone(),
                })
            })
            .collect()
    }

    fn add(&mut self, source: &str, host: HostPattern, rules: &[Rule], credential: Option<&Credential>) {
        let at = match self.hosts.iter().position(|granted| granted.host == host) {
            Some(at) => at,
            None => {
                let fresh = GrantedHost { host, sources: Vec::new(), rules: Vec::new(), credential: None };
                self.hosts.push(fresh);
                self.hosts.len() - 1
            }
        };
        let Some(granted) = self.hosts.get_mut(at) else { return };
        if !granted.sources.iter().any(|named| named.0 == source) {
            granted.sources.push(Source(source.to_owned()));
        }
        for rule in rules {
            if !granted.rules.contains(rule) {
                granted.rules.push(rule.clone());
            }
        }
        if granted.credential.is_none() {
            granted.credential = credential.cloned();
        }
    }
}

/// The grant that a clone of the recipe's repository runs under: that repository, to be read, and nothing else.
pub fn repository_grant(repo: &Repo, lfs: bool) -> Grant {
    let mut grant = Grant::default();
    add_repository(&mut grant, repo, lfs);
    grant
}

/// The grant of an exec with this recipe. `selectable`: the profiles its consumer may select, by configuration;
/// `None` for all. Who may select some only may enforce only: the other positions forward to any host. `lfs`: asked for
/// by the recipe or by the call.
pub fn compose(recipe: &Recipe, lfs: bool, selectable: Option<&[String]>) -> Result<Grant, FieldError> {
    let mut grant = Grant { position: recipe.enforcement.unwrap_or_default(), hosts: Vec::new() };
    if selectable.is_some() && grant.position != Enforcement::Enforce {
        return fault(
            "recipe.enforcement",
            "this consumer may only enforce: its CONSUMERS entry lists the profiles it may select, and the other \
             positions forward to any host",
        );
    }
    match (&recipe.repo, lfs) {
        (Some(repo), lfs) => add_repository(&mut grant, repo, lfs),
        (None, true) => return fault("recipe.lfs", "needs recipe.repo: large files are a repository's"),
        (None, false) => {}
    }
    let names = recipe.profiles.as_deref().unwrap_or_default();
    let targets = targets(recipe)?;
    let mut takes_targets = false;
    for (at, name) in names.iter().enumerate() {
        let field = format!("recipe.profiles[{at}]");
        let Some(profile) = profile(name) else {
            let known: Vec<&str> = profile_names().collect();
            return fault(field, format!("{name:?} is no profile; the profiles are {}", known.join(", ")));
        };
        if selectable.is_some_and(|selectable| !selectable.contains(name)) {
            return fault(field, "this consumer may not select it; its CONSUMERS entry lists what it may");
        }
        for host in &profile.hosts {
            grant.add(name, host.host.clone(), &host.rules, host.credential.as_ref());
        }
        if profile.target_rules.is_empty() {
            continue;
        }
        takes_targets = true;
        if targets.is_empty() {
            return fault("recipe.targets", format!("the profile {name} needs the hosts it may reach"));
        }
        for target in &targets {
            grant.add(name, target.clone(), &profile.target_rules, None);
        }
    }
    if !targets.is_empty() && !takes_targets {
        return fault(
            "recipe.targets",
            "none of the profiles takes targets; leave it out or add browser-fetch",
        );
    }
    Ok(grant)
}

fn targets(recipe: &Recipe) -> Result<Vec<HostPattern>, FieldError> {
    let texts = recipe.targets.as_deref().unwrap_or_default();
    let parsed = texts.iter().enumerate().map(|(at, text)| match HostPattern::parse(text) {
        Ok(host) => Ok(host),
        Err(error) => fault(format!("recipe.targets[{at}]"), error.to_string()),
    });
    parsed.collect()
}

fn add_repository(grant: &mut Grant, repo: &Repo, lfs: bool) {
    const SOURCE: &str = "repository";
    let Repo { owner, name, .. } = repo;
    let mut rules = Vec::new();
    // Git asks under either form of the name.
    for base in [format!("/{owner}/{name}"), format!("/{owner}/{name}.git")] {
        rules.extend(
            rule(&[Method::Get], &format!("{base}/info/refs"), "what the repository has")
                .map(|rule| Rule { query: Query::Exactly("service=git-upload-pack".into()), ..rule }),
        );
        rules.extend(
            rule(&[Method::Post], &format!("{base}/git-upload-pack"), "fetches objects")
                .map(|rule| Rule { max_request_bytes: MAX_FETCH_BYTES, ..rule }),
        );
        if lfs {
            let batch = format!("{base}/info/lfs/objects/batch");
            rules.extend(rule(&[Method::Post], &batch, "asks where large files are").map(|rule| Rule {
                max_request_bytes: MAX_LFS_BATCH_BYTES,
                inspect: Some(Inspect::LfsDownload),
                ..rule
            }));
        }
    }
    add_host(grant, SOURCE, GIT_HOST, &rules);
    if lfs {
        let reads = rule(&[Method::Get, Method::Head], "/**", "large files, under signed links");
        let reads: Vec<Rule> = reads.map(|rule| Rule { query: Query::Any, ..rule }).into_iter().collect();
        for host in LFS_HOSTS {
            add_host(grant, SOURCE, host, &reads);
        }
    }
}

fn add_host(grant: &mut Grant, source: &str, host: &str, rules: &[Rule]) {
    if let Ok(host) = HostPattern::parse(host) {
        grant.add(source, host, rules, None);
    }
}

/// A name that a pattern would read as more than itself gives no rule.
fn rule(methods: &[Method], path: &str, why: &str) -> Option<Rule> {
    let path = PathPattern::parse(path).ok().filter(|_| path == "/**" || !path.contains('*'))?;
    let methods = methods.to_vec();
    Some(Rule { methods, path, query: Query::None, max_request_bytes: 0, inspect: None, why: why.into() })
}

fn fault<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, FieldError> {
    Err(FieldError { field: field.into(), message: message.into() })
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;
