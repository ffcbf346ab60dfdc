//! Denials: why a request was refused, what a position makes of it, and how it is recorded.
//!
//! A denial's name stands in the record for its owner. The container never sees one.

use ringfence_wire::contract::{DenialEvent, Enforcement};
use url::Url;

pub const MAX_RECORDED_PATH_BYTES: usize = 256;
pub const MAX_RECORDED_HOST_BYTES: usize = 253;

/// Which rule refused. The display text explains it to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denial {
    #[error("no grant is open")]
    NoGrant,
    #[error("only https may be asked for")]
    NotHttps,
    #[error("the URL carries a user name or a password")]
    UserInfo,
    #[error("the host is an address, or a name of the machine itself; only names can be granted")]
    Address,
    #[error("the port is not 443")]
    Port,
    #[error("the place publishes what it is sent; no profile grants it")]
    Sink,
    #[error("no profile of this grant names the host")]
    Host,
    #[error("the host is granted, but not for this method")]
    Method,
    #[error("the host and method are granted, but not for this path")]
    Path,
    #[error("the path is longer than any rule admits")]
    PathTooLong,
    #[error("the path can be read in more than one way")]
    PathAmbiguous,
    #[error("the path is granted, but not with this query string")]
    Query,
    #[error("the request's body is over the rule's limit")]
    BodyTooLarge,
    #[error("the request asks to upload, and the rule admits downloads")]
    UploadIntent,
    #[error("a change of protocol was asked for")]
    Upgrade,
    #[error("more redirects than are followed")]
    TooManyRedirects,
    #[error("a redirect leads back to where it came from")]
    RedirectLoop,
    #[error("a redirect has no target that can be read")]
    BadRedirect,
    #[error("a redirect asks for a body that was already sent on")]
    RedirectBody,
    #[error("the credential for this host cannot be used")]
    Credential,
    #[error("the grant was revoked while the request was under way")]
    Cut,
}

impl Denial {
    pub fn name(self) -> &'static str {
        match self {
            Self::NoGrant => "no-grant",
            Self::NotHttps => "not-https",
            Self::UserInfo => "user-info",
            Self::Address => "address",
            Self::Port => "port",
            Self::Sink => "sink",
            Self::Host => "host",
            Self::Method => "method",
            Self::Path => "path",
            Self::PathTooLong => "path-too-long",
            Self::PathAmbiguous => "path-ambiguous",
            Self::Query => "query",
            Self::BodyTooLarge => "body-too-large",
            Self::UploadIntent => "upload-intent",
            Self::Upgrade => "upgrade",
            Self::TooManyRedirects => "too-many-redirects",
            Self::RedirectLoop => "redirect-loop",
            Self::BadRedirect => "bad-redirect",
            Self::RedirectBody => "redirect-body",
            Self::Credential => "credential",
            Self::Cut => "cut",
        }
    }

    /// Refused whatever the position: there is nothing to forward under, or it must never be forwarded.
    fn always(self) -> bool {
        matches!(self, Self::NoGrant | Self::Address | Self::Sink | Self::Credential | Self::Cut)
    }
}

/// What is done about a decision, by the grant's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Forward,
    /// Forwarded, and recorded under this reason.
    ForwardAndRecord(String),
    /// Refused, and recorded under this reason.
    Refuse(&'static str),
}

/// Enforce refuses, report forwards and records what enforce would have refused, legacy forwards.
pub fn act<T>(position: Enforcement, decision: &Result<T, Denial>) -> Action {
    match (decision, position) {
        (Ok(_), _) => Action::Forward,
        (Err(denial), _) if denial.always() => Action::Refuse(denial.name()),
        (Err(denial), Enforcement::Enforce) => Action::Refuse(denial.name()),
        (Err(denial), Enforcement::Report) => {
            Action::ForwardAndRecord(format!("would-deny: {}", denial.name()))
        }
        (Err(_), Enforcement::Legacy) => Action::Forward,
    }
}

/// The record of one denial: query strings dropped, everything bounded.
pub fn event(method: &str, url: &Url, reason: &str) -> DenialEvent {
    DenialEvent {
        host: bounded(url.host_str().unwrap_or_default(), MAX_RECORDED_HOST_BYTES),
        method: bounded(method, 16),
        path: bounded(url.path(), MAX_RECORDED_PATH_BYTES),
        reason: reason.to_owned(),
        count: 1,
    }
}

/// Cut at a character, on bytes.
fn bounded(text: &str, max: usize) -> String {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_does_its_own_with_a_denial() {
        let denied: Result<(), Denial> = Err(Denial::Host);
        assert_eq!(act(Enforcement::Enforce, &denied), Action::Refuse("host"));
        assert_eq!(act(Enforcement::Report, &denied), Action::ForwardAndRecord("would-deny: host".into()));
        assert_eq!(act(Enforcement::Legacy, &denied), Action::Forward);
        for position in [Enforcement::Enforce, Enforcement::Report, Enforcement::Legacy] {
            assert_eq!(act(position, &Ok(())), Action::Forward);
        }
    }

    #[test]
    fn a_sink_an_address_and_a_missing_grant_are_refused_in_every_position() {
        for position in [Enforcement::Enforce, Enforcement::Report, Enforcement::Legacy] {
            for denial in [Denial::Sink, Denial::Address, Denial::NoGrant, Denial::Credential, Denial::Cut] {
                assert_eq!(act::<()>(position, &Err(denial)), Action::Refuse(denial.name()));
            }
        }
    }

    #[test]
    fn a_record_has_no_query_and_is_bounded() {
        let url = Url::parse(&format!("https://h.test/{}?token=s3cret#f", "é".repeat(400))).unwrap();
        let event = event("GET", &url, "host");
        assert!(event.path.len() <= MAX_RECORDED_PATH_BYTES);
        assert!(!format!("{event:?}").contains("s3cret"));
    }
}
