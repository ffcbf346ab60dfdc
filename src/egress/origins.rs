//! Test builds only (feature `test-origins`): the variable `EGRESS_ORIGINS`, a JSON object of host → origin on
//! loopback, says where a granted host is reached. Everything before the fetch is as ever: the URL that was asked for
//! is the one that is decided on. Where a host is not named the request fails, so no test reaches the internet.

use std::collections::BTreeMap;

use url::Url;
use wasm_bindgen::JsValue;
use worker::Env;

const MARK: &str = "ringfence-test-origins";

pub fn mapped(env: &Env, url: &str) -> Result<String, JsValue> {
    let fault = |what: &str| JsValue::from(js_sys::Error::new(&format!("{MARK}: {what}")));
    let text = env.var("EGRESS_ORIGINS").map(|text| text.to_string()).unwrap_or_default();
    let origins: BTreeMap<String, String> =
        serde_json::from_str(&text).map_err(|_| fault("EGRESS_ORIGINS is not set"))?;
    let url = Url::parse(url).map_err(|_| fault("the URL cannot be read"))?;
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    let origin = origins.get(host).ok_or_else(|| fault("no origin stands in for this host"))?;
    let mut at = Url::parse(origin).map_err(|_| fault("an origin is no URL"))?;
    at.set_path(url.path());
    at.set_query(url.query());
    Ok(at.into())
}
