//! The Admission object: one per deployment. It owns the slots, the queues before them and the registry.
//!
//! `ringfence_core::admission::Gate` decides, over this object's SQL storage; there is no state in memory. A call's
//! statements run with no `await` between them, so they are one transaction, and its answer leaves only once they are
//! durable.
//!
//! A slot lives while its container does. The sandbox renews it; one that falls silent is asked about by the alarm,
//! and is freed only on the sandbox's own word that nothing runs under it. A sandbox that cannot be asked keeps its
//! slot.

mod ask;
mod canary;
mod sql;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use futures::future::join_all;
use ringfence_core::admission::{ASK_EVERY_MS, Claimant, Gate, Pool, SlotToAsk, migrate};
use ringfence_core::seal::{Subject, check};
use ringfence_wire::contract::{AdmissionMode, Done, PoolStatusDone, SandboxesDone};
use ringfence_wire::internal::{AdmissionCall, AdmissionRequest, INTERNAL_VERSION, RenewAnswer};
use ringfence_wire::refusal::Outcome;
use serde::Serialize;
use uuid::Uuid;
use wasm_bindgen::prelude::*;
use worker::{DurableObject, Env, Request, Response, State, console_error, durable_object};

use crate::clock::now_ms;
use crate::config::{Config, ConfigError};
use crate::sql::{Sql, StoreError};

/// Two alarms are never closer than this.
const MIN_ALARM_INTERVAL_MS: u64 = 1_000;
/// The oldest version of [`AdmissionRequest`] that is understood: a deployment meets its predecessor's callers.
const OLDEST_VERSION: u32 = if INTERNAL_VERSION > 1 { INTERNAL_VERSION - 1 } else { 1 };

/// Why a call got no answer. The caller sees the message as a thrown error and reports the object as unavailable.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the call was not made by this deployment")]
    NotSealed,
    #[error("the call is of version {0}, which this deployment does not speak")]
    Version(u32),
    #[error("{0:?} is no pool")]
    UnknownPool(String),
    #[error("the call could not be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("storage: {0}")]
    Schema(String),
    #[error(transparent)]
    Storage(#[from] StoreError),
    #[error("the alarm could not be set: {0}")]
    Alarm(#[from] worker::Error),
}

#[durable_object]
pub struct Admission {
    state: State,
    env: Env,
    /// A panic may leave a cell as it was, which only costs a look-up: each is set after what it says is so.
    known: AssertUnwindSafe<Known>,
}

/// What this incarnation need not look up again.
#[derive(Default)]
struct Known {
    /// The storage has this version's schema.
    migrated: Cell<bool>,
    /// When the alarm comes.
    alarm_at: Cell<Option<u64>>,
}

impl DurableObject for Admission {
    fn new(state: State, env: Env) -> Self {
        Self { state, env, known: AssertUnwindSafe(Known::default()) }
    }

    /// Nothing is served over HTTP: the object answers `invoke` alone.
    async fn fetch(&self, _request: Request) -> worker::Result<Response> {
        Response::error("not found", 404)
    }

    /// Asks about slots that fell silent. The next alarm is set before anything can fail.
    async fn alarm(&self) -> worker::Result<Response> {
        if let Err(fault) = self.wake().await {
            console_error!("admission alarm: {fault}");
        }
        Response::empty()
    }
}

#[wasm_bindgen]
impl Admission {
    /// [`AdmissionRequest`] as JSON in, the call's answer as JSON out.
    pub async fn invoke(&self, request: String) -> Result<String, JsValue> {
        // Cut short anywhere, the rows keep to the cap (the gate sees to that), and memory holds only look-ups.
        AssertUnwindSafe(self.answer(&request))
            .await
            .map_err(|fault| js_sys::Error::new(&fault.to_string()).into())
    }
}

impl Admission {
    async fn answer(&self, request: &str) -> Result<String, Fault> {
        let request: AdmissionRequest = serde_json::from_str(request)?;
        let config = Config::of(&self.env)?;
        if !check(&config.secrets, Subject::Admission, &request.seal) {
            return Err(Fault::NotSealed);
        }
        if !(OLDEST_VERSION..=INTERNAL_VERSION).contains(&request.version) {
            return Err(Fault::Version(request.version));
        }
        let sql = self.storage()?;
        let gate = Gate::new(&sql, &config.pools).leasing(config.times.slot_lease_ms);
        let now = now_ms();
        match request.call {
            AdmissionCall::Touch { consumer, key, pool, mode } => {
                #[cfg(feature = "panic-hook")]
                crate::panic_hook::trip(crate::panic_hook::Place::Admission, key.as_str());
                let who = Claimant { consumer: &consumer, key: &key, pool: parse_pool(&pool)? };
                let answer = gate.touch(who, mode, &new_slot(), now)?;
                self.wake_for(&gate).await?;
                json(&answer)
            }
            // A place that ran out is taken anew, at the end: the facts say so.
            AdmissionCall::Enqueue { consumer, key, pool }
            | AdmissionCall::Attempt { consumer, key, pool } => {
                let who = Claimant { consumer: &consumer, key: &key, pool: parse_pool(&pool)? };
                let answer = gate.touch(who, AdmissionMode::Queue, &new_slot(), now)?;
                self.wake_for(&gate).await?;
                json(&answer)
            }
            AdmissionCall::Withdraw { consumer, key } => {
                if let Some(slot) = gate.withdraw(&consumer, &key, now)? {
                    self.ask(&config, &gate, slot).await?;
                }
                json(&Done {})
            }
            AdmissionCall::Renew { consumer, key, slot, labels, expires_at } => {
                let held = gate.renew(&slot, (&consumer, &key), &labels, expires_at, now)?;
                json(&if held { RenewAnswer::Renewed } else { RenewAnswer::NotHeld })
            }
            AdmissionCall::Release { slot } => {
                gate.release(&slot)?;
                json(&Done {})
            }
            AdmissionCall::CanaryBegin { build, by_itself } => {
                json(&canary::begin(&sql, &build, by_itself, now)?)
            }
            AdmissionCall::CanaryEnd { report } => json(&canary::end(&sql, report)?),
            AdmissionCall::CanaryStanding { build } => json(&canary::standing(&sql, &build)?),
            AdmissionCall::Pools => json(&Outcome::Done(PoolStatusDone { pools: gate.pool_use(now)? })),
            AdmissionCall::Registry { consumer, labels } => {
                json(&Outcome::Done(SandboxesDone { sandboxes: gate.registry(&consumer, &labels)? }))
            }
        }
    }

    async fn wake(&self) -> Result<(), Fault> {
        self.set_alarm(now_ms() + ASK_EVERY_MS).await?;
        let config = Config::of(&self.env)?;
        let sql = self.storage()?;
        let gate = Gate::new(&sql, &config.pools).leasing(config.times.slot_lease_ms);
        let asked = gate.overdue(now_ms())?.into_iter().map(|slot| self.ask(&config, &gate, slot));
        for told in join_all(asked).await {
            told?;
        }
        match gate.next_wake()? {
            Some(at) => self.set_alarm(at).await,
            None => {
                self.state.storage().delete_alarm().await?;
                self.known.alarm_at.set(None);
                Ok(())
            }
        }
    }

    /// Asks the sandbox whether anything runs under its slot, and acts on what it says.
    async fn ask(&self, config: &Config, gate: &Gate<'_, Sql>, slot: SlotToAsk) -> Result<(), Fault> {
        let heard = ask::slot_state(&self.env, config, &slot).await;
        Ok(gate.heard(&slot.slot, heard, now_ms())?)
    }

    /// Sees to it that the alarm comes when the next slot wants asking about. One that comes too early finds nothing
    /// to ask and sets the next, so it is only ever moved forward.
    async fn wake_for(&self, gate: &Gate<'_, Sql>) -> Result<(), Fault> {
        let Some(at) = gate.next_wake()? else { return Ok(()) };
        if self.known.alarm_at.get().is_none() {
            let set = self.state.storage().get_alarm().await?;
            self.known.alarm_at.set(set.and_then(|set| u64::try_from(set).ok()));
        }
        if self.known.alarm_at.get().is_none_or(|set| set > at) {
            self.set_alarm(at).await?;
        }
        Ok(())
    }

    async fn set_alarm(&self, at: u64) -> Result<(), Fault> {
        let now = now_ms();
        let at = at.max(now + MIN_ALARM_INTERVAL_MS);
        self.state.storage().set_alarm(i64::try_from(at - now).unwrap_or(i64::MAX)).await?;
        self.known.alarm_at.set(Some(at));
        Ok(())
    }

    fn storage(&self) -> Result<Sql, Fault> {
        let sql = Sql::of(&self.state)?;
        if !self.known.migrated.get() {
            migrate(&sql).map_err(|fault| Fault::Schema(fault.to_string()))?;
            self.known.migrated.set(true);
        }
        Ok(sql)
    }
}

fn new_slot() -> String {
    Uuid::new_v4().to_string()
}

fn parse_pool(name: &str) -> Result<Pool, Fault> {
    Pool::parse(name).ok_or_else(|| Fault::UnknownPool(name.to_owned()))
}

fn json(answer: &impl Serialize) -> Result<String, Fault> {
    Ok(serde_json::to_string(answer)?)
}
