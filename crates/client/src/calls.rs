//! The calls of the contract, one method each, under the contract's names in snake case.
//!
//! Every call has a deadline. An exec's is its own timeout and what a fence adds to it (queue, boot, teardown).

use crate::error::{CallError, SetupError};
use crate::transport::{Call, Transport};
use hyper::{Method, StatusCode};
use ringfence_wire::contract::{
    AbortDone, AdmissionDone, AdmissionWish, ArtifactQuery, CanaryDone, DenialEvent, DetachedInput,
    DetachedStatus, Done, EnsureOptions, Ensured, EventsDone, EventsQuery, ExecDone, ExecInput, FileDone,
    InputDone, ListDone, ListedProcess, ListedSandbox, OutputDone, OutputQuery, PoolStatusDone, PoolUse,
    Recipe, SandboxesDone, StartDetachedDone, StartDetachedInput, StatusDone, StopDone,
};
use ringfence_wire::ids::{ProcessId, SandboxKey};
use ringfence_wire::supervisor::{ArtifactList, ArtifactPage, OutputPage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Display, Write as _};
use std::time::Duration;

/// For a call that reads or kills.
const SHORT: Duration = Duration::from_secs(30);
/// For a call that may boot a container: queue, boot with one retry.
const BOOT: Duration = Duration::from_secs(180);
/// What a clone of the recipe's repository may add.
const CLONE: Duration = Duration::from_secs(600);
/// What a fence may add to an exec's own timeout.
const FENCE: Duration = Duration::from_secs(240);
/// An exec's timeout where the input names none; the contract's default.
const DEFAULT_EXEC: Duration = Duration::from_secs(600);

/// One deployment, one token. Cheap to clone; clones share the connection pool.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// `url` is scheme and host (`http` for loopback only); `token` is the bearer token itself.
    pub fn new(url: &str, token: &str) -> Result<Self, SetupError> {
        Ok(Self { transport: Transport::new(url, token)? })
    }

    /// Scheme and authority.
    pub fn url(&self) -> &str {
        self.transport.base()
    }

    /// Nothing is sent until a call is made.
    pub fn sandbox(&self, key: impl Into<SandboxKey>) -> Sandbox {
        let key = key.into();
        let path = format!("/v1/sandboxes/{}", escape(key.as_str()));
        Sandbox { transport: self.transport.clone(), key, path }
    }

    /// The registry: this consumer's live sandboxes, those with every label given.
    pub async fn sandboxes(&self, labels: &[(String, String)]) -> Result<Vec<ListedSandbox>, CallError> {
        let mut path = "/v1/sandboxes".to_owned();
        for (index, (name, value)) in labels.iter().enumerate() {
            path.push(if index == 0 { '?' } else { '&' });
            path.push_str("label=");
            path.push_str(&escape(&format!("{name}={value}")));
        }
        let done: SandboxesDone = self.get("sandboxes", &path).await?;
        Ok(done.sandboxes)
    }

    pub async fn pool_status(&self) -> Result<Vec<PoolUse>, CallError> {
        let done: PoolStatusDone = self.get("poolStatus", "/v1/pools").await?;
        Ok(done.pools)
    }

    /// Has a sandbox of the deployment's own look at its fence, and waits for what it saw.
    pub async fn canary(&self) -> Result<CanaryDone, CallError> {
        let call = Call::new("canary", Method::POST, "/v1/canary", FENCE);
        self.transport.call(call.json(&serde_json::json!({}))?).await
    }

    /// What the last look of the running build saw.
    pub async fn canary_report(&self) -> Result<CanaryDone, CallError> {
        self.get("canary", "/v1/canary").await
    }

    /// `GET /health`: the status code and the body, as they came. Needs no valid token.
    pub async fn health(&self) -> Result<(u16, String), CallError> {
        let call = Call::new("health", Method::GET, "/health", SHORT);
        let (status, body): (StatusCode, _) = self.transport.send(&call).await?;
        Ok((status.as_u16(), String::from_utf8_lossy(&body).into_owned()))
    }

    async fn get<T: DeserializeOwned>(&self, name: &'static str, path: &str) -> Result<T, CallError> {
        self.transport.call(Call::new(name, Method::GET, path, SHORT)).await
    }
}

/// One sandbox of the token's consumer, by its key. It need not exist yet.
#[derive(Clone)]
pub struct Sandbox {
    transport: Transport,
    key: SandboxKey,
    path: String,
}

/// What [`Sandbox::exec`] sends.
pub type ExecRequest = ExecInput;

#[derive(Serialize)]
struct EnsureBody<'a> {
    recipe: &'a Recipe,
    admission: AdmissionWish,
    options: &'a EnsureOptions,
}

#[derive(Serialize)]
struct RecipeBody<'a> {
    recipe: &'a Recipe,
}

#[derive(Serialize)]
struct ReasonBody<'a> {
    reason: &'a str,
}

impl Sandbox {
    pub fn key(&self) -> &SandboxKey {
        &self.key
    }

    /// `ensureSandbox`
    pub async fn ensure(
        &self,
        recipe: &Recipe,
        admission: AdmissionWish,
        options: &EnsureOptions,
    ) -> Result<Ensured, CallError> {
        let body = EnsureBody { recipe, admission, options };
        self.post("ensureSandbox", "", &body, BOOT.saturating_add(clone(recipe))).await
    }

    /// `execUnderGrant`. Returns when the command has ended and its fence is torn down.
    pub async fn exec(&self, input: &ExecInput) -> Result<ExecDone, CallError> {
        let own = input.timeout_ms.map_or(DEFAULT_EXEC, Duration::from_millis);
        let deadline = own.saturating_add(FENCE).saturating_add(clone(&input.recipe));
        self.post("execUnderGrant", "/exec", input, deadline).await
    }

    /// `startDetached`
    pub async fn start_detached(&self, input: &StartDetachedInput) -> Result<StartDetachedDone, CallError> {
        let deadline = BOOT.saturating_add(clone(&input.recipe));
        self.post("startDetached", "/detached", input, deadline).await
    }

    /// `detachedList`
    pub async fn detached(&self) -> Result<Vec<ListedProcess>, CallError> {
        let done: ListDone = self.get("detachedList", "/detached").await?;
        Ok(done.processes)
    }

    /// `detachedStatus`
    pub async fn status(&self, id: &ProcessId) -> Result<DetachedStatus, CallError> {
        let done: StatusDone = self.get("detachedStatus", &process(id)).await?;
        Ok(done.status)
    }

    /// `detachedOutput`: one page. With `wait_ms`, an empty page is held back so long for news.
    pub async fn output(&self, id: &ProcessId, query: OutputQuery) -> Result<OutputPage, CallError> {
        let values =
            [("cursor", query.cursor.map(|c| c.0)), ("limit", query.limit), ("waitMs", query.wait_ms)];
        let path = with_query(format!("{}/output", process(id)), values);
        let done: OutputDone = self.get("detachedOutput", &path).await?;
        Ok(done.page)
    }

    /// `detachedInput`
    pub async fn input(&self, id: &ProcessId, input: &DetachedInput) -> Result<InputDone, CallError> {
        self.post("detachedInput", &format!("{}/stdin", process(id)), input, SHORT).await
    }

    /// `stopDetached`. Stopped is what [`StopDone::stopped`] says, nothing else.
    pub async fn stop(&self, id: &ProcessId) -> Result<StopDone, CallError> {
        let path = format!("{}{}", self.path, process(id));
        self.transport.call(Call::new("stopDetached", Method::DELETE, &path, SHORT)).await
    }

    /// `readFile`
    pub async fn read_file(&self, path: &str) -> Result<String, CallError> {
        let done: FileDone = self.get("readFile", &format!("/files?path={}", escape(path))).await?;
        Ok(done.content)
    }

    /// `artifacts`
    pub async fn artifacts(&self) -> Result<ArtifactList, CallError> {
        self.get("artifacts", "/artifacts").await
    }

    /// `artifact`: one page of the newest log under this `logPath` or, where there is none, of the file beneath the
    /// artifact path; the query can ask for one process's log, or for a file alone.
    pub async fn artifact(&self, path: &str, query: ArtifactQuery) -> Result<ArtifactPage, CallError> {
        let path: Vec<String> = path.split('/').map(escape).collect();
        let values = [
            ("cursor", query.cursor.map(|c| c.0.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
            ("processId", query.process_id.map(|id| escape(id.as_str()))),
            ("source", query.source.map(|source| source.as_str().to_owned())),
        ];
        self.get("artifact", &with_query(format!("/artifacts/{}", path.join("/")), values)).await
    }

    /// `denials`
    pub async fn denials(&self) -> Result<Vec<DenialEvent>, CallError> {
        let path = format!("{}/denials", self.path);
        self.transport.list(Call::new("denials", Method::GET, &path, SHORT)).await
    }

    /// `events`: one page of the audit trail; an empty one is the end of it.
    pub async fn events(&self, query: EventsQuery) -> Result<EventsDone, CallError> {
        let values = [("cursor", query.cursor), ("limit", query.limit)];
        self.get("events", &with_query("/events".to_owned(), values)).await
    }

    /// `checkpoint`
    pub async fn checkpoint(&self, reason: &str) -> Result<Done, CallError> {
        self.post("checkpoint", "/checkpoint", &ReasonBody { reason }, SHORT).await
    }

    /// `abort`: ends everything in the sandbox and the sandbox itself. Idempotent, and the only way to cancel.
    pub async fn abort(&self) -> Result<AbortDone, CallError> {
        self.post("abort", "/abort", &serde_json::json!({}), SHORT).await
    }

    /// `admissionEnqueue`
    pub async fn admission_enqueue(&self, recipe: &Recipe) -> Result<AdmissionDone, CallError> {
        self.post("admissionEnqueue", "/admission/enqueue", &RecipeBody { recipe }, SHORT).await
    }

    /// `admissionAttempt`
    pub async fn admission_attempt(&self, recipe: &Recipe) -> Result<AdmissionDone, CallError> {
        self.post("admissionAttempt", "/admission/attempt", &RecipeBody { recipe }, SHORT).await
    }

    /// `admissionRelease`
    pub async fn admission_release(&self) -> Result<Done, CallError> {
        self.post("admissionRelease", "/admission/release", &serde_json::json!({}), SHORT).await
    }

    async fn get<T: DeserializeOwned>(&self, name: &'static str, path: &str) -> Result<T, CallError> {
        let path = format!("{}{path}", self.path);
        self.transport.call(Call::new(name, Method::GET, &path, SHORT)).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        name: &'static str,
        path: &str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, CallError> {
        let path = format!("{}{path}", self.path);
        self.transport.call(Call::new(name, Method::POST, &path, deadline).json(body)?).await
    }
}

/// The path with those of the values that are given, already escaped.
fn with_query<T: Display, const N: usize>(mut path: String, values: [(&str, Option<T>); N]) -> String {
    let mut separator = '?';
    for (name, value) in values {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = write!(path, "{separator}{name}={value}");
            separator = '&';
        }
    }
    path
}

fn clone(recipe: &Recipe) -> Duration {
    if recipe.repo.is_some() { CLONE } else { Duration::ZERO }
}

fn process(id: &ProcessId) -> String {
    format!("/detached/{}", escape(id.as_str()))
}

/// Percent-encodes all but the unreserved characters, so that no text can add a segment or a parameter, or fold one
/// away: a URL parser drops `.` and `..`, encoded or not, so these are encoded twice and arrive as names nobody has.
fn escape(text: &str) -> String {
    if matches!(text, "." | "..") {
        return text.replace('.', "%252E");
    }
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_add_a_path_segment_or_a_parameter() {
        let client = Client::new("http://127.0.0.1:1", "t").unwrap();
        assert_eq!(client.sandbox("a/../b?c=d").path, "/v1/sandboxes/a%2F..%2Fb%3Fc%3Dd");
        assert_eq!(client.sandbox(".").path, "/v1/sandboxes/%252E");
        assert_eq!(client.sandbox("..").path, "/v1/sandboxes/%252E%252E");
        assert_eq!(client.sandbox("plain:key.1_2-3").path, "/v1/sandboxes/plain%3Akey.1_2-3");
    }
}
