//! Paths: does the request's path fit a rule's pattern?
//!
//! A pattern is written in segments. `*` stands for any run of characters within a segment (not none as a whole
//! segment), a last `**` for any rest. Segments of a request are decoded exactly once and then compared; what a
//! server could read in more than one way (a dot segment, a backslash, a control, an encoded percent sign, text
//! that is not UTF-8) is denied whatever the pattern. An encoded slash is a character of its segment, and only a
//! pattern that says `%2f` there admits it.

use super::Denial;
use serde::{Deserialize, Serialize};
use url::Url;

pub const MAX_PATH_BYTES: usize = 8 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    text: String,
    segments: Vec<String>,
    /// Ends in `**`.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a path pattern starts with /, has no empty or dot segment, and only its last segment may be **")]
pub struct PathPatternFault;

/// Why a request's path is fit for no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    TooLong,
    Ambiguous,
}

impl From<PathFault> for Denial {
    fn from(fault: PathFault) -> Self {
        match fault {
            PathFault::TooLong => Self::PathTooLong,
            PathFault::Ambiguous => Self::PathAmbiguous,
        }
    }
}

impl PathPattern {
    pub fn parse(text: &str) -> Result<Self, PathPatternFault> {
        let inner = text.strip_prefix('/').ok_or(PathPatternFault)?;
        let mut segments: Vec<String> = inner.split('/').map(|segment| segment.replace("%2f", "/")).collect();
        let open = segments.last().is_some_and(|last| last == "**");
        if open {
            segments.pop();
        }
        // The root alone is one empty segment.
        let root = !open && segments.len() == 1 && segments.first().is_some_and(String::is_empty);
        let bad = |segment: &String| {
            segment.is_empty()
                || segment == "."
                || segment == ".."
                || segment.contains("**")
                || segment.contains('%')
        };
        if !root && segments.iter().any(bad) {
            return Err(PathPatternFault);
        }
        Ok(Self { text: text.to_owned(), segments, open })
    }

    pub fn admits(&self, path: &[String]) -> bool {
        let length =
            if self.open { path.len() >= self.segments.len() } else { path.len() == self.segments.len() };
        length && self.segments.iter().zip(path).all(|(pattern, segment)| fits(pattern, segment))
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl TryFrom<String> for PathPattern {
    type Error = PathPatternFault;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.text
    }
}

/// A request's path in segments, decoded once.
pub fn segments(url: &Url) -> Result<Vec<String>, PathFault> {
    if url.path().len() > MAX_PATH_BYTES {
        return Err(PathFault::TooLong);
    }
    let path = url.path().strip_prefix('/').ok_or(PathFault::Ambiguous)?;
    path.split('/').map(decoded).collect()
}

fn decoded(segment: &str) -> Result<String, PathFault> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(PathFault::Ambiguous) };
        bytes.push((high * 16 + low) as u8);
        rest = rest.get(2..).unwrap_or_default();
    }
    let text = String::from_utf8(bytes).map_err(|_| PathFault::Ambiguous)?;
    let dots = text.split('/').any(|part| matches!(part, "." | ".."));
    let odd = |c: char| c.is_control() || matches!(c, '\\' | '%' | '\u{2215}' | '\u{2044}' | '\u{ff0f}');
    if dots || text.chars().any(odd) { Err(PathFault::Ambiguous) } else { Ok(text) }
}

/// `*` matches any run without a slash; a whole `*` does not match an empty segment. The last star seen is the
/// only one that needs to be tried again, so the cost is at most the product of the lengths.
fn fits(pattern: &str, segment: &str) -> bool {
    if segment.is_empty() {
        return pattern.is_empty();
    }
    let (pattern, segment): (Vec<char>, Vec<char>) = (pattern.chars().collect(), segment.chars().collect());
    let (mut p, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while s < segment.len() {
        match (pattern.get(p), segment.get(s)) {
            (Some('*'), _) => {
                retry = Some((p, s));
                p += 1;
            }
            (Some(wanted), Some(has)) if wanted == has => {
                p += 1;
                s += 1;
            }
            (_, _) => match retry {
                Some((star, from)) if segment.get(from).is_some_and(|skipped| *skipped != '/') => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    s = from + 1;
                }
                _ => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admits(pattern: &str, path: &str) -> bool {
        let url = Url::parse(&format!("https://h.test{path}")).unwrap();
        segments(&url).is_ok_and(|path| PathPattern::parse(pattern).unwrap().admits(&path))
    }

    #[test]
    fn stars_stay_within_their_segment() {
        assert!(admits("/crates/*/*/download", "/crates/serde/1.0/download"));
        assert!(!admits("/crates/*/download", "/crates/serde/1.0/download"));
        assert!(!admits("/crates/*/download", "/crates//download"));
        assert!(admits("/*.git/info/refs", "/x.git/info/refs"));
        assert!(!admits("/*.git/info/refs", "/x.git.evil/info/refs"));
        assert!(admits("/a*b*c", "/a-bb-bc"));
        assert!(!admits("/a*b*c", "/a-cc"));
    }

    #[test]
    fn two_stars_at_the_end_take_any_rest() {
        for path in ["/v4", "/v4/", "/v4/a", "/v4/a/b/c"] {
            assert!(admits("/v4/**", path), "{path}");
        }
        assert!(admits("/**", "/"));
        assert!(!admits("/v4/**", "/v40/a"));
        assert!(admits("/", "/"));
        assert!(!admits("/", "/a"));
    }

    #[test]
    fn dot_segments_are_resolved_or_denied_however_they_are_written() {
        // The URL parser resolves these; what is left is what the server is asked for.
        assert!(!admits("/a/**", "/a/../b"));
        assert!(!admits("/a/**", "/a/%2e%2e/b"));
        assert!(!admits("/a/**", "/a/%2E./b"));
        for path in [
            "/a/%2e%2e%2fb",
            "/a/x%2f..%2fb",
            "/a/..%2fb",
            "/a/%252e%252e/b",
            "/a/..%5cb",
            "/a/%00",
            "/a/%zz",
            "/a/%c0%ae",
            "/a/%ef%bc%8fb",
        ] {
            assert!(!admits("/**", path), "{path}");
        }
    }

    #[test]
    fn an_encoded_slash_fits_only_where_the_pattern_has_one() {
        assert!(admits("/@*%2f*", "/@scope%2fname"));
        assert!(admits("/@*%2f*", "/@scope%2Fname"));
        assert!(!admits("/*", "/@scope%2fname"));
        assert!(!admits("/@*%2f*", "/@scope%2fname%2fmore"));
        assert!(!admits("/a/*", "/a%2fb"));
    }

    #[test]
    fn a_path_at_the_limit_is_taken_and_one_byte_more_is_not() {
        let url = |len: usize| Url::parse(&format!("https://h.test/{}", "a".repeat(len - 1))).unwrap();
        assert!(segments(&url(MAX_PATH_BYTES)).is_ok());
        assert_eq!(segments(&url(MAX_PATH_BYTES + 1)), Err(PathFault::TooLong));
    }

    #[test]
    fn a_bad_pattern_is_refused() {
        for bad in ["", "a", "//", "/a//b", "/a/", "/**/a", "/a**", "/./a", "/../a", "/%41"] {
            assert_eq!(PathPattern::parse(bad), Err(PathPatternFault), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_literal_pattern_admits_its_own_path_only(a in "/[a-c]{1,3}/[a-c]{1,3}", b in "/[a-c]{1,3}/[a-c]{1,3}") {
            prop_assert_eq!(admits(&a, &b), a == b);
        }

        #[test]
        fn no_path_escapes_its_prefix(rest in "[a-z./%2eEfF5cC\\\\]{0,24}") {
            let url = Url::parse(&format!("https://h.test/a/{rest}")).unwrap();
            if let Ok(path) = segments(&url) && PathPattern::parse("/a/**").unwrap().admits(&path) {
                prop_assert!(url.path() == "/a" || url.path().starts_with("/a/"));
                for segment in &path {
                    prop_assert!(segment.split('/').all(|part| part != ".." && part != "."));
                }
            }
        }
    }
}
