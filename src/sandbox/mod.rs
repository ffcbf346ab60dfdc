//! The Sandbox object: one per consumer's key.

use wasm_bindgen::prelude::*;
use worker::{DurableObject, Env, Request, Response, State, durable_object};

#[durable_object]
pub struct Sandbox {
    _state: State,
    _env: Env,
}

impl DurableObject for Sandbox {
    fn new(state: State, env: Env) -> Self {
        Self { _state: state, _env: env }
    }

    /// Nothing is served over HTTP: the object answers `invoke` alone.
    async fn fetch(&self, _request: Request) -> worker::Result<Response> {
        Response::error("not found", 404)
    }
}

#[wasm_bindgen]
impl Sandbox {
    /// One call of the facade: [`ringfence_wire::internal::SandboxRequest`] as JSON in, the contract's outcome out.
    pub async fn invoke(&self, _request: String) -> Result<String, JsValue> {
        Err(js_sys::Error::new("not served yet").into())
    }
}
