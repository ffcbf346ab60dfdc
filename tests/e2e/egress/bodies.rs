//! A request's body on its way out: whole or cut at its origin, never shorter and whole, and never over its bound.

use super::{reading, refused_for};
use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, fresh_word};
use ringfence_e2e::origin::Ended;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

tests! {
    with origins:
        a_body_that_breaks_off_or_lies_about_its_length_never_looks_whole_to_its_origin;
}

const CLIENT: &str = include_str!("bodies.py");
/// What a rule lets a fetch send.
const MAX_FETCH_BYTES: u64 = 16 * 1024 * 1024;

async fn a_body_that_breaks_off_or_lies_about_its_length_never_looks_whole_to_its_origin(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    world.stack.witness().show("bodies.py", CLIENT);
    let command = format!("exec python3 /witness/bodies.py {word} {}", MAX_FETCH_BYTES + 1);
    let mut input = reading(&["pages.test"], &command);
    input["recipe"]["profiles"] = json!(["browser-fetch", "public-repo-read"]);
    let receipt = done(sandbox.exec_input(input).await).receipt;
    let told: BTreeMap<&str, &str> = receipt.tail.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(told.len(), 10, "{receipt:?}");

    // Name, the bytes of a whole body.
    for (name, whole) in [
        ("chunked", Some(5)),
        ("declared", Some(5)),
        ("chunked-broken", None),
        ("chunked-broken-within", None),
        ("declared-broken", None),
        // Valid, and more than the runtime's own parser takes: whole or nothing.
        ("chunk-extension", Some(5)),
        ("chunk-size-bad", None),
        ("both-more", None),
        ("both-less", None),
        ("chunked-over", None),
    ] {
        let target = format!("/o/{word}-{name}/");
        let settled = || {
            let seen = origins.seen(&target);
            std::future::ready(seen.iter().all(|seen| seen.ended.is_some()).then_some(seen))
        };
        let seen = eventually(&format!("{name} has ended at its origin"), settled).await;
        let answered = seen.iter().find(|seen| matches!(seen.ended, Some((_, Ended::Answered))));
        match (answered, whole) {
            (Some(seen), Some(bytes)) => assert_eq!(seen.received, bytes, "{name}"),
            (Some(seen), None) => panic!("{name}: {seen:?} looked whole; its client was told {}", told[name]),
            (None, _) => assert_ne!(told[name], "200", "{name}: {seen:?}"),
        }
        if matches!(name, "chunked" | "declared") {
            assert_eq!(told[name], "200", "{name}");
        }
        assert!(seen.iter().all(|seen| seen.received <= MAX_FETCH_BYTES), "{name}: {seen:?}");
    }
    assert_eq!(told["chunked-over"], "403");
    assert_eq!(refused_for(&sandbox, "github.com", "body-too-large").await, 1);
}
