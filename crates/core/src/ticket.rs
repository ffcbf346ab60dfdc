//! Tickets: what a sandbox must hold to boot. Minted by the facade once admission has said yes, verified by the
//! Sandbox object when stored and again at every boot.
//!
//! Format: `v1.<base64url claims>.<hex HMAC-SHA256>`. The HMAC is taken over `v1.<base64url claims>` and checked,
//! in constant time, before the claims are decoded: nothing unauthenticated is ever parsed. Everything fails
//! closed, and each way to fail has its own name.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;

pub const TICKET_TTL_MS: u64 = 10 * 60 * 1000;
/// No honest ticket comes near; a longer one is not looked into.
pub const MAX_TICKET_BYTES: usize = 1024;
pub const MIN_SECRET_BYTES: usize = 32;
/// One that signs and those it replaced, while tickets signed by them still live.
pub const MAX_SECRETS: usize = 4;
const SIGNATURE_HEX_BYTES: usize = 64;

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    pub pool: String,
    /// Milliseconds since the epoch. At exactly this instant the ticket has expired.
    pub expires_at: u64,
}

/// The five ways a ticket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketFault {
    #[error("no ticket: this call did not pass admission; call through the facade")]
    None,
    #[error("the ticket is malformed")]
    Malformed,
    #[error("the ticket failed verification: none of the current secrets signed it")]
    FailedVerification,
    #[error("the ticket was minted for another consumer or key")]
    AnotherExecution,
    #[error("the ticket has expired; call again to be admitted anew")]
    Expired,
}

impl TicketFault {
    /// The machine-readable reason, as it stands in a refusal.
    pub fn reason(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Malformed => "malformed",
            Self::FailedVerification => "failed-verification",
            Self::AnotherExecution => "another-execution",
            Self::Expired => "expired",
        }
    }
}

/// The ticket secrets, newest first. The newest signs; all verify, so that a rotation refuses nobody.
#[derive(Clone)]
pub struct Secrets(Vec<String>);

/// What is wrong with the configured secrets. Never a reason to go on without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsFault {
    #[error("TICKET_SECRETS is not set; set it to a JSON array of strings, newest first")]
    Missing,
    #[error("TICKET_SECRETS is not a JSON array of strings, newest first")]
    NotAnArray,
    #[error("TICKET_SECRETS is empty; it needs at least one secret")]
    Empty,
    #[error("TICKET_SECRETS holds more than {MAX_SECRETS} secrets; drop the oldest")]
    TooMany,
    #[error("TICKET_SECRETS[{index}] is shorter than {MIN_SECRET_BYTES} bytes; use `openssl rand -hex 32`")]
    Short { index: usize },
}

impl Secrets {
    /// From the configured JSON array of strings, newest first.
    pub fn parse(json: Option<&str>) -> Result<Self, SecretsFault> {
        let json = json.ok_or(SecretsFault::Missing)?;
        Self::new(serde_json::from_str(json).map_err(|_| SecretsFault::NotAnArray)?)
    }

    /// Newest first.
    pub fn new(secrets: Vec<String>) -> Result<Self, SecretsFault> {
        if secrets.is_empty() {
            return Err(SecretsFault::Empty);
        }
        if secrets.len() > MAX_SECRETS {
            return Err(SecretsFault::TooMany);
        }
        match secrets.iter().position(|secret| secret.len() < MIN_SECRET_BYTES) {
            Some(index) => Err(SecretsFault::Short { index }),
            None => Ok(Self(secrets)),
        }
    }

    /// HMAC-SHA256 under the newest secret, hex.
    pub(crate) fn sign(&self, text: &str) -> String {
        let newest = self.0.first().map(String::as_str).unwrap_or_default();
        hex::encode(mac(newest, text).finalize().into_bytes())
    }

    /// True if any secret made this signature. Each comparison takes constant time.
    pub(crate) fn signed(&self, text: &str, signature: &[u8]) -> bool {
        self.0.iter().fold(false, |found, secret| found | mac(secret, text).verify_slice(signature).is_ok())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} hidden)", self.0.len())
    }
}

fn mac(secret: &str, text: &str) -> Hmac<Sha256> {
    match Hmac::<Sha256>::new_from_slice(secret.as_bytes()) {
        Ok(mac) => mac.chain_update(text.as_bytes()),
        Err(_) => unreachable!("HMAC takes a key of any length"),
    }
}

/// Signs `claims` with the newest secret.
pub fn mint(secrets: &Secrets, claims: &Claims) -> String {
    let json = serde_json::json!({
        "consumer": claims.consumer, "key": claims.key, "pool": claims.pool, "expiresAt": claims.expires_at,
    });
    let signed = format!("v1.{}", URL_SAFE_NO_PAD.encode(json.to_string()));
    let signature = secrets.sign(&signed);
    format!("{signed}.{signature}")
}

/// Is this ticket good for this sandbox now? Checked in the order of the five reasons.
pub fn verify(
    secrets: &Secrets,
    ticket: Option<&str>,
    consumer: &ConsumerName,
    key: &SandboxKey,
    now_ms: u64,
) -> Result<Claims, TicketFault> {
    let ticket = ticket.ok_or(TicketFault::None)?;
    let (signed, signature) = split(ticket).ok_or(TicketFault::Malformed)?;
    if !secrets.signed(signed, &signature) {
        return Err(TicketFault::FailedVerification);
    }
    let claims = decode(signed).ok_or(TicketFault::Malformed)?;
    if claims.consumer != *consumer || claims.key != *key {
        return Err(TicketFault::AnotherExecution);
    }
    if now_ms >= claims.expires_at {
        return Err(TicketFault::Expired);
    }
    Ok(claims)
}

/// The signed part and the signature, if the ticket has the shape of one.
fn split(ticket: &str) -> Option<(&str, Vec<u8>)> {
    if ticket.len() > MAX_TICKET_BYTES {
        return None;
    }
    let (signed, signature) = ticket.rsplit_once('.')?;
    let claims = signed.strip_prefix("v1.")?;
    let alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let shaped = !claims.is_empty()
        && claims.bytes().all(alphabet)
        && signature.len() == SIGNATURE_HEX_BYTES
        && signature.bytes().all(lower_hex);
    if shaped { Some((signed, hex::decode(signature).ok()?)) } else { None }
}

fn decode(signed: &str) -> Option<Claims> {
    let json = URL_SAFE_NO_PAD.decode(signed.strip_prefix("v1.")?).ok()?;
    serde_json::from_slice(&json).ok()
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "old-old-old-old-old-old-old-old-";
    const NEW: &str = "new-new-new-new-new-new-new-new-";

    fn secrets(list: &[&str]) -> Secrets {
        Secrets::new(list.iter().map(|s| (*s).to_owned()).collect()).unwrap()
    }

    fn claims() -> Claims {
        Claims { consumer: "ci".into(), key: "run-1".into(), pool: "lean".into(), expires_at: 1_000 }
    }

    fn check(secrets: &Secrets, ticket: &str) -> Result<Claims, TicketFault> {
        verify(secrets, Some(ticket), &"ci".into(), &"run-1".into(), 999)
    }

    #[test]
    fn the_format_is_the_published_one() {
        let ticket = mint(&secrets(&[NEW]), &claims());
        let parts: Vec<&str> = ticket.split('.').collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0], "v1");
        let json: serde_json::Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"consumer":"ci","key":"run-1","pool":"lean","expiresAt":1000}));
        assert_eq!(parts[2].len(), 64);
    }

    #[test]
    fn a_rotation_refuses_no_ticket_that_still_lives() {
        let before = mint(&secrets(&[OLD]), &claims());
        let both = secrets(&[NEW, OLD]);
        assert!(check(&both, &before).is_ok());
        let after = mint(&both, &claims());
        assert!(check(&secrets(&[NEW]), &after).is_ok(), "the newest secret signs");
        assert_eq!(check(&secrets(&[NEW]), &before), Err(TicketFault::FailedVerification));
    }

    #[test]
    fn signed_nonsense_is_malformed() {
        let secrets = secrets(&[NEW]);
        let signed = format!("v1.{}", URL_SAFE_NO_PAD.encode("nope"));
        let ticket = format!("{signed}.{}", secrets.sign(&signed));
        assert_eq!(check(&secrets, &ticket), Err(TicketFault::Malformed));
    }

    #[test]
    fn a_missing_empty_or_short_secret_is_an_error_that_names_the_remedy() {
        assert_eq!(Secrets::parse(None).unwrap_err(), SecretsFault::Missing);
        assert_eq!(Secrets::parse(Some("secret")).unwrap_err(), SecretsFault::NotAnArray);
        assert_eq!(Secrets::parse(Some("[]")).unwrap_err(), SecretsFault::Empty);
        let json = serde_json::to_string(&[NEW, &NEW[..31]]).unwrap();
        let fault = Secrets::parse(Some(&json)).unwrap_err();
        assert_eq!(fault, SecretsFault::Short { index: 1 });
        assert!(fault.to_string().contains("openssl"));
        assert!(Secrets::parse(Some(&serde_json::to_string(&[NEW; 4]).unwrap())).is_ok());
        let five = serde_json::to_string(&[NEW; 5]).unwrap();
        assert_eq!(Secrets::parse(Some(&five)).unwrap_err(), SecretsFault::TooMany);
    }

    #[test]
    fn secrets_do_not_print_themselves() {
        assert!(!format!("{:?}", secrets(&[NEW, OLD])).contains("new-"));
    }

    proptest! {
        #[test]
        fn any_one_byte_changed_and_the_ticket_is_refused(at in 0usize..200, with in any::<u8>()) {
            let secrets = secrets(&[NEW]);
            let mut bytes = mint(&secrets, &claims()).into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != with);
            bytes[at] = with;
            if let Ok(text) = String::from_utf8(bytes) {
                prop_assert!(check(&secrets, &text).is_err());
            }
        }

        #[test]
        fn no_text_is_a_ticket_and_none_panics(text in any::<String>()) {
            prop_assert!(check(&secrets(&[NEW]), &text).is_err());
        }

        #[test]
        fn what_is_minted_verifies_until_its_expiry(
            consumer in "[A-Za-z0-9_-]{1,24}", key in "[A-Za-z0-9._:-]{1,38}", expires_at in 1u64..1 << 52,
        ) {
            let secrets = secrets(&[NEW, OLD]);
            let made = Claims { consumer: consumer.as_str().into(), key: key.as_str().into(), pool: "task".into(), expires_at };
            let ticket = mint(&secrets, &made);
            let at = |now| verify(&secrets, Some(&ticket), &made.consumer, &made.key, now);
            prop_assert_eq!(at(expires_at - 1), Ok(made.clone()));
            prop_assert_eq!(at(expires_at), Err(TicketFault::Expired));
        }
    }
}
