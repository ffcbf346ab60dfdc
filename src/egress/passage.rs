//! A passage: one admitted request, from the object's word to our acknowledgement.
//!
//! Invariant: every passage that was opened is ended, once, and only when nothing of it moves any more. The watch that
//! does so is held by `waitUntil`, so it outlives the answer's headers; the pipe it waits on keeps this entrypoint's
//! context alive as long as the body flows.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::channel::oneshot;
use futures::future::{Either, select};
use js_sys::Promise;
use ringfence_core::seal::{Subject, seal};
use ringfence_wire::internal::{
    AskedHop, EgressCall, EgressProps, Held, HopAnswer, HopTerms, INTERNAL_VERSION, PassageEnd, SandboxCall,
    SandboxRequest,
};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::{JsFuture, future_to_promise};
use web_sys::{AbortController, AbortSignal, Response};
use worker::{Env, console_error};

use super::ends;
use super::fetch::{self, Fetched};
use super::upload::Upload;
use crate::clock;
use crate::config::Config;
use crate::objects;
use crate::rpc::EntrypointContext;

/// How long the object may take to decide a hop; then it is denied.
const DECISION_DEADLINE_MS: u64 = 10_000;
/// How long it may take to hear that a passage has ended.
const END_DEADLINE_MS: u64 = 10_000;
/// A request that is over by then is never held: most are, and the call costs as much as the decision. A revoke before
/// the call has come waits for it that long.
const HOLD_AFTER_MS: u64 = 20;

/// The Sandbox object, as an outbound request's own props name it.
pub struct Object {
    env: Env,
    config: Rc<Config>,
    props: EgressProps,
}

impl Object {
    pub fn new(env: Env, config: Rc<Config>, props: EgressProps) -> Self {
        Self { env, config, props }
    }

    /// May this request leave? No answer is a no.
    pub async fn open(self, hop: &AskedHop) -> Option<(Opened, HopTerms)> {
        let EgressProps { generation, secret, .. } = &self.props;
        let ended = ends::take(secret);
        let call = EgressCall::Open {
            generation: *generation,
            secret: secret.clone(),
            hop: hop.clone(),
            finished: ended.passages.clone(),
        };
        let answer = self.decide(call).await?;
        ended.told();
        match answer {
            HopAnswer::Admitted { passage, terms } => Some((Opened { object: self, id: passage }, terms)),
            HopAnswer::Denied => None,
        }
    }

    async fn decide(&self, call: EgressCall) -> Option<HopAnswer> {
        serde_json::from_str(&self.call(call, DECISION_DEADLINE_MS).await.ok()?).ok()
    }

    async fn call(&self, call: EgressCall, deadline_ms: u64) -> Result<String, objects::ObjectFault> {
        let EgressProps { consumer, key, .. } = &self.props;
        objects::call_sandbox(&self.env, consumer, key, &self.request(call), deadline_ms).await
    }

    fn request(&self, call: EgressCall) -> SandboxRequest {
        let EgressProps { consumer, key, .. } = &self.props;
        SandboxRequest {
            version: INTERNAL_VERSION,
            consumer: consumer.clone(),
            key: key.clone(),
            seal: seal(&self.config.secrets, Subject::Sandbox { consumer, key }),
            call: SandboxCall::Egress { call },
        }
    }
}

/// Admitted, and not yet watched.
pub struct Opened {
    object: Object,
    id: String,
}

impl Opened {
    /// Watches it from here on, until it has ended. It ends with its client, too, also while nothing is written to it.
    pub fn watch(
        self,
        context: &EntrypointContext,
        hop: AskedHop,
        client: &AbortSignal,
    ) -> Result<Passage, JsValue> {
        let abort = AbortController::new()?;
        let signal = AbortSignal::any(&js_sys::Array::of2(client, &abort.signal()));
        let (tell, told) = oneshot::channel();
        let passage = Passage {
            inner: Rc::new(Inner { object: self.object, id: self.id, abort, signal }),
            tell: Cell::new(Some(tell)),
        };
        let watch = Rc::clone(&passage.inner).watch(told, hop);
        context.wait_until(&future_to_promise(AssertUnwindSafe(async move {
            watch.await;
            Ok(JsValue::UNDEFINED)
        })))?;
        Ok(passage)
    }
}

/// A passage under way. Exactly one of [`Passage::over`] and [`Passage::stream`] is its last step.
pub struct Passage {
    inner: Rc<Inner>,
    tell: Cell<Option<oneshot::Sender<Phase>>>,
}

struct Inner {
    object: Object,
    id: String,
    abort: AbortController,
    /// Of the above, or of the client that has gone.
    signal: AbortSignal,
}

/// What the watch is told once the request was answered.
enum Phase {
    Over(PassageEnd),
    /// The answer's body flows until the promise settles; its request's body may still flow as long.
    Streaming(Promise, Upload),
}

impl Passage {
    pub fn abort(&self) -> &AbortController {
        &self.inner.abort
    }

    pub fn signal(&self) -> AbortSignal {
        self.inner.signal.clone()
    }

    /// May the request be redirected to this hop?
    pub async fn next(&self, hop: &AskedHop) -> Option<HopAnswer> {
        let call = EgressCall::Next { passage: self.inner.id.clone(), hop: hop.clone() };
        self.inner.object.decide(call).await
    }

    /// Nothing more moves.
    pub fn over(&self, end: PassageEnd, response: Result<Response, JsValue>) -> Result<Response, JsValue> {
        self.say(Phase::Over(end));
        response
    }

    /// The answer goes to the container; its body is piped by the runtime, never through here.
    pub fn stream(&self, answer: Fetched, upload: Upload) -> Result<Response, JsValue> {
        match fetch::answer(&answer, &self.signal()) {
            Ok((response, Some(piped))) => {
                self.say(Phase::Streaming(piped, upload));
                Ok(response)
            }
            Ok((response, None)) => self.over(PassageEnd::Finished, Ok(response)),
            // A status, say, that no answer of ours can have.
            Err(_) => {
                answer.discard();
                self.over(PassageEnd::Finished, fetch::unreachable())
            }
        }
    }

    fn say(&self, phase: Phase) {
        if let Some(tell) = self.tell.take() {
            // The watch is gone only with this whole context.
            let _ = tell.send(phase);
        }
    }
}

impl Inner {
    /// Ends the passage: by itself, or by aborting everything when the held call is answered or lost.
    async fn watch(self: Rc<Self>, told: oneshot::Receiver<Phase>, hop: AskedHop) {
        #[cfg(feature = "panic-hook")]
        let last = hop.url.rsplit('/').next().unwrap_or_default().to_owned();
        let must_stop = std::pin::pin!(async {
            clock::sleep_ms(HOLD_AFTER_MS).await;
            self.must_stop().await
        });
        let done = std::pin::pin!(done(told));
        let end = match select(must_stop, done).await {
            Either::Left(((), done)) => {
                self.abort.abort();
                done.await;
                PassageEnd::Cut { hop }
            }
            Either::Right((end, _)) => end,
        };
        #[cfg(feature = "panic-hook")]
        crate::panic_hook::trip(crate::panic_hook::Place::PassageEnd, &last);
        match end {
            PassageEnd::Finished => self.finished().await,
            end => self.tell(EgressCall::End { passage: self.id.clone(), end }).await,
        }
    }

    /// Waits for a question that takes the end along, and tells it where none does.
    async fn finished(&self) {
        let boot = &self.object.props.secret;
        ends::add(boot, &self.id);
        loop {
            clock::sleep_ms(ends::TOLD_AFTER_MS).await;
            match ends::state(&self.id) {
                ends::State::Told => return,
                ends::State::UnderWay => {}
                ends::State::Waiting => {
                    let ended = ends::take(boot);
                    self.tell(EgressCall::Finished { passages: ended.passages.clone() }).await;
                    return ended.told();
                }
            }
        }
    }

    async fn tell(&self, end: EgressCall) {
        if let Err(fault) = self.object.call(end, END_DEADLINE_MS).await {
            // The object taints the sandbox when it waits for this in vain.
            console_error!("egress: the end of a passage could not be told: {fault}");
        }
    }

    /// Makes the call that the object leaves unanswered, and resolves when the passage must stop. A call that fails, or
    /// could not be made, is one that must: whoever could revoke is gone.
    async fn must_stop(&self) {
        let call = EgressCall::Hold { passage: self.id.clone() };
        let EgressProps { consumer, key, .. } = &self.object.props;
        let held = objects::send_sandbox(&self.object.env, consumer, key, &self.object.request(call));
        let Ok(held) = held else { return };
        let answer = JsFuture::from(held).await.ok().and_then(|answer| answer.as_string());
        if answer.and_then(|text| serde_json::from_str(&text).ok()) == Some(Held::Ended) {
            // Our own end crossed it.
            std::future::pending().await
        }
    }
}

async fn done(told: oneshot::Receiver<Phase>) -> PassageEnd {
    match told.await {
        Ok(Phase::Over(end)) => end,
        Ok(Phase::Streaming(piped, upload)) => {
            // It settles when the body ended, the container went away, or it was aborted.
            let _ = JsFuture::from(piped).await;
            drop(upload);
            PassageEnd::Finished
        }
        // The request's own work ended without a word: it panicked.
        Err(oneshot::Canceled) => PassageEnd::Finished,
    }
}
