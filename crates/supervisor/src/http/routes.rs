//! Which request means what. An unknown path or method is `not-found`.

use super::answer::{Answer, Refused, json, refuse};
use super::request::Read;
use super::{artifacts, jobs};
use crate::supervisor::Shared;
use crate::{clock, limits, teardown};
use hyper::{Method, StatusCode};
use ringfence_wire::supervisor::{
    Acknowledge, Deadline, ErrorCode, Hello, PROTOCOL_VERSION, TeardownRequest,
};

/// What this supervisor can do beyond the protocol's first version.
const CAPABILITIES: [&str; 2] = ["wake-on-stopping", "teardown-tells-end-sweeps"];
/// One more where the kernel can: no job traces another or opens its descriptors.
const JOBS_APART: &str = "jobs-apart";

pub async fn route(supervisor: &Shared, request: Read) -> Result<Answer, Refused> {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    match (&request.method, segments.as_slice()) {
        (&Method::GET, ["v1", "hello"]) => Ok(json(StatusCode::OK, &hello(supervisor))),
        (&Method::POST, ["v1", "jobs"]) => jobs::start(supervisor, &request),
        (&Method::GET, ["v1", "jobs"]) => Ok(jobs::list(supervisor)),
        (&Method::GET, ["v1", "jobs", id]) => jobs::get(supervisor, &request, &(*id).into()),
        (&Method::DELETE, ["v1", "jobs", id]) => jobs::stop(supervisor, &request, &(*id).into()).await,
        (&Method::GET, ["v1", "jobs", id, "output"]) => jobs::output(supervisor, &request, &(*id).into()),
        (&Method::POST, ["v1", "jobs", id, "stdin"]) => jobs::stdin(supervisor, &request, &(*id).into()),
        (&Method::GET, ["v1", "artifacts"]) => artifacts::list(supervisor).await,
        (&Method::GET, ["v1", "artifacts", "page"]) => artifacts::page(supervisor, &request).await,
        (&Method::POST, ["v1", "teardown"]) => {
            let asked = teardown_request(&request)?;
            Ok(json(StatusCode::OK, &teardown::teardown(supervisor, &asked).await))
        }
        (&Method::POST, ["v1", "kill-all"]) => {
            let asked = teardown_request(&request)?;
            Ok(json(StatusCode::OK, &teardown::kill_all(supervisor, &asked).await))
        }
        (&Method::POST, ["v1", "acknowledge"]) => acknowledge(supervisor, &request.json()?),
        (&Method::POST, ["v1", "deadline"]) => Ok(deadline(supervisor, &request.json()?)),
        _ => refuse(ErrorCode::NotFound, format!("no {} {}", request.method, request.segments.join("/"))),
    }
}

fn hello(supervisor: &Shared) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: supervisor.boot_id.clone(),
        generation: supervisor.generation,
        identity: supervisor.ground.identity,
        job_uid: supervisor.ground.credentials.wire(),
        scope: supervisor.ground.scope,
        shell: supervisor.ground.shell.to_owned(),
        order: supervisor.orders.borrow().highest(),
        deadline_at_ms: supervisor.deadline_at_ms.get(),
        now_ms: clock::now_ms(),
        capabilities: CAPABILITIES
            .into_iter()
            .chain(supervisor.ground.jobs_apart.then_some(JOBS_APART))
            .map(str::to_owned)
            .collect(),
        ignored_signals: supervisor.ignored_signals.get(),
    }
}

fn teardown_request(request: &Read) -> Result<TeardownRequest, Refused> {
    let asked: TeardownRequest = request.json()?;
    if asked.spare.len() > limits::MAX_SPARED {
        return refuse(ErrorCode::LimitReached, format!("spare names more than {} ids", limits::MAX_SPARED));
    }
    grace(asked.grace_ms)?;
    Ok(asked)
}

pub fn grace(grace_ms: Option<u64>) -> Result<Option<u64>, Refused> {
    match grace_ms {
        Some(ms) if ms > limits::MAX_GRACE_MS => {
            refuse(ErrorCode::BadRequest, format!("graceMs must be at most {}", limits::MAX_GRACE_MS))
        }
        grace => Ok(grace),
    }
}

fn acknowledge(supervisor: &Shared, acknowledged: &Acknowledge) -> Result<Answer, Refused> {
    for id in &acknowledged.ends {
        let forgotten = supervisor.jobs.borrow_mut().acknowledge(id);
        if let Some(order) = forgotten {
            supervisor.orders.borrow_mut().forget(order);
        }
    }
    Ok(json(StatusCode::OK, acknowledged))
}

fn deadline(supervisor: &Shared, wanted: &Deadline) -> Answer {
    supervisor.deadline_at_ms.set(wanted.deadline_at_ms);
    supervisor.deadline_moved.notify_waiters();
    json(StatusCode::OK, wanted)
}
