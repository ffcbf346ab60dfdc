//! Git LFS: a batch request says whether it will download or upload. Only a download is let through.

use serde::Deserialize;

/// A batch is buffered to be looked at, and is no larger.
pub const MAX_LFS_BATCH_BYTES: u64 = 1024 * 1024;

/// True exactly when the body is one JSON object whose only `operation` is `download`.
pub fn wants_download_only(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Batch {
        // A second `operation` in the same object is a duplicate field, which serde refuses.
        operation: String,
    }
    body.len() as u64 <= MAX_LFS_BATCH_BYTES
        && serde_json::from_slice::<Batch>(body).is_ok_and(|batch| batch.operation == "download")
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
        ] {
            assert!(!wants_download_only(body), "{}", String::from_utf8_lossy(body));
        }
    }
}
