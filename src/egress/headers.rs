//! Headers on their way out and in: `core`'s lists applied, and the credential of a hop added.

use js_sys::Reflect;
use ringfence_core::egress::{Credential, Denial, inject, request_header_allowed, response_header_allowed};
use ringfence_wire::internal::{AskedHop, HopCredential, HopTerms};
use url::Url;
use wasm_bindgen::JsValue;
use web_sys::{Headers, Request, Response};
use worker::Env;

/// What the container's request may carry, plus the hop's own credential. A credential that cannot be used fails the
/// hop. A body's length goes with a body only.
pub fn outbound(env: &Env, request: &Request, hop: &AskedHop, terms: &HopTerms) -> Result<Headers, Denial> {
    let passes = |name: &str| request_header_allowed(name) && (hop.has_body || name != "content-length");
    let headers = filtered(&request.headers(), passes).map_err(|_| Denial::Credential)?;
    if let Some(credential) = &terms.credential {
        let injected = injected(env, hop, credential).ok_or(Denial::Credential)?;
        headers.set(&injected.name, &injected.value).map_err(|_| Denial::Credential)?;
    }
    Ok(headers)
}

pub fn inbound(response: &Response) -> Result<Headers, JsValue> {
    filtered(&response.headers(), response_header_allowed)
}

fn injected(
    env: &Env,
    hop: &AskedHop,
    credential: &HopCredential,
) -> Option<ringfence_core::egress::Injected> {
    let url = Url::parse(&hop.url).ok()?;
    let HopCredential { secret_name, host, header_template } = credential;
    let credential = Credential {
        secret_name: secret_name.clone(),
        host: ringfence_core::egress::HostPattern::parse(host).ok()?,
        header_template: header_template.clone(),
    };
    let secret = env.secret(secret_name).ok().map(|secret| secret.to_string());
    let host = url.host_str()?;
    inject(&credential, host.strip_suffix('.').unwrap_or(host), secret.as_deref()).ok()
}

fn filtered(from: &Headers, passes: impl Fn(&str) -> bool) -> Result<Headers, JsValue> {
    let headers = Headers::new()?;
    let entries = js_sys::try_iter(from)?.ok_or(JsValue::UNDEFINED)?;
    for entry in entries {
        let entry = entry?;
        let text = |at: u32| Reflect::get_u32(&entry, at).map(|value| value.as_string().unwrap_or_default());
        let name = text(0)?;
        if passes(&name) {
            headers.append(&name, &text(1)?)?;
        }
    }
    Ok(headers)
}
