//! How the facade, the Sandbox objects and the Admission object call each other: one JSON text in, one out.
//!
//! Every call carries a seal under the newest ticket secret, so that a Worker bound straight to a class gets
//! nothing; every call has a deadline; every call makes a new stub, because a stub that failed once stays failed.

use js_sys::Promise;
use ringfence_core::key::object_name;
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::Env;

use crate::clock::{self, DeadlinePassed};

/// The one instance of the Admission object.
const ADMISSION_NAME: &str = "admission";

#[wasm_bindgen]
extern "C" {
    /// A stub of an object class that answers `invoke`.
    type Invokable;
    #[wasm_bindgen(method, catch)]
    fn invoke(this: &Invokable, request: &str) -> Result<Promise, JsValue>;
}

/// Why an object gave no answer. What it did before is not known.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFault {
    #[error("the binding {binding} is missing from the Worker's configuration")]
    NoBinding { binding: &'static str },
    #[error("the object did not answer: {0}")]
    Failed(String),
    #[error("the object did not answer: {0}")]
    Late(#[from] DeadlinePassed),
    #[error("the object's answer could not be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// Calls the Sandbox object of one consumer's key.
pub async fn call_sandbox(
    env: &Env,
    consumer: &ConsumerName,
    key: &SandboxKey,
    request: &impl Serialize,
    deadline_ms: u64,
) -> Result<String, ObjectFault> {
    answer(send_sandbox(env, consumer, key, request)?, deadline_ms).await
}

/// Sends a call to a Sandbox object without waiting for its answer.
pub fn send_sandbox(
    env: &Env,
    consumer: &ConsumerName,
    key: &SandboxKey,
    request: &impl Serialize,
) -> Result<Promise, ObjectFault> {
    send(env, "SANDBOX", &object_name(consumer, key), request)
}

/// Calls the Admission object.
pub async fn call_admission(
    env: &Env,
    request: &impl Serialize,
    deadline_ms: u64,
) -> Result<String, ObjectFault> {
    answer(send(env, "ADMISSION", ADMISSION_NAME, request)?, deadline_ms).await
}

fn send(
    env: &Env,
    binding: &'static str,
    name: &str,
    request: &impl Serialize,
) -> Result<Promise, ObjectFault> {
    let namespace = env.durable_object(binding).map_err(|_| ObjectFault::NoBinding { binding })?;
    let stub = namespace.get_by_name(name).map_err(|e| ObjectFault::Failed(e.to_string()))?;
    let request = serde_json::to_string(request)?;
    let stub: Invokable = stub.into_rpc();
    stub.invoke(&request).map_err(|e| ObjectFault::Failed(thrown(&e)))
}

async fn answer(promise: Promise, deadline_ms: u64) -> Result<String, ObjectFault> {
    let answer = clock::within(deadline_ms, JsFuture::from(promise)).await?;
    let answer = answer.map_err(|e| ObjectFault::Failed(thrown(&e)))?;
    answer.as_string().ok_or_else(|| ObjectFault::Failed("the answer was not a text".to_owned()))
}

/// What a thrown value says, for people.
pub fn thrown(value: &JsValue) -> String {
    match value.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => value.as_string().unwrap_or_else(|| "a value that is not an error was thrown".to_owned()),
    }
}
