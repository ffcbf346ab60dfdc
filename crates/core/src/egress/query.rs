//! Query strings: none, unless a rule says otherwise.

use serde::{Deserialize, Serialize};
use url::Url;

pub const MAX_QUERY_BYTES: usize = 4 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    /// No query string at all.
    #[default]
    None,
    /// Any, up to the limit.
    Any,
    /// Exactly this text.
    Exactly(String),
}

impl Query {
    pub fn admits(&self, url: &Url) -> bool {
        match (self, url.query()) {
            (Self::None, query) => query.is_none_or(str::is_empty),
            (Self::Any, query) => query.is_none_or(|query| query.len() <= MAX_QUERY_BYTES),
            (Self::Exactly(text), query) => query == Some(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(rule: &Query, query: &str) -> bool {
        rule.admits(&Url::parse(&format!("https://h.test/{query}")).unwrap())
    }

    #[test]
    fn a_push_discovery_is_not_a_fetch_discovery() {
        let fetch = Query::Exactly("service=git-upload-pack".into());
        assert!(admits(&fetch, "?service=git-upload-pack"));
        for other in [
            "",
            "?service=git-receive-pack",
            "?service=git-upload-pack&service=git-receive-pack",
            "?service=git%2dupload-pack",
            "?SERVICE=git-upload-pack",
        ] {
            assert!(!admits(&fetch, other), "{other:?}");
        }
    }

    #[test]
    fn no_query_means_none_and_any_has_a_limit() {
        assert!(admits(&Query::None, "") && admits(&Query::None, "?"));
        assert!(!admits(&Query::None, "?a"));
        assert!(admits(&Query::Any, &format!("?{}", "a".repeat(MAX_QUERY_BYTES))));
        assert!(!admits(&Query::Any, &format!("?{}", "a".repeat(MAX_QUERY_BYTES + 1))));
    }
}
