//! The canary: a deployment is verified when a sandbox of its own saw the fence hold, and not before.

use crate::world::{World, tests};
use ringfence_core::seal::{Subject, seal};
use ringfence_core::ticket::{Claims, Secrets, TICKET_TTL_MS, mint};
use ringfence_e2e::control::{Action, Match};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Rpc, fresh_key, fresh_word, now_ms};
use ringfence_e2e::http::Answer;
use ringfence_e2e::stack::{Setup, Stack};
use ringfence_wire::contract::{CanaryDone, CanaryReport, CanaryVerdict, StartDetachedInput};
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use ringfence_wire::internal::{
    AdmissionAnswer, AdmissionCall, AdmissionRequest, INTERNAL_VERSION, Pass, SandboxCall, SandboxRequest,
};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    own by_itself => a_new_build_looks_at_itself_once_and_is_verified_from_then_on;
    own on_demand =>
        nothing_is_verified_before_a_look_and_a_look_is_asked_for_by_hand,
        a_look_that_could_not_be_made_is_inconclusive_and_that_is_no_pass,
        no_slot_is_inconclusive_too;
    own at_a_port_of_the_sandbox => a_port_that_answers_is_a_failure_and_undoes_a_pass;
    own at_a_host_that_is_granted => a_host_that_is_refused_by_no_rule_of_ours_is_a_failure;
}

const CONSUMER: &str = "_canary";
const KEY: &str = "canary";
const PORT: u16 = 2222;

fn set(canary: Value) -> Setup {
    let mut setup = Setup::default();
    setup.vars.insert("CANARY".to_owned(), json!(canary.to_string()));
    setup
}

fn by_itself() -> Setup {
    set(json!({}))
}

fn on_demand() -> Setup {
    let mut setup = set(json!({ "automatic": false }));
    setup.vars.insert("POOLS".to_owned(), json!(json!({ "lean": 1 }).to_string()));
    setup
}

fn at_a_port_of_the_sandbox() -> Setup {
    set(json!({ "automatic": false, "tcp": format!("127.0.0.1:{PORT}") }))
}

fn at_a_host_that_is_granted() -> Setup {
    set(json!({ "automatic": false, "https": "api.github.com" }))
}

async fn health(stack: &Stack) -> Answer {
    stack.http("GET", "/health", None, "").await
}

async fn look(stack: &Stack) -> CanaryReport {
    let answer = stack.http("POST", "/v1/canary", Some(stack.token("alpha")), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json::<CanaryDone>().canary.expect("a look has a report")
}

async fn last(stack: &Stack) -> CanaryDone {
    stack.http("GET", "/v1/canary", Some(stack.token("alpha")), "").await.json()
}

fn check<'a>(report: &'a CanaryReport, what: &str) -> &'a ringfence_wire::contract::CanaryCheck {
    report.checks.iter().find(|check| check.what == what).unwrap_or_else(|| panic!("no {what}: {report:?}"))
}

async fn its_container(stack: &Stack) -> String {
    stack.container_name(&stack.object_id(&format!("{CONSUMER}:{KEY}")).await)
}

async fn a_new_build_looks_at_itself_once_and_is_verified_from_then_on(world: Arc<World>) {
    let stack = &world.stack;
    let verified = || async { (health(stack).await.status == 200).then_some(()) };
    eventually("the look that asking for the health began has passed", verified).await;
    assert_eq!(health(stack).await.json::<Value>()["fence"], "verified");
    let known = last(stack).await;
    let report = known.canary.expect("its report");
    assert_eq!(report.verdict, CanaryVerdict::Passed, "{report:?}");
    assert_eq!(check(&report, "https").target, "https://example.com/ringfence-canary");
    assert_eq!(check(&report, "tcp").target, "github.com:22");
    assert!(report.unseen.iter().any(|text| text.starts_with("DNS in production")), "{report:?}");
    assert_ne!(report.build, "unnamed", "a bundle knows what it was built from");

    let name = its_container(stack).await;
    let gone = || async {
        let containers = stack.control().containers().await;
        (!containers.iter().any(|container| container.name == name && container.is_running())).then_some(())
    };
    eventually("its container is gone", gone).await;

    // Another start of the same build: what is known of it holds, and no other look is made.
    stack.kill_workerd().await;
    assert_eq!(health(stack).await.status, 200);
    assert_eq!(last(stack).await.canary.map(|again| again.at), Some(report.at));
}

async fn nothing_is_verified_before_a_look_and_a_look_is_asked_for_by_hand(world: Arc<World>) {
    let stack = &world.stack;
    let before = health(stack).await;
    assert_eq!((before.status, &before.json::<Value>()["fence"]), (503, &json!("unverified")));
    assert!(last(stack).await.canary.is_none(), "nobody looked");
    assert_eq!(stack.http("POST", "/v1/canary", None, "").await.status, 401);
    let none = stack.ringfence_said(&["canary", "--last"]).await;
    assert_eq!(none.code, Some(1), "{none:?}");

    let said = stack.ringfence_said(&["canary"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("passed in ") && said.out.contains("not seen     DNS"), "{}", said.out);
    assert_eq!(health(stack).await.status, 200);
    let again = stack.ringfence_said(&["canary", "--last", "--json"]).await;
    let known: CanaryDone = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!((again.code, known.verified), (Some(0), true));
}

async fn a_look_that_could_not_be_made_is_inconclusive_and_that_is_no_pass(world: Arc<World>) {
    let stack = &world.stack;
    let container = its_container(stack).await;
    let jobs = Match {
        plane: "ingress".to_owned(),
        method: Some("POST".to_owned()),
        path_prefix: Some("/v1/jobs".to_owned()),
        container: Some(container.clone()),
    };
    let answer = Action::Answer { status: 500, body: "{}".to_owned() };
    stack.control().fault(jobs, answer, 1_000).await;
    let report = look(stack).await;
    assert_eq!(report.verdict, CanaryVerdict::Inconclusive, "{report:?}");
    assert!(report.detail.is_some() && report.checks.is_empty(), "it says what kept it: {report:?}");
    let health_then = health(stack).await;
    assert_eq!((health_then.status, &health_then.json::<Value>()["fence"]), (503, &json!("unverified")));
    let said = stack.ringfence_said(&["canary", "--last"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.starts_with("inconclusive"), "{}", said.out);

    stack.control().clear_faults_of(&container).await;
    assert_eq!(look(stack).await.verdict, CanaryVerdict::Passed);
    assert_eq!(health(stack).await.status, 200);
}

async fn no_slot_is_inconclusive_too(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    ringfence_e2e::facade::done(sandbox.ensure().await);
    let report = look(&world.stack).await;
    assert_eq!(report.verdict, CanaryVerdict::Inconclusive, "{report:?}");
    assert!(report.detail.is_some_and(|detail| detail.contains("every slot is taken")));
    sandbox.abort().await;
    assert_eq!(look(&world.stack).await.verdict, CanaryVerdict::Passed);
}

/// A server in the canary's own sandbox stands for a port outside that the fence does not close.
async fn a_port_that_answers_is_a_failure_and_undoes_a_pass(world: Arc<World>) {
    let stack = &world.stack;
    let passed = look(stack).await;
    assert_eq!(passed.verdict, CanaryVerdict::Passed, "nothing listens there yet: {passed:?}");
    assert_eq!(health(stack).await.status, 200);

    start_in_its_sandbox(stack, &passed.build, &format!("exec /witness/probe serve {PORT} SSH-2.0-x")).await;
    let failed = look(stack).await;
    assert_eq!(failed.verdict, CanaryVerdict::Failed, "{failed:?}");
    assert_eq!(check(&failed, "https").verdict, CanaryVerdict::Passed);
    let tcp = check(&failed, "tcp");
    assert!(tcp.verdict == CanaryVerdict::Failed && tcp.detail.contains("10 bytes"), "{tcp:?}");
    let after = health(stack).await;
    assert_eq!((after.status, &after.json::<Value>()["fence"]), (503, &json!("failed")));
    assert_eq!(stack.ringfence_said(&["canary", "--last"]).await.code, Some(1));

    // The look ended with its sandbox, and the server with that.
    assert_eq!(look(stack).await.verdict, CanaryVerdict::Passed);
    assert_eq!(health(stack).await.status, 200);
}

async fn a_host_that_is_refused_by_no_rule_of_ours_is_a_failure(world: Arc<World>) {
    let report = look(&world.stack).await;
    assert_eq!(report.verdict, CanaryVerdict::Failed, "{report:?}");
    let https = check(&report, "https");
    assert!(
        https.detail.contains("by no refusal that is on record"),
        "a 403 alone proves nothing: {https:?}"
    );
    assert_eq!(health(&world.stack).await.status, 503);
}

/// A detached process beside the canary. Only who knows the ticket secret can have it there.
async fn start_in_its_sandbox(stack: &Stack, build: &str, command: &str) {
    let secrets = Secrets::new(stack.ticket_secrets().to_vec()).expect("the stack's own are good");
    let (consumer, key): (ConsumerName, SandboxKey) = (CONSUMER.into(), KEY.into());
    let touch = AdmissionCall::Touch {
        consumer: consumer.clone(),
        key: key.clone(),
        pool: "lean".to_owned(),
        mode: Default::default(),
    };
    let request =
        AdmissionRequest { version: INTERNAL_VERSION, seal: seal(&secrets, Subject::Admission), call: touch };
    let answer = invoke(stack, "ADMISSION", "admission", &request).await;
    let AdmissionAnswer::Admitted { slot, pool, .. } = serde_json::from_str(&answer).expect("an answer")
    else {
        panic!("a slot is free: {answer}")
    };
    let claims = Claims {
        consumer: consumer.clone(),
        key: key.clone(),
        pool: pool.clone(),
        expires_at: now_ms() + TICKET_TTL_MS,
    };
    let pass = Pass { ticket: mint(&secrets, &claims), pool, slot };
    let input: StartDetachedInput = serde_json::from_value(json!({
        "recipe": { "version": build }, "command": command, "idempotencyKey": fresh_key(), "logPath": fresh_word(),
    }))
    .expect("an input");
    let call = SandboxCall::StartDetached { pass: Some(pass), input: Box::new(input), floor_rule: None };
    let subject = Subject::Sandbox { consumer: &consumer, key: &key };
    let seal = seal(&secrets, subject);
    let request = SandboxRequest { version: INTERNAL_VERSION, consumer, key, seal, call };
    let answer = invoke(stack, "SANDBOX", &format!("{CONSUMER}:{KEY}"), &request).await;
    assert!(answer.contains("\"ok\":true"), "{answer}");
}

async fn invoke(stack: &Stack, binding: &str, name: &str, request: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(request).expect("it serialises");
    match stack.object(binding, name, "invoke", json!([text])).await {
        Rpc::Returned(Value::String(text)) => text,
        other => panic!("an object answers with text: {other:?}"),
    }
}
