//! Teardowns, stops and the supervisor's own end, composed from `core`'s decisions and one sweep each.
//!
//! Order of a teardown: its order is noted, so that no start below it gets in any more → the kill set is decided on
//! the jobs known now → each learns why it ends → one sweep → the report, with what those jobs' own end sweeps had
//! killed before it.

use crate::driver::want;
use crate::job::JobRef;
use crate::orders::Absence;
use crate::supervisor::Shared;
use crate::sweep::{self, Everyone, Targets, joined};
use crate::{limits, reap};
use ringfence_core::detached::{Declared, FenceKillMode, Phase, fence_kill_mode, fenced_kill_set};
use ringfence_core::job::EndWanted;
use ringfence_core::sweep::DEFAULT_GRACE_MS;
use ringfence_wire::evidence::{Evidence, KillMethod};
use ringfence_wire::ids::{Order, ProcessId};
use ringfence_wire::supervisor::{
    JobKind, StopFinding, StopReport, TeardownMode, TeardownReport, TeardownRequest, TrackedJob,
};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout;

/// Processes are gone; the records that say so follow within this.
const RECORDS_WAIT: Duration = Duration::from_secs(1);

pub async fn teardown(supervisor: &Shared, request: &TeardownRequest) -> TeardownReport {
    run(supervisor, request, false).await
}

/// Like a teardown that spares nothing, and ends with `kill(-1, SIGKILL)` where the supervisor is PID 1.
pub async fn kill_all(supervisor: &Shared, request: &TeardownRequest) -> TeardownReport {
    let nothing_spared = TeardownRequest { spare: Vec::new(), ..request.clone() };
    run(supervisor, &nothing_spared, true).await
}

async fn run(supervisor: &Shared, request: &TeardownRequest, by_name: bool) -> TeardownReport {
    supervisor.orders.borrow_mut().teardown(request.order, &request.spare);
    let tracked: Vec<TrackedJob> =
        supervisor.jobs.borrow().all().map(|job| job.read(|job| job.tracked())).collect();
    let mode = mode(&request.spare, &tracked);
    let doomed: HashSet<ProcessId> =
        fenced_kill_set(request.order, &request.spare, &tracked).into_iter().collect();
    let (ending, ended) = concerned(supervisor, request, &doomed);
    for job in &ending {
        want(job, EndWanted::Killed);
    }
    let everyone = match (by_name, mode) {
        (true, _) => Everyone::Always,
        (false, TeardownMode::KillAll) => Everyone::WithKill,
        (false, _) => Everyone::Never,
    };
    let targets = Targets::fence(ending.clone(), everyone);
    let evidence = sweep::run(supervisor, targets, request.grace_ms.unwrap_or(DEFAULT_GRACE_MS)).await;
    let records = async {
        for job in &ending {
            job.until(|job| job.end.is_some()).await;
        }
    };
    if evidence.complete {
        let _ = timeout(RECORDS_WAIT, records).await;
    }
    let untold = ended.iter().filter_map(|job| {
        job.change(|job| if std::mem::replace(&mut job.told, true) { None } else { job.swept.clone() })
    });
    let evidence = untold.fold(evidence, joined);
    for job in &ending {
        job.change(|job| job.told = true);
    }
    TeardownReport {
        order: request.order,
        mode,
        ended: ending
            .iter()
            .filter(|job| job.read(|job| job.end.is_some()))
            .map(|job| job.id.clone())
            .collect(),
        tracked,
        evidence,
    }
}

fn mode(spare: &[ProcessId], tracked: &[TrackedJob]) -> TeardownMode {
    let declared: Vec<Declared> = spare
        .iter()
        .map(|id| Declared { id: id.clone(), order: Order(0), phase: Phase::Confirmed })
        .collect();
    match fence_kill_mode(&declared, Some(tracked)) {
        FenceKillMode::KillAll => TeardownMode::KillAll,
        FenceKillMode::Selective => TeardownMode::Selective,
    }
}

/// The jobs this teardown ends, and those of its fence that had ended before.
fn concerned(
    supervisor: &Shared,
    request: &TeardownRequest,
    doomed: &HashSet<ProcessId>,
) -> (Vec<JobRef>, Vec<JobRef>) {
    let jobs = supervisor.jobs.borrow();
    let ending = jobs.all().filter(|job| doomed.contains(&job.id)).cloned().collect();
    let below = |job: &&JobRef| {
        job.read(|job| job.kind == JobKind::Fenced && job.end.is_some() && job.order < request.order)
    };
    let ended = jobs.all().filter(below).filter(|job| !request.spare.contains(&job.id)).cloned().collect();
    (ending, ended)
}

/// `DELETE /v1/jobs/{id}`: ends the job, or makes sure that it never starts.
pub async fn stop(
    supervisor: &Shared,
    id: &ProcessId,
    order: Option<Order>,
    grace_ms: Option<u64>,
) -> StopReport {
    let scope = supervisor.ground.scope;
    let idle = || Evidence::nothing_to_do(scope, KillMethod::NoChildLeft);
    let job = supervisor.jobs.borrow().get(id);
    let Some(job) = job else {
        let finding = match supervisor.orders.borrow().absence(id, order) {
            Absence::Forgotten => StopFinding::Forgotten,
            Absence::NeverStarted => StopFinding::NeverStarted,
        };
        if finding == StopFinding::NeverStarted {
            supervisor.orders.borrow_mut().bury(id, order);
        }
        return StopReport { id: id.clone(), finding, evidence: idle(), job: None };
    };
    let view = || Some(job.read(|job| job.view(&supervisor.boot_id, 0)));
    if job.read(|job| job.end.is_some()) {
        return StopReport {
            id: id.clone(),
            finding: StopFinding::AlreadyEnded,
            evidence: idle(),
            job: view(),
        };
    }
    want(&job, EndWanted::Cancelled);
    let evidence = sweep::run(supervisor, Targets::one(&job), grace_ms.unwrap_or(DEFAULT_GRACE_MS)).await;
    if evidence.complete {
        let _ = timeout(RECORDS_WAIT, job.until(|job| job.end.is_some())).await;
    }
    job.change(|job| job.told = true);
    StopReport { id: id.clone(), finding: StopFinding::Stopped, evidence, job: view() }
}

/// Ends everything, as the supervisor itself ends: no start gets in, every job is `interrupted`.
pub async fn end_everything(supervisor: &Shared) -> Evidence {
    supervisor.ending.set(true);
    let jobs = supervisor.live_jobs();
    for job in &jobs {
        want(job, EndWanted::Interrupted);
    }
    reap::children(supervisor);
    let evidence =
        sweep::run(supervisor, Targets::fence(jobs.clone(), Everyone::Always), DEFAULT_GRACE_MS).await;
    let records = async {
        for job in &jobs {
            job.until(|job| job.end.is_some()).await;
        }
    };
    let _ = timeout(limits::DRAIN_WAIT * 2, records).await;
    evidence
}
