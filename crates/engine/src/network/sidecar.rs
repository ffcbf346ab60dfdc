//! The networking sidecar that workerd expects beside each container, as a listener of the engine on the host's
//! loopback: `CONNECT` leads into the container, `PUT /egress` says where workerd takes requests out, `GET /ca` gives
//! the certificate authority of the container's boot.
//!
//! Invariant: a tunnel leads only to the container's own loopback addresses, and no Worker's request is served.

use super::authority::Authority;
use crate::calls::Plane;
use crate::container::handle::KeeperError;
use crate::docker_api::answer::{self, Answer};
use crate::docker_api::with_fault;
use crate::engine::Engine;
use crate::faults::Cut;
use crate::names;
use crate::namespace::protocol::CONTAINER_ADDRESS;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};

/// The port that workerd believes the sidecar listens on in its container.
pub const INGRESS_PORT: &str = "39001/tcp";
/// A settings body is far smaller.
const MAX_SETTINGS_BYTES: usize = 64 * 1024;

/// Where workerd takes requests out. Each `PUT /egress` changes only the fields it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    pub port: Option<u16>,
    pub internet: bool,
}

#[derive(Deserialize)]
struct Settings {
    port: Option<u16>,
    internet: Option<Internet>,
}

#[derive(Deserialize)]
struct Internet {
    enabled: Option<bool>,
}

pub struct Sidecar {
    pub id: String,
    pub name: String,
    pub created_at: std::time::SystemTime,
    /// What the container beside it trusts.
    pub authority: Arc<Authority>,
    egress: Mutex<Egress>,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Sidecar {
    pub fn new(id: String, name: String, authority: Arc<Authority>) -> Self {
        let created_at = std::time::SystemTime::now();
        Self { id, name, created_at, authority, egress: Mutex::default(), listening: Mutex::default() }
    }

    /// Where it listens, while it runs.
    pub fn port(&self) -> Option<u16> {
        self.lock().as_ref().map(|listening| listening.port)
    }

    pub fn egress(&self) -> Egress {
        self.egress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Listening>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens. False: it does already.
    pub async fn start(self: &Arc<Self>, engine: &Arc<Engine>) -> std::io::Result<bool> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut listening = self.lock();
        if listening.is_some() {
            return Ok(false);
        }
        let task = tokio::spawn(serve(listener, Arc::downgrade(self), engine.clone()));
        *listening = Some(Listening { port, task });
        Ok(true)
    }

    /// Stops listening. Tunnels that stand are ended by their container's end.
    pub fn stop(&self) {
        if let Some(listening) = self.lock().take() {
            listening.task.abort();
        }
    }

    fn settings(&self, settings: &Settings) {
        let mut egress = self.egress.lock().unwrap_or_else(PoisonError::into_inner);
        if settings.port.is_some() {
            egress.port = settings.port;
        }
        if let Some(enabled) = settings.internet.as_ref().and_then(|internet| internet.enabled) {
            egress.internet = enabled;
        }
    }
}

async fn serve(listener: TcpListener, sidecar: std::sync::Weak<Sidecar>, engine: Arc<Engine>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (sidecar, engine) = (sidecar.clone(), engine.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (sidecar, engine) = (sidecar.clone(), engine.clone());
                async move {
                    match sidecar.upgrade() {
                        Some(sidecar) => handle(&sidecar, &engine, request).await,
                        None => Ok(answer::error(StatusCode::NOT_FOUND, "this sidecar is gone")),
                    }
                }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        });
    }
}

async fn handle(
    sidecar: &Arc<Sidecar>,
    engine: &Arc<Engine>,
    request: Request<Incoming>,
) -> Result<Answer, Cut> {
    let container = names::served_by(&sidecar.name);
    let method = request.method().clone();
    // A tunnel's target is no path; its requests are recorded one by one, where they are read at all.
    let path = if method == Method::CONNECT { "/".to_owned() } else { request.uri().path().to_owned() };
    let n = engine.calls.arrived(Plane::Sidecar, container, method.as_str(), &path);
    let fault = engine.faults.take(Plane::Sidecar, container, method.as_str(), &path);
    let answer = with_fault(fault, || route(sidecar, engine, request)).await?;
    engine.calls.answered(n, answer.status().as_u16());
    Ok(answer)
}

/// What the runtime adds to a request that a Worker makes, and to none of its own.
const WORKERS_MARK: &str = "cf-worker";

async fn route(sidecar: &Arc<Sidecar>, engine: &Arc<Engine>, request: Request<Incoming>) -> Answer {
    // Else a sandbox whose requests are forwarded to this machine could move its own way out, or another's.
    if request.headers().contains_key(WORKERS_MARK) {
        return answer::error(StatusCode::FORBIDDEN, "the sidecar serves the runtime, not a Worker");
    }
    match (request.method(), request.uri().path()) {
        (&Method::CONNECT, _) => connect(sidecar, engine, request).await,
        (&Method::PUT, "/egress") => put_egress(sidecar, request.into_body()).await,
        (&Method::GET, "/ca") => {
            answer::text(StatusCode::OK, "application/x-pem-file", sidecar.authority.pem().to_owned())
        }
        _ => answer::error(StatusCode::NOT_FOUND, "the sidecar serves CONNECT, PUT /egress and GET /ca"),
    }
}

async fn put_egress(sidecar: &Sidecar, body: Incoming) -> Answer {
    let body = match Limited::new(body, MAX_SETTINGS_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return answer::error(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match serde_json::from_slice::<Settings>(&body) {
        Ok(settings) => {
            sidecar.settings(&settings);
            answer::empty(StatusCode::OK)
        }
        Err(error) => answer::error(StatusCode::BAD_REQUEST, &format!("egress settings: {error}")),
    }
}

/// The tunnel into the container. 400 is what workerd reads as "not listening".
async fn connect(sidecar: &Arc<Sidecar>, engine: &Arc<Engine>, mut request: Request<Incoming>) -> Answer {
    let header = request.headers().get("x-dst-addr").and_then(|value| value.to_str().ok());
    let wanted = header.map(str::to_owned).or_else(|| request.uri().authority().map(|a| a.to_string()));
    let Some(address) = wanted.and_then(|wanted| wanted.parse::<SocketAddr>().ok()) else {
        return answer::error(StatusCode::UNPROCESSABLE_ENTITY, "X-Dst-Addr must be ip:port");
    };
    if !(address.ip().is_loopback() || address.ip() == IpAddr::V4(CONTAINER_ADDRESS)) {
        return answer::error(StatusCode::FORBIDDEN, "a tunnel leads only to the container's own addresses");
    }
    let app = names::served_by(&sidecar.name).and_then(|name| engine.container(name));
    let Some(running) = app.as_ref().and_then(|container| container.running()) else {
        return answer::error(StatusCode::BAD_REQUEST, "the container is not running");
    };
    let socket = match running.connect(address).await {
        Ok(socket) => socket,
        Err(KeeperError::Refused) => {
            return answer::error(StatusCode::BAD_REQUEST, &format!("nothing listens on {address}"));
        }
        Err(error @ KeeperError::Gone) => return answer::error(StatusCode::BAD_REQUEST, &error.to_string()),
        Err(error) => return answer::error(StatusCode::BAD_GATEWAY, &error.to_string()),
    };
    let inside = match TcpStream::from_std(std::net::TcpStream::from(socket)) {
        Ok(inside) => inside,
        Err(error) => return answer::error(StatusCode::BAD_GATEWAY, &error.to_string()),
    };
    let _ = inside.set_nodelay(true);
    let container = app.map(|container| container.name.clone()).unwrap_or_default();
    let engine = engine.clone();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            crate::ingress::tunnel(&engine, &container, TokioIo::new(upgraded), inside).await;
        }
    });
    answer::bytes(StatusCode::OK, Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_only_what_they_name() {
        let sidecar = Sidecar::new("id".into(), "x-proxy".into(), Arc::new(Authority::new().unwrap()));
        let put = |text: &str| sidecar.settings(&serde_json::from_str(text).unwrap());
        put(r#"{"port":1,"dns":{"allowHostnames":["*"]},"internet":{"enabled":true}}"#);
        assert_eq!(sidecar.egress(), Egress { port: Some(1), internet: true });
        put(r#"{"port":2}"#);
        assert_eq!(sidecar.egress(), Egress { port: Some(2), internet: true });
        put(r#"{"internet":{"enabled":false}}"#);
        assert_eq!(sidecar.egress(), Egress { port: Some(2), internet: false });
    }
}
