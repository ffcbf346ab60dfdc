//! Whatever a job prints, what is told of it is a plain loopback URL.

use ringfence_core::candidate::{MAX_CANDIDATES, candidates};
use url::{Host, Url};

pub fn holds(bytes: &[u8]) {
    let Ok(output) = std::str::from_utf8(bytes) else { return };
    let told = candidates(output, &[]);
    assert!(told.len() <= MAX_CANDIDATES);
    for text in told {
        let url = Url::parse(&text).expect("a URL");
        let loopback = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            _ => false,
        };
        assert!(
            loopback && url.query().is_none() && url.username().is_empty() && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
