//! The client of the supervisor in the container: HTTP and JSON over `getTcpPort(7117)`.
//!
//! Invariant: an answer counts only if it carries the boot id and the generation the object shook hands with; any
//! other answer comes from another supervisor, and the one that was spoken to is [`CallError::Lost`], never
//! finished. Every call has a deadline, and a call that is given up is aborted, so that it holds no connection.

use js_sys::Promise;
use ringfence_wire::contract::{ArtifactQuery, OutputQuery};
use ringfence_wire::ids::{BootId, Order, ProcessId};
use ringfence_wire::supervisor::{
    Acknowledge, ArtifactList, ArtifactPage, BOOT_ID_HEADER, BOOT_KEY_HEADER, Deadline, ErrorBody, ErrorCode,
    FILE_SHA256_HEADER, GENERATION_HEADER, Hello, JobList, JobState, JobView, MAX_WAIT_MS, OutputPage, PORT,
    StartJob, StdinAnswer, StdinWrite, StopReport, TeardownReport, TeardownRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::web_sys::{AbortController, Headers, RequestInit, Response};

use crate::clock::{self, DeadlinePassed};
use crate::container::{Container, ContainerError};
use crate::objects::thrown;

/// A call that asks the supervisor for something it has at hand.
pub const QUICK_DEADLINE_MS: u64 = 5_000;
/// A call that may wait [`MAX_WAIT_MS`] for news.
pub const WAIT_DEADLINE_MS: u64 = MAX_WAIT_MS + 3_000;
/// A stop or a teardown: its grace, the kill after it, and the way.
pub const SWEEP_DEADLINE_MS: u64 = 10_000;

/// The longest answer taken in; it is held in memory several times over on its way to the caller.
const MAX_ANSWER_BYTES: u64 = 4 * 1024 * 1024;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = js_sys::Object, js_name = Object)]
    #[derive(Clone, Debug)]
    type Port;
    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Port, url: &str, init: &RequestInit) -> Result<Promise, JsValue>;
}

/// Why a call has no answer to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing came back. The call may have been carried out.
    #[error("the supervisor cannot be reached: {0}")]
    Unreachable(String),
    /// Likewise: nothing came back in time.
    #[error("the supervisor gave {0}")]
    Late(#[from] DeadlinePassed),
    /// The answer came from another boot than the one the object knows.
    #[error("the container was restarted: its supervisor is another one")]
    Lost,
    /// The supervisor's own word, one of a closed set.
    #[error("the supervisor refused ({code:?}): {message}")]
    Refused { code: ErrorCode, message: String },
    /// Something came back that is no answer. The call may have been carried out.
    #[error("the supervisor's answer cannot be read: {0}")]
    Unreadable(String),
}

impl CallError {
    pub fn refused_as(&self, wanted: ErrorCode) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// True if it is not known whether the supervisor carried the call out.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Late(_) | Self::Unreadable(_))
    }
}

impl From<ContainerError> for CallError {
    fn from(error: ContainerError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// How far a job must be before a wait for it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its command ended or timed out; what it left may still live.
    CommandEnded,
    /// It is terminal.
    Terminal,
}

impl Until {
    pub fn reached_by(self, job: &JobView) -> bool {
        job.state.is_terminal() || (self == Self::CommandEnded && job.state == JobState::Stopping)
    }
}

/// What a supervisor that is the right one said.
struct Answer {
    text: String,
    /// Of a file: what its bytes hash to.
    sha256: Option<String>,
}

/// One boot's supervisor, as the object's storage knows it.
#[derive(Clone, Debug)]
pub struct Supervisor {
    port: Port,
    boot_key: String,
    generation: u64,
    /// `None` before the handshake.
    boot_id: Option<BootId>,
    #[cfg(feature = "test-origins")]
    connections: crate::connections::Connections,
}

impl Supervisor {
    pub fn new(
        container: &Container,
        boot_key: String,
        generation: u64,
        boot_id: Option<BootId>,
    ) -> Result<Self, ContainerError> {
        let port: JsValue = container.port(PORT)?.into();
        Ok(Self {
            port: port.unchecked_into(),
            boot_key,
            generation,
            boot_id,
            #[cfg(feature = "test-origins")]
            connections: container.connections.clone(),
        })
    }

    /// The same supervisor over other connections.
    pub fn apart(&self, container: &Container) -> Result<Self, ContainerError> {
        Self::new(container, self.boot_key.clone(), self.generation, self.boot_id.clone())
    }

    pub fn boot_id(&self) -> Option<&BootId> {
        self.boot_id.as_ref()
    }

    pub async fn hello(&self, deadline_ms: u64) -> Result<Hello, CallError> {
        self.call("GET", "/v1/hello", None::<&()>, deadline_ms).await
    }

    pub async fn start_job(&self, job: &StartJob) -> Result<JobView, CallError> {
        self.call("POST", "/v1/jobs", Some(job), QUICK_DEADLINE_MS + job.wait_ms).await
    }

    pub async fn jobs(&self) -> Result<JobList, CallError> {
        self.call("GET", "/v1/jobs", None::<&()>, QUICK_DEADLINE_MS).await
    }

    pub async fn job(&self, id: &ProcessId, order: Order) -> Result<JobView, CallError> {
        self.call("GET", &format!("/v1/jobs/{id}?order={}", order.0), None::<&()>, QUICK_DEADLINE_MS).await
    }

    /// Answers when the job is as far as `until` says, or after [`MAX_WAIT_MS`].
    pub async fn await_job(
        &self,
        id: &ProcessId,
        order: Order,
        tail_bytes: u64,
        until: Until,
    ) -> Result<JobView, CallError> {
        let wake = until == Until::CommandEnded;
        let path = format!(
            "/v1/jobs/{id}?order={}&waitMs={MAX_WAIT_MS}&tailBytes={tail_bytes}&wakeOnStopping={wake}",
            order.0
        );
        self.call("GET", &path, None::<&()>, WAIT_DEADLINE_MS).await
    }

    /// Stops the job; of one never started it leaves a tombstone that refuses a later start.
    pub async fn stop_job(
        &self,
        id: &ProcessId,
        order: Order,
        grace_ms: u64,
    ) -> Result<StopReport, CallError> {
        let path = format!("/v1/jobs/{id}?order={}&graceMs={grace_ms}", order.0);
        self.call("DELETE", &path, None::<&()>, SWEEP_DEADLINE_MS).await
    }

    pub async fn output(&self, id: &ProcessId, query: OutputQuery) -> Result<OutputPage, CallError> {
        let mut path = format!("/v1/jobs/{id}/output?cursor={}", query.cursor.unwrap_or_default().0);
        if let Some(limit) = query.limit {
            path.push_str(&format!("&limit={limit}"));
        }
        if let Some(wait) = query.wait_ms {
            path.push_str(&format!("&waitMs={wait}"));
        }
        self.call("GET", &path, None::<&()>, QUICK_DEADLINE_MS + query.wait_ms.unwrap_or(0)).await
    }

    /// Answers when the write is decided, or that it is pending after [`MAX_WAIT_MS`].
    pub async fn write_stdin(&self, id: &ProcessId, write: &StdinWrite) -> Result<StdinAnswer, CallError> {
        let path = format!("/v1/jobs/{id}/stdin?waitMs={MAX_WAIT_MS}");
        self.call("POST", &path, Some(write), WAIT_DEADLINE_MS).await
    }

    pub async fn teardown(&self, request: &TeardownRequest) -> Result<TeardownReport, CallError> {
        self.call("POST", "/v1/teardown", Some(request), SWEEP_DEADLINE_MS).await
    }

    pub async fn kill_all(
        &self,
        request: &TeardownRequest,
        deadline_ms: u64,
    ) -> Result<TeardownReport, CallError> {
        self.call("POST", "/v1/kill-all", Some(request), deadline_ms).await
    }

    pub async fn acknowledge(&self, ends: Vec<ProcessId>) -> Result<(), CallError> {
        let body = Acknowledge { ends };
        self.call::<serde_json::Value>("POST", "/v1/acknowledge", Some(&body), QUICK_DEADLINE_MS)
            .await
            .map(drop)
    }

    pub async fn set_deadline(&self, deadline_at_ms: u64) -> Result<Deadline, CallError> {
        let body = Deadline { deadline_at_ms };
        self.call("POST", "/v1/deadline", Some(&body), QUICK_DEADLINE_MS).await
    }

    /// The text of one regular file beneath the paths that may be read; whole, as its digest proves, or not at all.
    pub async fn read_file(&self, path: &str) -> Result<String, CallError> {
        let path = format!("/v1/files?path={}", String::from(js_sys::encode_uri_component(path)));
        let answer = self.exchange("GET", &path, None, QUICK_DEADLINE_MS).await?;
        // A file that is not UTF-8 has another digest than its text.
        if answer.sha256 == Some(hex::encode(Sha256::digest(&answer.text))) {
            Ok(answer.text)
        } else {
            Err(CallError::Unreadable("the file is not UTF-8 text, or not all of it arrived".to_owned()))
        }
    }

    pub async fn artifacts(&self) -> Result<ArtifactList, CallError> {
        self.call("GET", "/v1/artifacts", None::<&()>, QUICK_DEADLINE_MS).await
    }

    /// `path` is relative to the artifact path.
    pub async fn artifact(&self, path: &str, query: ArtifactQuery) -> Result<ArtifactPage, CallError> {
        let encoded = |text: &str| String::from(js_sys::encode_uri_component(text));
        let mut asked = format!("/v1/artifacts/page?path={}", encoded(path));
        if let Some(cursor) = query.cursor {
            asked.push_str(&format!("&cursor={}", cursor.0));
        }
        if let Some(limit) = query.limit {
            asked.push_str(&format!("&limit={limit}"));
        }
        if let Some(id) = query.process_id {
            asked.push_str(&format!("&job={}", encoded(id.as_str())));
        }
        if let Some(source) = query.source {
            asked.push_str(&format!("&source={}", source.as_str()));
        }
        self.call("GET", &asked, None::<&()>, QUICK_DEADLINE_MS).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
        deadline_ms: u64,
    ) -> Result<T, CallError> {
        let body = body.map(serde_json::to_string).transpose();
        let body = body.map_err(|e| CallError::Unreadable(e.to_string()))?;
        let answer = self.exchange(method, path, body, deadline_ms).await?;
        serde_json::from_str(&answer.text).map_err(|e| CallError::Unreadable(e.to_string()))
    }

    /// One request and its whole answer, within one deadline.
    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
        deadline_ms: u64,
    ) -> Result<Answer, CallError> {
        let abort = AbortController::new().map_err(unreachable)?;
        let init = RequestInit::new();
        init.set_method(method);
        init.set_signal(Some(&abort.signal()));
        let headers = Headers::new().map_err(unreachable)?;
        headers.set(BOOT_KEY_HEADER, &self.boot_key).map_err(unreachable)?;
        if let Some(body) = &body {
            headers.set("content-type", "application/json").map_err(unreachable)?;
            init.set_body(&JsValue::from_str(body));
        }
        init.set_headers(&headers);
        let request = async {
            #[cfg(feature = "test-origins")]
            let _permit = self.connections.permit().await;
            let promise = self.port.fetch(&format!("http://sandbox{path}"), &init).map_err(unreachable)?;
            let answer: Response =
                JsFuture::from(promise).await.map_err(unreachable)?.dyn_into().map_err(unreachable)?;
            let length = answer.headers().get("content-length").ok().flatten();
            if length
                .and_then(|length| length.parse().ok())
                .is_some_and(|length: u64| length > MAX_ANSWER_BYTES)
            {
                abort.abort();
                let message = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
                return Err(CallError::Refused { code: ErrorCode::TooLarge, message });
            }
            let text = JsFuture::from(answer.text().map_err(unreachable)?).await.map_err(unreachable)?;
            self.judge(&answer, text.as_string().unwrap_or_default())
        };
        match clock::within(deadline_ms, request).await {
            Ok(answered) => answered,
            Err(late) => {
                abort.abort();
                Err(late.into())
            }
        }
    }

    fn judge(&self, answer: &Response, text: String) -> Result<Answer, CallError> {
        let header = |name: &str| answer.headers().get(name).ok().flatten();
        if answer.status() == 401 {
            return Err(CallError::Lost);
        }
        let (Some(boot_id), Some(generation)) = (header(BOOT_ID_HEADER), header(GENERATION_HEADER)) else {
            return Err(CallError::Unreachable(format!("status {} from no supervisor", answer.status())));
        };
        let same_boot = self.boot_id.as_ref().is_none_or(|known| known.as_str() == boot_id);
        if !same_boot || generation != self.generation.to_string() {
            return Err(CallError::Lost);
        }
        if answer.ok() {
            return Ok(Answer { text, sha256: header(FILE_SHA256_HEADER) });
        }
        match serde_json::from_str::<ErrorBody>(&text) {
            Ok(ErrorBody { code, message }) => Err(CallError::Refused { code, message }),
            Err(e) => Err(CallError::Unreadable(format!("status {}: {e}", answer.status()))),
        }
    }
}

fn unreachable(value: JsValue) -> CallError {
    CallError::Unreachable(thrown(&value))
}
