//! The egress entrypoint: every outbound request of a sandbox arrives here, and nothing else may pass for one.
//!
//! The Sandbox object decides each hop, under the grant that is open in its memory at that moment; this entrypoint
//! fetches and streams. It owns the fetch and the answer's stream, and lets go of both when the object says so.
//!
//! Order for one request: open a passage (403 if denied) → fetch, and for each redirect ask again → pipe the answer →
//! acknowledge the end. One that lasts is held meanwhile, by a call that the object leaves unanswered. When the held call is answered, or lost,
//! fetch and answer are aborted first and acknowledged then. What is not known to be admitted is denied; the container
//! is told "denied" and no more.

mod ends;
mod fetch;
mod headers;
#[cfg(feature = "test-origins")]
mod origins;
mod passage;
mod upload;

use js_sys::JSON;
use ringfence_core::egress::{self, Denial, Hop, Method, Next};
use ringfence_wire::internal::{AskedHop, EgressProps, HopAnswer, HopTerms, PassageEnd};
use std::panic::AssertUnwindSafe;
use url::Url;
use wasm_bindgen::prelude::*;
use worker::Env;

use crate::config::Config;
use crate::rpc::EntrypointContext;
use fetch::Fetched;
use passage::{Object, Passage};
use upload::Upload;

/// Why a request ends here.
enum Stop {
    /// The object refused it, and knows.
    Denied,
    /// Found here; the object is to record it against this hop.
    Refused { hop: AskedHop, denial: Denial },
    /// Nobody refused it: the origin could not be reached.
    Unreachable,
}

#[wasm_bindgen(js_name = egress)]
pub async fn serve(
    env: Env,
    context: EntrypointContext,
    request: web_sys::Request,
) -> Result<web_sys::Response, JsValue> {
    AssertUnwindSafe(async move {
        let Some(object) = object(&env, &context.props()) else { return fetch::denied() };
        let asked = asked(&request);
        let Some((passage, terms)) = object.open(&asked).await else { return fetch::denied() };
        let passage = passage.watch(&context, asked.clone(), &request.signal())?;
        match follow(&env, &passage, request, asked, terms).await {
            Ok((fetched, upload)) => passage.stream(fetched, upload),
            Err(Stop::Denied) => passage.over(PassageEnd::Finished, fetch::denied()),
            Err(Stop::Refused { hop, denial }) => {
                let reason = denial.name().to_owned();
                passage.over(PassageEnd::Refused { hop, reason }, fetch::denied())
            }
            Err(Stop::Unreachable) => passage.over(PassageEnd::Finished, fetch::unreachable()),
        }
    })
    .await
}

/// The object of the sandbox that the interceptor's props name. Whether they are its own the object decides, by the
/// secret in them.
fn object(env: &Env, props: &JsValue) -> Option<Object> {
    let text = String::from(JSON::stringify(props).ok()?);
    let props: EgressProps = serde_json::from_str(&text).ok()?;
    let config = Config::of(env).ok()?;
    Some(Object::new(env.clone(), config, props))
}

fn asked(request: &web_sys::Request) -> AskedHop {
    let header = |name| request.headers().get(name).ok().flatten();
    AskedHop {
        method: request.method(),
        url: request.url(),
        declared_bytes: header("content-length").and_then(|text| text.parse().ok()),
        has_body: request.body().is_some(),
        upgrade: header("upgrade").is_some(),
    }
}

/// Fetches the request and what it is redirected to, each hop admitted before it is made.
async fn follow(
    env: &Env,
    passage: &Passage,
    request: web_sys::Request,
    mut asked: AskedHop,
    mut terms: HopTerms,
) -> Result<(Fetched, Upload), Stop> {
    let mut upload = Upload::of(&request, &asked, &terms, passage.abort()).await.map_err(refuse(&asked))?;
    let mut earlier: Vec<Hop> = Vec::new();
    loop {
        let headers = headers::outbound(env, &request, &asked, &terms).map_err(refuse(&asked))?;
        let answer = fetch::once(env, &asked, &headers, upload.body(), passage.signal()).await;
        if upload.over_its_bound() {
            return Err(refuse(&asked)(Denial::BodyTooLarge));
        }
        // What the object cut, or its client left, was not unreachable.
        let lost = |_| if passage.signal().aborted() { Stop::Denied } else { Stop::Unreachable };
        let answer = answer.map_err(lost)?;
        // A request whose hop cannot be told again is not redirected by us; the container sees the redirect.
        let Some(hop) = decided(&asked) else { return Ok((answer, upload)) };
        let next =
            egress::next(&hop, &earlier, answer.status(), answer.location().as_deref(), asked.has_body);
        let (next, body) = match next.map_err(refuse(&asked))? {
            Next::Answer => return Ok((answer, upload)),
            Next::Follow { hop, body } => (hop, body),
        };
        answer.discard();
        let next_asked = AskedHop {
            method: next.method.as_str().to_owned(),
            url: next.url.to_string(),
            declared_bytes: if body { asked.declared_bytes } else { None },
            has_body: body,
            upgrade: false,
        };
        if body && !upload.can_be_sent_again() {
            return Err(refuse(&next_asked)(Denial::RedirectBody));
        }
        if !body {
            upload = Upload::none();
        }
        terms = match passage.next(&next_asked).await {
            Some(HopAnswer::Admitted { terms, .. }) => terms,
            Some(HopAnswer::Denied) | None => return Err(Stop::Denied),
        };
        earlier.push(hop);
        asked = next_asked;
    }
}

fn decided(asked: &AskedHop) -> Option<Hop> {
    Some(Hop { method: Method::parse(&asked.method)?, url: Url::parse(&asked.url).ok()? })
}

fn refuse(hop: &AskedHop) -> impl Fn(Denial) -> Stop {
    move |denial| Stop::Refused { hop: hop.clone(), denial }
}
