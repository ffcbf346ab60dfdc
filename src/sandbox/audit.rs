//! One record per operation that changes something: what, its outcome, how long. In storage with a bound, and as one
//! log line. No command text, no path, no secret. Look-ups are not recorded: they are polled. Nor is an alarm, but what
//! it does: an expiry is an operation like an abort.

use std::future::Future;

use ringfence_wire::contract::{EventsDone, SandboxEvent};
use ringfence_wire::refusal::Refusal;
use worker::{console_error, console_log};

use super::Object;
use crate::clock;
use crate::sql::StoreError;

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
        self.record(operation, id, began, result.as_ref().err());
        result
    }

    fn record(&self, operation: &str, id: Option<String>, began: u64, refusal: Option<&Refusal>) {
        // A sandbox that was never made has nothing to record.
        let Ok(Some(head)) = self.store.head() else { return };
        let now = clock::now_ms();
        let event = SandboxEvent {
            at: now,
            consumer: head.consumer,
            key: head.key,
            operation: operation.to_owned(),
            id,
            ok: refusal.is_none(),
            kind: refusal.map(|refusal| refusal.kind),
            reason: refusal.and_then(|refusal| refusal.reason.clone()),
            duration_ms: now.saturating_sub(began),
            generation: head.generation,
        };
        let Ok(text) = serde_json::to_string(&event) else { return };
        console_log!("{text}");
        if let Err(error) = self.store.log_event(&text, now) {
            console_error!("{error}");
        }
    }

    pub fn events(&self) -> Result<EventsDone, StoreError> {
        let wakeups = self.store.head()?.map_or(0, |head| head.wakeups);
        Ok(EventsDone { events: self.store.events()?, wakeups })
    }
}
