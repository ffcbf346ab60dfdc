//! A job's standard input.

use super::FrameEncoding;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum StdinMode {
    /// `/dev/null`.
    #[default]
    None,
    /// A pipe that `POST /v1/jobs/{id}/stdin` writes to.
    Pipe,
}

/// `POST /v1/jobs/{id}/stdin?waitMs=`: writes are serialised in order of arrival. The answer waits at most so long
/// (default [`super::MAX_WAIT_MS`]) for the write; until then it is `pending`, and goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StdinWrite {
    pub operation_key: String,
    pub encoding: FrameEncoding,
    pub data: String,
    #[serde(default)]
    pub eof: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum StdinResult {
    /// All bytes are in the pipe.
    Written,
    /// Some may be: the write failed or the job ended half-way. The answer for this key for ever.
    Uncertain,
    /// None are: stdin was closed before.
    Closed,
    /// Not decided yet: the pipe is full and the command does not read. Ask again with the same key.
    Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StdinAnswer {
    pub result: StdinResult,
    pub bytes: u64,
    pub replayed: bool,
}
