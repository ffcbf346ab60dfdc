//! The part of the Docker API that workerd and wrangler speak, on a unix socket, unversioned or with any version.
//!
//! Invariant: every call is recorded when it arrives and when it is answered. What is not served says so by name;
//! nothing is answered that was not done.

pub mod answer;
pub mod containers;
pub mod exec;
mod formats;
mod list;
mod peer;
mod streams;
mod types;

use crate::calls::Plane;
use crate::engine::Engine;
use crate::faults::{Action, Cut, pause};
use crate::names;
use answer::Answer;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use peer::Peer;
use percent_encoding::percent_decode_str;
use serde_json::json;
use std::sync::Arc;
use tokio::net::UnixListener;

/// Bodies of calls, archives aside.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// The address that workerd opens its egress port on, and the engine reaches it by.
const GATEWAY: &str = "127.0.0.1";
const SUBNET: &str = "127.0.0.0/8";

/// Serves until the task is dropped.
pub async fn serve(listener: UnixListener, engine: Arc<Engine>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let Ok(peer) = Peer::of(&stream) else { continue };
        let engine = engine.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (engine, peer) = (engine.clone(), peer.clone());
                async move { handle(&engine, &peer, request).await }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        });
    }
}

/// A request taken apart: what it asks for, and of which container.
pub struct Call {
    pub segments: Vec<String>,
    pub query: Vec<(String, String)>,
}

impl Call {
    fn of(request: &Request<Incoming>) -> Self {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let mut segments: Vec<String> =
            request.uri().path().split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let versioned = segments.first().is_some_and(|first| {
            first.strip_prefix('v').is_some_and(|rest| rest.split('.').all(|n| n.parse::<u32>().is_ok()))
        });
        if versioned {
            segments.remove(0);
        }
        let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        Self { segments, query: query.into_owned().collect() }
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn flag(&self, name: &str) -> bool {
        self.query(name).is_some_and(|value| matches!(value, "1" | "true" | "True"))
    }

    /// The path without a version, and with the name a container is kept under: the same for every session.
    fn canonical_path(&self) -> String {
        let about = self.container().filter(|_| self.query("name").is_none());
        let mut path = String::new();
        for (index, segment) in self.segments.iter().enumerate() {
            path.push('/');
            match &about {
                Some(name) if index == 1 => path.push_str(name),
                _ => path.push_str(segment),
            }
        }
        path
    }

    /// The container the call is about, under its canonical name.
    fn container(&self) -> Option<String> {
        match self.segments.first().map(String::as_str) {
            Some("containers") => match self.segments.get(1).map(String::as_str) {
                Some("create") => self.query("name").map(names::canonical),
                Some("json") | None => None,
                Some(name) => Some(names::canonical(name)),
            },
            _ => None,
        }
    }
}

async fn handle(engine: &Arc<Engine>, peer: &Peer, request: Request<Incoming>) -> Result<Answer, Cut> {
    let call = Call::of(&request);
    let container = call.container();
    let method = request.method().clone();
    let path = call.canonical_path();
    let n = engine.calls.arrived(Plane::Docker, container.as_deref(), method.as_str(), &path);
    let fault = engine.faults.take(Plane::Docker, container.as_deref(), method.as_str(), &path);
    let answer = with_fault(fault, || route(engine, peer, &call, request)).await?;
    engine.calls.answered(n, answer.status().as_u16());
    Ok(answer)
}

/// Does what a fault says around a call. Only the ingress plane can deliver twice or cut an answer in two.
pub async fn with_fault<F: Future<Output = Answer>>(
    fault: Option<Action>,
    call: impl FnOnce() -> F,
) -> Result<Answer, Cut> {
    match fault {
        None | Some(Action::Double | Action::Cut { .. }) => Ok(call().await),
        Some(Action::DropBefore) => Err(Cut),
        Some(Action::DropAfter) => {
            call().await;
            Err(Cut)
        }
        Some(Action::Delay { ms }) => {
            pause(ms).await;
            Ok(call().await)
        }
        Some(Action::DelayAnswer { ms }) => {
            let answer = call().await;
            pause(ms).await;
            Ok(answer)
        }
        Some(Action::Answer { status, body }) => {
            Ok(answer::bytes(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body))
        }
    }
}

async fn route(engine: &Arc<Engine>, peer: &Peer, call: &Call, request: Request<Incoming>) -> Answer {
    let method = request.method().clone();
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match (&method, segments.as_slice()) {
        (&Method::GET | &Method::HEAD, ["_ping"]) => answer::text(StatusCode::OK, "text/plain", "OK"),
        (&Method::GET, ["version"]) => answer::json(StatusCode::OK, &version()),
        (&Method::GET, ["info"]) => answer::json(StatusCode::OK, &info(engine)),
        (&Method::GET, ["networks", "bridge"]) => answer::json(
            StatusCode::OK,
            &json!({
                "Name": "bridge",
                "Driver": "bridge",
                "IPAM": { "Driver": "default", "Config": [{ "Subnet": SUBNET, "Gateway": GATEWAY }] },
            }),
        ),
        (&Method::GET, ["volumes"]) => {
            answer::json(StatusCode::OK, &json!({ "Volumes": [], "Warnings": [] }))
        }
        (&Method::GET, ["containers", "json"]) => list::list(engine, call),
        (&Method::POST, ["containers", "create"]) => containers::create(engine, call, request).await,
        (&Method::GET, ["containers", name, "json"]) => containers::inspect(engine, name),
        (&Method::POST, ["containers", name, "start"]) => containers::start(engine, name).await,
        (&Method::POST, ["containers", name, "wait"]) => containers::wait(engine, name, call, peer).await,
        (&Method::POST, ["containers", name, "kill"]) => containers::kill(engine, name, call),
        (&Method::POST, ["containers", name, "stop"]) => containers::stop(engine, name, call).await,
        (&Method::DELETE, ["containers", name]) => containers::remove(engine, name, call).await,
        (&Method::PUT, ["containers", name, "archive"]) => {
            containers::put_archive(engine, name, call, request).await
        }
        (&Method::GET, ["containers", name, "logs"]) => containers::logs(engine, name),
        (&Method::POST, ["containers", name, "exec"]) => exec::create(engine, name, request).await,
        (&Method::POST, ["exec", id, "start"]) => exec::start(engine, id, request).await,
        (&Method::POST, ["exec", id, "resize"]) => exec::resize(engine, id, call),
        (&Method::GET, ["exec", id, "json"]) => exec::inspect(engine, id),
        (&Method::GET, ["containers", _, "archive"])
        | (&Method::POST, ["commit"])
        | (_, ["volumes", ..])
        | (_, ["images", ..]) => answer::error(
            StatusCode::NOT_IMPLEMENTED,
            "snapshots are not served: this engine has no images and no volumes, so directories and containers \
             cannot be saved or restored",
        ),
        _ => answer::error(
            StatusCode::NOT_FOUND,
            &format!(
                "{method} /{} is not served: this engine answers the calls that workerd makes",
                segments.join("/")
            ),
        ),
    }
}

fn version() -> serde_json::Value {
    json!({ "Version": env!("CARGO_PKG_VERSION"), "ApiVersion": "1.47", "MinAPIVersion": "1.24",
            "Os": "linux", "Arch": arch(), "Components": [{ "Name": "ringfence", "Version": env!("CARGO_PKG_VERSION") }] })
}

fn info(engine: &Engine) -> serde_json::Value {
    let containers = engine.all_containers();
    let running = containers.iter().filter(|container| container.running().is_some()).count();
    json!({ "Name": "ringfence", "ServerVersion": env!("CARGO_PKG_VERSION"), "OSType": "linux", "Architecture": arch(),
            "OperatingSystem": "ringfence engine", "Containers": containers.len(), "ContainersRunning": running,
            "SecurityOptions": ["name=seccomp,profile=builtin", "name=userns"] })
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
