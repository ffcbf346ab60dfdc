//! What a job says, page by page, and the files it leaves.

use super::ExecutionIdentity;
use crate::ids::Cursor;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum FrameEncoding {
    Utf8,
    /// The bytes are not UTF-8.
    Base64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct OutputFrame {
    pub stream: OutputStream,
    /// The cursor of its first byte.
    pub at: Cursor,
    pub encoding: FrameEncoding,
    pub data: String,
}

/// Of one page's data.
pub const MIN_PAGE_BYTES: u64 = 4;
pub const MAX_PAGE_BYTES: u64 = 64 * 1024;

/// `GET /v1/jobs/{id}/output?cursor=&limit=&waitMs=`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct OutputPage {
    /// Where the job runs.
    pub identity: ExecutionIdentity,
    /// The oldest byte still held.
    pub base: Cursor,
    /// Where the next page begins.
    pub next: Cursor,
    /// Bytes written so far.
    pub end: Cursor,
    /// Bytes between the asked cursor and the first frame that are gone from the ring.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub dropped: u64,
    /// The job is terminal and `next` is its end: nothing more will come.
    pub eof: bool,
    pub frames: Vec<OutputFrame>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ArtifactSource {
    /// A regular file that a job left beneath the artifact path.
    File,
    /// A job's whole log, written by the supervisor alone.
    Log,
}

impl ArtifactSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Log => "log",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Relative to the artifact path.
    pub path: String,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub bytes: u64,
    pub source: ArtifactSource,
}

/// `GET /v1/artifacts`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ArtifactList {
    pub artifacts: Vec<Artifact>,
    /// There are more than are listed here, or some whose name is not UTF-8.
    pub more: bool,
}

/// `GET /v1/artifacts/page?path=&cursor=&limit=&job=&source=`: some bytes of the newest log under that very path (of
/// that job's, where one is named) or, where there is none, of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ArtifactPage {
    pub source: ArtifactSource,
    pub encoding: FrameEncoding,
    pub content: String,
    /// Where the next page begins.
    pub next: Cursor,
    /// How long it is so far.
    pub end: Cursor,
    /// `next` is its end, and it does not grow any more: a file, or the log of a job that has ended.
    pub eof: bool,
    /// The log lacks what came after: it reached its quota, or the disk took no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub truncated: Option<bool>,
}

pub const MAX_ARTIFACT_PAGE_BYTES: u64 = 256 * 1024;
/// Artifacts in one list.
pub const MAX_LISTED_ARTIFACTS: usize = 1_000;
