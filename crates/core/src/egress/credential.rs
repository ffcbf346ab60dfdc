//! Credentials: added to a request by the Worker, never seen by the container.
//!
//! Invariants: a descriptor stands in a reviewed profile only; it names one secret of a short list, so signing
//! secrets are out of its reach; it is used for its own host only, so a redirect elsewhere carries none; whatever
//! is missing or malformed fails closed. A secret's value is in no error and in no debug text.

use super::host::HostPattern;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The secrets a descriptor may name.
pub const CREDENTIAL_SECRETS: &[&str] = &["CF_API_TOKEN", "GITHUB_TOKEN", "NPM_TOKEN", "CARGO_TOKEN"];
const PLACEHOLDER: &str = "{{secret}}";
pub const MAX_SECRET_BYTES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credential {
    pub secret_name: String,
    pub host: HostPattern,
    /// A whole header with one `{{secret}}` in it: `Authorization: Bearer {{secret}}`.
    pub header_template: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    #[error("the secret's name is not one that a credential may use")]
    SecretName,
    #[error("a credential is for one exact host")]
    Star,
    #[error("the header template is `Name: value` with exactly one {{{{secret}}}} in its value")]
    Template,
    #[error("the credential is for another host")]
    OtherHost,
    #[error("the secret is not set")]
    Unset,
    #[error("the secret cannot stand in a header")]
    Malformed,
}

/// A header to add. Its value does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Injected {
    pub name: String,
    pub value: String,
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Injected({}: hidden)", self.name)
    }
}

impl Credential {
    /// Is this descriptor well-formed?
    pub fn check(&self) -> Result<(), CredentialFault> {
        if !CREDENTIAL_SECRETS.contains(&self.secret_name.as_str()) {
            return Err(CredentialFault::SecretName);
        }
        if self.host.as_str().starts_with('*') {
            return Err(CredentialFault::Star);
        }
        self.parts().map(|_| ())
    }

    fn parts(&self) -> Result<(&str, &str), CredentialFault> {
        let (name, value) = self.header_template.split_once(": ").ok_or(CredentialFault::Template)?;
        let token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let once = value.matches(PLACEHOLDER).count() == 1 && !name.contains('{');
        if token && once && printable(value) { Ok((name, value)) } else { Err(CredentialFault::Template) }
    }
}

/// The header for a request to this folded host. `secret` is what the Worker has under the descriptor's name.
pub fn inject(
    credential: &Credential,
    host: &str,
    secret: Option<&str>,
) -> Result<Injected, CredentialFault> {
    credential.check()?;
    if !credential.host.admits(host) {
        return Err(CredentialFault::OtherHost);
    }
    let secret = secret.filter(|secret| !secret.is_empty()).ok_or(CredentialFault::Unset)?;
    if secret.len() > MAX_SECRET_BYTES || !printable(secret) || secret.contains(' ') {
        return Err(CredentialFault::Malformed);
    }
    let (name, template) = credential.parts()?;
    Ok(Injected { name: name.to_ascii_lowercase(), value: template.replacen(PLACEHOLDER, secret, 1) })
}

fn printable(text: &str) -> bool {
    text.bytes().all(|b| (b' '..=b'~').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(secret_name: &str, host: &str, template: &str) -> Credential {
        Credential {
            secret_name: secret_name.into(),
            host: HostPattern::parse(host).unwrap(),
            header_template: template.into(),
        }
    }

    fn good() -> Credential {
        credential("CF_API_TOKEN", "api.cloudflare.com", "Authorization: Bearer {{secret}}")
    }

    #[test]
    fn a_credential_is_added_for_its_own_host_and_no_other() {
        let header = inject(&good(), "api.cloudflare.com", Some("t0ken")).unwrap();
        assert_eq!((header.name.as_str(), header.value.as_str()), ("authorization", "Bearer t0ken"));
        for other in ["cloudflare.com", "api.cloudflare.com.evil.test", "x.api.cloudflare.com"] {
            assert_eq!(inject(&good(), other, Some("t0ken")), Err(CredentialFault::OtherHost));
        }
    }

    #[test]
    fn a_secret_that_is_unset_or_malformed_fails_closed() {
        for secret in [None, Some("")] {
            assert_eq!(inject(&good(), "api.cloudflare.com", secret), Err(CredentialFault::Unset));
        }
        for secret in ["a\r\nX: y", "a\nb", "a b", "é", "a\0", &"a".repeat(MAX_SECRET_BYTES + 1)] {
            assert_eq!(inject(&good(), "api.cloudflare.com", Some(secret)), Err(CredentialFault::Malformed));
        }
    }

    #[test]
    fn signing_secrets_are_out_of_reach() {
        for name in ["TICKET_SECRETS", "API_TOKENS", "PATH", "", "cf_api_token"] {
            let bad = credential(name, "api.cloudflare.com", "Authorization: Bearer {{secret}}");
            assert_eq!(bad.check(), Err(CredentialFault::SecretName), "{name}");
        }
    }

    #[test]
    fn a_template_has_exactly_one_place_for_the_secret_and_no_line_break() {
        for template in [
            "Authorization: Bearer",
            "Authorization: {{secret}} {{secret}}",
            "Authorization {{secret}}",
            "{{secret}}: x",
            ": {{secret}}",
            "Authorization: {{secret}}\r\nX: y",
            "A b: {{secret}}",
        ] {
            let bad = credential("CF_API_TOKEN", "api.cloudflare.com", template);
            assert_eq!(bad.check(), Err(CredentialFault::Template), "{template:?}");
        }
        let star = credential("CF_API_TOKEN", "*.cloudflare.com", "Authorization: Bearer {{secret}}");
        assert_eq!(star.check(), Err(CredentialFault::Star));
    }

    #[test]
    fn a_header_does_not_print_its_secret() {
        let header = inject(&good(), "api.cloudflare.com", Some("t0ken")).unwrap();
        assert!(!format!("{header:?}").contains("t0ken"));
    }

    #[test]
    fn a_secret_that_looks_like_a_placeholder_is_not_filled_again() {
        let header = inject(&good(), "api.cloudflare.com", Some("{{secret}}")).unwrap();
        assert_eq!(header.value, "Bearer {{secret}}");
    }
}
