//! The RPC face: what `Facade` in `entry.js` hands over, and the plain object it hands back.
//!
//! The call's whole work is held by `waitUntil`, so that a caller which vanishes cancels nothing.

use js_sys::{Array, JSON, Promise, Reflect};
use serde_json::Value;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};
use worker::Env;

use ringfence_wire::refusal::Refusal;

use crate::config::Config;
use crate::facade::{self, Answer, Arguments, Caller, Method, rejected};
use crate::objects::thrown;

/// The most characters of JSON that a call's arguments may make. Well above every field's own limit, so that what is
/// too long is refused by its name.
const MAX_ARGUMENTS: usize = 4 * 1024 * 1024;

#[wasm_bindgen]
extern "C" {
    /// An entrypoint's execution context.
    pub type EntrypointContext;
    #[wasm_bindgen(method, catch, js_name = waitUntil)]
    pub fn wait_until(this: &EntrypointContext, work: &Promise) -> Result<(), JsValue>;
    #[wasm_bindgen(method, getter)]
    pub fn props(this: &EntrypointContext) -> JsValue;
}

/// One call of the RPC face. Answers the outcome as a plain object.
#[wasm_bindgen(js_name = facade)]
pub async fn call(
    env: Env,
    context: EntrypointContext,
    method: String,
    args: Array,
) -> Result<JsValue, JsValue> {
    let consumer = consumer(&context.props());
    let look = facade::look_by_itself(&env, false).map(|look| {
        future_to_promise(std::panic::AssertUnwindSafe(async move {
            look.await;
            Ok(JsValue::UNDEFINED)
        }))
    });
    let work = future_to_promise(std::panic::AssertUnwindSafe(async move {
        let answer = answer(&env, consumer, &method, &args).await?;
        JSON::parse(&answer.0)
    }));
    context.wait_until(&work)?;
    if let Some(look) = look {
        context.wait_until(&look)?;
    }
    JsFuture::from(work).await
}

async fn answer(env: &Env, consumer: Option<String>, method: &str, args: &Array) -> Result<Answer, JsValue> {
    // entry.js names no other method; this is not reached by any caller's doing.
    let Some((method, parameters)) = Method::rpc(method) else {
        return Err(js_sys::TypeError::new(&format!("{method} is not a method of the facade")).into());
    };
    let caller = caller(env, consumer);
    Ok(match arguments(parameters, args) {
        Ok(arguments) => facade::serve(env, caller, method, arguments).await,
        Err(refusal) => facade::serve(env, caller.and(Err(refusal)), method, Arguments::default()).await,
    })
}

fn caller(env: &Env, consumer: Option<String>) -> Result<Caller, Refusal> {
    facade::by_binding(&*Config::of(env)?, consumer)
}

/// `props.consumer`, if it is a text.
fn consumer(props: &JsValue) -> Option<String> {
    Reflect::get(props, &"consumer".into()).ok()?.as_string()
}

/// Structured-clone values become JSON: what JSON cannot say is refused, not guessed at.
fn arguments(parameters: &[&str], args: &Array) -> Result<Arguments, Refusal> {
    const FIELD: &str = "arguments";
    let text = JSON::stringify(args)
        .map_err(|error| rejected(FIELD, format!("cannot be written as JSON: {}", thrown(&error))))?;
    if text.length() as usize > MAX_ARGUMENTS {
        return Err(rejected(FIELD, format!("are over {MAX_ARGUMENTS} characters of JSON")));
    }
    let values: Vec<Value> = serde_json::from_str(&String::from(text))
        .map_err(|error| rejected(FIELD, format!("are no JSON: {error}")))?;
    Ok(Arguments::positional(parameters, values))
}
