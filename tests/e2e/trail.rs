//! The audit trail: one record for each operation that changed something or was refused to, the same by either face and
//! on the command line, with no command text and no secret in it, in the log too.

use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, refused};
use ringfence_wire::contract::{Done, EventsDone, SandboxEvent};
use ringfence_wire::refusal::{Outcome, RefusalKind};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    shared:
        every_operation_is_recorded_with_its_outcome_the_same_by_either_face,
        no_record_and_no_log_line_holds_a_command_a_path_or_a_secret,
        the_trail_is_read_page_by_page_and_by_its_owner_alone,
        the_trail_of_a_sandbox_that_never_was_is_empty_and_boots_nothing;
}

async fn every_operation_is_recorded_with_its_outcome_the_same_by_either_face(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (exec_key, start_key) = (fresh_key(), fresh_key());
    done(sandbox.ensure().await);
    done(sandbox.exec_as(&exec_key, "exit 3").await);
    refused(sandbox.exec_as(&exec_key, "exit 4").await, RefusalKind::IdempotencyConflict);
    let id = done(sandbox.start_as(&start_key, "sleep 600").await).process.id.to_string();
    sandbox.status(&id).await;
    assert!(sandbox.stop(&id).await.stopped);
    done(sandbox.call::<Done>("checkpoint", &[json!("a test")]).await);
    sandbox.abort().await;

    let trail = sandbox.events().await;
    let told: Vec<_> =
        trail.events.iter().map(|e| (e.operation.as_str(), e.id.as_deref(), e.ok, e.kind)).collect();
    let ok = |operation, id| (operation, id, true, None);
    let expected = [
        ok("ensureSandbox", None),
        ok("execUnderGrant", Some(exec_key.as_str())),
        ("execUnderGrant", Some(exec_key.as_str()), false, Some(RefusalKind::IdempotencyConflict)),
        ok("startDetached", Some(start_key.as_str())),
        // What the stop killed, by name.
        ok("sweep", Some(id.as_str())),
        ok("stopDetached", Some(id.as_str())),
        ok("checkpoint", None),
        ok("abort", None),
    ];
    assert_eq!(told, expected, "look-ups are not recorded");
    let own = |e: &SandboxEvent| e.consumer.as_str() == "alpha" && e.key.as_str() == sandbox.key;
    assert!(trail.events.iter().all(own), "{trail:?}");
    assert!(trail.events.windows(2).all(|two| two[0].seq + 1 == two[1].seq && two[0].at <= two[1].at));
    assert!(trail.events[0].duration_ms > 0, "a boot takes its time: {trail:?}");

    assert_eq!(get(&sandbox, "", 200).await.map(|t: EventsDone| t.events), Ok(trail.events.clone()));
    let said = world.stack.ringfence_said(&["events", "--json", &sandbox.key]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let by_command: EventsDone = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(by_command.events, trail.events);
    let table = world.stack.ringfence_said(&["events", &sandbox.key]).await;
    assert!(table.out.lines().count() == expected.len() + 1, "{}", table.out);
    assert!(table.out.contains("idempotency-conflict") && table.out.contains(&exec_key), "{}", table.out);
}

async fn no_record_and_no_log_line_holds_a_command_a_path_or_a_secret(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let mut input = exec_input(&fresh_key(), &format!("echo {word}-command"));
    input["logPath"] = json!(format!("{word}-path.log"));
    done(sandbox.exec_input(input.clone()).await);
    input["idempotencyKey"] = json!(fresh_key());
    input["command"] = json!(format!("git push {word}-floor"));
    refused(sandbox.exec_input(input).await, RefusalKind::ApprovalRequired);
    done(sandbox.start(&format!("echo {word}-started")).await);
    refused(
        sandbox.call::<Done>("readFile", &[json!(format!("/artifacts/{word}-read"))]).await,
        RefusalKind::RecipeRejected,
    );

    let trail = serde_json::to_string(&sandbox.events().await).expect("JSON");
    assert!(trail.contains("execUnderGrant"), "{trail}");
    let line = || async {
        let log = world.stack.worker_log();
        (log.contains(&format!("\"key\":\"{}\",\"operation\":\"startDetached\"", sandbox.key))).then_some(log)
    };
    let log = eventually("the operation is a line of the log", line).await;
    // One that was refused before it reached its sandbox is a line all the same.
    assert!(log.contains("\"kind\":\"approval-required\""), "{log}");
    assert!(!trail.contains("approval-required"), "{trail}");
    let mut secrets = vec![word];
    secrets.extend(world.stack.ticket_secrets().iter().cloned());
    secrets.extend(["alpha", "beta"].map(|consumer| world.stack.token(consumer).to_owned()));
    for secret in secrets {
        assert!(!trail.contains(&secret), "{secret} in {trail}");
        assert!(!log.contains(&secret), "{secret} in the log");
    }
}

async fn the_trail_is_read_page_by_page_and_by_its_owner_alone(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    for _ in 0..4 {
        done(sandbox.ensure().await);
    }
    let (mut cursor, mut seen) = (0, Vec::new());
    loop {
        let page: EventsDone = done(sandbox.call("events", &[json!(cursor), json!(2)]).await);
        assert!(page.events.len() <= 2 && page.dropped == 0, "{page:?}");
        if page.events.is_empty() {
            break;
        }
        assert_eq!(Some(page.next), page.events.last().map(|event| event.seq));
        cursor = page.next;
        seen.extend(page.events.iter().map(|event| event.seq));
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    let last: EventsDone = get(&sandbox, "?cursor=4&limit=1", 200).await.expect("a page");
    assert_eq!(last.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [5]);
    for (query, field) in [("?limit=0", "limit"), ("?limit=1001", "limit"), ("?cursor=x", "cursor")] {
        let refusal = get::<Value>(&sandbox, query, 422).await.expect_err("it is refused");
        assert_eq!(refusal.as_deref(), Some(field), "{query}");
    }
    let other = world.sandbox_of("BETA", &sandbox.key).await;
    assert_eq!(other.events().await.events, [], "another consumer's key is another sandbox");
}

async fn the_trail_of_a_sandbox_that_never_was_is_empty_and_boots_nothing(world: Arc<World>) {
    let (sandbox, since) = (world.sandbox().await, world.stack.control().now().await);
    let trail = sandbox.events().await;
    assert_eq!((trail.events, trail.next, trail.dropped, trail.wakeups), (vec![], 0, 0, 0));
    sandbox.calls_since(since).await.assert_none("docker POST *");
}

/// By the HTTP face: the outcome, or the field of its refusal.
async fn get<T: serde::de::DeserializeOwned>(
    sandbox: &Sandbox,
    query: &str,
    status: u16,
) -> Result<T, Option<String>> {
    let path = format!("/v1/sandboxes/{}/events{query}", sandbox.key);
    let answer = sandbox.stack.http("GET", &path, Some(sandbox.stack.token("alpha")), "").await;
    assert_eq!(answer.status, status, "{}", answer.text());
    match answer.json::<Outcome<T>>() {
        Outcome::Done(done) => Ok(done),
        Outcome::Refused(refusal) => Err(refusal.field),
    }
}
