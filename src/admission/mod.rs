//! The Admission object: one per deployment.

mod store;

use ringfence_core::seal::{Subject, check};
use ringfence_wire::contract::{PoolStatusDone, PoolUse, SandboxesDone};
use ringfence_wire::internal::{AdmissionAnswer, AdmissionCall, AdmissionRequest};
use ringfence_wire::refusal::{AdmissionFacts, Outcome};
use wasm_bindgen::prelude::*;
use worker::{DurableObject, Env, Request, Response, State, durable_object};

use crate::clock::now_ms;
use crate::config::Config;
use store::Store;

const CAP: u32 = 6;

#[durable_object]
pub struct Admission {
    state: State,
    env: Env,
}

impl DurableObject for Admission {
    fn new(state: State, env: Env) -> Self {
        Self { state, env }
    }

    /// Nothing is served over HTTP: the object answers `invoke` alone.
    async fn fetch(&self, _request: Request) -> worker::Result<Response> {
        Response::error("not found", 404)
    }
}

#[wasm_bindgen]
impl Admission {
    pub async fn invoke(&self, request: String) -> Result<String, JsValue> {
        self.answer(&request).map_err(|error| js_sys::Error::new(&error.to_string()).into())
    }
}

impl Admission {
    fn answer(&self, request: &str) -> Result<String, Box<dyn std::error::Error>> {
        let request: AdmissionRequest = serde_json::from_str(request)?;
        let config = Config::of(&self.env)?;
        if !check(&config.secrets, Subject::Admission, &request.seal) {
            return Err("the call is not sealed by this deployment".into());
        }
        let store = Store::open(&self.state)?;
        let now = now_ms();
        Ok(match request.call {
            AdmissionCall::Touch { consumer, key, pool, .. }
            | AdmissionCall::Enqueue { consumer, key, pool }
            | AdmissionCall::Attempt { consumer, key, pool } => {
                let facts = |busy| AdmissionFacts {
                    pool: pool.clone(),
                    pool_busy: busy,
                    cap: CAP,
                    position: None,
                    queued_for_ms: 0,
                    retry_after_ms: 1_000,
                };
                let busy = store.taken(&pool)?;
                let answer = match store.slot_of(&consumer, &key)? {
                    Some(slot) => AdmissionAnswer::Admitted { slot, facts: facts(busy), pool },
                    None if busy >= CAP => AdmissionAnswer::Refused { facts: facts(busy) },
                    None => {
                        let slot = uuid::Uuid::new_v4().to_string();
                        store.insert(&slot, &consumer, &key, &pool, now)?;
                        AdmissionAnswer::Admitted { slot, facts: facts(busy + 1), pool }
                    }
                };
                serde_json::to_string(&answer)?
            }
            AdmissionCall::Release { slot } => {
                store.release(&slot)?;
                "{}".to_owned()
            }
            AdmissionCall::Withdraw { .. } | AdmissionCall::Renew { .. } => "{}".to_owned(),
            AdmissionCall::Pools => serde_json::to_string(&Outcome::Done(PoolStatusDone {
                pools: vec![PoolUse {
                    pool: "lean".to_owned(),
                    cap: CAP,
                    busy: store.taken("lean")?,
                    waiting: 0,
                    unreachable: 0,
                    consumers: Default::default(),
                }],
            }))?,
            AdmissionCall::Registry { .. } => {
                serde_json::to_string(&Outcome::Done(SandboxesDone { sandboxes: Vec::new() }))?
            }
        })
    }
}
