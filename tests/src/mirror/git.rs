//! git's smart HTTP: the request is handed to `git http-backend`, which is git's own.

use super::serve::Answer;
use anyhow::{Context, Result};
use bytes::Bytes;
use hyper::{HeaderMap, Method};
use std::path::Path;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// One CGI exchange.
pub async fn http_backend(
    root: &Path,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Answer> {
    // GitHub answers under either form of the name.
    let path = match path.split_once("/info/refs").or_else(|| path.split_once("/git-")) {
        Some((repository, _)) if !repository.ends_with(".git") => {
            path.replacen(repository, &format!("{repository}.git"), 1)
        }
        _ => path.to_owned(),
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("REQUEST_METHOD", method.as_str())
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_USER", "anyone")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("piped")?;
    let write = async move {
        // A request that is refused is not read to its end.
        let _ = stdin.write_all(&body).await;
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), write);
    let output = output?.stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").context("a CGI head")?;
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let mut answer = Answer::new(200, output[end + 4..].to_vec());
    for line in head.split("\r\n") {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            answer.status = value.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(500);
        } else {
            answer.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    Ok(answer)
}
