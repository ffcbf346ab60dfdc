//! One hop: the decision itself.

use super::host::{folded, name};
use super::path::segments;
use super::sink::is_sink;
use super::{Credential, Denial, Grant, GrantedHost, Rule};
use serde::{Deserialize, Serialize};
use url::Url;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    /// Any other method (`CONNECT`, `TRACE`, one of somebody's own, one in lower case) is no method a rule can name.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}

/// One request of a chain of redirects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub method: Method,
    pub url: Url,
}

/// Which rule admits a hop, and what it brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted<'a> {
    pub host: &'a GrantedHost,
    pub rule: &'a Rule,
    /// To be added by the Worker, or the hop fails.
    pub credential: Option<&'a Credential>,
}

/// What no position forwards, whatever else is wrong with the request: an address, and a sink, which is one however the
/// rest of its URL is written.
pub fn forwardable(url: &Url) -> Result<(), Denial> {
    let host = name(url)?;
    if is_sink(&host, segments(url).as_deref().unwrap_or_default()) { Err(Denial::Sink) } else { Ok(()) }
}

/// May this hop be made under this grant? The reason of a denial is the last check that anything passed.
pub fn decide<'a>(grant: &'a Grant, hop: &Hop) -> Result<Admitted<'a>, Denial> {
    forwardable(&hop.url)?;
    let host = folded(&hop.url)?;
    let path = segments(&hop.url)?;
    let mut denial = Denial::Host;
    for granted in grant.hosts.iter().filter(|granted| granted.host.admits(&host)) {
        denial = further(denial, Denial::Method);
        for rule in granted.rules.iter().filter(|rule| rule.methods.contains(&hop.method)) {
            denial = further(denial, Denial::Path);
            if !rule.path.admits(&path) {
                continue;
            }
            denial = further(denial, Denial::Query);
            if rule.query.admits(&hop.url) {
                return Ok(Admitted { host: granted, rule, credential: granted.credential.as_ref() });
            }
        }
    }
    Err(denial)
}

fn further(a: Denial, b: Denial) -> Denial {
    let rank = |denial: Denial| match denial {
        Denial::Host => 0,
        Denial::Method => 1,
        Denial::Path => 2,
        _ => 3,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// Does a request that declares this much body fit the rule? Unknown is decided while it streams.
pub fn body_fits(rule: &Rule, declared: Option<u64>) -> Result<(), Denial> {
    match declared {
        Some(bytes) if bytes > rule.max_request_bytes => Err(Denial::BodyTooLarge),
        _ => Ok(()),
    }
}
