//! What stands before a sandbox: the approval floor, then admission, then the ticket.

use ringfence_core::admission::Pools;
use ringfence_core::approval::{check_attestation, floor_rule};
use ringfence_core::seal::{Subject, seal};
use ringfence_core::ticket::{Claims, TICKET_TTL_MS, mint};
use ringfence_wire::contract::{AdmissionMode, Approval, Recipe};
use ringfence_wire::ids::SandboxKey;
use ringfence_wire::internal::{AdmissionAnswer, AdmissionCall, AdmissionRequest, INTERNAL_VERSION, Pass};
use ringfence_wire::refusal::{AdmissionFacts, Refusal, RefusalKind};
use ringfence_wire::supervisor::StdinMode;
use worker::Env;

use super::answer::Answer;
use super::identity::Caller;
use crate::clock::now_ms;
use crate::config::Config;
use crate::objects::{self, ObjectFault};

/// How long the facade waits for the Admission object, which itself waits for nobody.
const ADMISSION_DEADLINE_MS: u64 = 10_000;

pub struct Gate<'a> {
    pub env: &'a Env,
    pub config: &'a Config,
    pub caller: &'a Caller,
}

impl Gate<'_> {
    /// Which floor rule the command crosses, if any; refused if it crosses one without an attestation worth spending.
    /// The object spends it, so a refusal here costs nothing.
    pub fn floor(
        &self,
        command: &str,
        stdin: StdinMode,
        approval: Option<&Approval>,
    ) -> Result<Option<String>, Refusal> {
        let Some(rule) = floor_rule(command, stdin, &self.config.floor_rules) else { return Ok(None) };
        let Some(approval) = approval else {
            let message = format!(
                "the command crosses the approval floor ({rule}); it runs only with an approval of its exact text"
            );
            return Err(Refusal::new(RefusalKind::ApprovalRequired, message).field("approval").reason(rule));
        };
        match check_attestation(approval, command, now_ms()) {
            Ok(_) => Ok(Some(rule)),
            Err(fault) => Err(Refusal::new(RefusalKind::AttestationRejected, fault.to_string())
                .field("approval")
                .reason(fault.reason())),
        }
    }

    /// Takes or renews the sandbox's slot and mints the ticket it boots with.
    pub async fn pass(
        &self,
        key: &SandboxKey,
        recipe: &Recipe,
        mode: AdmissionMode,
    ) -> Result<Pass, Refusal> {
        let pool = self.pool(recipe);
        let call =
            AdmissionCall::Touch { consumer: self.caller.consumer.clone(), key: key.clone(), pool, mode };
        match self.ask(call).await? {
            AdmissionAnswer::Admitted { slot, pool, .. } => {
                let claims = Claims {
                    consumer: self.caller.consumer.clone(),
                    key: key.clone(),
                    pool: pool.clone(),
                    expires_at: now_ms() + TICKET_TTL_MS,
                };
                Ok(Pass { ticket: mint(&self.config.secrets, &claims), pool, slot })
            }
            AdmissionAnswer::Waiting { facts } => Err(refused(facts, "the sandbox waits for a slot")),
            AdmissionAnswer::Refused { facts } => Err(refused(facts, "every slot is taken")),
        }
    }

    pub async fn enqueue(
        &self,
        key: &SandboxKey,
        recipe: &Recipe,
    ) -> Result<(bool, AdmissionFacts), Refusal> {
        let pool = self.pool(recipe);
        self.place(AdmissionCall::Enqueue { consumer: self.caller.consumer.clone(), key: key.clone(), pool })
            .await
    }

    pub async fn attempt(
        &self,
        key: &SandboxKey,
        recipe: &Recipe,
    ) -> Result<(bool, AdmissionFacts), Refusal> {
        let pool = self.pool(recipe);
        self.place(AdmissionCall::Attempt { consumer: self.caller.consumer.clone(), key: key.clone(), pool })
            .await
    }

    pub async fn withdraw(&self, key: &SandboxKey) -> Result<(), Refusal> {
        self.call(AdmissionCall::Withdraw { consumer: self.caller.consumer.clone(), key: key.clone() })
            .await
            .map(|_| ())
    }

    pub async fn pools(&self) -> Result<Answer, Refusal> {
        self.call(AdmissionCall::Pools).await.map(Answer)
    }

    /// The consumer's own sandboxes.
    pub async fn registry(&self, labels: Vec<(String, String)>) -> Result<Answer, Refusal> {
        self.call(AdmissionCall::Registry { consumer: self.caller.consumer.clone(), labels })
            .await
            .map(Answer)
    }

    /// From the consumer and the recipe alone; no field of a payload names a pool.
    fn pool(&self, recipe: &Recipe) -> String {
        Pools::pool_for(self.caller.pool, recipe).as_str().to_owned()
    }

    async fn place(&self, call: AdmissionCall) -> Result<(bool, AdmissionFacts), Refusal> {
        match self.ask(call).await? {
            AdmissionAnswer::Admitted { facts, .. } => Ok((true, facts)),
            AdmissionAnswer::Waiting { facts } => Ok((false, facts)),
            AdmissionAnswer::Refused { facts } => Err(refused(facts, "there is no place")),
        }
    }

    async fn ask(&self, call: AdmissionCall) -> Result<AdmissionAnswer, Refusal> {
        let text = self.call(call).await?;
        serde_json::from_str(&text).map_err(|error| unanswered(ObjectFault::Unreadable(error)))
    }

    async fn call(&self, call: AdmissionCall) -> Result<String, Refusal> {
        let seal = seal(&self.config.secrets, Subject::Admission);
        let request = AdmissionRequest { version: INTERNAL_VERSION, seal, call };
        objects::call_admission(self.env, &request, ADMISSION_DEADLINE_MS).await.map_err(unanswered)
    }
}

fn refused(facts: AdmissionFacts, why: &str) -> Refusal {
    let AdmissionFacts { pool, pool_busy, cap, retry_after_ms, .. } = &facts;
    let place = facts.position.map(|position| format!(", at place {position}")).unwrap_or_default();
    let message = format!(
        "{why}: the pool {pool} has {pool_busy} of {cap} taken{place}; try again in {retry_after_ms} ms"
    );
    let mut refusal = Refusal::new(RefusalKind::AdmissionRefused, message).retry_after_ms(*retry_after_ms);
    refusal.admission = Some(facts);
    refusal
}

fn unanswered(fault: ObjectFault) -> Refusal {
    Refusal::new(RefusalKind::SandboxUnavailable, format!("admission: {fault}; nothing was started"))
        .reason("no-answer")
        .retry_after_ms(1_000)
}
