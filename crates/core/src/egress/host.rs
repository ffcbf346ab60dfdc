//! Hosts: is the request's host the granted one?
//!
//! Both sides are folded (case, one trailing dot, the default port) and then compared whole. A leading `*.` stands
//! for exactly one label. Nothing else in a pattern is special.

use super::Denial;
use serde::{Deserialize, Serialize};
use std::fmt;
use url::{Host, Url};

pub const MAX_HOST_BYTES: usize = 253;

/// A granted host: `github.com`, or `*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a host is a name like example.com, or *.example.com for one label more; no scheme, port, path or address"
)]
pub struct HostPatternFault;

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, HostPatternFault> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("*.").unwrap_or(&lower);
        // A star needs two labels under it: `*.com` is nobody's to grant.
        let labels = name.split('.').count();
        if name.len() > MAX_HOST_BYTES || labels < 2 || !name.split('.').all(is_label) {
            return Err(HostPatternFault);
        }
        // What a URL parser would read as an address is none of ours.
        match Host::parse(name) {
            Ok(Host::Domain(domain)) if domain == name => Ok(Self(lower)),
            _ => Err(HostPatternFault),
        }
    }

    /// Is this folded host the granted one?
    pub fn admits(&self, host: &str) -> bool {
        match self.0.strip_prefix("*.") {
            Some(parent) => {
                host.split_once('.').is_some_and(|(label, rest)| is_label(label) && rest == parent)
            }
            None => host == self.0,
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostPatternFault;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.0
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// The folded name of a URL's host, whatever else the URL is. An address is none, and neither is this machine's own name:
/// no position forwards to either, since what answers there was never meant for a sandbox.
pub fn name(url: &Url) -> Result<String, Denial> {
    match url.host() {
        Some(Host::Domain(name)) => {
            let lower = name.to_ascii_lowercase();
            let folded = lower.strip_suffix('.').unwrap_or(&lower);
            match folded.rsplit('.').next() {
                Some("localhost") => Err(Denial::Address),
                _ if folded.split('.').any(str::is_empty) => Err(Denial::Host),
                _ => Ok(folded.to_owned()),
            }
        }
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => Err(Denial::Address),
        None => Err(Denial::Host),
    }
}

/// The folded host of a URL that may be asked for at all: https, a name, the default port, no user.
pub fn folded(url: &Url) -> Result<String, Denial> {
    if url.scheme() != "https" {
        return Err(Denial::NotHttps);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Denial::UserInfo);
    }
    if url.port_or_known_default() != Some(443) {
        return Err(Denial::Port);
    }
    name(url)
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fold(url: &str) -> Result<String, Denial> {
        folded(&Url::parse(url).unwrap())
    }

    #[test]
    fn what_is_not_a_plain_https_name_is_denied_for_what_it_is() {
        assert_eq!(fold("http://github.com/"), Err(Denial::NotHttps));
        assert_eq!(fold("ws://github.com/"), Err(Denial::NotHttps));
        assert_eq!(fold("https://github.com@evil.test/"), Err(Denial::UserInfo));
        assert_eq!(fold("https://:x@github.com/"), Err(Denial::UserInfo));
        assert_eq!(fold("https://github.com:444/"), Err(Denial::Port));
        for address in
            ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:169.254.169.254]", "169.254.169.254"]
        {
            assert_eq!(fold(&format!("https://{address}/")), Err(Denial::Address), "{address}");
        }
    }

    #[test]
    fn case_one_trailing_dot_and_the_default_port_fold() {
        for url in ["https://GitHub.COM/", "https://github.com./", "https://github.com:443/"] {
            assert_eq!(fold(url).as_deref(), Ok("github.com"), "{url}");
        }
        for url in ["https://github.com../", "https://./", "https://a..b/"] {
            assert_eq!(fold(url), Err(Denial::Host), "{url}");
        }
    }

    #[test]
    fn a_name_in_another_alphabet_is_its_own_name() {
        let folded = fold("https://g\u{456}thub.com/").unwrap();
        assert!(folded.starts_with("xn--"), "{folded}");
        assert!(!HostPattern::parse("github.com").unwrap().admits(&folded));
        // Full-width letters are the same name by the standard's own mapping.
        assert_eq!(fold("https://ｇithub.com/").as_deref(), Ok("github.com"));
    }

    #[test]
    fn a_pattern_is_a_name_and_nothing_more() {
        for good in ["example.com", "*.example.com", "a-b.example.co.uk", "EXAMPLE.com"] {
            assert!(HostPattern::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "*",
            "*.com",
            "com",
            "https://a.b",
            "a.b/c",
            "a.b:443",
            "a..b",
            ".a.b",
            "a.b.",
            "*.*.a.b",
            "a.*.b",
            "127.0.0.1",
            "1.2",
            "[::1]",
            "a b.c",
            "-a.b",
            "é.com",
        ] {
            assert_eq!(HostPattern::parse(bad), Err(HostPatternFault), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_exact_pattern_admits_its_own_name_only(host in "[a-z0-9.*-]{0,30}") {
            prop_assert_eq!(HostPattern::parse("api.example.com").unwrap().admits(&host), host == "api.example.com");
        }

        #[test]
        fn a_star_admits_exactly_one_label(labels in prop::collection::vec("[a-z0-9]{1,8}", 0..4)) {
            let host = labels.iter().map(String::as_str).chain(["example", "com"]).collect::<Vec<_>>().join(".");
            prop_assert_eq!(HostPattern::parse("*.example.com").unwrap().admits(&host), labels.len() == 1);
        }

        #[test]
        fn no_url_panics_or_folds_to_what_is_not_its_host(text in "https://[ -~]{0,40}") {
            if let Ok(url) = Url::parse(&text) && let Ok(host) = folded(&url) {
                let again = Url::parse(&format!("https://{host}/")).unwrap();
                prop_assert_eq!(folded(&again), Ok(host));
            }
        }
    }
}
