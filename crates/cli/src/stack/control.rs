//! Client of the engine's control socket: what containers there are, what was called, which faults to inject.

use super::error::StackError;
use crate::http;
use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);

/// One container, as the engine sees it. Its environment is not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub id: String,
    /// `consumer:key`, where a Sandbox object started it.
    #[serde(default)]
    pub sandbox: Option<String>,
    pub state: String,
    /// PID 1 of the container, as the engine's own pid namespace counts; absent when it is not running.
    #[serde(default)]
    pub init_pid: Option<i32>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub created_at: u64,
    #[serde(default)]
    pub started_at: Option<u64>,
}

/// One recorded call, of workerd to the engine or of a Sandbox object to its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// Strictly increasing.
    pub n: u64,
    pub at_ms: u64,
    #[serde(default)]
    pub container: Option<String>,
    /// `docker`, `ingress`, …
    pub plane: String,
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub status: Option<u16>,
}

/// What the engine saw of a sandbox and the Worker never does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineDenial {
    pub source: String,
    /// `connect` or `lookup`.
    pub attempt: String,
    pub host: String,
    pub port: u16,
    pub reason: String,
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EngineDenials {
    /// The most frequent first.
    pub denials: Vec<EngineDenial>,
    /// How many more were not kept apart.
    pub overflow: u64,
}

/// Speaks to one engine. Each request is a connection of its own.
#[derive(Clone, Debug)]
pub struct EngineControl {
    socket: PathBuf,
}

impl EngineControl {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn containers(&self) -> Result<Vec<Container>, StackError> {
        #[derive(Deserialize)]
        struct Answer {
            containers: Vec<Container>,
        }
        let answer: Answer = self.json(Method::GET, "/v1/containers", None).await?;
        Ok(answer.containers)
    }

    /// Of one sandbox, by its `consumer:key`. Kept until its next container.
    pub async fn denials(&self, consumer: &str, key: &str) -> Result<EngineDenials, StackError> {
        let name: String = form_urlencoded::byte_serialize(format!("{consumer}:{key}").as_bytes()).collect();
        self.json(Method::GET, &format!("/v1/denials?sandbox={name}"), None).await
    }

    /// Calls recorded after number `since`, in order.
    pub async fn calls(&self, since: u64) -> Result<Vec<Call>, StackError> {
        #[derive(Deserialize)]
        struct Answer {
            calls: Vec<Call>,
        }
        let answer: Answer = self.json(Method::GET, &format!("/v1/calls?since={since}"), None).await?;
        Ok(answer.calls)
    }

    /// Adds one fault rule (`{"match":…,"action":…,"times":N}`). Needs a stack started with faults.
    pub async fn inject(&self, rule: &serde_json::Value) -> Result<(), StackError> {
        let body = serde_json::to_vec(rule).map_err(|error| StackError::Control(error.to_string()))?;
        self.send(Method::POST, "/v1/faults", Some(body.into())).await.map(drop)
    }

    pub async fn clear_faults(&self) -> Result<(), StackError> {
        self.send(Method::DELETE, "/v1/faults", None).await.map(drop)
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<T, StackError> {
        let bytes = self.send(method, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| StackError::Control(format!("{path}: {error}")))
    }

    async fn send(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Bytes, StackError> {
        let body = body.unwrap_or_default();
        match http::over_unix(&self.socket, method, path, body, DEADLINE).await {
            Ok((status, bytes)) if status.is_success() => Ok(bytes),
            Ok((status, bytes)) => {
                Err(StackError::Control(format!("{path}: {status}: {}", String::from_utf8_lossy(&bytes))))
            }
            Err(error) => Err(StackError::Control(format!("{path}: {error}"))),
        }
    }
}
