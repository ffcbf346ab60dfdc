//! Files put into a sandbox and read out of it.

use serde::{Deserialize, Serialize};

/// `PUT /v1/files?path=&sha256=` with the bytes as body: put in place by rename, and only when size
/// (`Content-Length`) and digest are what was sent. `GET /v1/files?path=` answers the bytes, with the digest in
/// [`FILE_SHA256_HEADER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReceipt {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

pub const FILE_SHA256_HEADER: &str = "x-ringfence-sha256";
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
