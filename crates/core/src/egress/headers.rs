//! Headers: what a request may carry out of a sandbox and what an answer may carry in.
//!
//! Requests pass by an allowlist: credentials of the container's own (`Authorization`, cookies), hop-by-hop headers
//! and anything unheard of stay behind. Answers pass but for cookies and hop-by-hop headers.

const REQUEST: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "git-protocol",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "npm-command",
    "npm-scope",
    "npm-session",
    "pragma",
    "range",
    "user-agent",
    "x-github-api-version",
];

const ANSWER_DENIED: &[&str] = &[
    "set-cookie",
    "set-cookie2",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "alt-svc",
];

pub fn request_header_allowed(name: &str) -> bool {
    REQUEST.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
}

pub fn response_header_allowed(name: &str) -> bool {
    !ANSWER_DENIED.iter().any(|denied| name.eq_ignore_ascii_case(denied))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_or_hop_by_hop_header_leaves() {
        for name in
            ["Authorization", "COOKIE", "Proxy-Authorization", "Connection", "Host", "X-Api-Key", "Upgrade"]
        {
            assert!(!request_header_allowed(name), "{name}");
        }
        for name in ["Accept", "content-type", "Git-Protocol", "RANGE"] {
            assert!(request_header_allowed(name), "{name}");
        }
    }

    #[test]
    fn no_cookie_comes_in() {
        assert!(!response_header_allowed("Set-Cookie") && !response_header_allowed("transfer-encoding"));
        assert!(response_header_allowed("content-type") && response_header_allowed("etag"));
    }
}
