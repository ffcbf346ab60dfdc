//! Candidate URLs: addresses of servers that a job's output seems to announce. Guesses for a person to try, never
//! facts: a caller shows them as `verified: false`.
//!
//! Invariants: loopback only, and told in one form (`localhost` is `127.0.0.1`); nothing that could carry a secret
//! or lead elsewhere (a user, a query, a fragment, a backslash) is told at all; at most [`MAX_CANDIDATES`] of a
//! job, each once.

use url::{Host, Url};

pub const MAX_CANDIDATES: usize = 8;
const MAX_CANDIDATE_BYTES: usize = 512;

/// The candidates in `output` that are not `known` yet, in the order they appear. `known` are the job's earlier ones.
pub fn candidates(output: &str, known: &[String]) -> Vec<String> {
    let text = without_escapes(output);
    let mut found: Vec<String> = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at);
        let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let scheme = ["http", "https"].into_iter().find(|scheme| word.eq_ignore_ascii_case(scheme));
        let end = after.find(ends_url).unwrap_or(after.len());
        let (told, next) = after.split_at(end);
        if let Some(url) = scheme.and_then(|scheme| normalised(&format!("{scheme}{told}")))
            && !known.contains(&url)
            && !found.contains(&url)
            && known.len() + found.len() < MAX_CANDIDATES
        {
            found.push(url);
        }
        rest = next;
    }
    found
}

/// What cannot stand in a URL in running text.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '|' | '{' | '}')
}

fn normalised(told: &str) -> Option<String> {
    let told = told.trim_end_matches(['.', ',', ';', ':', '!', ')']);
    if told.len() > MAX_CANDIDATE_BYTES || told.contains(['\\', '@', '?', '#']) {
        return None;
    }
    let url = Url::parse(told).ok()?;
    let host = match url.host()? {
        Host::Domain("localhost") => "127.0.0.1".to_owned(),
        Host::Ipv4(address) if address.is_loopback() => address.to_string(),
        Host::Ipv6(address) if address.is_loopback() => format!("[{address}]"),
        _ => return None,
    };
    let port = match url.port() {
        Some(0) => return None,
        Some(port) => format!(":{port}"),
        None => String::new(),
    };
    // As it was announced: a bare host has no path.
    let bare = !told.split_once("://")?.1.contains('/');
    let path = if bare { "" } else { url.path() };
    Some(format!("{}://{host}{port}{path}", url.scheme()))
}

/// Terminal escape sequences taken out: they colour a URL in its middle.
fn without_escapes(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            clean.push(c);
            continue;
        }
        match chars.next() {
            // Control sequence: parameters, then one final character.
            Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
            // Operating system command: to BEL or ESC \.
            Some(']') => {
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn at_most_eight_of_a_job_are_told_each_once() {
        let output: String = (1..=20).map(|n| format!("http://localhost:{n}/\n")).collect();
        let first = candidates(&output, &[]);
        assert_eq!(first.len(), MAX_CANDIDATES);
        assert_eq!(candidates(&output, &first), [""; 0]);
        assert_eq!(
            candidates("http://localhost:1/ http://localhost:99/", &first[..7]),
            ["http://127.0.0.1:99/"]
        );
    }

    #[test]
    fn a_link_of_the_terminal_is_read_past() {
        let output = "\u{1b}]8;;http://evil.test/\u{7}http://localhost:3000/\u{1b}]8;;\u{1b}\\ ready";
        assert_eq!(candidates(output, &[]), ["http://127.0.0.1:3000/"]);
    }

    #[test]
    fn a_scheme_inside_a_word_is_none() {
        assert_eq!(candidates("xhttp://localhost:1/ HTTP://LOCALHOST:2/", &[]), ["http://127.0.0.1:2/"]);
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_a_plain_loopback_url(output in "(http://|localhost|127.0.0.1|[ -~]|\u{1b}\\[1m){0,24}") {
            for told in candidates(&output, &[]) {
                let url = Url::parse(&told).unwrap();
                prop_assert!(matches!(url.host(), Some(Host::Ipv4(a)) if a.is_loopback()) || url.host_str() == Some("[::1]"));
                prop_assert!(url.query().is_none() && url.fragment().is_none() && url.username().is_empty());
            }
        }

        #[test]
        fn no_output_panics(output in any::<String>()) {
            let _ = candidates(&output, &[]);
        }
    }
}
