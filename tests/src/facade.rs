//! The facade as a consumer meets it: one handle per sandbox, typed by the wire's own types, over the RPC face
//! (through the fixture consumer) or the HTTP face.

use crate::control::{CallLog, Container, Match};
use crate::eventually::eventually;
use crate::http::{Answer, send, send_json};
use crate::processes::{self, Process};
use crate::stack::Stack;
use anyhow::{Result, ensure};
use ringfence_wire::contract::{
    AbortDone, DenialEvent, DetachedStatus, Ensured, EventsDone, ExecDone, ListDone, OutputDone,
    StartDetachedDone, StatusDone, StopDone,
};
use ringfence_wire::refusal::{Outcome, Refusal, RefusalKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// The fixture consumer's place on the stack's one port.
pub const FIXTURE: &str = "/@ringfence-e2e-consumer";

/// What a call over the RPC face did: a refusal is a return, never a throw.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rpc {
    Returned(Value),
    Threw { name: String, message: String },
}

impl Rpc {
    pub fn outcome<T: DeserializeOwned>(self) -> Outcome<T> {
        match self {
            Self::Returned(value) => serde_json::from_value(value.clone())
                .unwrap_or_else(|e| panic!("{e}: the contract has no such answer: {value}")),
            Self::Threw { name, message } => panic!("a typed answer was due, thrown was {name}: {message}"),
        }
    }
}

#[track_caller]
pub fn done<T: std::fmt::Debug>(outcome: Outcome<T>) -> T {
    match outcome {
        Outcome::Done(done) => done,
        Outcome::Refused(refusal) => panic!("refused: {refusal:?}"),
    }
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(outcome: Outcome<T>, kind: RefusalKind) -> Refusal {
    match outcome {
        Outcome::Refused(refusal) => {
            assert_eq!(refusal.kind, kind, "{refusal:?}");
            refusal
        }
        Outcome::Done(done) => panic!("{kind:?} was due, done was {done:?}"),
    }
}

impl Stack {
    /// Calls `binding.method(...args)` in the fixture consumer.
    pub async fn rpc(&self, binding: &str, method: &str, args: Value) -> Rpc {
        self.fixture(&format!("rpc/{binding}/{method}"), &args).await
    }

    /// Calls a method straight at a Durable Object, past the facade.
    pub async fn object(&self, binding: &str, name: &str, method: &str, args: Value) -> Rpc {
        self.fixture(&format!("object/{binding}/{}/{method}", escape(name)), &args).await
    }

    async fn fixture(&self, path: &str, args: &Value) -> Rpc {
        self.try_fixture(path, args).await.expect("an answer")
    }

    async fn try_fixture(&self, path: &str, args: &Value) -> Result<Rpc> {
        let answer = send_json(self.front(), "POST", &format!("{FIXTURE}/{path}"), args).await?;
        ensure!(answer.status == 200, "{path}: status {}: {}", answer.status, answer.text());
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// A request to the HTTP face.
    pub async fn http(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: impl Into<bytes::Bytes>,
    ) -> Answer {
        let bearer = token.map(|t| format!("Bearer {t}"));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(bearer.as_deref().map(|b| ("authorization", b)));
        send(self.front(), method, path, &headers, body).await.expect("an answer")
    }

    /// The part of a container's name that says whose it is.
    pub async fn object_id(&self, name: &str) -> String {
        let path = format!("{FIXTURE}/object-id/SANDBOX/{}", escape(name));
        send(self.front(), "GET", &path, &[], "").await.expect("an answer").text()
    }

    /// A sandbox of the consumer whose binding this is, under a key.
    pub async fn sandbox(self: &Arc<Self>, binding: &'static str, key: &str) -> Sandbox {
        let name = format!("{}:{key}", binding.to_lowercase().replace('_', "-"));
        let object = self.object_id(&name).await;
        Sandbox { stack: self.clone(), binding, key: key.to_owned(), name, object }
    }
}

fn escape(segment: &str) -> String {
    segment
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[derive(Clone)]
pub struct Sandbox {
    pub stack: Arc<Stack>,
    pub binding: &'static str,
    pub key: String,
    /// `consumer:key`
    pub name: String,
    /// The Durable Object's id, which its container's name holds.
    pub object: String,
}

impl Sandbox {
    pub async fn call<T: DeserializeOwned>(&self, method: &str, args: &[Value]) -> Outcome<T> {
        self.try_call(method, args).await.expect("an answer").outcome()
    }

    pub async fn ensure(&self) -> Outcome<Ensured> {
        self.call("ensureSandbox", &[recipe(), json!({ "mode": "refuse" })]).await
    }

    pub async fn exec(&self, command: &str) -> Outcome<ExecDone> {
        self.exec_as(&fresh_key(), command).await
    }

    pub async fn exec_as(&self, idempotency_key: &str, command: &str) -> Outcome<ExecDone> {
        self.exec_input(exec_input(idempotency_key, command)).await
    }

    pub async fn exec_input(&self, input: Value) -> Outcome<ExecDone> {
        self.call("execUnderGrant", &[input]).await
    }

    /// An exec that goes on while the test looks at it.
    pub fn exec_meanwhile(&self, command: &str) -> JoinHandle<Outcome<ExecDone>> {
        let (sandbox, command) = (self.clone(), command.to_owned());
        tokio::spawn(async move { sandbox.exec(&command).await })
    }

    pub async fn start(&self, command: &str) -> Outcome<StartDetachedDone> {
        self.start_as(&fresh_key(), command).await
    }

    pub async fn start_as(&self, idempotency_key: &str, command: &str) -> Outcome<StartDetachedDone> {
        self.call("startDetached", &[start_input(idempotency_key, command)]).await
    }

    /// A call whose caller may lose its answer, when the runtime is killed under it.
    pub async fn try_call(&self, method: &str, args: &[Value]) -> Result<Rpc> {
        let mut all = vec![json!(self.key)];
        all.extend_from_slice(args);
        self.stack.try_fixture(&format!("rpc/{}/{method}", self.binding), &Value::Array(all)).await
    }

    pub async fn status(&self, id: &str) -> DetachedStatus {
        done(self.call::<StatusDone>("detachedStatus", &[json!(id)]).await).status
    }

    pub async fn stop(&self, id: &str) -> StopDone {
        done(self.call("stopDetached", &[json!(id)]).await)
    }

    pub async fn list(&self) -> ListDone {
        done(self.call("detachedList", &[]).await)
    }

    /// What was refused, most often first.
    pub async fn denials(&self) -> Vec<DenialEvent> {
        match self.try_call("denials", &[]).await.expect("an answer") {
            Rpc::Returned(value) => {
                serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e}: {value}"))
            }
            threw => panic!("{threw:?}"),
        }
    }

    pub async fn output(&self, id: &str) -> OutputDone {
        done(self.call("detachedOutput", &[json!(id)]).await)
    }

    /// The audit trail, as much of it as one page holds.
    pub async fn events(&self) -> EventsDone {
        done(self.call("events", &[]).await)
    }

    pub async fn abort(&self) -> AbortDone {
        done(self.call("abort", &[]).await)
    }

    /// Its container, as the engine knows it; none if there is none.
    pub async fn container(&self) -> Option<Container> {
        let containers = self.stack.control().containers().await;
        containers.into_iter().find(|c| c.name.contains(&self.object) && !c.name.ends_with("-proxy"))
    }

    /// Its supervisor, alive on the host.
    pub async fn init(&self) -> Process {
        let container = self.container().await.expect("a container");
        let pid = container.init_pid.expect("a running container has an init");
        Process::read(pid).expect("the init lives")
    }

    pub async fn try_init(&self) -> Option<Process> {
        Process::read(self.container().await?.init_pid?)
    }

    /// Every live process of its container.
    pub async fn processes(&self) -> Vec<Process> {
        match self.container().await.and_then(|c| c.init_pid) {
            Some(init) => processes::in_namespace_of(init),
            None => Vec::new(),
        }
    }

    /// Waits until a process that has `word` among its arguments lives in its container.
    pub async fn process_with(&self, word: &str) -> Process {
        let look = || async move { self.processes().await.into_iter().find(|p| p.has_arg(word)) };
        eventually(&format!("a process with the argument {word} lives"), look).await
    }

    /// What the engine saw of its container and networking since call `n`.
    pub async fn calls_since(&self, n: u64) -> CallLog {
        self.stack.control().calls_since(n).await.of(&self.object)
    }

    /// A fault's match for one kind of request to its supervisor, booted or not.
    pub fn ingress(&self, method: &str, path_prefix: &str) -> Match {
        Match {
            plane: "ingress".to_owned(),
            method: Some(method.to_owned()),
            path_prefix: Some(path_prefix.to_owned()),
            container: Some(self.stack.container_name(&self.object)),
        }
    }

    pub async fn clear_faults(&self) {
        self.stack.control().clear_faults_of(&self.stack.container_name(&self.object)).await;
    }
}

pub fn recipe() -> Value {
    json!({ "version": "e2e-1" })
}

pub fn exec_input(idempotency_key: &str, command: &str) -> Value {
    json!({ "recipe": recipe(), "command": command, "idempotencyKey": idempotency_key, "logPath": "exec.log" })
}

pub fn start_input(idempotency_key: &str, command: &str) -> Value {
    json!({ "recipe": recipe(), "command": command, "idempotencyKey": idempotency_key, "logPath": "start.log" })
}

/// A person's word for one command, not spent yet.
pub fn approval_of(command: &str) -> Value {
    json!({
        "taskId": format!("task-{}", fresh_word()),
        "ordinal": 0,
        "commandSha256": hex::encode(Sha256::digest(command)),
        "approvedBy": "sam",
        "approvedAt": now_ms(),
    })
}

/// An idempotency key that no other call has.
pub fn fresh_key() -> String {
    format!("key-{}", fresh_word())
}

/// A word that nothing else on this machine has said: to tell a process by its arguments, or a line by its text.
pub fn fresh_word() -> String {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the kernel gives randomness");
    hex::encode(bytes)
}

/// A command that does nothing for a long time, and the argument that tells its process from every other.
pub fn long_sleep() -> (String, String) {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).expect("the kernel gives randomness");
    let seconds = format!("3600.{:010}", u32::from_le_bytes(bytes));
    (format!("sleep {seconds}"), seconds)
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).expect("this century")
}
