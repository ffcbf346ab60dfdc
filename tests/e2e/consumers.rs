//! Who is asking: two consumers never meet, and a caller without a good name is nobody.

use crate::world::{World, tests};
use ringfence_e2e::facade::{done, fresh_word, long_sleep};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{DetachedStatus, GoneReason, ListDone};
use ringfence_wire::refusal::{Outcome, Refusal};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared:
        two_consumers_with_the_same_key_never_see_each_other,
        one_consumer_by_either_face_meets_the_same_sandbox,
        a_binding_without_a_consumer_is_refused,
        a_consumer_that_is_not_listed_is_refused,
        a_consumer_that_is_not_listed_for_a_face_is_refused_by_it,
        names_that_could_be_glued_into_one_are_told_apart_by_refusing_the_colon;
}

async fn two_consumers_with_the_same_key_never_see_each_other(world: Arc<World>) {
    let key = fresh_word();
    let (alpha, beta) = (world.sandbox_of("ALPHA", &key).await, world.sandbox_of("BETA", &key).await);
    let (sleep, mark) = long_sleep();
    let id = done(alpha.start(&format!("echo mine > /workspace/file; {sleep}")).await).process.id;
    let process = alpha.process_with(&mark).await;

    assert_eq!(beta.list().await.processes, []);
    assert!(matches!(
        beta.status(id.as_str()).await,
        DetachedStatus::Gone { reason: GoneReason::NeverStarted, is_final: true, .. }
    ));
    beta.stop(id.as_str()).await;
    assert!(process.is_alive(), "another's stop does not reach it");
    let looked = done(beta.exec("ls /workspace; ps -e 2>/dev/null | wc -l; ls -d /proc/[0-9]*").await);
    assert!(!looked.receipt.tail.contains("file"), "{}", looked.receipt.tail);
    assert_ne!(alpha.container().await.map(|c| c.id), beta.container().await.map(|c| c.id));
    beta.abort().await;
    assert!(process.is_alive(), "another's abort does not reach it");
    assert_eq!(alpha.status(id.as_str()).await, DetachedStatus::Running);
}

async fn one_consumer_by_either_face_meets_the_same_sandbox(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, _) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let path = format!("/v1/sandboxes/{}/detached", sandbox.key);
    let answer = world.stack.http("GET", &path, Some(world.stack.token("alpha")), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let list = done(answer.json::<Outcome<ListDone>>());
    assert_eq!(list.processes.iter().map(|p| &p.id).collect::<Vec<_>>(), [&id]);
    assert_eq!(list, sandbox.list().await);

    let others = world.stack.http("GET", &path, Some(world.stack.token("beta")), "").await;
    assert_eq!(
        done(others.json::<Outcome<ListDone>>()).processes,
        [],
        "another's token is another's sandbox"
    );
}

async fn a_binding_without_a_consumer_is_refused(world: Arc<World>) {
    let refusal = assert_refused_everywhere(&world, "NAMELESS").await;
    assert!(refusal.message.contains("props.consumer"), "the remedy is named: {}", refusal.message);
}

async fn a_consumer_that_is_not_listed_is_refused(world: Arc<World>) {
    let refusal = assert_refused_everywhere(&world, "UNLISTED").await;
    assert!(refusal.message.contains("CONSUMERS"), "the remedy is named: {}", refusal.message);
}

async fn a_consumer_that_is_not_listed_for_a_face_is_refused_by_it(world: Arc<World>) {
    let refusal = assert_refused_everywhere(&world, "HTTP_ONLY").await;
    assert!(refusal.message.contains("CONSUMERS"), "the remedy is named: {}", refusal.message);
    let answer =
        world.stack.http("GET", "/v1/sandboxes/k/detached", Some(world.stack.token("http-only")), "").await;
    assert_eq!(answer.status, 200, "the other face serves it: {}", answer.text());
}

async fn names_that_could_be_glued_into_one_are_told_apart_by_refusing_the_colon(world: Arc<World>) {
    let tail = fresh_word();
    // `a` with the key `b:TAIL` is a good pair.
    let sandbox = world.sandbox_of("A", &format!("b:{tail}")).await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id;
    let process = sandbox.process_with(&mark).await;

    // `a:b` with the key `TAIL` would be the same object: it is refused as a consumer's name.
    let glued = world.stack.rpc("GLUED", "detachedStatus", json!([tail, id])).await.outcome::<Value>();
    let Outcome::Refused(refusal) = glued else { panic!("{glued:?}") };
    assert!(refusal.message.contains("consumer"), "{}", refusal.message);
    assert_refused_everywhere(&world, "GLUED").await;
    assert!(process.is_alive());
}

/// Every call of the contract by this binding is a refusal, the same one, and does nothing.
async fn assert_refused_everywhere(world: &World, binding: &str) -> Refusal {
    let (key, word, since) = (fresh_word(), fresh_word(), world.stack.control().now().await);
    let id = "00000000-0000-4000-8000-000000000000";
    let start = ringfence_e2e::facade::start_input("k", &say(&word));
    let exec = ringfence_e2e::facade::exec_input("k", &say(&word));
    let calls = [
        ("ensureSandbox", json!([key, { "version": "1" }, { "mode": "refuse" }])),
        ("execUnderGrant", json!([key, exec])),
        ("startDetached", json!([key, start])),
        ("detachedStatus", json!([key, id])),
        ("detachedList", json!([key])),
        ("detachedOutput", json!([key, id])),
    ];
    let mut refusals = Vec::new();
    for (method, args) in calls {
        match world.stack.rpc(binding, method, args).await.outcome::<Value>() {
            Outcome::Refused(refusal) => refusals.push(refusal),
            Outcome::Done(done) => panic!("{binding}.{method} was served: {done}"),
        }
    }
    let first = refusals.first().cloned().expect("six calls were made");
    assert!(refusals.iter().all(|r| r.kind == first.kind && r.message == first.message), "{refusals:?}");
    let log = world.stack.control().calls_since(since).await;
    assert_eq!(log.matching(&format!("docker * *{key}*")).len(), 0, "{log}");
    assert_eq!(world.stack.witness().count(&word), 0);
    first
}
