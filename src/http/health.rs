//! `/health`: whether this deployment is configured to serve, and whether its fence was seen to hold. Needs no token,
//! so it tells names of entries and nothing of their values, and of the canary no more than how it stands.
//!
//! It is 200 only when the running build passed the canary. Asking is also what makes a new build look at itself.

use ringfence_wire::contract::{CONTRACT_VERSION, CanaryDone, CanaryVerdict};
use serde::Serialize;
use worker::{Context, Env, Method as HttpMethod, Response, Result};

use super::respond;
use super::router::Verb;
use crate::config::Config;
use crate::facade;

pub const PATH: &str = "/health";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    ok: bool,
    version: &'static str,
    contract: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<String>,
    fence: Fence,
}

/// How the fence of the running build stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Fence {
    Verified,
    /// No look was conclusive yet.
    Unverified,
    Failed,
}

impl From<CanaryDone> for Fence {
    fn from(known: CanaryDone) -> Self {
        match known.canary {
            _ if known.verified => Self::Verified,
            Some(last) if last.verdict == CanaryVerdict::Failed => Self::Failed,
            _ => Self::Unverified,
        }
    }
}

pub async fn respond(
    verb: Option<Verb>,
    method: &HttpMethod,
    env: &Env,
    context: &Context,
) -> Result<Response> {
    match verb {
        Some(Verb::Get) => {}
        _ if *method == HttpMethod::Options => return respond::options(&[Verb::Get]),
        _ => return respond::method_not_allowed(&[Verb::Get]),
    }
    let (configuration, fence) = match Config::of(env) {
        Ok(config) => {
            if let Some(look) = facade::look_by_itself(env, true) {
                context.wait_until(look);
            }
            // An object that gives no answer verifies nothing.
            let known = facade::canary_known(env, &config).await;
            (None, known.map_or(Fence::Unverified, Fence::from))
        }
        Err(error) => (Some(error.to_string()), Fence::Unverified),
    };
    let ok = configuration.is_none() && fence == Fence::Verified;
    let health =
        Health { ok, version: env!("CARGO_PKG_VERSION"), contract: CONTRACT_VERSION, configuration, fence };
    respond::json(if ok { 200 } else { 503 }, &health)
}
