//! `ctx.container`, through our own externs: the crate's own types lose the start environment and lack interception
//! and the inactivity timeout.
//!
//! Invariant: every extern that can throw has `catch` (a throw through a Rust frame would leave the caller hanging
//! for ever), and every promise is awaited within a deadline. `running` means no more than "start was called and no
//! exit was seen"; whether a container is up is for the boot handshake to say.

use std::collections::BTreeMap;

use js_sys::{Array, Function, Object, Promise, Reflect};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::{Fetcher, State};

use crate::clock;
use crate::objects::thrown;

/// Interception and the inactivity timeout answer at once or not at all.
const SETTING_DEADLINE_MS: u64 = 5_000;
/// How long a destroy may take until the container is seen to be gone.
const DESTROY_DEADLINE_MS: u64 = 10_000;
/// Between two looks at `running`, after destroy was answered.
const GONE_LOOK_MS: u64 = 10;
/// Every port, by name and by address.
const EVERY_HOST_AND_PORT: &str = "*:0";

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = Object, js_name = Object)]
    #[derive(Clone, Debug)]
    type Raw;
    #[wasm_bindgen(method, getter, catch)]
    fn running(this: &Raw) -> Result<bool, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn start(this: &Raw, options: &JsValue) -> Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn destroy(this: &Raw) -> Result<Promise, JsValue>;
    #[wasm_bindgen(method, catch, js_name = getTcpPort)]
    fn get_tcp_port(this: &Raw, port: u16) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, catch, js_name = setInactivityTimeout)]
    fn set_inactivity_timeout(this: &Raw, ms: f64) -> Result<Promise, JsValue>;
    #[wasm_bindgen(method, catch, js_name = interceptOutboundHttp)]
    fn intercept_http(this: &Raw, address: &str, egress: &JsValue) -> Result<Promise, JsValue>;
    #[wasm_bindgen(method, catch, js_name = interceptOutboundHttps)]
    fn intercept_https(this: &Raw, address: &str, egress: &JsValue) -> Result<Promise, JsValue>;
}

/// What the runtime would not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {detail}")]
pub struct ContainerError {
    pub call: &'static str,
    pub detail: String,
}

impl ContainerError {
    fn thrown(call: &'static str, value: &JsValue) -> Self {
        Self { call, detail: thrown(value) }
    }
}

/// What the container starts with. The internet is never enabled.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartOptions<'a> {
    pub enable_internet: bool,
    pub env: BTreeMap<&'a str, String>,
    pub labels: &'a BTreeMap<String, String>,
}

/// The object's one container.
#[derive(Clone, Debug)]
pub struct Container {
    raw: Raw,
    exports: JsValue,
    #[cfg(feature = "test-origins")]
    pub connections: crate::connections::Connections,
}

impl Container {
    /// `None` where the deployment has no container configured for this class.
    pub fn of(state: &State) -> Option<Self> {
        let context: &JsValue = state.as_raw();
        let raw = Reflect::get(context, &"container".into()).ok().filter(JsValue::is_object)?;
        let exports = Reflect::get(context, &"exports".into()).unwrap_or(JsValue::UNDEFINED);
        Some(Self {
            raw: raw.unchecked_into(),
            exports,
            #[cfg(feature = "test-origins")]
            connections: Default::default(),
        })
    }

    pub fn running(&self) -> bool {
        self.raw.running().unwrap_or(false)
    }

    /// Returns at once; a start that fails later shows only in the handshake.
    pub fn start(&self, options: &StartOptions<'_>) -> Result<(), ContainerError> {
        let error = |value: JsValue| ContainerError::thrown("start", &value);
        // Through JSON text: a plain object is the one form that keeps `env`.
        let text = serde_json::to_string(options)
            .map_err(|e| ContainerError { call: "start", detail: e.to_string() })?;
        self.raw.start(&js_sys::JSON::parse(&text).map_err(error)?).map_err(error)
    }

    /// Destroys the container and waits until it is seen to be gone.
    pub async fn destroy(&self) -> Result<(), ContainerError> {
        if !self.running() {
            return Ok(());
        }
        let ended = clock::within(DESTROY_DEADLINE_MS, async {
            settle("destroy", self.raw.destroy()).await?;
            while self.running() {
                clock::sleep_ms(GONE_LOOK_MS).await;
            }
            Ok(())
        });
        ended.await.map_err(|e| ContainerError { call: "destroy", detail: e.to_string() })?
    }

    pub async fn set_inactivity_timeout(&self, ms: u64) -> Result<(), ContainerError> {
        const CALL: &str = "setInactivityTimeout";
        bounded(CALL, self.raw.set_inactivity_timeout(ms as f64)).await
    }

    /// Leads every outbound HTTP and HTTPS request, on every port, to `Egress` with these props. The runtime forgets
    /// this when it restarts; egress is closed until it is set again.
    pub async fn intercept(&self, props: &impl Serialize) -> Result<(), ContainerError> {
        let egress = self.egress(props)?;
        bounded("interceptOutboundHttp", self.raw.intercept_http(EVERY_HOST_AND_PORT, &egress)).await?;
        bounded("interceptOutboundHttps", self.raw.intercept_https(EVERY_HOST_AND_PORT, &egress)).await
    }

    pub fn port(&self, port: u16) -> Result<Fetcher, ContainerError> {
        let port = self.raw.get_tcp_port(port).map_err(|e| ContainerError::thrown("getTcpPort", &e))?;
        Ok(Fetcher::unchecked_from_js(port))
    }

    /// `ctx.exports.Egress({props})`. Applied, never called by its `call` property: on a loopback stub that name is
    /// itself a remote method.
    fn egress(&self, props: &impl Serialize) -> Result<JsValue, ContainerError> {
        const CALL: &str = "ctx.exports.Egress";
        let error = |value: JsValue| ContainerError::thrown(CALL, &value);
        let text =
            serde_json::to_string(props).map_err(|e| ContainerError { call: CALL, detail: e.to_string() })?;
        let options = Object::new();
        Reflect::set(&options, &"props".into(), &js_sys::JSON::parse(&text).map_err(error)?)
            .map_err(error)?;
        let entrypoint = Reflect::get(&self.exports, &"Egress".into()).map_err(error)?;
        let entrypoint: Function = entrypoint.dyn_into().map_err(|_| ContainerError {
            call: CALL,
            detail: "the Worker exports no such entrypoint".to_owned(),
        })?;
        Reflect::apply(&entrypoint, &JsValue::UNDEFINED, &Array::of1(&options)).map_err(error)
    }
}

async fn bounded(call: &'static str, promise: Result<Promise, JsValue>) -> Result<(), ContainerError> {
    clock::within(SETTING_DEADLINE_MS, settle(call, promise))
        .await
        .map_err(|e| ContainerError { call, detail: e.to_string() })?
}

async fn settle(call: &'static str, promise: Result<Promise, JsValue>) -> Result<(), ContainerError> {
    let error = |value: JsValue| ContainerError::thrown(call, &value);
    JsFuture::from(promise.map_err(error)?).await.map(drop).map_err(error)
}
