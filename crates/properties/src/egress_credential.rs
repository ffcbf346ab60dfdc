//! A header that is made from a template holds the secret once, in its value, and can be no second header; a fault
//! says nothing of the secret. Input: a template, a line's end, a secret.

use ringfence_core::egress::{Credential, HostPattern, inject};

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some((template, secret)) = text.split_once('\n') else { return };
    let credential = Credential {
        secret_name: "CF_API_TOKEN".to_owned(),
        host: HostPattern::parse("api.cloudflare.com").expect("a host"),
        header_template: template.to_owned(),
    };
    let made = inject(&credential, "api.cloudflare.com", Some(secret));
    assert!(inject(&credential, "api.cloudflare.com.evil.test", Some(secret)).is_err());
    match made {
        Ok(header) => {
            assert!(!secret.is_empty() && header.value.contains(secret));
            let plain = |b: u8| (b' '..=b'~').contains(&b);
            assert!(header.value.bytes().all(plain));
            assert!(
                header.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                    && !header.name.is_empty()
            );
            assert!(!format!("{header:?}").contains(&header.value) || header.value.len() < 20);
        }
        Err(fault) => has_nothing_of_its_cause(fault),
    }
}

/// By its type: a word from a closed list, that owns nothing and borrows nothing.
fn has_nothing_of_its_cause(_: impl Copy + 'static) {}
