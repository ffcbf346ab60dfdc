//! One request as it is asked for, in texts: parsed, and then decided. The object and `ringfence egress check` both ask
//! here, so a dry run says what a run does.

use super::hop::{Admitted, Hop, Method, body_fits, decide};
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
    if asked.upgrade {
        return Err(Denial::Upgrade);
    }
    let url = Url::parse(asked.url).map_err(|_| Denial::Host)?;
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
    fn a_declared_body_is_held_to_the_rule_that_admits_the_request() {
        let grant = grant();
        let admitted = judge(&grant, &post(None)).unwrap();
        let most = admitted.rule.max_request_bytes;
        assert_eq!(admitted.host.host.as_str(), "github.com");
        assert!(judge(&grant, &post(Some(most))).is_ok());
        assert_eq!(judge(&grant, &post(Some(most + 1))), Err(Denial::BodyTooLarge));
    }
}
