//! Git LFS: a batch request says whether it will download or upload. Only a download is let through.

use serde::Deserialize;
use serde_json::Value;

/// A batch is buffered to be looked at, and is no larger.
pub const MAX_LFS_BATCH_BYTES: u64 = 1024 * 1024;

/// True exactly when the body is one JSON object whose only `operation` is `download`.
pub fn wants_download_only(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Batch {
        // A second `operation` in the same object is a duplicate field, which serde refuses.
        operation: String,
    }
    // An array would read as the struct too, and what a struct ignores is not looked at: the whole must be an object of
    // good JSON, so that no other reader takes it for something else.
    let object = || serde_json::from_slice::<Value>(body).is_ok_and(|whole| whole.is_object());
    body.len() as u64 <= MAX_LFS_BATCH_BYTES
        && serde_json::from_slice::<Batch>(body).is_ok_and(|batch| batch.operation == "download")
        && object()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_download_is_one() {
        assert!(wants_download_only(br#"{"operation":"download","objects":[]}"#));
        for body in [
            &b""[..],
            b"{}",
            br#"{"operation":"upload"}"#,
            br#"{"operation":"download","operation":"upload"}"#,
            br#"{"operation":"upload","operation":"download"}"#,
            br#"{"operation":["download"]}"#,
            br#"{"operation":"download"}{"operation":"upload"}"#,
            br#"[{"operation":"download"}]"#,
            br#"["download"]"#,
            b"{\"operation\":\"download\",\"x\":\"b\x87\"}",
            br#"{"operation":"download","x":"\ud800"}"#,
        ] {
            assert!(!wants_download_only(body), "{}", String::from_utf8_lossy(body));
        }
    }
}
