//! The supervisor's port: HTTP/1.1, one boot key.
//!
//! Invariant: before a request shows the boot key nothing is read of it but its head, and nothing is said but 401.
//! Connections are bounded; a job that opens many only pushes out others that never showed the key.

pub mod answer;
mod artifacts;
mod jobs;
mod request;
mod routes;

use crate::supervisor::Shared;
use crate::{files, limits};
use answer::Answer;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper::{Request, server::conn::http1};
use hyper_util::rt::TokioIo;
pub use request::{discard, parameters};
use ringfence_wire::supervisor::{BOOT_ID_HEADER, BOOT_KEY_HEADER, ErrorCode, GENERATION_HEADER};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

struct Connection {
    showed_key: Cell<bool>,
    close: Notify,
}

type Connections = Rc<RefCell<VecDeque<Rc<Connection>>>>;

pub async fn serve(supervisor: Shared, listener: TcpListener) {
    let connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(connection) = enter(&connections) {
                    spawn_local(attend(supervisor.clone(), connections.clone(), connection, stream));
                }
            }
            // Out of descriptors for now: what is open goes on.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A place in the table; at its bound the oldest connection without the key gives way.
fn enter(connections: &Connections) -> Option<Rc<Connection>> {
    let mut table = connections.borrow_mut();
    if table.len() >= limits::MAX_CONNECTIONS {
        let stranger = table.iter().position(|connection| !connection.showed_key.get())?;
        let stranger = table.remove(stranger)?;
        stranger.close.notify_one();
    }
    let connection = Rc::new(Connection { showed_key: Cell::new(false), close: Notify::new() });
    table.push_back(connection.clone());
    Some(connection)
}

async fn attend(supervisor: Shared, connections: Connections, connection: Rc<Connection>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| serve_one(supervisor.clone(), connection.clone(), request));
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let stranger_overstays = async {
        sleep(limits::HEADER_TIMEOUT).await;
        if connection.showed_key.get() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        // A connection that breaks is the peer's affair.
        _ = served => {}
        () = connection.close.notified() => {}
        () = stranger_overstays => {}
    }
    connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, &connection));
}

async fn serve_one(
    supervisor: Shared,
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let offered = request.headers().get(BOOT_KEY_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
    if !supervisor.boot_key.admits(offered) {
        return Ok(answer::unauthorized());
    }
    connection.showed_key.set(true);
    let answered = match request.uri().path() {
        // The one body that is streamed.
        "/v1/files" => files::serve(&supervisor, request).await,
        _ => match timeout(limits::BODY_TIMEOUT, request::Read::from(request)).await {
            Ok(Ok(read)) => routes::route(&supervisor, read).await,
            Ok(Err(refused)) => Err(refused),
            Err(_elapsed) => answer::refuse(ErrorCode::BadRequest, "the body did not arrive in time"),
        },
    };
    let mut answer = answered.unwrap_or_else(Answer::from);
    if let Ok(boot_id) = HeaderValue::from_str(supervisor.boot_id.as_str()) {
        answer.headers_mut().insert(BOOT_ID_HEADER, boot_id);
    }
    answer.headers_mut().insert(GENERATION_HEADER, HeaderValue::from(supervisor.generation));
    Ok(answer)
}
