//! One request over TCP or a unix socket, bounded in time: the tests' only way in, so that every assertion is
//! made from outside.
//!
//! A connection serves one request and is closed by its owner, the call.

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longer than any single call of the contract may take in these tests.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("status {}: {e} in the answer {}", self.status, self.text()))
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

pub async fn send(
    to: &Endpoint,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Answer> {
    let mut request = Request::builder().method(method).uri(path).header(HOST, "127.0.0.1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into()))?;
    let exchange = async {
        match to {
            Endpoint::Tcp(address) => exchange(TcpStream::connect(address).await?, request).await,
            Endpoint::Unix(path) => exchange(UnixStream::connect(path).await?, request).await,
        }
    };
    tokio::time::timeout(REQUEST_DEADLINE, exchange)
        .await
        .with_context(|| format!("{method} {path}: no answer within {REQUEST_DEADLINE:?}"))?
        .with_context(|| format!("{method} {path}"))
}

pub async fn send_json(to: &Endpoint, method: &str, path: &str, body: &Value) -> Result<Answer> {
    send(to, method, path, &[(CONTENT_TYPE.as_str(), "application/json")], body.to_string()).await
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let outcome = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        anyhow::Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }
    .await;
    connection.abort();
    outcome
}

/// Whether a status is one of success, for helpers that must not go on after a refusal.
pub fn is_success(status: u16) -> bool {
    StatusCode::from_u16(status).is_ok_and(|s| s.is_success())
}
