//! What a request says: method, path, parameters and a body of bounded size, each checked with its name.

use super::answer::{Refused, refuse};
use crate::limits;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Uri};
use ringfence_wire::supervisor::ErrorCode;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

pub struct Read {
    pub method: Method,
    pub segments: Vec<String>,
    parameters: Vec<(String, String)>,
    pub body: Bytes,
}

/// Reads what is left of a refused body: a peer that is still sending would else be cut off before it hears why.
pub async fn discard(body: &mut Incoming) {
    let rest = async {
        let mut left = limits::MAX_DISCARDED_BYTES;
        while left > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    let _ = timeout(limits::BODY_TIMEOUT, rest).await;
}

/// The query's parameters, decoded.
pub fn parameters(uri: &Uri) -> Vec<(String, String)> {
    form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect()
}

impl Read {
    pub async fn from(request: Request<Incoming>) -> Result<Self, Refused> {
        let (head, body) = request.into_parts();
        let segments: Vec<String> = head.uri.path().split('/').skip(1).map(str::to_owned).collect();
        let limit = limits::MAX_BODY_BYTES;
        let mut body = body;
        let collected = Limited::new(&mut body, limit).collect().await;
        let body = match collected {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                discard(&mut body).await;
                return refuse(ErrorCode::TooLarge, format!("the body exceeds {limit} bytes"));
            }
            Err(_) => return refuse(ErrorCode::BadRequest, "the body broke off"),
        };
        let parameters = parameters(&head.uri);
        Ok(Self { method: head.method, segments, parameters, body })
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        let mut reader = serde_json::Deserializer::from_slice(&self.body);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| Refused {
            code: ErrorCode::BadRequest,
            message: format!("the body's {}: {}", error.path(), error.inner()),
        })?;
        match reader.end() {
            Ok(()) => Ok(value),
            Err(error) => refuse(ErrorCode::BadRequest, format!("after the body's value: {error}")),
        }
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, Refused> {
        match self.parameter(name).map(str::parse) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => refuse(ErrorCode::BadRequest, format!("{name} must be a decimal number")),
        }
    }

    pub fn flag(&self, name: &str) -> Result<bool, Refused> {
        match self.parameter(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => refuse(ErrorCode::BadRequest, format!("{name} must be true or false")),
        }
    }
}
