//! The Sandbox object: one per consumer's key, and the one owner of its container.
//!
//! Invariant: storage is the truth ([`store`]); every field of [`Object`] is a cache of it or lasts no longer than a
//! call, except the open grant. A borrow is never held across an await; every wait has a deadline.
//!
//! What can happen to each call:
//! - without a good seal: `ticket-rejected`, and nothing is looked at;
//! - `ensure`, `exec`, `startDetached`: refused at the gate ([`gate`]), or joined or replayed ([`ledger`],
//!   [`detached`]), or it waits for [`recovery`], for the fence lock ([`lock`]), for a boot ([`boot`]) and a clone
//!   ([`repository`]), runs ([`fence`], its way out set up: [`interception`]) and is settled ([`settle`]); an abort, checkpoint or expiry ([`ending`]) in
//!   between ends it;
//! - `stopDetached` and `abort`: always answered, with what could be proven;
//! - a look-up ([`lookup`]; denials): answered from storage or by the supervisor, and never boots;
//! - a request of the container's on its way out ([`outbound`]): admitted under the open grant ([`passage`]), else
//!   denied;
//! - the alarm ([`lifetime`]): deadline, slot, recovery, and whatever an earlier call could not finish.

mod approval;
mod audit;
mod boot;
mod detached;
mod ending;
mod fence;
mod flight;
mod gate;
mod interception;
mod ledger;
mod lifetime;
mod lock;
mod lookup;
mod outbound;
mod passage;
mod recovery;
mod refusals;
mod repository;
mod settle;
mod store;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use ringfence_core::seal::{self, Subject};
use ringfence_core::ticket::{Secrets, TicketFault};
use ringfence_core::times::Times;
use ringfence_wire::contract::{ExecDone, GoneReason, StartDetachedDone};
use ringfence_wire::ids::ProcessId;
use ringfence_wire::internal::{INTERNAL_VERSION, SandboxCall, SandboxRequest};
use ringfence_wire::refusal::{Outcome, Refusal};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use worker::{DurableObject, Env, Request, Response, State, durable_object};

use crate::config::Config;
use crate::container::{Container, ContainerError};
use crate::sql::StoreError;
use crate::supervisor::{CallError, Supervisor};
use boot::Up;
use ending::Endings;
use flight::Flights;
use lock::FenceLock;
use passage::Gate;
use store::Store;
use store::head::{Boot, Head};

#[durable_object]
pub struct Sandbox {
    /// `Err`: the storage cannot be read, and every call is told so.
    object: AssertUnwindSafe<Result<Rc<Object>, StoreError>>,
}

impl DurableObject for Sandbox {
    fn new(state: State, env: Env) -> Self {
        let object = Object::open(state, env).map(Rc::new);
        if let Ok(object) = &object {
            object.take_up_container();
        }
        Self { object: AssertUnwindSafe(object) }
    }

    /// Nothing is served over HTTP: the object answers `invoke` alone.
    async fn fetch(&self, _request: Request) -> worker::Result<Response> {
        Response::error("not found", 404)
    }

    async fn alarm(&self) -> worker::Result<Response> {
        let Ok(object) = self.object.as_ref().map(Rc::clone) else { return Response::empty() };
        AssertUnwindSafe(async move { object.wake().await }).await;
        Response::empty()
    }
}

#[wasm_bindgen]
impl Sandbox {
    /// One call of the facade: [`SandboxRequest`] as JSON in, the contract's outcome out.
    pub async fn invoke(&self, request: String) -> Result<String, JsValue> {
        let request: SandboxRequest =
            serde_json::from_str(&request).map_err(|e| js_sys::Error::new(&e.to_string()))?;
        #[cfg(feature = "panic-hook")]
        crate::panic_hook::trip(crate::panic_hook::Place::Sandbox, request.key.as_str());
        let answer = match self.object.as_ref() {
            // A panic fails its own call; what it left half-done is in storage, and recovery reads it there.
            Ok(object) => AssertUnwindSafe(Rc::clone(object).answer(request)),
            Err(error) => return Ok(told::<()>(Err(error.clone().into()))),
        };
        Ok(answer.await)
    }
}

pub struct Object {
    state: State,
    env: Env,
    container: Option<Container>,
    store: Store,
    /// As in storage; what awaits compares it.
    epoch: Cell<u64>,
    /// Nothing that an earlier incarnation left is open.
    recovered: Cell<bool>,
    lock: FenceLock,
    gate: Gate,
    /// Calls that may need the container.
    working: Cell<u32>,
    supervisor: RefCell<Option<(u64, Supervisor)>>,
    boots: Flights<(u64, String), Result<Up, Refusal>>,
    execs: Flights<String, Result<ExecDone, Refusal>>,
    starts: Flights<String, Result<StartDetachedDone, Refusal>>,
    recoveries: Flights<u64, Result<(), Refusal>>,
    destroys: Flights<(), Result<(), ContainerError>>,
    interceptions: Flights<u64, Result<(), ContainerError>>,
    /// The generation whose interception this incarnation has set.
    intercepted: Cell<Option<u64>>,
    endings: Endings,
    /// Ends recorded since the supervisor was last told.
    unacknowledged: Cell<u64>,
    alarm_at: Cell<Option<u64>>,
    last_alarm: Cell<u64>,
    renew_at: Cell<Option<u64>>,
}

impl Object {
    fn open(state: State, env: Env) -> Result<Self, StoreError> {
        let store = Store::open(&state)?;
        let epoch = store.head()?.map_or(0, |head| head.epoch);
        let times = times(&env);
        Ok(Self {
            container: Container::of(&state),
            state,
            env,
            store,
            epoch: Cell::new(epoch),
            recovered: Cell::new(false),
            lock: FenceLock::new(times.fence_wait_ms),
            gate: Gate::default(),
            working: Cell::new(0),
            supervisor: RefCell::new(None),
            boots: Flights::default(),
            execs: Flights::default(),
            starts: Flights::default(),
            recoveries: Flights::default(),
            destroys: Flights::default(),
            interceptions: Flights::default(),
            intercepted: Cell::new(None),
            endings: Endings::default(),
            unacknowledged: Cell::new(0),
            alarm_at: Cell::new(None),
            last_alarm: Cell::new(0),
            renew_at: Cell::new(None),
        })
    }

    async fn answer(self: Rc<Self>, request: SandboxRequest) -> String {
        if let Err(refusal) = self.check(&request) {
            return told::<()>(Err(refusal));
        }
        match request.call {
            SandboxCall::Ensure { pass, recipe, options } => {
                let _working = self.work();
                let ensure = self.ensure_sandbox(pass.as_ref(), &recipe, &options);
                told(self.audited("ensureSandbox", None, ensure).await)
            }
            SandboxCall::Exec { pass, input, floor_rule } => {
                let _working = self.work();
                let id = Some(input.idempotency_key.0.clone());
                let exec = self.exec(pass.as_ref(), *input, floor_rule.as_deref());
                told(self.audited("execUnderGrant", id, exec).await)
            }
            SandboxCall::StartDetached { pass, input, floor_rule } => {
                let _working = self.work();
                let id = Some(input.idempotency_key.0.clone());
                let start = self.start_detached(pass.as_ref(), *input, floor_rule.as_deref());
                told(self.audited("startDetached", id, start).await)
            }
            SandboxCall::DetachedStatus { id } => told(self.detached_status(&id).await),
            SandboxCall::StopDetached { id } => {
                let stop = async { Ok(self.stop_detached(&id).await) };
                told(self.audited("stopDetached", Some(id.0.clone()), stop).await)
            }
            SandboxCall::DetachedList => told(self.detached_list().await),
            SandboxCall::DetachedOutput { id, query } => told(self.detached_output(&id, query).await),
            SandboxCall::DetachedInput { id, input } => {
                let write = self.detached_input(&id, input);
                told(self.audited("detachedInput", Some(id.0.clone()), write).await)
            }
            SandboxCall::ReadFile { path } => told(self.read_file(&path).await),
            SandboxCall::Artifacts => told(self.artifacts().await),
            SandboxCall::Artifact { path, query } => told(self.artifact(&path, query).await),
            SandboxCall::Checkpoint { reason } => {
                told(self.audited("checkpoint", None, self.checkpoint(&reason)).await)
            }
            SandboxCall::Abort => told(self.audited("abort", None, async { Ok(self.abort().await) }).await),
            SandboxCall::Denials => match self.store.denials() {
                Ok(denials) => json(&denials),
                Err(error) => told::<()>(Err(error.into())),
            },
            SandboxCall::Events { query } => told(self.events(query).map_err(Refusal::from)),
            SandboxCall::SlotState { slot } => match self.slot_state(&slot) {
                Ok(state) => json(&state),
                Err(error) => told::<()>(Err(error.into())),
            },
            SandboxCall::Egress { call } => self.egress(call).await,
        }
    }

    /// Is this a call of our own facade, for this very sandbox, in a version that is understood?
    fn check(&self, request: &SandboxRequest) -> Result<(), Refusal> {
        let subject = Subject::Sandbox { consumer: &request.consumer, key: &request.key };
        let config = self.config()?;
        if !seal::check(&config.secrets, subject, &request.seal) {
            return Err(refusals::ticket(TicketFault::None));
        }
        // A deploy may leave a facade of the version before this one.
        if !(INTERNAL_VERSION.saturating_sub(1)..=INTERNAL_VERSION).contains(&request.version) {
            let message =
                format!("the facade speaks version {} and this object {INTERNAL_VERSION}", request.version);
            return Err(refusals::unavailable("version", message));
        }
        // Only a call that changes something makes the head row.
        let head = match request.call {
            SandboxCall::Ensure { .. } | SandboxCall::Exec { .. } | SandboxCall::StartDetached { .. } => {
                Some(self.store.head_of(&request.consumer, &request.key)?)
            }
            _ => self.store.head()?,
        };
        match head {
            Some(head) if head.consumer != request.consumer || head.key != request.key => {
                Err(refusals::ticket(TicketFault::AnotherExecution))
            }
            _ => Ok(()),
        }
    }

    fn config(&self) -> Result<Rc<Config>, Refusal> {
        Ok(Config::of(&self.env)?)
    }

    fn times(&self) -> Times {
        times(&self.env)
    }

    fn secrets(&self) -> Result<Secrets, Refusal> {
        Ok(self.config()?.secrets.clone())
    }

    fn container(&self) -> Result<&Container, Refusal> {
        self.container.as_ref().ok_or_else(|| {
            refusals::unavailable(
                "no-container",
                "this deployment has no container configured for the class Sandbox",
            )
        })
    }

    fn container_runs(&self) -> bool {
        self.container.as_ref().is_some_and(Container::running)
    }

    fn known_head(&self) -> Result<Head, Refusal> {
        self.store
            .head()?
            .ok_or_else(|| refusals::unavailable("storage", "the sandbox has no record of itself"))
    }

    /// Whoever awaited across an abort, a checkpoint or an expiry gives up here.
    fn still(&self, epoch: u64) -> Result<(), Refusal> {
        if self.epoch.get() == epoch { Ok(()) } else { Err(refusals::interrupted()) }
    }

    /// The client of this boot's supervisor; its connections are kept.
    fn supervisor(&self, head: &Head) -> Result<Supervisor, CallError> {
        if let Some((generation, client)) = self.supervisor.borrow().as_ref()
            && *generation == head.generation
            && client.boot_id() == head.boot_id.as_ref()
        {
            return Ok(client.clone());
        }
        let (Some(container), Some(boot_key)) = (&self.container, &head.boot_key) else {
            return Err(CallError::Unreachable("no container was started".to_owned()));
        };
        let client = Supervisor::new(container, boot_key.clone(), head.generation, head.boot_id.clone())?;
        *self.supervisor.borrow_mut() = Some((head.generation, client.clone()));
        Ok(client)
    }

    /// Destroys the container and sees it gone; one destroy at a time, so that none can hit a container started after
    /// another was answered.
    async fn destroy(&self) -> Result<(), ContainerError> {
        let Some(container) = self.container.clone() else { return Ok(()) };
        self.destroys.join((), || async move { container.destroy().await }).await
    }

    /// Work that nobody waits for.
    fn later(&self, work: impl Future<Output = ()> + 'static) {
        wasm_bindgen_futures::spawn_local(AssertUnwindSafe(work));
    }

    fn is_busy(&self) -> bool {
        self.working.get() > 0
    }

    fn work(self: &Rc<Self>) -> Working {
        self.working.set(self.working.get() + 1);
        Working(Rc::clone(self))
    }

    /// After an abort, a checkpoint, an expiry or a taint: the container that was to be destroyed is proven gone. If
    /// another one was begun since, only the slots of the ended one are given back.
    fn ended_container_is_gone(
        &self,
        generation: u64,
        reason: GoneReason,
        detail: &str,
    ) -> Result<(), StoreError> {
        if let Some(head) = self.store.head()?
            && head.generation == generation
            && matches!(head.boot, Boot::Tainted | Boot::None)
        {
            self.container_is_gone(reason, detail)?;
        }
        self.give_up_ending_slots()
    }
}

/// Without a good configuration no call is served; what a container still needs then has the defaults.
fn times(env: &Env) -> Times {
    Config::of(env).map_or_else(|_| Times::default(), |config| config.times)
}

/// While this lives a call may need the container.
struct Working(Rc<Object>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.set(self.0.working.get().saturating_sub(1));
    }
}

fn told<T: Serialize>(result: Result<T, Refusal>) -> String {
    json(&Outcome::from(result))
}

fn json(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(text) => text,
        Err(error) => {
            format!(r#"{{"ok":false,"kind":"sandbox-unavailable","message":"unsayable: {error}"}}"#)
        }
    }
}

fn new_id() -> ProcessId {
    ProcessId(uuid::Uuid::new_v4().to_string())
}

/// 32 random bytes, hex.
fn random_hex() -> Result<String, Refusal> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|e| refusals::unavailable("randomness", format!("no random bytes are to be had: {e}")))?;
    Ok(hex::encode(bytes))
}
