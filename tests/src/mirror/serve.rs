//! Which host answers what.

use super::content::{Content, PACKAGE};
use super::{Arrived, Log, git};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::watch;

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    fn of(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, body).header("content-type", content_type)
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Serves every host until the process ends.
pub async fn all(
    listeners: Vec<(&'static str, TcpListener)>,
    content: &Arc<Content>,
    log: &Log,
    held: &watch::Receiver<Option<String>>,
) {
    let hosts = listeners.into_iter().map(|(host, listener)| {
        let (content, log, held) = (content.clone(), log.clone(), held.clone());
        async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it is bound");
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (content, log, held) = (content.clone(), log.clone(), held.clone());
                let service = service_fn(move |request| {
                    let (content, log, held) = (content.clone(), log.clone(), held.clone());
                    async move { Ok::<_, Infallible>(one(host, request, &content, &log, held).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        }
    });
    futures::future::join_all(hosts).await;
}

async fn one(
    host: &'static str,
    request: Request<Incoming>,
    content: &Content,
    log: &Log,
    mut held: watch::Receiver<Option<String>>,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter();
    let arrived = Arrived {
        host: host.to_owned(),
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
    };
    log.lock().expect("nobody panics while holding this").push(arrived);
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    // An error would say that the process ends.
    let _ = held.wait_for(|path| path.as_deref() != Some(parts.uri.path())).await;
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let answer = route(host, &parts.method, path, query, &parts.headers, body, content).await;
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(answer.body.into())).expect("a response")
}

async fn route(
    host: &str,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: Bytes,
    content: &Content,
) -> Answer {
    let reads = method == Method::GET || method == Method::HEAD;
    match host {
        "github.com" if path.ends_with("/info/lfs/objects/batch") => batch(&body),
        "github.com" => git::http_backend(&content.git_root, method, path, query, headers, body)
            .await
            .unwrap_or_else(|error| Answer::new(500, format!("{error:#}"))),
        "github-cloud.githubusercontent.com" if reads => {
            match content.large_files.get(path.trim_start_matches('/')) {
                Some(bytes) => Answer::of("application/octet-stream", bytes.clone()),
                None => Answer::new(404, "no such object"),
            }
        }
        "registry.npmjs.org" if reads => npm(path, content),
        "index.crates.io" if reads => index(path, content),
        "static.crates.io" if reads && path == format!("/crates/{PACKAGE}/1.0.0/download") => {
            Answer::of("application/gzip", content.crate_archive.clone())
        }
        "pypi.org" if reads && path == format!("/simple/{PACKAGE}/") => Answer::of(
            "text/html",
            format!(
                "<!DOCTYPE html><a href=\"https://files.pythonhosted.org/packages/{PACKAGE}-1.0.0-py3-none-any.whl\">\
                 {PACKAGE}-1.0.0-py3-none-any.whl</a>"
            ),
        ),
        "files.pythonhosted.org" if reads && path.ends_with(".whl") => {
            Answer::of("application/zip", content.wheel.clone())
        }
        "api.cloudflare.com" | "api.github.com" | "pages.test" if reads => page(host, path),
        // Whatever is written here is taken.
        _ if !reads => Answer::of("application/json", r#"{"ok":true}"#),
        _ => Answer::new(404, "not found"),
    }
}

/// Says that it was asked, and leads on where the path says so.
fn page(host: &str, path: &str) -> Answer {
    let answer = Answer::of("application/json", json!({ "host": host, "path": path }).to_string());
    match path.rsplit_once("/to/") {
        Some((_, target)) => {
            Answer { status: 302, ..answer }.header("location", &format!("https://{target}"))
        }
        None => answer.header("set-cookie", "session=of-the-origin"),
    }
}

fn batch(body: &[u8]) -> Answer {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let operation = asked["operation"].as_str().unwrap_or("download").to_owned();
    let objects: Vec<Value> = asked["objects"].as_array().into_iter().flatten().map(|object| {
        let href = format!(
            "https://github-cloud.githubusercontent.com/{}?signature=of-the-mirror",
            object["oid"].as_str().unwrap_or_default()
        );
        json!({ "oid": object["oid"], "size": object["size"], "actions": { (operation.as_str()): { "href": href } } })
    }).collect();
    let answer = json!({ "transfer": "basic", "objects": objects });
    Answer::of("application/vnd.git-lfs+json", answer.to_string())
}

fn npm(path: &str, content: &Content) -> Answer {
    if path == format!("/{PACKAGE}") {
        let archive = format!("https://registry.npmjs.org/{PACKAGE}/-/{PACKAGE}-1.0.0.tgz");
        let version = json!({ "name": PACKAGE, "version": "1.0.0", "dist": { "tarball": archive } });
        let document =
            json!({ "name": PACKAGE, "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
        return Answer::of("application/json", document.to_string());
    }
    if path == format!("/{PACKAGE}/-/{PACKAGE}-1.0.0.tgz") {
        return Answer::of("application/octet-stream", content.npm_archive.clone());
    }
    Answer::new(404, "{}")
}

/// The sparse index of cargo.
fn index(path: &str, content: &Content) -> Answer {
    if path == "/config.json" {
        let config = json!({ "dl": "https://static.crates.io/crates", "api": "https://crates.io" });
        return Answer::of("application/json", config.to_string());
    }
    if path == format!("/{}/{}/{PACKAGE}", &PACKAGE[..2], &PACKAGE[2..4]) {
        let entry = json!({
            "name": PACKAGE, "vers": "1.0.0", "deps": [], "features": {}, "yanked": false,
            "cksum": content.crate_sha256(),
        });
        return Answer::of("text/plain", format!("{entry}\n"));
    }
    Answer::new(404, "not found")
}
