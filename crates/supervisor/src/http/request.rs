//! What a request says: method, path, parameters and a body of bounded size, each checked with its name.

use super::answer::{Refused, refuse};
use crate::limits;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request};
use ringfence_wire::supervisor::{ErrorCode, MAX_FILE_BYTES};
use serde::de::DeserializeOwned;

pub struct Read {
    pub method: Method,
    pub segments: Vec<String>,
    parameters: Vec<(String, String)>,
    pub body: Bytes,
}

impl Read {
    pub async fn from(request: Request<Incoming>) -> Result<Self, Refused> {
        let (head, body) = request.into_parts();
        let segments: Vec<String> = head.uri.path().split('/').skip(1).map(str::to_owned).collect();
        let file = segments.iter().map(String::as_str).eq(["v1", "files"]);
        let limit = if file { MAX_FILE_BYTES as usize } else { limits::MAX_BODY_BYTES };
        let body = match Limited::new(body, limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return refuse(ErrorCode::TooLarge, format!("the body exceeds {limit} bytes"));
            }
            Err(_) => return refuse(ErrorCode::BadRequest, "the body broke off"),
        };
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let parameters = form_urlencoded::parse(query).into_owned().collect();
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
