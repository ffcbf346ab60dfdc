//! Every chain of redirects ends, and no location makes a step panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_core::egress::{Hop, MAX_REDIRECTS, Method, Next, next};

fuzz_target!(|input: (u16, bool, &str)| {
    let (status, had_body, location) = input;
    let mut at = Hop { method: Method::Post, url: "https://a.test/x/y".parse().expect("a URL") };
    let mut earlier = Vec::new();
    while let Ok(Next::Follow { hop, body }) =
        next(&at, &earlier, 300 + status % 10, Some(location), had_body)
    {
        assert!(hop.url.has_host() && hop.url.fragment().is_none() && (had_body || !body));
        earlier.push(std::mem::replace(&mut at, hop));
        assert!(earlier.len() <= MAX_REDIRECTS);
    }
});
