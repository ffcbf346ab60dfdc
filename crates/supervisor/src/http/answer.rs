//! Answers: a status, JSON, and for waits a body that comes when there is news.

use crate::files::Worker;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::{Response, StatusCode, header};
use ringfence_wire::supervisor::{ErrorBody, ErrorCode};
use serde::Serialize;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Why a request is refused, in the protocol's closed set.
#[derive(Debug)]
pub struct Refused {
    pub code: ErrorCode,
    pub message: String,
}

pub fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, message: message.into() })
}

fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::NotFound | ErrorCode::UnknownJob | ErrorCode::NoSuchFile => StatusCode::NOT_FOUND,
        ErrorCode::Forgotten => StatusCode::GONE,
        ErrorCode::FenceClosed | ErrorCode::Conflict | ErrorCode::StdinClosed => StatusCode::CONFLICT,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::LimitReached => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::PathRefused => StatusCode::FORBIDDEN,
        ErrorCode::Incomplete => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A response body.
pub enum Body {
    Now(Option<Bytes>),
    /// The headers are sent at once; the body when this resolves.
    Later(Pin<Box<dyn Future<Output = Bytes>>>),
    /// So many bytes still come from a file worker; fewer break the connection off.
    Piped {
        worker: Box<Worker>,
        left: u64,
    },
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let bytes = match &mut *self {
            Self::Now(bytes) => bytes.take(),
            Self::Later(news) => match news.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(bytes) => Some(bytes),
            },
            Self::Piped { left: 0, .. } => None,
            Self::Piped { worker, left } => {
                return match worker.poll_content(context, *left) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
                    Poll::Ready(Ok(bytes)) => {
                        *left -= bytes.len() as u64;
                        Poll::Ready(Some(Ok(Frame::data(bytes))))
                    }
                };
            }
        };
        *self = Self::Now(None);
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Now(None) | Self::Piped { left: 0, .. })
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Now(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Later(_) => SizeHint::default(),
            Self::Piped { left, .. } => SizeHint::with_exact(*left),
        }
    }
}

pub type Answer = Response<Body>;

pub fn json_bytes(value: &impl Serialize) -> Bytes {
    sized_json_bytes(value, 512)
}

/// JSON whose length is about known: a large page is then written once and not moved while it grows.
pub fn sized_json_bytes(value: &impl Serialize, about: usize) -> Bytes {
    let mut json = Vec::with_capacity(about);
    // The wire types have string keys and no fallible serializer.
    match serde_json::to_writer(&mut json, value) {
        Ok(()) => json.into(),
        Err(_) => Bytes::new(),
    }
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    now(status, json_bytes(value))
}

pub fn now(status: StatusCode, body: Bytes) -> Answer {
    with_body(status, Body::Now(Some(body)))
}

pub fn later(status: StatusCode, news: impl Future<Output = Bytes> + 'static) -> Answer {
    with_body(status, Body::Later(Box::pin(news)))
}

fn with_body(status: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

/// The content a file worker reads.
pub fn piped(worker: Worker, bytes: u64) -> Answer {
    let mut answer = with_body(StatusCode::OK, Body::Piped { worker: Box::new(worker), left: bytes });
    let binary = header::HeaderValue::from_static("application/octet-stream");
    answer.headers_mut().insert(header::CONTENT_TYPE, binary);
    answer
}

/// 401 and nothing else; the connection ends.
pub fn unauthorized() -> Answer {
    let mut answer = Response::new(Body::Now(None));
    *answer.status_mut() = StatusCode::UNAUTHORIZED;
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    answer
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        json(status(refused.code), &ErrorBody { code: refused.code, message: refused.message })
    }
}
