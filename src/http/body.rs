//! Reading a request's body: bounded before it is read, and JSON or a problem that says where it stops being JSON.

use futures::StreamExt;
use serde_json::Value;
use worker::{Request, Response, Result};

use super::respond::{self, Problem};

/// The most a request's body may hold.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A body, or the response that says what is wrong with it.
pub enum Read {
    Json(Value),
    /// There was none.
    Empty,
    Refused(Response),
}

pub async fn json(request: &mut Request) -> Result<Read> {
    let bytes = match bytes(request).await? {
        Ok(bytes) => bytes,
        Err(response) => return Ok(Read::Refused(response)),
    };
    if bytes.is_empty() {
        return Ok(Read::Empty);
    }
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Read::Json(value)),
        Err(error) => Ok(Read::Refused(respond::problem(&Problem {
            title: "Malformed JSON",
            status: 400,
            detail: error.to_string(),
            line: Some(error.line()),
            column: Some(error.column()),
        })?)),
    }
}

/// A body that says it is too long is not read at all; one that does not say is read no further than the limit.
async fn bytes(request: &mut Request) -> Result<std::result::Result<Vec<u8>, Response>> {
    if request.inner().body().is_none() {
        return Ok(Ok(Vec::new()));
    }
    let declared = request.headers().get("Content-Length")?.and_then(|text| text.parse::<usize>().ok());
    match declared {
        Some(length) if length > MAX_BODY_BYTES => Ok(Err(respond::too_large(MAX_BODY_BYTES)?)),
        Some(_) => match request.bytes().await {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(error) => Ok(Err(respond::unreadable_body(&error)?)),
        },
        None => {
            let mut stream = request.stream()?;
            let mut bytes = Vec::new();
            while let Some(chunk) = stream.next().await {
                match chunk {
                    Ok(chunk) => bytes.extend(chunk),
                    Err(error) => return Ok(Err(respond::unreadable_body(&error)?)),
                }
                if bytes.len() > MAX_BODY_BYTES {
                    return Ok(Err(respond::too_large(MAX_BODY_BYTES)?));
                }
            }
            Ok(Ok(bytes))
        }
    }
}
