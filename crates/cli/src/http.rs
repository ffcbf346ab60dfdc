//! One HTTP request on one connection: all that speaking to the engine's socket, looking at a Worker that is
//! starting, and asking the example dispatcher need. The facade itself is spoken to by `ringfence-client`.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0}")]
    Connect(#[from] std::io::Error),
    #[error("{0}")]
    Exchange(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

pub(crate) async fn over_tcp(
    port: u16,
    method: Method,
    path: &str,
    within: Duration,
) -> Result<(StatusCode, Bytes), HttpError> {
    let exchange = async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        over(stream, &format!("127.0.0.1:{port}"), method, path, Bytes::new()).await
    };
    tokio::time::timeout(within, exchange).await.unwrap_or(Err(HttpError::TimedOut(within)))
}

pub(crate) async fn over_unix(
    socket: &Path,
    method: Method,
    path: &str,
    body: Bytes,
    within: Duration,
) -> Result<(StatusCode, Bytes), HttpError> {
    let exchange = async { over(UnixStream::connect(socket).await?, "engine", method, path, body).await };
    tokio::time::timeout(within, exchange).await.unwrap_or(Err(HttpError::TimedOut(within)))
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(StatusCode, Bytes), HttpError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::builder().method(method).uri(path).header("host", host);
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    let request = request.body(Full::new(body))?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    };
    // The connection makes progress only while it is polled; it ends with the exchange.
    tokio::pin!(exchange, connection);
    tokio::select! {
        result = &mut exchange => result,
        _ = &mut connection => exchange.await,
    }
}
