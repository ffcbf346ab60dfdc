//! Every chain of redirects ends, and no location makes a step panic.

use arbitrary::{Arbitrary, Unstructured};
use ringfence_core::egress::{Hop, MAX_REDIRECTS, Method, Next, next};

pub fn holds(bytes: &[u8]) {
    let Ok((status, had_body, location)) = <(u16, bool, &str)>::arbitrary_take_rest(Unstructured::new(bytes))
    else {
        return;
    };
    let mut at = Hop { method: Method::Post, url: "https://a.test/x/y".parse().expect("a URL") };
    let mut earlier = Vec::new();
    while let Ok(Next::Follow { hop, body }) =
        next(&at, &earlier, 300 + status % 10, Some(location), had_body)
    {
        assert!(hop.url.has_host() && hop.url.fragment().is_none() && (had_body || !body));
        earlier.push(std::mem::replace(&mut at, hop));
        assert!(earlier.len() <= MAX_REDIRECTS);
    }
}
