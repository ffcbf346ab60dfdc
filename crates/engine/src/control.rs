//! The control socket: what the command-line tool and the tests ask of a running engine.
//!
//! `GET /v1/containers`, `GET /v1/calls?since=`, `GET /v1/denials?container=` (or `?sandbox=consumer:key`), and with `--faults` the faults. The
//! socket is only its owner's. No secret is ever answered, and no environment value but the sandbox's own name.

use crate::calls::millis;
use crate::container::{Container, Life};
use crate::docker_api::answer::{self, Answer};
use crate::docker_api::containers::{read_json, redacted};
use crate::engine::{Engine, status_code};
use crate::faults::Rule;
use crate::names;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::UnixListener;

/// Serves until the task is dropped.
pub async fn serve(listener: UnixListener, engine: Arc<Engine>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let engine = engine.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let engine = engine.clone();
                async move { Ok::<_, std::convert::Infallible>(route(&engine, request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn route(engine: &Arc<Engine>, request: Request<Incoming>) -> Answer {
    let query: Vec<(String, String)> =
        form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect();
    let query = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/containers") => {
            let containers: Vec<Value> =
                engine.all_containers().iter().map(|container| describe(container)).collect();
            answer::json(StatusCode::OK, &json!({ "containers": containers }))
        }
        (&Method::GET, "/v1/calls") => {
            let since = query("since").and_then(|since| since.parse().ok()).unwrap_or_default();
            answer::json(StatusCode::OK, &json!({ "calls": engine.calls.since(since) }))
        }
        (&Method::GET, "/v1/denials") => {
            let container = match (query("container"), query("sandbox")) {
                (Some(container), _) => names::canonical(container),
                // One that never had a container has no denials.
                (None, Some(sandbox)) => engine.denials.container_of(sandbox).unwrap_or_default(),
                (None, None) => {
                    return answer::error(
                        StatusCode::BAD_REQUEST,
                        "container=NAME or sandbox=NAME is missing",
                    );
                }
            };
            let (denials, overflow) = engine.denials.of(&container);
            answer::json(StatusCode::OK, &json!({ "denials": denials, "overflow": overflow }))
        }
        (&Method::POST | &Method::DELETE, "/v1/faults") if !engine.config.faults => {
            answer::error(StatusCode::FORBIDDEN, "faults are served only by `ringfence engine --faults`")
        }
        (&Method::POST, "/v1/faults") => match read_json::<Rule>(request).await {
            Ok(rule) => match engine.faults.add(rule) {
                Ok(()) => answer::empty(StatusCode::NO_CONTENT),
                Err(error) => answer::error(StatusCode::BAD_REQUEST, &error.to_string()),
            },
            Err(refused) => refused,
        },
        (&Method::DELETE, "/v1/faults") => {
            engine.faults.clear(query("container"));
            answer::empty(StatusCode::NO_CONTENT)
        }
        (method, path) => {
            answer::error(StatusCode::NOT_FOUND, &format!("{method} {path} is not served here"))
        }
    }
}

fn describe(container: &Container) -> Value {
    let life = container.life();
    let (pid, started_at) = match &life {
        Life::Running(running) => (Some(running.init_pid), Some(millis(running.started_at))),
        _ => (None, None),
    };
    let environment = &container.plan.environment;
    json!({
        "id": container.id,
        "name": container.name,
        "sandbox": container.plan.sandbox(),
        "image": container.plan.image,
        "state": life.status(),
        "exitCode": life.end().map(|end| status_code(Some(end))),
        "initPid": pid,
        "labels": container.plan.labels,
        "createdAt": millis(container.created_at),
        "startedAt": started_at,
        "env": redacted(environment),
        "log": container.log.text(),
    })
}
