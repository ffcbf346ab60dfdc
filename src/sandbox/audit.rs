//! One record per operation that changes something: what, its outcome, how long. In storage with a bound, and as one
//! log line. No command text, no path, no secret. Look-ups are not recorded: they are polled.

use std::future::Future;

use ringfence_wire::refusal::{Refusal, RefusalKind};
use serde::Serialize;
use worker::{console_error, console_log};

use super::Object;
use crate::clock;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    at: u64,
    consumer: &'a str,
    key: &'a str,
    operation: &'static str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<RefusalKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    duration_ms: u64,
    generation: u64,
}

impl Object {
    pub async fn audited<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let began = clock::now_ms();
        let result = work.await;
        self.record(operation, began, result.as_ref().err());
        result
    }

    fn record(&self, operation: &'static str, began: u64, refusal: Option<&Refusal>) {
        // A sandbox that was never made has nothing to record.
        let Ok(Some(head)) = self.store.head() else { return };
        let now = clock::now_ms();
        let event = Event {
            at: now,
            consumer: head.consumer.as_str(),
            key: head.key.as_str(),
            operation,
            ok: refusal.is_none(),
            kind: refusal.map(|refusal| refusal.kind),
            reason: refusal.and_then(|refusal| refusal.reason.as_deref()),
            duration_ms: now.saturating_sub(began),
            generation: head.generation,
        };
        let Ok(text) = serde_json::to_string(&event) else { return };
        console_log!("{text}");
        if let Err(error) = self.store.log_event(&text, now) {
            console_error!("{error}");
        }
    }
}
