//! Answers in the shapes that Docker's clients expect.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

pub type Answer = Response<Full<Bytes>>;

pub fn bytes(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

pub fn empty(status: StatusCode) -> Answer {
    bytes(status, Bytes::new())
}

pub fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = bytes(status, body);
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    answer
}

pub fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(body) => text(status, "application/json", body),
        Err(error) => bytes(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// `{"message": …}`, which clients show.
pub fn error(status: StatusCode, message: &str) -> Answer {
    json(status, &json!({ "message": message }))
}
