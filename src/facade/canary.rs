//! The canary: a sandbox of the deployment's own looks at the fence from inside, on demand and once for every new
//! build. `ringfence_core::canary` decides what was proven; the Admission object keeps it.
//!
//! Order of one look: its turn is taken at the Admission object → a slot and a ticket, as for any sandbox → the record
//! of denials is read → one exec under a grant → the record again → abort → the report is kept. However it ends, it
//! ends with a report: what kept it from looking makes it inconclusive.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use ringfence_core::canary::{COMMAND_TIMEOUT_MS, CONSUMER, KEY, LEASE_MS, PROFILE, report};
use ringfence_core::seal::{Subject, seal};
use ringfence_wire::contract::{
    CanaryCheck, CanaryDone, CanaryReport, DenialEvent, ExecDone, ExecInput, Recipe,
};
use ringfence_wire::ids::SandboxKey;
use ringfence_wire::internal::{
    AdmissionCall, AdmissionRequest, CanaryAnswer, CanaryTurn, INTERNAL_VERSION, SandboxCall,
};
use ringfence_wire::refusal::{Outcome, Refusal, RefusalKind};
use worker::{Env, console_error};

use super::gate::Gate;
use super::identity::Caller;
use super::{AT_ONCE, Facade, deadline, unanswered};
use crate::clock;
use crate::config::Config;
use crate::objects::{self, ObjectFault};

/// Of which build this is: what `scripts/build-worker` built it from, hashed.
const BUILD: &str = match option_env!("RINGFENCE_BUILD") {
    Some(build) => build,
    None => "unnamed",
};
const ADMISSION_DEADLINE_MS: u64 = 10_000;
/// While another look is under way.
const LOOK_AGAIN_MS: u64 = 500;
const TAIL_BYTES: u64 = 4 * 1024;

thread_local! {
    /// This isolate has seen to it that its build is looked at.
    static SEEN_TO: Cell<bool> = const { Cell::new(false) };
}

/// What is known of the running build.
pub async fn known(env: &Env, config: &Config) -> Result<CanaryDone, Refusal> {
    ask(env, config, AdmissionCall::CanaryStanding { build: BUILD.to_owned() })
        .await
        .map(|answer| answer.known)
}

/// Looks now, after the look that is under way if there is one.
pub async fn look(env: &Env, config: &Rc<Config>) -> Result<CanaryDone, Refusal> {
    let give_up_at = clock::now_ms() + LEASE_MS;
    loop {
        let begin = AdmissionCall::CanaryBegin { build: BUILD.to_owned(), by_itself: false };
        let answer = ask(env, config, begin).await?;
        match answer.turn {
            CanaryTurn::Look => return looked(env, config).await,
            CanaryTurn::Rest => return Ok(answer.known),
            CanaryTurn::UnderWay if clock::now_ms() < give_up_at => clock::sleep_ms(LOOK_AGAIN_MS).await,
            CanaryTurn::UnderWay => {
                let message = "another look of the canary's is under way; ask again";
                return Err(Refusal::new(RefusalKind::SandboxUnavailable, message)
                    .reason("under-way")
                    .retry_after_ms(1_000));
            }
        }
    }
}

/// The first time in an isolate, or when `again`: looks if this build was not looked at yet. Nobody waits for it.
pub fn look_by_itself(env: &Env, again: bool) -> Option<impl Future<Output = ()> + use<>> {
    if SEEN_TO.with(|seen| seen.replace(true)) && !again {
        return None;
    }
    let config = Config::of(env).ok().filter(|config| config.canary.automatic)?;
    let env = env.clone();
    Some(async move {
        let begin = AdmissionCall::CanaryBegin { build: BUILD.to_owned(), by_itself: true };
        let looked = match ask(&env, &config, begin).await {
            Ok(answer) if answer.turn == CanaryTurn::Look => looked(&env, &config).await.map(drop),
            other => other.map(drop),
        };
        if let Err(refusal) = looked {
            console_error!("canary: {}", refusal.message);
        }
    })
}

async fn looked(env: &Env, config: &Rc<Config>) -> Result<CanaryDone, Refusal> {
    let report = Look::new(env, config).report().await;
    ask(env, config, AdmissionCall::CanaryEnd { report }).await.map(|answer| answer.known)
}

struct Look<'a> {
    facade: Facade<'a>,
    key: SandboxKey,
}

impl<'a> Look<'a> {
    fn new(env: &'a Env, config: &Rc<Config>) -> Self {
        let caller = Caller { consumer: CONSUMER.into(), profiles: None, pool: None };
        Self { facade: Facade { env, config: Rc::clone(config), caller }, key: KEY.into() }
    }

    async fn report(&self) -> CanaryReport {
        let began = clock::now_ms();
        let (checks, instead) = match self.checks().await {
            Ok(checks) => (checks, None),
            Err(refusal) => (Vec::new(), Some(refusal.message)),
        };
        // Its end is the sandbox's own to see to from here on: its deadline ends it too.
        if let Err(refusal) =
            self.facade.sandbox(self.key.clone(), SandboxCall::Abort, deadline::END_MS).await
        {
            console_error!("canary: {}", refusal.message);
        }
        let now = clock::now_ms();
        report(BUILD, now, now.saturating_sub(began), checks, instead)
    }

    async fn checks(&self) -> Result<Vec<CanaryCheck>, Refusal> {
        let settings = &self.facade.config.canary;
        let before = settings.refusals(&self.denials().await?);
        let output = self.exec(settings.command()).await?.receipt.tail;
        let after = settings.refusals(&self.denials().await?);
        Ok(settings.judge(&output, after.saturating_sub(before)))
    }

    async fn exec(&self, command: String) -> Result<ExecDone, Refusal> {
        let recipe = Recipe {
            version: BUILD.to_owned(),
            repo: None,
            lfs: None,
            profiles: Some(vec![PROFILE.to_owned()]),
            targets: None,
            enforcement: None,
        };
        let input = Box::new(ExecInput {
            recipe: recipe.clone(),
            command,
            idempotency_key: uuid::Uuid::new_v4().to_string().into(),
            log_path: "canary.log".to_owned(),
            timeout_ms: Some(COMMAND_TIMEOUT_MS),
            tail_bytes: Some(TAIL_BYTES),
            lfs: None,
            approval: None,
            on_unknown: None,
        });
        let Facade { env, config, caller } = &self.facade;
        let gate = Gate { env, config, caller };
        let call = |pass| SandboxCall::Exec { pass: Some(pass), input: input.clone(), floor_rule: None };
        let wait = COMMAND_TIMEOUT_MS + deadline::BOOT_MS;
        let answer = self.facade.admitted(&gate, &self.key, &recipe, AT_ONCE, wait, call).await?;
        match serde_json::from_str(&answer.0) {
            Ok(Outcome::Done(done)) => Ok(done),
            Ok(Outcome::Refused(refusal)) => Err(refusal),
            Err(error) => Err(unanswered(ObjectFault::Unreadable(error))),
        }
    }

    async fn denials(&self) -> Result<Vec<DenialEvent>, Refusal> {
        let answer = self.facade.sandbox(self.key.clone(), SandboxCall::Denials, deadline::READ_MS).await?;
        serde_json::from_str(&answer.0).map_err(|error| unanswered(ObjectFault::Unreadable(error)))
    }
}

async fn ask(env: &Env, config: &Config, call: AdmissionCall) -> Result<CanaryAnswer, Refusal> {
    let seal = seal(&config.secrets, Subject::Admission);
    let request = AdmissionRequest { version: INTERNAL_VERSION, seal, call };
    let text = objects::call_admission(env, &request, ADMISSION_DEADLINE_MS).await.map_err(unanswered)?;
    serde_json::from_str(&text).map_err(|error| unanswered(ObjectFault::Unreadable(error)))
}
