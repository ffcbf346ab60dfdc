//! `/health`: whether this deployment is configured to serve. Needs no token, so it tells names of entries and
//! nothing of their values.

use serde::Serialize;
use worker::{Env, Method as HttpMethod, Response, Result};

use super::respond;
use super::router::Verb;
use crate::config::Config;
use ringfence_wire::contract::CONTRACT_VERSION;

pub const PATH: &str = "/health";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    ok: bool,
    version: &'static str,
    contract: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<String>,
}

pub fn respond(verb: Option<Verb>, method: &HttpMethod, env: &Env) -> Result<Response> {
    match verb {
        Some(Verb::Get) => {}
        _ if *method == HttpMethod::Options => return respond::options(&[Verb::Get]),
        _ => return respond::method_not_allowed(&[Verb::Get]),
    }
    let fault = Config::of(env).err().map(|error| error.to_string());
    let status = if fault.is_none() { 200 } else { 503 };
    let health = Health {
        ok: fault.is_none(),
        version: env!("CARGO_PKG_VERSION"),
        contract: CONTRACT_VERSION,
        configuration: fault,
    };
    respond::json(status, &health)
}
