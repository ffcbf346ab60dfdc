//! The egress entrypoint: every outbound request of a sandbox arrives here.

use wasm_bindgen::prelude::*;
use worker::{Env, Response};

/// The container is told nothing but this; the reason is recorded as a denial.
const DENIED: &str = "denied";

#[wasm_bindgen(js_name = egress)]
pub async fn serve(
    _env: Env,
    _context: JsValue,
    _request: web_sys::Request,
) -> Result<web_sys::Response, JsValue> {
    Ok(Response::error(DENIED, 403)?.into())
}
