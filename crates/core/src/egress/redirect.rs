//! Redirects: followed by the Worker, one hop at a time, each hop decided anew.

use super::Denial;
use super::hop::{Hop, Method};
use url::Url;

pub const MAX_REDIRECTS: usize = 5;

/// What an answer leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the answer.
    Answer,
    /// Ask here, after deciding. With `body` the request's body is to be sent again.
    Follow { hop: Hop, body: bool },
}

/// `earlier`: the hops before this one, first to last. `had_body`: this hop's request carried one.
pub fn next(
    hop: &Hop,
    earlier: &[Hop],
    status: u16,
    location: Option<&str>,
    had_body: bool,
) -> Result<Next, Denial> {
    let method = match (status, hop.method) {
        (301..=303, Method::Head) => Method::Head,
        (301..=303, _) => Method::Get,
        (307 | 308, method) => method,
        _ => return Ok(Next::Answer),
    };
    if earlier.len() >= MAX_REDIRECTS {
        return Err(Denial::TooManyRedirects);
    }
    let mut url = location
        .and_then(|location| Url::options().base_url(Some(&hop.url)).parse(location).ok())
        .filter(Url::has_host)
        .ok_or(Denial::BadRedirect)?;
    url.set_fragment(None);
    let follow = Hop { method, url };
    if follow == *hop || earlier.contains(&follow) {
        return Err(Denial::RedirectLoop);
    }
    let body = had_body && matches!(status, 307 | 308);
    Ok(Next::Follow { hop: follow, body })
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hop(method: Method, url: &str) -> Hop {
        Hop { method, url: Url::parse(url).unwrap() }
    }

    fn follow(method: Method, status: u16, location: &str) -> Result<Next, Denial> {
        next(&hop(method, "https://a.test/x/y"), &[], status, Some(location), method == Method::Post)
    }

    #[test]
    fn the_old_redirects_become_a_get_and_the_new_ones_keep_method_and_body() {
        for status in [301, 302, 303] {
            let expect = Next::Follow { hop: hop(Method::Get, "https://b.test/"), body: false };
            assert_eq!(follow(Method::Post, status, "https://b.test/"), Ok(expect));
            let expect = Next::Follow { hop: hop(Method::Head, "https://b.test/"), body: false };
            assert_eq!(follow(Method::Head, status, "https://b.test/"), Ok(expect));
        }
        for status in [307, 308] {
            let expect = Next::Follow { hop: hop(Method::Post, "https://b.test/"), body: true };
            assert_eq!(follow(Method::Post, status, "https://b.test/"), Ok(expect));
        }
        for status in [200, 204, 300, 304, 305, 306, 404] {
            assert_eq!(follow(Method::Get, status, "https://b.test/"), Ok(Next::Answer));
        }
    }

    #[test]
    fn a_relative_target_is_taken_from_where_it_was_said() {
        for (location, url) in [
            ("/z", "https://a.test/z"),
            ("z", "https://a.test/x/z"),
            ("//b.test/z", "https://b.test/z"),
            ("?q=1", "https://a.test/x/y?q=1"),
            ("https://b.test/#f", "https://b.test/"),
            ("http://b.test/", "http://b.test/"),
        ] {
            let Ok(Next::Follow { hop, .. }) = follow(Method::Get, 302, location) else {
                panic!("{location}")
            };
            assert_eq!(hop.url.as_str(), url);
        }
    }

    #[test]
    fn a_target_that_cannot_be_read_is_denied() {
        assert_eq!(
            next(&hop(Method::Get, "https://a.test/"), &[], 302, None, false),
            Err(Denial::BadRedirect)
        );
        for bad in ["https://", "https://[", "data:text/plain,x", "https://a:99999/"] {
            assert_eq!(follow(Method::Get, 302, bad), Err(Denial::BadRedirect), "{bad}");
        }
    }

    #[test]
    fn five_are_followed_and_a_sixth_is_not_and_a_loop_ends_at_once() {
        let at = |n: usize| hop(Method::Get, &format!("https://a.test/{n}"));
        let earlier: Vec<Hop> = (0..MAX_REDIRECTS).map(at).collect();
        assert!(next(&at(9), &earlier[1..], 302, Some("/10"), false).is_ok());
        assert_eq!(next(&at(9), &earlier, 302, Some("/10"), false), Err(Denial::TooManyRedirects));
        assert_eq!(next(&at(9), &[at(1)], 302, Some("/1"), false), Err(Denial::RedirectLoop));
        assert_eq!(next(&at(9), &[], 302, Some("/9#again"), false), Err(Denial::RedirectLoop));
    }

    proptest! {
        #[test]
        fn no_location_panics_and_every_chain_ends(location in any::<String>(), status in 300u16..310) {
            let mut earlier = Vec::new();
            let mut at = hop(Method::Get, "https://a.test/");
            for _ in 0..=MAX_REDIRECTS {
                match next(&at, &earlier, status, Some(&location), false) {
                    Ok(Next::Follow { hop, .. }) => earlier.push(std::mem::replace(&mut at, hop)),
                    _ => return Ok(()),
                }
            }
            prop_assert!(next(&at, &earlier, status, Some(&location), false) != Ok(Next::Answer));
            prop_assert!(earlier.len() <= MAX_REDIRECTS + 1);
        }
    }
}
