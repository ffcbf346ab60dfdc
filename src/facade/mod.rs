//! The facade: one consumer's call, from arguments to answer. Both faces end here.
//!
//! Order for a call that could boot a container: validate → approval floor → admission touch → ticket → Sandbox
//! object. Nothing boots before the object; a refusal on the way costs nothing.
//!
//! Every failure is a refusal in the answer, never a throw. `stopDetached` and `abort` never refuse: what keeps them
//! from their work is told as `stopped:false` or `containerGone:false` with a `detail`, so that a caller's clean-up
//! has one shape to handle. Work is never cancelled because a caller or a deadline went away: it goes on in the
//! object, and the call's idempotency key joins it.

mod answer;
mod arguments;
mod audit;
mod call;
mod canary;
mod gate;
mod identity;
mod method;

use std::rc::Rc;

use ringfence_core::checkout::CLONE_TIMEOUT_MS;
use ringfence_core::recipe::DEFAULT_TIMEOUT_MS;
use ringfence_core::seal::{Subject, seal};
use ringfence_wire::contract::{AbortDone, AdmissionDone, AdmissionMode, Done, Recipe, StopDone};
use ringfence_wire::ids::SandboxKey;
use ringfence_wire::internal::{INTERNAL_VERSION, Pass, SandboxCall, SandboxRequest};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use ringfence_wire::supervisor::StdinMode;
use worker::Env;

pub use answer::{Answer, Verdict};
pub use arguments::{Arguments, rejected};
pub use canary::{known as canary_known, look_by_itself};
pub use identity::{Caller, TokenFault, by_binding, by_token};
pub use method::Method;

use audit::About;
use call::Call;
use gate::Gate;

use crate::clock;
use crate::config::Config;
use crate::objects::{self, ObjectFault};

/// How long the facade waits for an object. Each is well above what the object allows itself, so that its own answer
/// comes first.
mod deadline {
    /// A look-up; `detachedOutput` itself waits up to 5 s.
    pub const READ_MS: u64 = 30_000;
    /// A kill with its grace, or the destruction of a container.
    pub const END_MS: u64 = 90_000;
    /// A boot with its one retry, behind a fence that must finish first.
    pub const BOOT_MS: u64 = 300_000;
    /// What an exec takes beyond its own timeout: the queue for the fence, the boot, the teardown.
    pub const EXEC_MARGIN_MS: u64 = 300_000;

    /// What a clone may add to each.
    pub fn clone_ms(recipe: &super::Recipe) -> u64 {
        if recipe.repo.is_some() { super::CLONE_TIMEOUT_MS } else { 0 }
    }
}

/// An exec or a start takes a slot only if it can have one at once.
const AT_ONCE: AdmissionMode = AdmissionMode::Refuse;
/// The object's reasons for refusing a pass on a slot that it gives back, or has.
const SLOT_ENDS: [&str; 2] = ["slot-released", "slot-ending"];
/// How long the end of a container and the release of its slot may be on their way.
const READMIT_PAUSES_MS: [u64; 4] = [50, 150, 500, 1_500];

/// Runs one call. The answer is always an outcome of the contract.
pub async fn serve(
    env: &Env,
    caller: Result<Caller, Refusal>,
    method: Method,
    mut arguments: Arguments,
) -> Answer {
    let result = match caller {
        Ok(caller) => run(env, caller, method, &mut arguments).await,
        Err(refusal) => Err(refusal),
    };
    result.unwrap_or_else(|refusal| without_refusing(method, refusal))
}

async fn run(
    env: &Env,
    caller: Caller,
    method: Method,
    arguments: &mut Arguments,
) -> Result<Answer, Refusal> {
    let config = Config::of(env)?;
    let call = Call::parse(method, arguments)?;
    let (about, consumer) = (About::of(&call), caller.consumer.clone());
    let result = Facade { env, config, caller }.run(call).await;
    if let (Some(about), Err(refusal)) = (about, &result) {
        about.refused(&consumer, refusal);
    }
    result
}

/// The two calls that never refuse say what kept them instead.
fn without_refusing(method: Method, refusal: Refusal) -> Answer {
    match method {
        Method::StopDetached => {
            Answer::done(StopDone { stopped: false, evidence: None, detail: Some(refusal.message) })
        }
        Method::Abort => Answer::done(AbortDone {
            killed: 0,
            evidence: None,
            container_gone: false,
            detail: Some(refusal.message),
        }),
        _ => Answer::refused(refusal),
    }
}

struct Facade<'a> {
    env: &'a Env,
    config: Rc<Config>,
    caller: Caller,
}

impl Facade<'_> {
    async fn run(&self, call: Call) -> Result<Answer, Refusal> {
        let gate = Gate { env: self.env, config: &self.config, caller: &self.caller };
        match call {
            Call::Ensure { key, recipe, mode, options } => {
                self.may_select(&recipe)?;
                let call = |pass| {
                    let (recipe, options) = (recipe.clone(), options.clone());
                    SandboxCall::Ensure { pass: Some(pass), recipe, options }
                };
                let wait = deadline::BOOT_MS + deadline::clone_ms(&recipe);
                self.admitted(&gate, &key, &recipe, mode, wait, call).await
            }
            Call::Exec { key, input } => {
                self.may_select(&input.recipe)?;
                let floor_rule = gate.floor(&input.command, StdinMode::None, input.approval.as_ref())?;
                let own = input.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
                let wait = own + deadline::EXEC_MARGIN_MS + deadline::clone_ms(&input.recipe);
                let call = |pass| {
                    let (input, floor_rule) = (input.clone(), floor_rule.clone());
                    SandboxCall::Exec { pass: Some(pass), input, floor_rule }
                };
                self.admitted(&gate, &key, &input.recipe, AT_ONCE, wait, call).await
            }
            Call::StartDetached { key, input } => {
                self.may_select(&input.recipe)?;
                let stdin = input.stdin.unwrap_or_default();
                let floor_rule = gate.floor(&input.command, stdin, input.approval.as_ref())?;
                let call = |pass| {
                    let (input, floor_rule) = (input.clone(), floor_rule.clone());
                    SandboxCall::StartDetached { pass: Some(pass), input, floor_rule }
                };
                let wait = deadline::BOOT_MS + deadline::clone_ms(&input.recipe);
                self.admitted(&gate, &key, &input.recipe, AT_ONCE, wait, call).await
            }
            Call::Status { key, id } => {
                self.sandbox(key, SandboxCall::DetachedStatus { id }, deadline::READ_MS).await
            }
            Call::Stop { key, id } => {
                self.sandbox(key, SandboxCall::StopDetached { id }, deadline::END_MS).await
            }
            Call::List { key } => self.sandbox(key, SandboxCall::DetachedList, deadline::READ_MS).await,
            Call::Output { key, id, query } => {
                self.sandbox(key, SandboxCall::DetachedOutput { id, query }, deadline::READ_MS).await
            }
            Call::Input { key, id, input } => {
                self.sandbox(key, SandboxCall::DetachedInput { id, input }, deadline::READ_MS).await
            }
            Call::ReadFile { key, path } => {
                self.sandbox(key, SandboxCall::ReadFile { path }, deadline::READ_MS).await
            }
            Call::Artifacts { key } => self.sandbox(key, SandboxCall::Artifacts, deadline::READ_MS).await,
            Call::Artifact { key, path, query } => {
                self.sandbox(key, SandboxCall::Artifact { path, query }, deadline::READ_MS).await
            }
            Call::Checkpoint { key, reason } => {
                self.sandbox(key, SandboxCall::Checkpoint { reason }, deadline::END_MS).await
            }
            Call::Abort { key } => self.sandbox(key, SandboxCall::Abort, deadline::END_MS).await,
            Call::Events { key, query } => {
                self.sandbox(key, SandboxCall::Events { query }, deadline::READ_MS).await
            }
            Call::Denials { key } => self.sandbox(key, SandboxCall::Denials, deadline::READ_MS).await,
            Call::Enqueue { key, recipe } => gate.enqueue(&key, &recipe).await.map(admission),
            Call::Attempt { key, recipe } => gate.attempt(&key, &recipe).await.map(admission),
            Call::Withdraw { key } => gate.withdraw(&key).await.map(|()| Answer::done(Done {})),
            Call::Pools => gate.pools().await,
            Call::Registry { labels } => gate.registry(labels).await,
            Call::CanaryLook => canary::look(self.env, &self.config).await.map(Answer::done),
            Call::CanaryReport => canary::known(self.env, &self.config).await.map(Answer::done),
        }
    }

    /// Admits and calls. A sandbox whose container ends gives its slot back, and until Admission has heard of it hands
    /// that very slot out again; the object refuses such a pass before it does anything, so the call is admitted anew
    /// here rather than by every caller.
    async fn admitted(
        &self,
        gate: &Gate<'_>,
        key: &SandboxKey,
        recipe: &Recipe,
        mode: AdmissionMode,
        deadline_ms: u64,
        call: impl Fn(Pass) -> SandboxCall,
    ) -> Result<Answer, Refusal> {
        let mut pauses = READMIT_PAUSES_MS.into_iter();
        loop {
            let pass = gate.pass(key, recipe, mode).await?;
            let answer = self.sandbox(key.clone(), call(pass), deadline_ms).await?;
            match pauses.next() {
                Some(pause) if answer.is_refused_for(&SLOT_ENDS) => clock::sleep_ms(pause).await,
                _ => return Ok(answer),
            }
        }
    }

    /// Which profiles a consumer may select is configuration.
    fn may_select(&self, recipe: &Recipe) -> Result<(), Refusal> {
        let (Some(allowed), Some(wanted)) = (&self.caller.profiles, &recipe.profiles) else { return Ok(()) };
        match wanted.iter().position(|profile| !allowed.contains(profile)) {
            None => Ok(()),
            Some(index) => Err(rejected(
                &format!("recipe.profiles[{index}]"),
                format!("is not among the profiles of the consumer {} in CONSUMERS", self.caller.consumer),
            )),
        }
    }

    async fn sandbox(&self, key: SandboxKey, call: SandboxCall, deadline_ms: u64) -> Result<Answer, Refusal> {
        #[cfg(feature = "panic-hook")]
        crate::panic_hook::trip(crate::panic_hook::Place::Facade, key.as_str());
        let consumer = &self.caller.consumer;
        let seal = seal(&self.config.secrets, Subject::Sandbox { consumer, key: &key });
        let request = SandboxRequest {
            version: INTERNAL_VERSION,
            consumer: consumer.clone(),
            key: key.clone(),
            seal,
            call,
        };
        objects::call_sandbox(self.env, consumer, &key, &request, deadline_ms)
            .await
            .map(Answer)
            .map_err(unanswered)
    }
}

fn admission((admitted, facts): (bool, ringfence_wire::refusal::AdmissionFacts)) -> Answer {
    Answer::done(AdmissionDone { admitted, facts })
}

/// The object gave no answer: what it did is not known, and asking again with the same key finds out.
fn unanswered(fault: ObjectFault) -> Refusal {
    let message = format!(
        "{fault}; what it did is not known: call again with the same arguments, which joins or replays"
    );
    Refusal::new(RefusalKind::SandboxUnavailable, message).reason("no-answer").retry_after_ms(1_000)
}
