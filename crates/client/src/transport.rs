//! One request, one answer, within a deadline. Owns the connection pool and the token.
//!
//! The invariant: the token leaves this process only over https, or over http to a loopback address.

use crate::error::{CallError, Problem, SetupError};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{Client as HyperClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use ringfence_wire::refusal::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::IpAddr;
use std::time::Duration;

/// An answer larger than this is not one of the contract's (the largest is a page or a file, well below).
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

#[derive(Clone)]
pub(crate) struct Transport {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Scheme and authority, no trailing slash.
    base: String,
    authorization: HeaderValue,
}

impl Transport {
    pub(crate) fn new(url: &str, token: &str) -> Result<Self, SetupError> {
        let base = check_url(url)?;
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| SetupError::Token)?;
        authorization.set_sensitive(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new();
        // Loopback needs no roots, and a machine without any may still use it.
        let provider = rustls::crypto::ring::default_provider();
        let connector = if base.starts_with("https:") {
            let rooted = connector.with_provider_and_native_roots(provider).map_err(SetupError::Roots)?;
            rooted.https_only().enable_http1().build()
        } else {
            let config = rustls::ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .map_err(|error| SetupError::Roots(std::io::Error::other(error)))?
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            connector.with_tls_config(config).https_or_http().enable_http1().build()
        };
        let http = HyperClient::builder(TokioExecutor::new()).build(connector);
        Ok(Self { http, base, authorization })
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends one call and reads its outcome.
    pub(crate) async fn call<T: DeserializeOwned>(&self, request: Call<'_>) -> Result<T, CallError> {
        self.read(request, |body| serde_json::from_slice(body)).await
    }

    /// A call whose answer is a bare list when it is no refusal.
    pub(crate) async fn list<T: DeserializeOwned>(&self, request: Call<'_>) -> Result<Vec<T>, CallError> {
        let outcome = |body: &[u8]| match body.first() {
            Some(b'[') => serde_json::from_slice(body).map(Outcome::Done),
            _ => serde_json::from_slice(body),
        };
        self.read(request, outcome).await
    }

    async fn read<T>(
        &self,
        request: Call<'_>,
        outcome: impl FnOnce(&[u8]) -> serde_json::Result<Outcome<T>>,
    ) -> Result<T, CallError> {
        let (status, body) = self.send(&request).await?;
        let call = request.name;
        match status {
            StatusCode::UNAUTHORIZED => return Err(CallError::Unauthorized),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                return Err(CallError::NotServed { call });
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
                return Err(CallError::Rejected { call, status: status.as_u16(), problem });
            }
            _ => {}
        }
        match outcome(&body) {
            Ok(Outcome::Done(done)) => Ok(done),
            Ok(Outcome::Refused(refusal)) => Err(CallError::Refused(Box::new(refusal))),
            Err(error) => {
                let mut why = error.to_string();
                if !status.is_success() {
                    why.push_str("; it begins: ");
                    why.extend(String::from_utf8_lossy(&body).chars().take(200));
                }
                Err(CallError::Unintelligible { call, status: status.as_u16(), why })
            }
        }
    }

    /// Sends one call and gives back what came, whatever it was.
    pub(crate) async fn send(&self, request: &Call<'_>) -> Result<(StatusCode, Bytes), CallError> {
        let call = request.name;
        let transport =
            |source: Box<dyn std::error::Error + Send + Sync>| CallError::Transport { call, source };
        let mut builder = Request::builder()
            .method(request.method.clone())
            .uri(format!("{}{}", self.base, request.path))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(USER_AGENT, concat!("ringfence-client/", env!("CARGO_PKG_VERSION")));
        if request.body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(request.body.clone().unwrap_or_default());
        let built = builder.body(body).map_err(|error| transport(error.into()))?;
        let exchange = async {
            let answer = self.http.request(built).await.map_err(|error| transport(error.into()))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES)
                .collect()
                .await
                .map_err(transport)?
                .to_bytes();
            Ok((status, body))
        };
        match tokio::time::timeout(request.deadline, exchange).await {
            Ok(result) => result,
            Err(_) => Err(CallError::TimedOut { call, after: request.deadline }),
        }
    }
}

/// One call, ready to be sent.
pub(crate) struct Call<'a> {
    /// The contract's name for it, for messages.
    pub(crate) name: &'static str,
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) body: Option<Bytes>,
    pub(crate) deadline: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(name: &'static str, method: Method, path: &'a str, deadline: Duration) -> Self {
        Self { name, method, path, body: None, deadline }
    }
    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, CallError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| CallError::Transport { call: self.name, source: error.into() })?;
        self.body = Some(bytes.into());
        Ok(self)
    }
}

/// Gives back scheme and authority.
fn check_url(url: &str) -> Result<String, SetupError> {
    let bad = |why: &str| SetupError::Url { url: url.to_owned(), why: why.to_owned() };
    let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| bad("it does not parse"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad("it has no scheme and host"));
    };
    if authority.as_str().contains('@') {
        return Err(bad("it carries credentials"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(bad("it has a path or a query"));
    }
    match scheme {
        "https" => {}
        "http" if is_loopback(authority.host()) => {}
        "http" => return Err(SetupError::PlainHttp { host: authority.host().to_owned() }),
        _ => return Err(bad("its scheme is neither http nor https")),
    }
    Ok(format!("{scheme}://{authority}"))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_taken_for_loopback_and_refused_elsewhere() {
        for good in ["http://127.0.0.1:8787", "http://localhost:1/", "http://[::1]:80", "https://example.com"]
        {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in ["http://example.com", "http://127.0.0.1.example.com", "http://10.0.0.1:8787"] {
            assert!(matches!(check_url(bad), Err(SetupError::PlainHttp { .. })), "{bad}");
        }
    }

    #[test]
    fn a_url_with_credentials_a_path_or_another_scheme_is_refused() {
        for bad in
            ["https://user:pw@example.com", "https://example.com/v1", "ftp://127.0.0.1", "example.com", ""]
        {
            assert!(matches!(check_url(bad), Err(SetupError::Url { .. })), "{bad}");
        }
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        assert!(matches!(Transport::new("http://127.0.0.1:1", "line\nbreak"), Err(SetupError::Token)));
    }
}
