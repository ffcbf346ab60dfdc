//! Waiting, with a deadline and with words: until the engine answers, until the Worker does, until a process is
//! dead. A part that ends while it is awaited is an error at once, not at the deadline.

use super::control::EngineControl;
use super::error::StackError;
use super::guarded::{Guarded, log_tail};
use super::processes::{self, Process};
use crate::http;
use hyper::Method;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a part that offers no event to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A request sent too early can be held for ever by a runtime that is being replaced.
const ONE_LOOK: Duration = Duration::from_secs(5);
/// How often `progress` hears that the wait goes on.
const SAY_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn engine(
    control: &EngineControl,
    engine: &Guarded,
    log: &Path,
    within: Duration,
) -> Result<(), StackError> {
    let until = Instant::now() + within;
    loop {
        let last = match control.containers().await {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        if !engine.is_running() {
            return Err(engine.ended_early());
        }
        if Instant::now() >= until {
            return Err(not_ready("the engine", within, last, log));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Any answer of the Worker's own to `/health` will do, JSON with an `ok`: what it says is for the caller to judge.
pub(super) async fn worker(
    port: u16,
    wrangler: &Guarded,
    log: &Path,
    within: Duration,
    progress: &mut impl FnMut(&str),
) -> Result<(), StackError> {
    let begun = Instant::now();
    let until = begun + within;
    let mut say_at = begun + SAY_AGAIN;
    loop {
        let last = match http::over_tcp(port, Method::GET, "/health", ONE_LOOK).await {
            Ok((_, body)) if is_the_workers_own(&body) => return Ok(()),
            // wrangler's proxy answers in the Worker's place until it runs.
            Ok((status, _)) => format!("the last answer was HTTP {status}"),
            Err(error) => format!("the last look: {error}"),
        };
        if !wrangler.is_running() {
            return Err(wrangler.ended_early());
        }
        let now = Instant::now();
        if now >= until {
            return Err(not_ready("the Worker", within, last, log));
        }
        if now >= say_at {
            progress(&format!("waiting for the Worker ({} s): {last}", begun.elapsed().as_secs()));
            say_at = now + SAY_AGAIN;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Returns when `process` is dead (a zombie counts as dead).
pub(super) async fn until_dead(process: &Process) {
    while processes::is_alive(process) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_the_workers_own(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(body).is_ok_and(|health| health.get("ok").is_some())
}

fn not_ready(what: &'static str, after: Duration, last: String, log: &Path) -> StackError {
    StackError::NotReady { what, after, last, log: log.to_path_buf(), tail: log_tail(log) }
}
