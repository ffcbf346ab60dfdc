//! The HTTP face: the facade's calls as JSON for the command line and any client.
//!
//! Order: `/health` needs no token; everything else is 401 before it is anything. Then the path, the verb, the body's
//! size, its JSON, and only then the call. Bodies are the outcomes of the RPC face, unchanged. The call's work is held
//! by `waitUntil`, so that a client which hangs up cancels nothing.

mod body;
mod health;
mod respond;
mod router;

use futures::channel::oneshot;
use serde_json::Value;
use worker::{Context, Env, Method as HttpMethod, Request, Response, Result, event};

use crate::config::Config;
use crate::facade::{self, Arguments, TokenFault};

use body::Read;
use router::{Body, Found, Route, Verb};

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> Result<Response> {
    serve(request, &env, &context).await
}

async fn serve(mut request: Request, env: &Env, context: &Context) -> Result<Response> {
    let method = request.method();
    let url = request.url()?;
    let verb = verb(&method);
    if url.path() == health::PATH {
        return health::respond(verb, &method, env, context).await;
    }
    let config = match Config::of(env) {
        Ok(config) => config,
        Err(error) => return respond::answer(facade::Answer::refused(error.into())),
    };
    let authorization = request.headers().get("Authorization")?;
    let caller = match facade::by_token(&config, authorization.as_deref()) {
        Ok(caller) => Ok(caller),
        Err(TokenFault::Unauthorized) => return respond::unauthorized(),
        Err(TokenFault::Refused(refusal)) => Err(refusal),
    };
    let (route, bound) = match router::find(verb, url.path()) {
        Found::Route { route, bound } => (route, bound),
        Found::OtherVerbs(verbs) if method == HttpMethod::Options => return respond::options(&verbs),
        Found::OtherVerbs(verbs) => return respond::method_not_allowed(&verbs),
        Found::Nothing => return respond::not_found(),
    };
    let mut arguments = Arguments::default();
    if route.body != Body::None {
        match body::json(&mut request).await? {
            Read::Json(body) => match with_body(&mut arguments, route.body, body) {
                Ok(()) => {}
                Err(refusal) => return respond::answer(facade::Answer::refused(refusal)),
            },
            Read::Empty => {}
            Read::Refused(response) => return Ok(response),
        }
    }
    with_query(&mut arguments, route, url.query_pairs());
    // Last, so that nothing in a body or a query can stand for the path's own.
    for (name, value) in bound {
        arguments.set(name, Value::String(value));
    }
    if let Some(look) = facade::look_by_itself(env, false) {
        context.wait_until(look);
    }
    let (tell, told) = oneshot::channel();
    let (env, method) = (env.clone(), route.method);
    context.wait_until(async move {
        // Nobody listens any more if the client hung up.
        let _ = tell.send(facade::serve(&env, caller, method, arguments).await);
    });
    match told.await {
        Ok(answer) => respond::answer(answer),
        Err(oneshot::Canceled) => respond::failed(),
    }
}

/// HEAD is GET whose body the runtime drops.
fn verb(method: &HttpMethod) -> Option<Verb> {
    match method {
        HttpMethod::Get | HttpMethod::Head => Some(Verb::Get),
        HttpMethod::Post => Some(Verb::Post),
        HttpMethod::Delete => Some(Verb::Delete),
        _ => None,
    }
}

fn with_body(
    arguments: &mut Arguments,
    shape: Body,
    body: Value,
) -> std::result::Result<(), ringfence_wire::refusal::Refusal> {
    match (shape, body) {
        (Body::Fields, Value::Object(fields)) => arguments.extend(fields),
        (Body::Fields, _) => return Err(facade::rejected("body", "must be a JSON object")),
        (_, body) => arguments.set("input", body),
    }
    Ok(())
}

fn with_query<'a>(
    arguments: &mut Arguments,
    route: &Route,
    pairs: impl Iterator<Item = (std::borrow::Cow<'a, str>, std::borrow::Cow<'a, str>)>,
) {
    for (name, value) in pairs {
        if route.query.contains(&name.as_ref()) {
            let number = route.numeric(&name).then(|| value.parse::<u64>().ok()).flatten();
            let value = number.map_or_else(|| Value::String(value.into_owned()), Value::from);
            if route.repeated(&name) { arguments.push(&name, value) } else { arguments.set(&name, value) }
        }
    }
}
