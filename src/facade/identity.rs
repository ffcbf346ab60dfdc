//! Who calls: from the binding's props over RPC, from the bearer token over HTTP; never from a payload.
//!
//! A consumer must be listed in `CONSUMERS` with the face it comes by.

use ringfence_core::admission::Pool;
use ringfence_core::key;
use ringfence_wire::ids::ConsumerName;
use ringfence_wire::refusal::{Refusal, RefusalKind};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{Config, Face};

/// A caller whose right to this face was checked.
#[derive(Clone, Debug)]
pub struct Caller {
    pub consumer: ConsumerName,
    /// The egress profiles it may select; absent: all.
    pub profiles: Option<Vec<String>>,
    /// The pool its configuration names.
    pub pool: Option<Pool>,
}

/// The caller of a service binding whose reviewed configuration says `props = { consumer = "…" }`.
pub fn by_binding(config: &Config, consumer: Option<String>) -> Result<Caller, Refusal> {
    const FIELD: &str = "props.consumer";
    let Some(consumer) = consumer else {
        return Err(unknown(format!(
            "the service binding says no {FIELD}; add props = {{ consumer = \"its-name\" }} to it in the calling \
             Worker's configuration"
        ))
        .field(FIELD));
    };
    let consumer = key::parse_consumer(&consumer).map_err(|fault| {
        unknown(format!("the service binding's {FIELD} is no consumer's name: {fault}")).field(FIELD)
    })?;
    listed(config, consumer, Face::Rpc)
}

/// Why a request over HTTP has no caller.
#[derive(Debug)]
pub enum TokenFault {
    /// No token, or one that is not known.
    Unauthorized,
    /// The token is good; its consumer may not use this face.
    Refused(Refusal),
}

/// The caller whose token is in this `Authorization` header.
pub fn by_token(config: &Config, authorization: Option<&str>) -> Result<Caller, TokenFault> {
    let token = authorization.and_then(bearer).ok_or(TokenFault::Unauthorized)?;
    let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    // Every entry is compared in full, so the time taken says nothing about which one came near.
    let mut found = None;
    for (known, consumer) in &config.tokens {
        if bool::from(known.ct_eq(&digest)) {
            found = Some(consumer);
        }
    }
    let consumer = found.ok_or(TokenFault::Unauthorized)?.clone();
    listed(config, consumer, Face::Http).map_err(TokenFault::Refused)
}

fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn listed(config: &Config, consumer: ConsumerName, face: Face) -> Result<Caller, Refusal> {
    match config.consumers.get(&consumer) {
        Some(entry) if entry.faces.contains(&face) => {
            Ok(Caller { consumer, profiles: entry.profiles.clone(), pool: entry.pool })
        }
        Some(_) => Err(unknown(format!(
            "the consumer {consumer} may not use this face; add \"{face}\" to its faces in CONSUMERS"
        ))),
        None => Err(unknown(format!("the consumer {consumer} is not listed in CONSUMERS"))),
    }
}

fn unknown(message: String) -> Refusal {
    Refusal::new(RefusalKind::TicketRejected, message).reason("unknown-consumer")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "correct horse battery staple";

    fn config() -> Config {
        let hash = hex::encode(Sha256::digest(TOKEN.as_bytes()));
        Config::for_tests(
            r#"{"web":{"faces":["http"]},"ci":{"faces":["rpc"]},"both":{"faces":["rpc","http"],"profiles":["js-install"]}}"#,
            &format!(r#"{{"{hash}":"web","{}":"ci"}}"#, "ab".repeat(32)),
        )
    }

    #[test]
    fn a_binding_without_a_consumer_is_refused_with_the_remedy() {
        let refusal = by_binding(&config(), None).unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("props.consumer"));
        assert!(refusal.message.contains("props = { consumer ="), "{}", refusal.message);
    }

    #[test]
    fn a_name_that_could_be_glued_into_another_is_no_consumer() {
        assert_eq!(
            by_binding(&config(), Some("a:b".into())).unwrap_err().field.as_deref(),
            Some("props.consumer")
        );
    }

    #[test]
    fn a_consumer_must_be_listed_with_the_face_it_comes_by() {
        assert_eq!(by_binding(&config(), Some("ci".into())).unwrap().consumer, "ci".into());
        assert_eq!(
            by_binding(&config(), Some("both".into())).unwrap().profiles,
            Some(vec!["js-install".to_owned()])
        );
        assert!(by_binding(&config(), Some("web".into())).unwrap_err().message.contains("add \"rpc\""));
        assert!(by_binding(&config(), Some("stranger".into())).unwrap_err().message.contains("not listed"));
    }

    #[test]
    fn a_known_token_is_its_consumer_and_no_other_text_is() {
        let known = format!("bEaReR {TOKEN}");
        assert_eq!(by_token(&config(), Some(&known)).unwrap().consumer, "web".into());
        for bad in [None, Some(""), Some(TOKEN), Some("Bearer"), Some("Bearer "), Some("Basic correct horse")]
        {
            assert!(matches!(by_token(&config(), bad), Err(TokenFault::Unauthorized)), "{bad:?}");
        }
        let shorter = format!("Bearer {}", &TOKEN[1..]);
        assert!(matches!(by_token(&config(), Some(&shorter)), Err(TokenFault::Unauthorized)));
    }
}
