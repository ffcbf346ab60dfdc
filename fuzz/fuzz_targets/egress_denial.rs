//! A record of a denial is bounded and holds no query string. Input: a method, a space, a URL.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_core::egress::{Denial, event};

fuzz_target!(|text: &str| {
    let Some((method, url)) = text.split_once(' ') else { return };
    let Ok(url) = url.parse::<url::Url>() else { return };
    let told = event(method, &url, Denial::Host.name());
    assert!(told.path.len() <= 256 && told.host.len() <= 253 && told.method.len() <= 16);
    assert!(url.path().starts_with(&told.path) && !told.host.contains('@'));
    assert!(!url.has_host() || !told.path.contains('?'));
});
