//! One record per operation that changes something: what, its outcome, how long. In storage with a bound, and as one
//! log line. No command text, no path, no secret. Look-ups are not recorded: they are polled. Nor is an alarm, but what
//! it does: an expiry, or the end of a container at last, is an operation like an abort. A sweep that killed or left
//! anything is a record of its own, `sweep`, with names.
//!
//! A teardown whose container was not seen gone within its time is a record of its own, `OrphanedSandbox`, that names
//! the sandbox, its consumer and its labels: the alarm goes on trying, and whoever reads either knows what to look for.

use std::future::Future;

use ringfence_wire::contract::{EventsDone, EventsQuery, MAX_NAMES_IN_EVENT, SandboxEvent, Swept};
use ringfence_wire::evidence::{Evidence, SeenProcess};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use worker::{console_error, console_log, console_warn};

use super::Object;
use super::refusals::CONTAINER_NOT_GONE;
use super::store::head::{Boot, Head};
use super::store::tables::EventsPage;
use crate::clock;
use crate::sql::StoreError;

/// The operation of a teardown that was given up.
const ORPHANED: &str = "OrphanedSandbox";

impl Object {
    /// `id` is what the operation is about: a process, an idempotency key.
    pub async fn audited<T>(
        &self,
        operation: &str,
        id: Option<String>,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let began = clock::now_ms();
        let result = work.await;
        // A sandbox that was never made has nothing to record.
        if let Ok(Some(head)) = self.store.head() {
            let refusal = result.as_ref().err();
            self.record(SandboxEvent {
                id,
                kind: refusal.map(|refusal| refusal.kind),
                reason: refusal.and_then(|refusal| refusal.reason.clone()),
                ..event(&head, operation, refusal.is_none(), began)
            });
        }
        result
    }

    /// One event for one sweep, if there was anything to sweep. `id` is whose it was, where it was one job's.
    pub fn record_sweep(&self, id: Option<String>, evidence: &Evidence) {
        if evidence.complete && evidence.killed_count == 0 {
            return;
        }
        let names = |seen: &[SeenProcess]| {
            let name = |one: &SeenProcess| format!("{} ({})", one.name, one.identity.pid);
            seen.iter().take(MAX_NAMES_IN_EVENT).map(name).collect()
        };
        let swept = Swept {
            complete: evidence.complete,
            killed_count: evidence.killed_count,
            killed: names(&evidence.killed),
            survivors: names(&evidence.survivors),
        };
        let Ok(Some(head)) = self.store.head() else { return };
        self.record(SandboxEvent {
            id,
            swept: Some(swept),
            duration_ms: evidence.elapsed_ms,
            ..event(&head, "sweep", evidence.complete, clock::now_ms())
        });
    }

    /// The teardown that began then is over its time. `head` is as it was before it.
    pub fn orphaned(&self, head: &Head, began: u64) {
        // A second teardown of the same container finds the head without what the first one erased.
        let known = || self.store.last_event(ORPHANED).ok().flatten().and_then(|event| event.labels);
        let again = head.boot == Boot::Tainted && head.created_at.is_none();
        let labels = if again { known() } else { None };
        self.record(SandboxEvent {
            kind: Some(RefusalKind::SandboxUnavailable),
            reason: Some(CONTAINER_NOT_GONE.to_owned()),
            labels: Some(labels.unwrap_or_else(|| head.labels())),
            ..event(head, ORPHANED, false, began)
        });
    }

    /// An operation that the alarm began then, and that is done.
    pub fn done_by_alarm(&self, head: &Head, operation: &str, began: u64) {
        self.record(event(head, operation, true, began));
    }

    fn record(&self, mut event: SandboxEvent) {
        match self.store.log_event(&event) {
            Ok(seq) => event.seq = seq,
            Err(error) => console_error!("{error}"),
        }
        let Ok(text) = serde_json::to_string(&event) else { return };
        if event.operation == ORPHANED { console_warn!("{text}") } else { console_log!("{text}") }
    }

    pub fn events(&self, query: EventsQuery) -> Result<EventsDone, StoreError> {
        let wakeups = self.store.head()?.map_or(0, |head| head.wakeups);
        let EventsPage { events, next, dropped } = self.store.events(query)?;
        Ok(EventsDone { events, next, dropped, wakeups })
    }
}

fn event(head: &Head, operation: &str, ok: bool, began: u64) -> SandboxEvent {
    let now = clock::now_ms();
    SandboxEvent {
        seq: 0,
        at: now,
        consumer: head.consumer.clone(),
        key: head.key.clone(),
        operation: operation.to_owned(),
        id: None,
        ok,
        kind: None,
        reason: None,
        duration_ms: now.saturating_sub(began),
        generation: head.generation,
        labels: None,
        swept: None,
    }
}
