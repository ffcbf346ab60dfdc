//! One fetch, and the answer that goes to the container. Bodies stay in the runtime: bytes pass as they are, neither
//! decoded nor pumped through here.

use js_sys::{Object, Promise, Reflect};
use ringfence_wire::internal::AskedHop;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    AbortSignal, Headers, ReadableStream, Response, ResponseInit, StreamPipeOptions, WritableStream,
};

use worker::Env;

use super::headers;

/// The container is told nothing but this; the reason is recorded as a denial.
const DENIED: &str = "denied";
const UNREACHABLE: &str = "unreachable";

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_name = fetch)]
    fn global_fetch(url: &str, init: &Object) -> Result<Promise, JsValue>;

    /// The runtime's own pass-through, which moves bytes natively.
    pub type IdentityTransformStream;
    #[wasm_bindgen(constructor, catch)]
    fn new() -> Result<IdentityTransformStream, JsValue>;
    #[wasm_bindgen(method, getter)]
    pub fn readable(this: &IdentityTransformStream) -> ReadableStream;
    #[wasm_bindgen(method, getter)]
    pub fn writable(this: &IdentityTransformStream) -> WritableStream;

    /// The same for a known number of bytes. Only a body of known length shows its reader that it was cut.
    #[wasm_bindgen(extends = IdentityTransformStream)]
    pub type FixedLengthStream;
    #[wasm_bindgen(constructor, catch)]
    pub fn new(bytes: f64) -> Result<FixedLengthStream, JsValue>;
}

/// An origin's answer.
pub struct Fetched {
    response: Response,
    encoding: Encoding,
}

/// Whose business the encoding of an answer's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// The container's: it said what it accepts, and the bytes pass as the origin encoded them.
    Kept,
    /// The runtime's, which asks for one of its own and undoes it.
    Undone,
}

impl Fetched {
    pub fn status(&self) -> u16 {
        self.response.status()
    }

    pub fn location(&self) -> Option<String> {
        self.response.headers().get("location").ok().flatten()
    }

    /// A redirect's body is of no use to anyone; letting go of it frees its connection.
    pub fn discard(self) {
        if let Some(body) = self.response.body() {
            let _ = body.cancel();
        }
    }
}

/// Makes one hop. Redirects are left to the caller, nothing is taken from or put into a cache.
pub async fn once(
    env: &Env,
    hop: &AskedHop,
    headers: &Headers,
    body: Option<JsValue>,
    signal: AbortSignal,
) -> Result<Fetched, JsValue> {
    let init = Object::new();
    let set = |name: &str, value: &JsValue| Reflect::set(&init, &name.into(), value).map(drop);
    set("method", &hop.method.as_str().into())?;
    set("headers", headers)?;
    set("redirect", &"manual".into())?;
    set("cache", &"no-store".into())?;
    set("signal", &signal)?;
    let encoding = if headers.has("accept-encoding")? { Encoding::Kept } else { Encoding::Undone };
    if encoding == Encoding::Kept {
        set("encodeResponseBody", &"manual".into())?;
    }
    if let Some(body) = body {
        set("body", &body)?;
    }
    let response = JsFuture::from(global_fetch(&destination(env, hop)?, &init)?).await?;
    Ok(Fetched { response: response.dyn_into()?, encoding })
}

#[cfg(not(feature = "test-origins"))]
fn destination(_env: &Env, hop: &AskedHop) -> Result<String, JsValue> {
    Ok(hop.url.clone())
}

#[cfg(feature = "test-origins")]
fn destination(env: &Env, hop: &AskedHop) -> Result<String, JsValue> {
    super::origins::mapped(env, &hop.url)
}

/// The container's answer, and the promise that its body's end settles.
pub fn answer(fetched: &Fetched, signal: &AbortSignal) -> Result<(Response, Option<Promise>), JsValue> {
    let Fetched { response: origin, encoding } = fetched;
    let init = ResponseInit::new();
    init.set_status(origin.status());
    init.set_status_text(&origin.status_text());
    let headers = headers::inbound(origin)?;
    if *encoding == Encoding::Undone && headers.has("content-encoding")? {
        headers.delete("content-encoding")?;
        headers.delete("content-length")?;
    }
    let length = headers.get("content-length")?.and_then(|text| text.parse::<u64>().ok());
    init.set_headers(&headers.into());
    Reflect::set(&init, &"encodeBody".into(), &"manual".into())?;
    let Some(body) = origin.body() else {
        return Ok((Response::new_with_opt_readable_stream_and_init(None, &init)?, None));
    };
    let through = match length {
        Some(bytes) => FixedLengthStream::new(bytes as f64)?.into(),
        None => IdentityTransformStream::new()?,
    };
    let options = StreamPipeOptions::new();
    options.set_signal(signal);
    let piped = body.pipe_to_with_options(&through.writable(), &options);
    let response = Response::new_with_opt_readable_stream_and_init(Some(&through.readable()), &init)?;
    Ok((response, Some(piped)))
}

pub fn denied() -> Result<Response, JsValue> {
    plain(403, DENIED)
}

pub fn unreachable() -> Result<Response, JsValue> {
    plain(502, UNREACHABLE)
}

fn plain(status: u16, text: &str) -> Result<Response, JsValue> {
    let init = ResponseInit::new();
    init.set_status(status);
    Response::new_with_opt_str_and_init(Some(text), &init)
}
