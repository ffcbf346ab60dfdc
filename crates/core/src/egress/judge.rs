//! One request as it is asked for, in texts: parsed, and then decided. The object and `ringfence egress check` both ask
//! here, so a dry run says what a run does.

use super::hop::{Admitted, Hop, Method, body_fits, decide, forwardable};
use super::{Denial, Grant};
use url::Url;

/// What is asked for. Nothing of it has been looked at.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub method: &'a str,
    pub url: &'a str,
    /// The length its body declares.
    pub declared_bytes: Option<u64>,
    /// It asks to change the protocol.
    pub upgrade: bool,
}

/// May it leave under this grant?
pub fn judge<'a>(grant: &'a Grant, asked: &Asked<'_>) -> Result<Admitted<'a>, Denial> {
    // No repository and no profile is no egress, whatever the position.
    if grant.is_empty() {
        return Err(Denial::NoGrant);
    }
    let url = Url::parse(asked.url).map_err(|_| Denial::Host)?;
    forwardable(&url)?;
    if asked.upgrade {
        return Err(Denial::Upgrade);
    }
    let method = Method::parse(asked.method).ok_or(Denial::Method)?;
    let admitted = decide(grant, &Hop { method, url })?;
    body_fits(admitted.rule, asked.declared_bytes)?;
    Ok(admitted)
}

#[cfg(test)]
mod tests {
    use super::super::repository_grant;
    use super::*;
    use ringfence_wire::contract::Repo;

    fn grant() -> Grant {
        repository_grant(&Repo { owner: "o".into(), name: "n".into(), reference: None }, false)
    }

    fn post(declared_bytes: Option<u64>) -> Asked<'static> {
        Asked {
            method: "POST",
            url: "https://github.com/o/n/git-upload-pack",
            declared_bytes,
            upgrade: false,
        }
    }

    #[test]
    fn an_empty_grant_admits_nothing_and_says_so() {
        assert_eq!(judge(&Grant::default(), &post(None)), Err(Denial::NoGrant));
    }

    #[test]
    fn a_request_is_denied_for_what_is_wrong_with_it_first() {
        let grant = grant();
        assert_eq!(judge(&grant, &Asked { upgrade: true, ..post(None) }), Err(Denial::Upgrade));
        assert_eq!(judge(&grant, &Asked { url: "github.com", ..post(None) }), Err(Denial::Host));
        assert_eq!(judge(&grant, &Asked { method: "post", ..post(None) }), Err(Denial::Method));
        assert_eq!(judge(&grant, &Asked { method: "TRACE", ..post(None) }), Err(Denial::Method));
    }

    #[test]
    fn an_address_and_a_sink_are_told_first_however_they_are_asked_for() {
        let grant = grant();
        let judged =
            |method, url, upgrade| judge(&grant, &Asked { method, url, declared_bytes: None, upgrade });
        for (url, denial) in [
            ("http://127.0.0.1:18990/a", Denial::Address),
            ("https://u@169.254.169.254/", Denial::Address),
            ("http://[::1]:1/", Denial::Address),
            ("http://2130706433/", Denial::Address),
            ("http://localhost:8787/", Denial::Address),
            ("https://LOCALHOST./", Denial::Address),
            ("ws://a.localhost/", Denial::Address),
            ("http://gist.github.com/", Denial::Sink),
            ("https://x.webhook.site:8443/", Denial::Sink),
        ] {
            for (method, upgrade) in [("GET", false), ("PROPFIND", false), ("GET", true)] {
                assert_eq!(judged(method, url, upgrade), Err(denial), "{method} {url} {upgrade}");
            }
        }
        assert_eq!(judged("GET", "https://notlocalhost/", false), Err(Denial::Host));
    }

    #[test]
    fn a_declared_body_is_held_to_the_rule_that_admits_the_request() {
        let grant = grant();
        let admitted = judge(&grant, &post(None)).unwrap();
        let most = admitted.rule.max_request_bytes;
        assert_eq!(admitted.host.host.as_str(), "github.com");
        assert!(judge(&grant, &post(Some(most))).is_ok());
        assert_eq!(judge(&grant, &post(Some(most + 1))), Err(Denial::BodyTooLarge));
    }
}
