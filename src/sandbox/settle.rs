//! A job's answer that was lost, or is yet to come: asking until `ringfence_core::settle` knows.
//!
//! Invariant: what an answer proves is decided there; here it is only asked for. Nothing is ever sent twice: a start
//! that was not answered is looked up by its id, and if the supervisor does not know it, a tombstone is left first.
//! Every silence has a deadline, and a silence that outlasts it is an unknown, not a no.

use ringfence_core::settle::{Answer, Ask, Sent, Settlement, settle};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use ringfence_wire::supervisor::{ErrorCode, JobView, StopReport};

use super::boot::Up;
use super::{Object, refusals};
use crate::clock;
use crate::sql::StoreError;
use crate::supervisor::{CallError, SWEEP_DEADLINE_MS, Until};

/// How long a silent supervisor is asked again before its silence is taken for an answer.
const SETTLE_DEADLINE_MS: u64 = 10_000;
/// Between two questions to a silent supervisor.
const SETTLE_PAUSE_MS: u64 = 100;
/// TERM to KILL for a job that is stopped because nobody waits for it any more.
const SETTLE_GRACE_MS: u64 = 1_000;

/// A job that was to be run and that nothing can be shown of.
#[derive(Clone, Debug)]
pub enum Unproven {
    /// Proven not to have run, now or later.
    NotRun(Refusal),
    /// It may have run, and how it ended cannot be known.
    Unknown(String),
}

impl Unproven {
    pub fn unknown(detail: impl ToString) -> Self {
        Self::Unknown(detail.to_string())
    }
}

impl From<Refusal> for Unproven {
    fn from(refusal: Refusal) -> Self {
        Self::NotRun(refusal)
    }
}

impl From<StoreError> for Unproven {
    fn from(error: StoreError) -> Self {
        Self::NotRun(error.into())
    }
}

/// What came back to one question.
enum Heard {
    Nobody(String),
    BootGone,
    Job(Box<JobView>),
    UnknownJob,
    Forgotten,
    Stop(Box<StopReport>),
}

impl Heard {
    fn of<T>(answer: Result<T, CallError>, heard: impl FnOnce(Box<T>) -> Self) -> Self {
        match answer {
            Ok(answer) => heard(Box::new(answer)),
            Err(CallError::Lost) => Self::BootGone,
            Err(error) if error.refused_as(ErrorCode::UnknownJob) => Self::UnknownJob,
            Err(error) if error.refused_as(ErrorCode::Forgotten) => Self::Forgotten,
            Err(error) => Self::Nobody(error.to_string()),
        }
    }

    fn answer(&self) -> Answer<'_> {
        match self {
            Self::Nobody(_) => Answer::Nobody,
            Self::BootGone => Answer::BootGone,
            Self::Job(view) => Answer::Job(view),
            Self::UnknownJob => Answer::UnknownJob,
            Self::Forgotten => Answer::Forgotten,
            Self::Stop(report) => Answer::Stop(report),
        }
    }

    fn job(self) -> Option<JobView> {
        match self {
            Self::Job(view) => Some(*view),
            Self::Stop(report) => report.job,
            _ => None,
        }
    }
}

impl Object {
    /// A start whose answer was not the job. `Ok` if it runs or ran after all.
    pub async fn settle_start(&self, up: &Up, sent: &Sent, error: CallError) -> Result<JobView, Unproven> {
        match error {
            CallError::Refused { code, message } if proves_not_started(code) => {
                Err(Unproven::NotRun(not_started(code, message)))
            }
            error => self.find_or_forbid(up, sent, &error.to_string()).await,
        }
    }

    /// Looks for a job that may have been started; if the supervisor does not know it, forbids it.
    pub async fn find_or_forbid(&self, up: &Up, sent: &Sent, why: &str) -> Result<JobView, Unproven> {
        let give_up_at = clock::now_ms() + SETTLE_DEADLINE_MS;
        let mut ask = Ask::Again;
        loop {
            let heard = match ask {
                _ if !self.container_runs() => Heard::BootGone,
                Ask::Again => Heard::of(up.supervisor.job(&sent.id, sent.order).await, Heard::Job),
                Ask::Stop => Heard::of(
                    up.supervisor.stop_job(&sent.id, sent.order, SETTLE_GRACE_MS).await,
                    Heard::Stop,
                ),
            };
            match settle(sent, heard.answer()) {
                Settlement::Ended(_) | Settlement::Runs(_) => {
                    return heard
                        .job()
                        .ok_or_else(|| Unproven::unknown("the supervisor's answer lacks the job"));
                }
                Settlement::NeverRan => {
                    return Err(Unproven::NotRun(refusals::unavailable("not-started", why)));
                }
                Settlement::Unknown(unknown) => return Err(Unproven::unknown(unknown)),
                Settlement::Pending(_) if clock::now_ms() >= give_up_at => {
                    let last = if let Heard::Nobody(last) = heard { last } else { why.to_owned() };
                    return Err(Unproven::Unknown(last));
                }
                Settlement::Pending(Ask::Stop) => ask = Ask::Stop,
                Settlement::Pending(Ask::Again) => {
                    // A tombstone that was asked for and not confirmed is asked for again.
                    clock::sleep_ms(SETTLE_PAUSE_MS).await;
                }
            }
        }
    }

    /// A terminal job whose answer came without its output's tail, once more, with it if it can be had.
    pub async fn with_tail(&self, up: &Up, job: JobView, tail_bytes: u64) -> JobView {
        if job.tail.is_some() || tail_bytes == 0 || !self.container_runs() {
            return job;
        }
        up.supervisor.await_job(&job.id, job.order, tail_bytes, Until::Terminal).await.unwrap_or(job)
    }

    /// Follows a job that was started until it is as far as asked. `limit_ms` is how long it may take by its own
    /// rules: the supervisor ends it then, and one that does not is given up a little later.
    pub async fn follow(
        &self,
        epoch: u64,
        up: &Up,
        mut view: JobView,
        tail_bytes: u64,
        until: Until,
        limit_ms: u64,
    ) -> Result<JobView, Unproven> {
        let give_up_at = clock::now_ms() + limit_ms + SWEEP_DEADLINE_MS;
        let mut silent_since = None;
        loop {
            if until.reached_by(&view) {
                return Ok(view);
            }
            if self.still(epoch).is_err() {
                return Err(Unproven::unknown(
                    "the sandbox was aborted, checkpointed or expired while it ran",
                ));
            }
            if !self.container_runs() {
                return Err(Unproven::unknown("its container stopped"));
            }
            let now = clock::now_ms();
            if now >= give_up_at {
                return Err(Unproven::unknown("it did not end at its time limit"));
            }
            match up.supervisor.await_job(&view.id, view.order, tail_bytes, until).await {
                Ok(answer) => {
                    view = answer;
                    silent_since = None;
                }
                Err(error) if error.is_silence() => {
                    let since = *silent_since.get_or_insert(now);
                    if clock::now_ms().saturating_sub(since) >= SETTLE_DEADLINE_MS {
                        return Err(Unproven::unknown(error));
                    }
                    clock::sleep_ms(SETTLE_PAUSE_MS).await;
                }
                Err(error) => return Err(Unproven::unknown(error)),
            }
        }
    }
}

fn not_started(code: ErrorCode, message: String) -> Refusal {
    match code {
        ErrorCode::BadRequest | ErrorCode::TooLarge => Refusal::new(RefusalKind::RecipeRejected, message),
        _ => refusals::unavailable("not-started", message),
    }
}

/// An error of the closed set that says the job was not started and will not be.
fn proves_not_started(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::BadRequest
            | ErrorCode::FenceClosed
            | ErrorCode::TooLarge
            | ErrorCode::LimitReached
            | ErrorCode::ShuttingDown
    )
}
