//! The ticket gate, from where it would be gone round: a Worker bound straight to the classes. Without the seal it
//! gets nothing at all; with a seal (which only this test, knowing the secret, can make) and no good ticket it
//! boots nothing.

use crate::world::{World, tests};
use ringfence_core::seal::{Subject, seal};
use ringfence_core::ticket::{Claims, Secrets, mint};
use ringfence_e2e::control::Action;
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{
    FIXTURE, Rpc, Sandbox, done, exec_input, fresh_key, fresh_word, now_ms, recipe, refused, start_input,
};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{AdmissionMode, EnsureOptions, ExecInput};
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use ringfence_wire::internal::{
    AdmissionAnswer, AdmissionCall, AdmissionRequest, INTERNAL_VERSION, Pass, SandboxCall, SandboxRequest,
};
use ringfence_wire::refusal::{Outcome, Refusal, RefusalKind};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared:
        without_a_ticket_the_object_refuses_and_nothing_boots,
        with_an_expired_ticket_the_object_refuses_and_nothing_boots,
        with_a_ticket_for_another_key_or_consumer_the_object_refuses_and_nothing_boots,
        with_a_ticket_signed_by_another_secret_or_cut_short_the_object_refuses_and_nothing_boots,
        with_a_good_ticket_the_same_call_is_served,
        a_ticket_that_expired_after_admission_stops_the_next_boot,
        a_worker_bound_straight_to_the_object_class_gets_nothing,
        a_worker_bound_straight_to_the_admission_class_gets_nothing,
        a_worker_bound_straight_to_egress_gets_nothing;
}

/// What a caller who knows the secret can say straight to the object.
struct Straight<'s> {
    sandbox: &'s Sandbox,
    consumer: ConsumerName,
    key: SandboxKey,
    secrets: Secrets,
    word: String,
}

impl<'s> Straight<'s> {
    fn to(sandbox: &'s Sandbox) -> Self {
        Self {
            sandbox,
            consumer: "alpha".into(),
            key: sandbox.key.as_str().into(),
            secrets: secrets(sandbox),
            word: fresh_word(),
        }
    }

    fn claims(&self) -> Claims {
        let expires_at = now_ms() + 60_000;
        Claims { consumer: self.consumer.clone(), key: self.key.clone(), pool: "lean".to_owned(), expires_at }
    }

    /// The three calls that could boot a container, each with this pass.
    fn calls(&self, pass: Option<&Pass>) -> [SandboxCall; 3] {
        let (key, command) = (fresh_key(), say(&self.word));
        let start = serde_json::from_value(start_input(&key, &command)).expect("a good input");
        [
            SandboxCall::Ensure {
                pass: pass.cloned(),
                recipe: serde_json::from_value(recipe()).expect("a good recipe"),
                options: EnsureOptions::default(),
            },
            SandboxCall::Exec { pass: pass.cloned(), input: self.exec().into(), floor_rule: None },
            SandboxCall::StartDetached { pass: pass.cloned(), input: Box::new(start), floor_rule: None },
        ]
    }

    fn exec(&self) -> ExecInput {
        serde_json::from_value(exec_input(&fresh_key(), &say(&self.word))).expect("a good input")
    }

    /// A slot as the facade would take it, so that the sandbox holds what it renews.
    async fn slot(&self) -> String {
        let call = AdmissionCall::Touch {
            consumer: self.consumer.clone(),
            key: self.key.clone(),
            pool: "lean".to_owned(),
            mode: AdmissionMode::Refuse,
        };
        let seal = seal(&self.secrets, Subject::Admission);
        let request = AdmissionRequest { version: INTERNAL_VERSION, seal, call };
        match invoke(self.sandbox, "ADMISSION", "admission", &request).await {
            Rpc::Returned(Value::String(text)) => match serde_json::from_str(&text).expect("an answer") {
                AdmissionAnswer::Admitted { slot, .. } => slot,
                other => panic!("a slot was due, not {other:?}"),
            },
            other => panic!("the gate answers with text: {other:?}"),
        }
    }

    async fn invoke(&self, call: SandboxCall) -> Rpc {
        let subject = Subject::Sandbox { consumer: &self.consumer, key: &self.key };
        let request = SandboxRequest {
            version: INTERNAL_VERSION,
            consumer: self.consumer.clone(),
            key: self.key.clone(),
            seal: seal(&self.secrets, subject),
            call,
        };
        invoke(self.sandbox, "SANDBOX", &self.sandbox.name, &request).await
    }

    /// That all three calls are refused for this reason, and that nothing came of them.
    async fn assert_refused(&self, pass: Option<Pass>, reason: &str) {
        let since = self.sandbox.stack.control().now().await;
        for call in self.calls(pass.as_ref()) {
            let refusal = ticket_refusal(self.invoke(call).await);
            assert_eq!(refusal.reason.as_deref(), Some(reason), "{refusal:?}");
        }
        self.assert_nothing_booted(since).await;
    }

    async fn assert_nothing_booted(&self, since: u64) {
        let log = self.sandbox.calls_since(since).await;
        log.assert_none("docker POST /containers/create");
        log.assert_none("ingress *");
        assert!(self.sandbox.container().await.is_none());
        assert_eq!(self.sandbox.stack.witness().count(&self.word), 0);
    }
}

async fn without_a_ticket_the_object_refuses_and_nothing_boots(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let straight = Straight::to(&sandbox);
    straight.assert_refused(None, "none").await;
}

async fn with_an_expired_ticket_the_object_refuses_and_nothing_boots(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let straight = Straight::to(&sandbox);
    let expired = Claims { expires_at: now_ms() - 1, ..straight.claims() };
    straight.assert_refused(Some(pass(mint(&straight.secrets, &expired))), "expired").await;
}

async fn with_a_ticket_for_another_key_or_consumer_the_object_refuses_and_nothing_boots(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let straight = Straight::to(&sandbox);
    let other_key = Claims { key: "another".into(), ..straight.claims() };
    let other_consumer = Claims { consumer: "beta".into(), ..straight.claims() };
    for claims in [other_key, other_consumer] {
        straight.assert_refused(Some(pass(mint(&straight.secrets, &claims))), "another-execution").await;
    }
}

async fn with_a_ticket_signed_by_another_secret_or_cut_short_the_object_refuses_and_nothing_boots(
    world: Arc<World>,
) {
    let sandbox = world.sandbox().await;
    let straight = Straight::to(&sandbox);
    let other = Secrets::new(vec!["not this deployment's secret at all".to_owned()]).expect("long enough");
    straight.assert_refused(Some(pass(mint(&other, &straight.claims()))), "failed-verification").await;
    let good = mint(&straight.secrets, &straight.claims());
    let (cut, _) = good.rsplit_once('.').expect("a ticket has parts");
    straight.assert_refused(Some(pass(cut.to_owned())), "malformed").await;
}

/// The refusals above are the ticket's doing: all else being equal, a good one opens the gate.
async fn with_a_good_ticket_the_same_call_is_served(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let straight = Straight::to(&sandbox);
    let good = Pass { slot: straight.slot().await, ..pass(mint(&straight.secrets, &straight.claims())) };
    let call = SandboxCall::Exec { pass: Some(good), input: straight.exec().into(), floor_rule: None };
    done(read(straight.invoke(call).await));
    world.stack.witness().heard(&straight.word).await;
}

/// Good when it was stored, and looked at again by the boot's second attempt.
async fn a_ticket_that_expired_after_admission_stops_the_next_boot(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let straight = Straight::to(&sandbox);
    let control = world.stack.control();
    let since = control.now().await;
    // The first attempt never hears its supervisor, and so is still under way when the ticket expires.
    control.fault(sandbox.ingress("GET", "/v1/hello"), Action::DropBefore, 1_000).await;
    let slot = straight.slot().await;
    let short = Claims { expires_at: now_ms() + 3_000, ..straight.claims() };
    let (pass, input) = (Pass { slot, ..pass(mint(&straight.secrets, &short)) }, straight.exec().into());
    let boot = straight.invoke(SandboxCall::Exec { pass: Some(pass), input, floor_rule: None });
    let end_first_attempt = async {
        let init = eventually("the first attempt's supervisor runs", || sandbox.try_init()).await;
        until("the ticket expires", || now_ms() >= short.expires_at).await;
        init.signal(Signal::KILL);
    };
    let (answer, ()) = tokio::join!(boot, end_first_attempt);

    let refusal = ticket_refusal(answer);
    assert_eq!(refusal.reason.as_deref(), Some("expired"), "{refusal:?}");
    let log = sandbox.calls_since(since).await;
    let started = format!("docker POST /containers/{}/start", world.stack.container_name(&sandbox.object));
    assert_eq!(log.count(&started), 1, "{log}");
    sandbox.clear_faults().await;
    assert!(sandbox.container().await.is_none_or(|c| !c.is_running()));
    assert_eq!(world.stack.witness().count(&straight.word), 0);
}

async fn a_worker_bound_straight_to_the_object_class_gets_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let id = done(sandbox.start("echo secret; sleep 3600").await).process.id;
    let straight = Straight::to(&sandbox);
    let since = world.stack.control().now().await;
    let good = Some(pass(mint(&straight.secrets, &straight.claims())));
    let asks = [SandboxCall::DetachedList, SandboxCall::DetachedStatus { id }, SandboxCall::Abort];
    for call in straight.calls(good.as_ref()).into_iter().chain(asks) {
        let unsealed = SandboxRequest {
            version: INTERNAL_VERSION,
            consumer: straight.consumer.clone(),
            key: straight.key.clone(),
            seal: "0".repeat(64),
            call,
        };
        let answer = invoke(&sandbox, "SANDBOX", &sandbox.name, &unsealed).await;
        assert_nothing(&answer);
    }
    sandbox.calls_since(since).await.assert_none("*");
    // No other method of the class is there to be called.
    for method in ["alarm", "fetch", "ensureSandbox", "abort", "constructor"] {
        if method != "fetch" {
            assert_nothing(&world.stack.object("SANDBOX", &sandbox.name, method, json!([])).await);
        }
    }
    assert_eq!(world.stack.witness().count(&straight.word), 0);
    assert!(sandbox.init().await.is_alive(), "the abort was not heard");
}

async fn a_worker_bound_straight_to_the_admission_class_gets_nothing(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    for call in [AdmissionCall::Pools, AdmissionCall::Release { slot: "any".to_owned() }] {
        let unsealed = AdmissionRequest { version: INTERNAL_VERSION, seal: "0".repeat(64), call };
        assert_nothing(&invoke(&sandbox, "ADMISSION", "admission", &unsealed).await);
    }
}

async fn a_worker_bound_straight_to_egress_gets_nothing(world: Arc<World>) {
    let answer = world.stack.http("GET", &format!("{FIXTURE}/fetch/EGRESS/anything"), None, "").await;
    assert_eq!(answer.status, 403, "{}", answer.text());
}

async fn invoke(sandbox: &Sandbox, binding: &str, name: &str, request: &impl Serialize) -> Rpc {
    let text = serde_json::to_string(request).expect("it serialises");
    sandbox.stack.object(binding, name, "invoke", json!([text])).await
}

fn read(answer: Rpc) -> Outcome<Value> {
    match answer {
        Rpc::Returned(Value::String(text)) => serde_json::from_str(&text).expect("an outcome"),
        other => panic!("an object answers with text: {other:?}"),
    }
}

fn ticket_refusal(answer: Rpc) -> Refusal {
    refused(read(answer), RefusalKind::TicketRejected)
}

/// A throw, or a refusal: nothing of the sandbox in either.
#[track_caller]
fn assert_nothing(answer: &Rpc) {
    if let Rpc::Returned(Value::String(text)) = answer {
        let outcome: Outcome<Value> = serde_json::from_str(text).expect("an outcome");
        assert!(matches!(outcome, Outcome::Refused(_)), "{text}");
        assert!(!text.contains("secret\\n"), "{text}");
    } else {
        assert!(matches!(answer, Rpc::Threw { .. }), "{answer:?}");
    }
}

fn pass(ticket: String) -> Pass {
    Pass { ticket, pool: "lean".to_owned(), slot: "slot-of-a-test".to_owned() }
}

fn secrets(sandbox: &Sandbox) -> Secrets {
    Secrets::new(sandbox.stack.ticket_secrets().to_vec()).expect("the stack's own secrets are good")
}
