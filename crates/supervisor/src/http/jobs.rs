//! The calls about jobs: start, look, wait, page, write, stop.
//!
//! Order of a start: the request is checked whole → a known id replays or conflicts → order, tombstones and bounds
//! → the job. So nothing is started that a later check would refuse.

use super::answer::{Answer, Refused, json, json_bytes, later, now, refuse, sized_json_bytes};
use super::request::Read;
use super::routes::grace;
use crate::job::{Job, JobRef};
use crate::orders::{Absence, Admission};
use crate::output::ring::Page;
use crate::stdin::{Accepted, NotAccepted};
use crate::supervisor::Shared;
use crate::{launch, limits, spec, teardown};
use bytes::Bytes;
use hyper::StatusCode;
use ringfence_wire::ids::{Cursor, Order, ProcessId};
use ringfence_wire::supervisor::{
    ErrorCode, JobList, JobState, MAX_PAGE_BYTES, MAX_TAIL_BYTES, MAX_WAIT_MS, MIN_PAGE_BYTES, OutputPage,
    StartJob, StdinAnswer, StdinResult, StdinWrite,
};
use std::time::Duration;
use tokio::time::timeout;

/// A job that stops quietly passes through `stopping` for a moment; only one that stays there is news.
const STOPPING_IS_NEWS_AFTER: Duration = Duration::from_millis(20);

/// For the size of a page's JSON: what surrounds a frame's data, and how often text needs an escape.
const PAGE_MARGIN: usize = 128;
const ESCAPES_ONE_IN: usize = 16;

/// What a caller waits for.
#[derive(Clone, Copy)]
struct Wait {
    at_most: Duration,
    wake_on_stopping: bool,
}

impl Wait {
    fn new(wait_ms: u64, wake_on_stopping: bool) -> Result<Self, Refused> {
        if wait_ms > MAX_WAIT_MS {
            return refuse(ErrorCode::BadRequest, format!("waitMs must be at most {MAX_WAIT_MS}"));
        }
        Ok(Self { at_most: Duration::from_millis(wait_ms), wake_on_stopping })
    }

    async fn for_news(self, job: &JobRef) {
        let news = async {
            if self.wake_on_stopping {
                job.until(|job| job.state() == JobState::Stopping || job.end.is_some()).await;
                let _ = timeout(STOPPING_IS_NEWS_AFTER, job.until(|job| job.end.is_some())).await;
            } else {
                job.until(|job| job.end.is_some()).await;
            }
        };
        if !self.at_most.is_zero() {
            let _ = timeout(self.at_most, news).await;
        }
    }
}

fn tail_bytes(asked: u64) -> Result<u64, Refused> {
    if asked > MAX_TAIL_BYTES {
        return refuse(ErrorCode::BadRequest, format!("tailBytes must be at most {MAX_TAIL_BYTES}"));
    }
    Ok(asked)
}

/// The job's view, at once or when there is news; the headers in any case at once.
fn answer(supervisor: &Shared, status: StatusCode, job: JobRef, wait: Wait, tail: u64) -> Answer {
    let supervisor = supervisor.clone();
    let view = move |job: &JobRef| json_bytes(&job.read(|job| job.view(&supervisor.boot_id, tail)));
    if wait.at_most.is_zero() || job.read(|job| job.end.is_some()) {
        return now(status, view(&job));
    }
    later(status, async move {
        wait.for_news(&job).await;
        view(&job)
    })
}

pub fn start(supervisor: &Shared, request: &Read) -> Result<Answer, Refused> {
    let start: StartJob = request.json()?;
    spec::check(&start)?;
    let wait = Wait::new(start.wait_ms, start.wake_on_stopping)?;
    let tail = tail_bytes(start.tail_bytes)?;
    let fingerprint = spec::fingerprint(&start);
    let known = supervisor.jobs.borrow().get(&start.id);
    if let Some(job) = known {
        return match job.read(|job| job.fingerprint == fingerprint) {
            true => Ok(answer(supervisor, StatusCode::OK, job, wait, tail)),
            false => refuse(ErrorCode::Conflict, "this id was started with another order, nonce or spec"),
        };
    }
    if supervisor.ending.get() {
        return refuse(ErrorCode::ShuttingDown, "the supervisor is ending");
    }
    bounds(supervisor)?;
    match supervisor.orders.borrow_mut().admit(&start.id, start.order) {
        Admission::Admitted => {}
        Admission::FenceClosed => {
            return refuse(ErrorCode::FenceClosed, "a teardown or a stop came before this start");
        }
        Admission::Forgotten => {
            return refuse(ErrorCode::Forgotten, "starts of this order may have been forgotten");
        }
    }
    match launch::launch(supervisor, &start, fingerprint) {
        Ok(job) => Ok(answer(supervisor, StatusCode::CREATED, job, wait, tail)),
        Err(failed) => refuse(failed.code(), format!("nothing was started: {failed}")),
    }
}

fn bounds(supervisor: &Shared) -> Result<(), Refused> {
    let jobs = supervisor.jobs.borrow();
    if jobs.running() >= supervisor.max_jobs {
        return refuse(ErrorCode::LimitReached, format!("{} jobs are running", supervisor.max_jobs));
    }
    if jobs.unacknowledged() >= limits::MAX_UNACKNOWLEDGED_ENDS {
        let message = format!("{} ends wait to be acknowledged", limits::MAX_UNACKNOWLEDGED_ENDS);
        return refuse(ErrorCode::LimitReached, message);
    }
    Ok(())
}

pub fn list(supervisor: &Shared) -> Answer {
    let jobs = supervisor.jobs.borrow();
    let list = JobList {
        jobs: jobs.all().map(|job| job.read(|job| job.view(&supervisor.boot_id, 0))).collect(),
        forgotten_mark: supervisor.orders.borrow().forgotten_mark(),
    };
    json(StatusCode::OK, &list)
}

fn find(supervisor: &Shared, request: &Read, id: &ProcessId) -> Result<JobRef, Refused> {
    let order = request.number("order")?.map(Order);
    let job = supervisor.jobs.borrow().get(id);
    match (job, supervisor.orders.borrow().absence(id, order)) {
        (Some(job), _) => Ok(job),
        (None, Absence::NeverStarted) => refuse(ErrorCode::UnknownJob, "no job of this id was started here"),
        (None, Absence::Forgotten) => refuse(ErrorCode::Forgotten, "a job of this id may have run here"),
    }
}

pub fn get(supervisor: &Shared, request: &Read, id: &ProcessId) -> Result<Answer, Refused> {
    let wait = Wait::new(request.number("waitMs")?.unwrap_or(0), request.flag("wakeOnStopping")?)?;
    let tail = tail_bytes(request.number("tailBytes")?.unwrap_or(0))?;
    let job = find(supervisor, request, id)?;
    Ok(answer(supervisor, StatusCode::OK, job, wait, tail))
}

pub async fn stop(supervisor: &Shared, request: &Read, id: &ProcessId) -> Result<Answer, Refused> {
    spec::check_id(id)?;
    let order = request.number("order")?.map(Order);
    let grace_ms = grace(request.number("graceMs")?)?;
    Ok(json(StatusCode::OK, &teardown::stop(supervisor, id, order, grace_ms).await))
}

pub fn output(supervisor: &Shared, request: &Read, id: &ProcessId) -> Result<Answer, Refused> {
    let cursor = Cursor(request.number("cursor")?.unwrap_or(0));
    let limit = request.number("limit")?.unwrap_or(MAX_PAGE_BYTES);
    if !(MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&limit) {
        let message = format!("limit must be between {MIN_PAGE_BYTES} and {MAX_PAGE_BYTES}");
        return refuse(ErrorCode::BadRequest, message);
    }
    let wait = Wait::new(request.number("waitMs")?.unwrap_or(0), false)?;
    let job = find(supervisor, request, id)?;
    let page = move |job: &Job| -> Bytes {
        let Page { base, next, end, dropped, frames } = job.output.ring.page(cursor, limit);
        let data: usize = frames.iter().map(|frame| frame.data.len() + PAGE_MARGIN).sum();
        let about = data + data / ESCAPES_ONE_IN + PAGE_MARGIN;
        let eof = job.end.is_some() && next == end;
        sized_json_bytes(&OutputPage { identity: job.identity, base, next, end, dropped, eof, frames }, about)
    };
    let there_is_news = move |job: &Job| job.output.ring.end() > cursor || job.end.is_some();
    if wait.at_most.is_zero() || job.read(there_is_news) {
        return Ok(now(StatusCode::OK, job.read(page)));
    }
    Ok(later(StatusCode::OK, async move {
        let _ = timeout(wait.at_most, job.until(there_is_news)).await;
        job.read(page)
    }))
}

pub fn stdin(supervisor: &Shared, request: &Read, id: &ProcessId) -> Result<Answer, Refused> {
    let wait = Wait::new(request.number("waitMs")?.unwrap_or(MAX_WAIT_MS), false)?;
    let write: StdinWrite = request.json()?;
    let key = write.operation_key.clone();
    let good = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if key.is_empty() || key.len() > limits::MAX_OPERATION_KEY_BYTES || !key.bytes().all(good) {
        let message =
            format!("operationKey must be 1 to {} printable characters", limits::MAX_OPERATION_KEY_BYTES);
        return refuse(ErrorCode::BadRequest, message);
    }
    let bytes = spec::input_bytes(write.encoding, write.data)?;
    let job = find(supervisor, request, id)?;
    let replayed = match job.change(|job| job.stdin.submit(&key, bytes, write.eof)) {
        Ok(Accepted::Decided(answer)) => return Ok(json(StatusCode::OK, &answer)),
        Ok(Accepted::Pending { replayed }) => replayed,
        Err(not_accepted) => {
            let code = match not_accepted {
                NotAccepted::NoStdin => ErrorCode::StdinClosed,
                NotAccepted::Conflict => ErrorCode::Conflict,
                NotAccepted::Full | NotAccepted::TooManyOperations => ErrorCode::LimitReached,
            };
            return refuse(code, not_accepted.to_string());
        }
    };
    Ok(later(StatusCode::OK, async move {
        let _ = timeout(wait.at_most, job.until(|job| job.stdin.outcome(&key, replayed).is_some())).await;
        let pending = StdinAnswer { result: StdinResult::Pending, bytes: 0, replayed };
        json_bytes(&job.read(|job| job.stdin.outcome(&key, replayed)).unwrap_or(pending))
    }))
}
