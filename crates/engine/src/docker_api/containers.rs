//! Calls about containers. A sidecar is one whose create body exposes the ingress port; it has no processes, only a
//! listener of the engine's.

use super::answer::{self, Answer};
use super::formats::{parse_signal, rfc3339};
use super::peer::Peer;
use super::types::{CreateContainer, environment};
use super::{Call, MAX_BODY_BYTES};
use crate::container::record::{Archive, Plan};
use crate::container::{Container, Life};
use crate::engine::{Engine, RemoveError, StartError, status_code};
use crate::names;
use crate::namespace::unpack::MAX_ARCHIVE_BYTES;
use crate::network::sidecar::{INGRESS_PORT, Sidecar};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// `stop` gives PID 1 this long by default.
const DEFAULT_STOP_SECONDS: u64 = 10;

/// A body, or the answer that refuses it.
pub async fn read_body(request: Request<Incoming>, bound: usize) -> Result<bytes::Bytes, Answer> {
    match Limited::new(request.into_body(), bound).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(answer::error(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is over {bound} bytes")))
        }
        Err(error) => Err(answer::error(StatusCode::BAD_REQUEST, &error.to_string())),
    }
}

/// A JSON body, or the answer that refuses it.
pub async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Answer> {
    let body = read_body(request, MAX_BODY_BYTES).await?;
    serde_json::from_slice(&body).map_err(|error| answer::error(StatusCode::BAD_REQUEST, &error.to_string()))
}

fn no_such(name: &str) -> Answer {
    answer::error(StatusCode::NOT_FOUND, &format!("No such container: {name}"))
}

enum Found {
    Container(Arc<Container>),
    Sidecar(Arc<Sidecar>),
}

fn find(engine: &Engine, name: &str) -> Option<Found> {
    let name = names::canonical(name);
    let container = engine.container(&name).map(Found::Container);
    container.or_else(|| engine.sidecar(&name).map(Found::Sidecar))
}

pub async fn create(engine: &Arc<Engine>, call: &Call, request: Request<Incoming>) -> Answer {
    if engine.is_closing() {
        return answer::error(StatusCode::SERVICE_UNAVAILABLE, "the engine is ending");
    }
    let body: CreateContainer = match read_json(request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let Some(name) = call.query("name").map(names::canonical).filter(|name| !name.is_empty()) else {
        return answer::error(
            StatusCode::NOT_IMPLEMENTED,
            "containers without a name (snapshots) are not served",
        );
    };
    let has = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
    if has(&body.host_config.mounts) || has(&body.host_config.binds) {
        return answer::error(
            StatusCode::NOT_IMPLEMENTED,
            "mounts and volumes (directory snapshots) are not served",
        );
    }
    if body.entrypoint.as_ref().is_some_and(|entrypoint| !entrypoint.is_null()) {
        return answer::error(
            StatusCode::NOT_IMPLEMENTED,
            "Entrypoint is not served: PID 1 is always the supervisor",
        );
    }
    let is_sidecar = body.exposed_ports.as_ref().is_some_and(|ports| ports.contains_key(INGRESS_PORT));
    let id = if is_sidecar {
        match engine.create_sidecar(name.clone()) {
            Ok(sidecar) => sidecar.map(|sidecar| sidecar.id.clone()),
            Err(error) => return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    } else {
        let mut labels = body.labels.unwrap_or_default();
        labels.remove(names::SESSION_LABEL);
        let plan = Plan {
            image: body.image,
            arguments: body.cmd.unwrap_or_default(),
            environment: environment(body.env),
            labels,
            network_mode: body.host_config.network_mode,
        };
        engine.create_container(name.clone(), plan).map(|container| container.id.clone())
    };
    match id {
        Some(id) => answer::json(StatusCode::CREATED, &json!({ "Id": id, "Warnings": [] })),
        None => answer::error(StatusCode::CONFLICT, &format!("the name {name} is in use")),
    }
}

pub async fn start(engine: &Arc<Engine>, name: &str) -> Answer {
    match find(engine, name) {
        None => no_such(name),
        Some(Found::Sidecar(sidecar)) => match sidecar.start(engine).await {
            Ok(true) => answer::empty(StatusCode::NO_CONTENT),
            Ok(false) => answer::empty(StatusCode::NOT_MODIFIED),
            Err(error) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        Some(Found::Container(container)) => match engine.start_container(&container).await {
            Ok(()) => answer::empty(StatusCode::NO_CONTENT),
            Err(StartError::Already) => answer::empty(StatusCode::NOT_MODIFIED),
            Err(error) => {
                eprintln!("ringfence engine: start of {}: {error}", container.name);
                answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
            }
        },
    }
}

/// Held until the container is as asked: not running (the default), or removed.
pub async fn wait(engine: &Engine, name: &str, call: &Call, peer: &Peer) -> Answer {
    let container = match find(engine, name) {
        None => return no_such(name),
        Some(Found::Container(container)) => container,
        Some(Found::Sidecar(_)) => {
            return answer::error(StatusCode::NOT_IMPLEMENTED, "waiting for a sidecar is not served");
        }
    };
    let mut life = container.watch();
    let reached: fn(&Life) -> bool = match call.query("condition").unwrap_or("not-running") {
        "" | "not-running" => |life| !matches!(life, Life::Starting | Life::Running(_)),
        "next-exit" => |life| matches!(life, Life::Ended { .. } | Life::Removed { .. }),
        "removed" => |life| matches!(life, Life::Removed { .. }),
        other => return answer::error(StatusCode::BAD_REQUEST, &format!("unknown condition {other}")),
    };
    let reached = tokio::select! {
        reached = life.wait_for(reached) => reached,
        // A caller that left must not be kept: each restart of workerd leaves one.
        _ = peer.gone() => return answer::error(StatusCode::REQUEST_TIMEOUT, "the caller left"),
    };
    match reached {
        Ok(life) => answer::json(StatusCode::OK, &json!({ "StatusCode": status_code(life.end()) })),
        Err(_) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, "the container's record is gone"),
    }
}

pub fn kill(engine: &Engine, name: &str, call: &Call) -> Answer {
    let container = match find(engine, name) {
        None => return no_such(name),
        Some(Found::Container(container)) => container,
        Some(Found::Sidecar(sidecar)) => {
            sidecar.stop();
            return answer::empty(StatusCode::NO_CONTENT);
        }
    };
    let text = call.query("signal").unwrap_or("SIGKILL");
    let Some(signal) = parse_signal(text) else {
        return answer::error(StatusCode::BAD_REQUEST, &format!("unknown signal {text}"));
    };
    let Some(running) = container.running() else {
        return answer::error(StatusCode::CONFLICT, &format!("container {name} is not running"));
    };
    match running.signal(signal) {
        Ok(()) => answer::empty(StatusCode::NO_CONTENT),
        Err(rustix::io::Errno::SRCH) => {
            answer::error(StatusCode::CONFLICT, &format!("container {name} is not running"))
        }
        Err(errno) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, &errno.to_string()),
    }
}

/// TERM, then KILL when the time is over.
pub async fn stop(engine: &Engine, name: &str, call: &Call) -> Answer {
    let container = match find(engine, name) {
        None => return no_such(name),
        Some(Found::Container(container)) => container,
        Some(Found::Sidecar(sidecar)) => {
            sidecar.stop();
            return answer::empty(StatusCode::NO_CONTENT);
        }
    };
    let Some(running) = container.running() else { return answer::empty(StatusCode::NOT_MODIFIED) };
    let seconds = call.query("t").and_then(|t| t.parse().ok()).unwrap_or(DEFAULT_STOP_SECONDS);
    let _ = running.signal(Signal::TERM);
    let mut life = container.watch();
    let ended = life.wait_for(|life| !matches!(life, Life::Running(_)));
    if tokio::time::timeout(Duration::from_secs(seconds), ended).await.is_err() {
        let _ = running.signal(Signal::KILL);
        let _ = life.wait_for(|life| !matches!(life, Life::Running(_))).await;
    }
    answer::empty(StatusCode::NO_CONTENT)
}

pub async fn remove(engine: &Engine, name: &str, call: &Call) -> Answer {
    match find(engine, name) {
        None => no_such(name),
        Some(Found::Sidecar(sidecar)) => {
            engine.remove_sidecar(&sidecar);
            answer::empty(StatusCode::NO_CONTENT)
        }
        Some(Found::Container(container)) => {
            match engine.remove_container(&container, call.flag("force")).await {
                Ok(()) => answer::empty(StatusCode::NO_CONTENT),
                Err(error @ RemoveError::Running) => answer::error(StatusCode::CONFLICT, &error.to_string()),
                Err(error @ RemoveError::NotProven) => {
                    answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
                }
            }
        }
    }
}

pub async fn put_archive(engine: &Engine, name: &str, call: &Call, request: Request<Incoming>) -> Answer {
    let Some(Found::Container(container)) = find(engine, name) else { return no_such(name) };
    let Some(directory) = call.query("path").filter(|path| path.starts_with('/')).map(str::to_owned) else {
        return answer::error(StatusCode::BAD_REQUEST, "path must be absolute");
    };
    let bytes = match read_body(request, MAX_ARCHIVE_BYTES).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    match engine.put_archive(&container, Archive { directory, bytes }).await {
        Ok(()) => answer::empty(StatusCode::OK),
        Err(error) => answer::error(StatusCode::BAD_REQUEST, &error),
    }
}

pub fn logs(engine: &Engine, name: &str) -> Answer {
    match find(engine, name) {
        Some(Found::Container(container)) => answer::text(StatusCode::OK, "text/plain", container.log.text()),
        Some(Found::Sidecar(_)) => answer::empty(StatusCode::OK),
        None => no_such(name),
    }
}

pub fn inspect(engine: &Engine, name: &str) -> Answer {
    match find(engine, name) {
        None => no_such(name),
        Some(Found::Container(container)) => answer::json(StatusCode::OK, &inspect_container(&container)),
        Some(Found::Sidecar(sidecar)) => answer::json(StatusCode::OK, &inspect_sidecar(&sidecar)),
    }
}

fn inspect_container(container: &Container) -> Value {
    let life = container.life();
    let (pid, started) = match &life {
        Life::Running(running) => (running.init_pid, rfc3339(running.started_at)),
        _ => (0, rfc3339(SystemTime::UNIX_EPOCH)),
    };
    let finished = match &life {
        Life::Ended { at, .. } => rfc3339(*at),
        _ => rfc3339(SystemTime::UNIX_EPOCH),
    };
    let running = matches!(life, Life::Running(_));
    json!({
        "Id": container.id,
        "Name": format!("/{}", container.name),
        "Created": rfc3339(container.created_at),
        "Image": container.plan.image,
        // A container is never restarted: a second life would have another boot id, and the object would call it lost.
        "RestartCount": 0,
        "State": {
            "Status": life.status(), "Running": running, "Paused": false, "Restarting": false, "Dead": false,
            "Pid": pid, "ExitCode": status_code(life.end()), "StartedAt": started, "FinishedAt": finished,
        },
        "Config": {
            "Image": container.plan.image,
            "Hostname": container.id.chars().take(12).collect::<String>(),
            "Labels": container.plan.labels,
            "Env": redacted(&container.plan.environment),
            "Cmd": container.plan.arguments,
        },
        "HostConfig": { "NetworkMode": container.plan.network_mode },
        "NetworkSettings": { "Ports": {} },
    })
}

fn inspect_sidecar(sidecar: &Sidecar) -> Value {
    let port = sidecar.port();
    let bindings = port.map(|port| json!([{ "HostIp": "127.0.0.1", "HostPort": port.to_string() }]));
    json!({
        "Id": sidecar.id,
        "Name": format!("/{}", sidecar.name),
        "Created": rfc3339(sidecar.created_at),
        "State": { "Status": if port.is_some() { "running" } else { "created" }, "Running": port.is_some(), "ExitCode": 0 },
        "Config": { "Image": "ringfence-sidecar", "Labels": {}, "Env": [] },
        "HostConfig": { "NetworkMode": "bridge" },
        "NetworkSettings": { "Ports": { INGRESS_PORT: bindings } },
    })
}

/// Names without their values: a value may be a secret (the boot key is).
pub fn redacted(environment: &[(String, String)]) -> Vec<String> {
    environment.iter().map(|(name, _)| format!("{name}=<redacted>")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_shown_without_its_values() {
        assert_eq!(redacted(&[("KEY".into(), "secret".into())]), ["KEY=<redacted>"]);
    }
}
