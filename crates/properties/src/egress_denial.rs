//! A record of a denial is bounded and holds no query string. Input: a method, a space, a URL.

use ringfence_core::egress::{Denial, event};

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some((method, url)) = text.split_once(' ') else { return };
    let Ok(url) = url.parse::<url::Url>() else { return };
    let told = event(method, &url, Denial::Host.name());
    assert!(told.path.len() <= 256 && told.host.len() <= 253 && told.method.len() <= 16);
    assert!(url.path().starts_with(&told.path) && !told.host.contains('@'));
    assert!(!url.has_host() || !told.path.contains('?'));
}
