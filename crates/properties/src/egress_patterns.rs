//! A host or path pattern that is taken admits itself, and nothing that a person would not read into it.
//! Input: a pattern, a line's end, a host or a path.

use ringfence_core::egress::{HostPattern, PathPattern};

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some((pattern, asked)) = text.split_once('\n') else { return };
    if let Ok(host) = HostPattern::parse(pattern) {
        assert_eq!(HostPattern::parse(host.as_str()).as_ref(), Ok(&host), "what was taken is taken again");
        match host.as_str().strip_prefix("*.") {
            None => assert_eq!(host.admits(asked), asked == host.as_str()),
            Some(parent) => {
                assert!(!host.admits(parent));
                if host.admits(asked) {
                    let label = asked
                        .strip_suffix(parent)
                        .and_then(|label| label.strip_suffix('.'))
                        .expect("below it");
                    assert!(!label.is_empty() && !label.contains('.'), "{asked:?}");
                }
            }
        }
    }
    if let Ok(path) = PathPattern::parse(pattern) {
        let segments: Vec<String> = asked.split('/').map(str::to_owned).collect();
        let admitted = path.admits(&segments);
        if !pattern.contains('*') && !pattern.contains("%2f") && admitted {
            assert_eq!(pattern, format!("/{asked}"));
        }
        // A literal beginning is never passed over.
        let literal: String = pattern.chars().skip(1).take_while(|c| !matches!(c, '*' | '/' | '%')).collect();
        assert!(!admitted || asked.starts_with(&literal), "{pattern:?} admits {asked:?}");
    }
}
