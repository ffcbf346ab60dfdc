//! What jobs left beneath the artifact path, and their logs.
//!
//! A log comes before a file of its path, unless the file is asked for by source: a job can write such a file, but
//! not the log. Files are read by a worker with a job's credentials ([`crate::files`]); logs are the supervisor's own.

use super::answer::{Answer, Refused, json, refuse};
use super::request::Read;
use crate::job::JobRef;
use crate::output::{ring::encode, unfinished_tail};
use crate::supervisor::Shared;
use crate::{files, limits};
use hyper::StatusCode;
use ringfence_wire::ids::Cursor;
use ringfence_wire::supervisor::{
    Artifact, ArtifactList, ArtifactPage, ArtifactSource, ErrorCode, MAX_ARTIFACT_PAGE_BYTES,
    MAX_LISTED_ARTIFACTS, MIN_PAGE_BYTES,
};
use std::collections::BTreeMap;

pub async fn list(supervisor: &Shared) -> Result<Answer, Refused> {
    let mut logs = BTreeMap::new();
    for job in supervisor.jobs.borrow().all() {
        let log = job.read(|job| job.output.log().map(|log| (log.path().to_owned(), log.bytes())));
        // Of several under one path the newest is the one that is read.
        logs.extend(log);
    }
    let mut more = logs.len() > MAX_LISTED_ARTIFACTS;
    let mut artifacts: Vec<Artifact> = logs
        .into_iter()
        .take(MAX_LISTED_ARTIFACTS)
        .map(|(path, bytes)| Artifact { path, bytes, source: ArtifactSource::Log })
        .collect();
    let (files, unlisted) = files::list(supervisor, MAX_LISTED_ARTIFACTS - artifacts.len()).await?;
    more |= unlisted;
    let files = files.into_iter().map(|(path, bytes)| Artifact { path, bytes, source: ArtifactSource::File });
    artifacts.extend(files);
    Ok(json(StatusCode::OK, &ArtifactList { artifacts, more }))
}

pub async fn page(supervisor: &Shared, request: &Read) -> Result<Answer, Refused> {
    let Some(path) = request.parameter("path").filter(|path| path.len() <= limits::MAX_PATH_BYTES) else {
        return refuse(
            ErrorCode::BadRequest,
            "path must be relative to the artifact path, at most 4095 bytes",
        );
    };
    let at = request.number("cursor")?.unwrap_or(0);
    let limit = request.number("limit")?.unwrap_or(MAX_ARTIFACT_PAGE_BYTES);
    if !(MIN_PAGE_BYTES..=MAX_ARTIFACT_PAGE_BYTES).contains(&limit) {
        let message = format!("limit must be between {MIN_PAGE_BYTES} and {MAX_ARTIFACT_PAGE_BYTES}");
        return refuse(ErrorCode::BadRequest, message);
    }
    let of = request.parameter("job");
    let source = match request.parameter("source") {
        None if of.is_some() => Some(ArtifactSource::Log),
        None => None,
        Some(name) => {
            match [ArtifactSource::File, ArtifactSource::Log].into_iter().find(|s| s.as_str() == name) {
                Some(source) => Some(source),
                None => return refuse(ErrorCode::BadRequest, "source must be file or log"),
            }
        }
    };
    let log = match source {
        Some(ArtifactSource::File) => None,
        Some(ArtifactSource::Log) | None => newest_log(supervisor, path, of),
    };
    let answer = match log {
        Some(job) => log_page(supervisor, &job, at, limit)?,
        None if source == Some(ArtifactSource::Log) => {
            return refuse(ErrorCode::NoSuchFile, "there is no such log");
        }
        None => {
            let (bytes, end) = files::page(supervisor, path, at, limit).await?;
            cut(ArtifactSource::File, bytes, at, end, true, None)
        }
    };
    Ok(json(StatusCode::OK, &answer))
}

/// The newest log under this very path: of this job, where one is named.
fn newest_log(supervisor: &Shared, path: &str, of: Option<&str>) -> Option<JobRef> {
    let jobs = supervisor.jobs.borrow();
    let has = |job: &&JobRef| {
        of.is_none_or(|id| job.id.as_str() == id)
            && job.read(|job| job.output.log().is_some_and(|log| log.path() == path))
    };
    jobs.all().rev().find(has).cloned()
}

fn log_page(supervisor: &Shared, job: &JobRef, at: u64, limit: u64) -> Result<ArtifactPage, Refused> {
    job.read(|job| {
        let Some(log) = job.output.log() else {
            return refuse(ErrorCode::NoSuchFile, "there is no such log");
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let bytes = log.read(&supervisor.logs, at, limit).map_err(|error| Refused {
            code: ErrorCode::Internal,
            message: format!("the log cannot be read: {error}"),
        })?;
        let truncated = log.is_truncated().then_some(true);
        Ok(cut(ArtifactSource::Log, bytes, at, log.bytes(), job.end.is_some(), truncated))
    })
}

/// A page never ends inside a character, unless that is where all ends.
fn cut(
    source: ArtifactSource,
    mut bytes: Vec<u8>,
    at: u64,
    end: u64,
    complete: bool,
    truncated: Option<bool>,
) -> ArtifactPage {
    let whole = bytes.len() - unfinished_tail(&bytes);
    if whole > 0 && !(complete && at + bytes.len() as u64 == end) {
        bytes.truncate(whole);
    }
    let next = at.min(end) + bytes.len() as u64;
    let (encoding, content) = encode(bytes);
    let eof = complete && next == end;
    ArtifactPage { source, encoding, content, next: Cursor(next), end: Cursor(end), eof, truncated }
}
