//! Many requests at a time: nothing in the object waits behind them. The test build gives each object six outgoing
//! calls at a time, as the platform does.

use super::{Fence, client, reading};
use crate::world::{World, tests};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{done, fresh_word, long_sleep, now_ms};
use ringfence_wire::contract::DetachedStatus;
use ringfence_wire::supervisor::TeardownMode;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests! {
    with origins:
        a_hundred_slow_requests_keep_neither_status_nor_teardown_waiting,
        requests_whose_clients_have_gone_are_over_and_make_room,
        one_request_over_the_bound_is_refused_and_recorded;
}

const CROWD: usize = 100;
/// What a request of the crowd waits for: whatever waited behind one would take as long.
const SLOW_MS: u64 = 60_000;
/// A status asks the supervisor, through the same object. Some 50 ms on an idle machine.
const STATUS_WITHIN: Duration = Duration::from_secs(3);
/// The command's end to the call's answer: the teardown, and every request's cut and its acknowledgement.
const ENDED_WITHIN: Duration = Duration::from_secs(6);
/// Two crowds at once would measure the machine.
static ONE_CROWD: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn a_hundred_slow_requests_keep_neither_status_nor_teardown_waiting(world: Arc<World>) {
    let _alone = ONE_CROWD.lock().await;
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    let (nap, _) = long_sleep();
    let id = done(sandbox.start(&nap).await).process.id;
    let slow = client(&world, &format!("crowd {CROWD} pages.test /{word}/slow-{SLOW_MS}"));
    done(sandbox.start(&slow).await);
    let fence = Fence::open(&world, &sandbox, reading(&["pages.test"], ""));
    let all = || std::future::ready((origins.seen(&word).len() == CROWD).then_some(()));
    eventually("all of them are under way", all).await;

    let since = world.stack.control().now().await;
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(sandbox.status(id.as_str()).await, DetachedStatus::Running);
        let took = begun.elapsed();
        let log = sandbox.calls_since(since).await;
        assert!(took < STATUS_WITHIN, "a status took {took:?}:\n{log}");
    }
    let (begun, opened) = (Instant::now(), now_ms());
    let exec = fence.close().await;
    let took = begun.elapsed();
    let log = sandbox.calls_since(since).await;
    let at = log.matching("ingress POST /v1/teardown")[0].at_ms - opened;
    eprintln!("the fence closed in {took:?}, its teardown was asked for after {at} ms");
    assert!(took < ENDED_WITHIN, "the fence took {took:?} to close; the teardown began after {at} ms");
    assert_eq!(exec.teardown.mode, TeardownMode::Selective, "every cut was acknowledged");
    let cut = || std::future::ready(origins.seen(&word).iter().all(|s| s.ended.is_some()).then_some(()));
    eventually("each origin sees its end", cut).await;
}

async fn requests_whose_clients_have_gone_are_over_and_make_room(world: Arc<World>) {
    const GONE: usize = 300;
    const BATCH: usize = 50;
    let _alone = ONE_CROWD.lock().await;
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    // Before their answer, and after its head: an origin that says nothing more writes to nobody.
    let kinds = [
        (format!("{word}-before"), format!("{word}-before/slow-{SLOW_MS}")),
        (format!("{word}-within"), format!("{word}-within/quiet-chunked")),
    ];
    let asks = |(name, path): &(String, String)| {
        format!("({}); ", client(&world, &format!("leave {name} {GONE} {BATCH} pages.test /{path}")))
    };
    let gate = world.stack.witness().gate();
    let last =
        format!("curl -s -o /dev/null -w '%{{http_code}}' https://pages.test/{word}-last; {}", gate.wait());
    // One that goes while its answer streams.
    let amid = format!("{word}-amid/long-{}", 1u64 << 30);
    let leaves = format!("curl -s -m 0.5 -o /dev/null https://pages.test/{amid}; ");
    let command = asks(&kinds[0]) + &asks(&kinds[1]) + &leaves + &last;
    let exec = tokio::spawn({
        let sandbox = sandbox.clone();
        async move { sandbox.exec_input(reading(&["pages.test"], &command)).await }
    });
    for (name, path) in &kinds {
        for at in 0..GONE / BATCH {
            let arrived = || origins.seen(path).len() == (at + 1) * BATCH;
            until(&format!("batch {at} of {name} has arrived"), arrived).await;
            world.stack.witness().show(&format!("{name}-{at}"), "");
        }
    }
    origins.met(&format!("{word}-last")).await;
    for path in kinds.iter().map(|(_, path)| path).chain([&amid]) {
        let ended = || origins.seen(path).iter().all(|seen| seen.ended.is_some());
        until(&format!("every {path} has ended at its origin, the fence still open"), ended).await;
    }
    gate.open();
    assert_eq!(done(exec.await.expect("the call was not cancelled")).receipt.tail, "200");
    assert_eq!(sandbox.denials().await, [], "none was cut, none was one too many");
}

async fn one_request_over_the_bound_is_refused_and_recorded(world: Arc<World>) {
    const BOUND: usize = 256;
    let _alone = ONE_CROWD.lock().await;
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    let slow = client(&world, &format!("crowd {BOUND} pages.test /{word}/slow-{SLOW_MS}"));
    done(sandbox.start(&slow).await);
    let ask = format!("curl -s -o /dev/null -w '%{{http_code}}' https://pages.test/{word}-more");
    let gate = world.stack.witness().gate();
    let exec = tokio::spawn({
        let (sandbox, command) = (sandbox.clone(), format!("{}; {ask}", gate.wait()));
        async move { sandbox.exec_input(reading(&["pages.test"], &command)).await }
    });
    let all = || std::future::ready((origins.seen(&word).len() == BOUND).then_some(()));
    eventually("as many as may be are under way", all).await;
    gate.open();
    let exec = done(exec.await.expect("the call was not cancelled"));
    assert_eq!(exec.receipt.tail, "403");
    let denials = sandbox.denials().await;
    assert!(denials.iter().any(|d| d.reason == "too-many-passages" && d.count == 1), "{denials:?}");
    assert_eq!(origins.seen(&word).len(), BOUND);
}
