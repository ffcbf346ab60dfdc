//! Whatever is admitted is https, of a granted host, with a method that reads, on a path without a dot segment.
//! Input: a method, a space, a URL.

use ringfence_core::egress::{Grant, Hop, Method, compose, decide};
use std::sync::LazyLock;

static GRANT: LazyLock<Grant> = LazyLock::new(|| {
    let recipe = r#"{"version":"1","repo":{"owner":"o","name":"n"},"profiles":["js-install","browser-fetch"],
        "targets":["docs.example.com","*.example.org"]}"#;
    compose(&serde_json::from_str(recipe).expect("a recipe"), false, None).expect("a grant")
});

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some((method, url)) = text.split_once(' ') else { return };
    let (Some(method), Ok(url)) = (Method::parse(method), url.parse()) else { return };
    let hop = Hop { method, url };
    let Ok(admitted) = decide(&GRANT, &hop) else { return };
    let host = hop.url.host_str().expect("a host").trim_end_matches('.');
    let named = GRANT.hosts.iter().any(|granted| granted.host.admits(host));
    assert!(hop.url.scheme() == "https" && named && hop.url.username().is_empty(), "{}", hop.url);
    assert!(admitted.rule.methods.contains(&method), "{}", hop.url);
    let lower = hop.url.path().to_ascii_lowercase();
    let dots = |part: &str| matches!(part, "." | ".." | "%2e" | ".%2e" | "%2e." | "%2e%2e");
    assert!(!lower.split('/').flat_map(|segment| segment.split("%2f")).any(dots), "{}", hop.url);
}
