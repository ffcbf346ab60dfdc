//! What an outbound connection speaks, told by its first bytes: HTTP, TLS, or neither.
//!
//! Invariant: only what is certainly one of the two is let through to the Worker, which decides; every other byte
//! sequence is neither. Nothing is read past the end of a request's head.

/// The longest head of a first request.
pub const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Headers in it.
const MAX_HEADERS: usize = 128;
/// The longest host name, and the longest method of any registered one.
const MAX_HOST_BYTES: usize = 253;
const MAX_METHOD_BYTES: usize = 24;

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// They do not say yet.
    More,
    /// A TLS handshake begins.
    Tls,
    /// A whole request head. The host is the one it names, without its port.
    Http { host: Option<String> },
    /// Neither, or not well-formed.
    Neither,
}

/// Looks at the first bytes of a connection.
pub fn classify(bytes: &[u8]) -> Speaks {
    const HANDSHAKE: u8 = 0x16;
    const TLS_MAJOR: u8 = 0x03;
    match bytes {
        [] | [HANDSHAKE] => return Speaks::More,
        [HANDSHAKE, TLS_MAJOR, ..] => return Speaks::Tls,
        _ => {}
    }
    match method(bytes) {
        Method::Whole(name) if name == b"CONNECT" || name == b"PRI" => Speaks::Neither,
        Method::Whole(_) => head(bytes),
        Method::Begun => Speaks::More,
        Method::None => Speaks::Neither,
    }
}

enum Method<'a> {
    Whole(&'a [u8]),
    Begun,
    None,
}

fn method(bytes: &[u8]) -> Method<'_> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_uppercase());
    match end {
        Some(end) if end > 0 && end <= MAX_METHOD_BYTES && bytes.get(end) == Some(&b' ') => {
            bytes.get(..end).map_or(Method::None, Method::Whole)
        }
        None if bytes.len() <= MAX_METHOD_BYTES => Method::Begun,
        _ => Method::None,
    }
}

fn head(bytes: &[u8]) -> Speaks {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Speaks::More,
        _ => return Speaks::Neither,
    }
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    match (hosts.next(), hosts.next()) {
        (None, _) => Speaks::Http { host: None },
        (Some(header), None) => match host_of(header.value) {
            Some(host) => Speaks::Http { host: Some(host) },
            None => Speaks::Neither,
        },
        // Two hosts: which one is meant is what the two sides might disagree about.
        (Some(_), Some(_)) => Speaks::Neither,
    }
}

/// `name`, `name:port` or `[v6]:port`, as a header of ours may carry it.
fn host_of(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    (!host.is_empty() && host.len() <= MAX_HOST_BYTES && host.bytes().all(allowed))
        .then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn http(host: &str) -> Speaks {
        Speaks::Http { host: Some(host.into()) }
    }

    #[test]
    fn http_and_tls_are_told_from_everything_else() {
        assert_eq!(classify(b"GET / HTTP/1.1\r\nHost: Example.test:8080\r\n\r\nbody"), http("example.test"));
        assert_eq!(classify(b"POST http://a.test/ HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), http("::1"));
        assert_eq!(classify(b"GET / HTTP/1.0\r\n\r\n"), Speaks::Http { host: None });
        assert_eq!(classify(b"\x16\x03\x01\x02\x00"), Speaks::Tls);
        for neither in [
            &b"SSH-2.0-OpenSSH\r\n"[..],
            b"EHLO there\r\n",
            b"GET /\r\n",
            b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
            b"get / HTTP/1.1\r\n\r\n",
            b"\x16\x02\x00",
            b"\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
        ] {
            assert_eq!(classify(neither), Speaks::Neither, "{}", String::from_utf8_lossy(neither));
        }
    }

    #[test]
    fn a_head_is_awaited_up_to_its_bound_and_no_further() {
        let head = |filler: usize| {
            let mut head = b"GET / HTTP/1.1\r\nHost: a.test\r\nX: ".to_vec();
            head.resize(filler, b'x');
            head
        };
        assert_eq!(classify(&head(MAX_HEAD_BYTES - 1)), Speaks::More);
        assert_eq!(classify(&head(MAX_HEAD_BYTES)), Speaks::Neither);
    }

    proptest! {
        #[test]
        fn any_bytes_are_classified_and_more_bytes_never_change_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..200), more in proptest::collection::vec(any::<u8>(), 0..50)) {
            let first = classify(&bytes);
            if first != Speaks::More {
                let longer = [bytes, more].concat();
                prop_assert_eq!(classify(&longer), first);
            }
        }

        #[test]
        fn a_request_cut_anywhere_asks_for_more(cut in 1_usize..40) {
            let whole = b"DELETE /x HTTP/1.1\r\nHost: example.test\r\n\r\n";
            prop_assert_eq!(classify(&whole[..cut]), Speaks::More);
            prop_assert_eq!(classify(whole), http("example.test"));
        }
    }
}
