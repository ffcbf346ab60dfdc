//! Every table has a bound, and what was dropped is answered for honestly.

use std::time::Instant;

use ringfence_wire::contract::{DenialEvent, EventsQuery, SandboxEvent};
use ringfence_wire::refusal::RefusalKind;

use super::super::Store;
use super::super::exec::Found;
use super::super::ledger::Kept;
use super::super::tables::{MAX_DENIALS, MAX_EVENTS, OVERFLOW};
use super::{done, fresh, input};
use crate::sql::sqlite::Sql;

fn store() -> Store {
    let store = Store::over(Sql::new()).unwrap();
    store.head_of(&"ci".into(), &"k".into()).unwrap();
    store
}

/// One exec under this key, to its receipt.
fn exec(store: &Store, n: u64) {
    let call = input(&format!("key-{n}"), "true");
    let Ok(Found::Free { unknown: None }) = store.look_up(&call) else { panic!("key-{n} was never used") };
    let entry = store.take_key(&call, None, None, fresh(n, n)).unwrap();
    let order = store.open_fence().unwrap();
    store.mark_running(&entry.job, order, 1, &"boot".into()).unwrap();
    store.record_receipt(&entry.job, &done(entry.job.as_str()), n).unwrap();
    store.set_acknowledged(&[entry.job]).unwrap();
    store.close_fence().unwrap();
}

#[test]
fn a_key_older_than_the_ledgers_bound_is_effect_unknown_and_is_not_run_again() {
    let store = store();
    let kept = Kept::default().receipts;
    store.sql.transaction(|| (0..=kept).for_each(|n| exec(&store, n)));

    let Ok(Found::Answer(answer)) = store.look_up(&input("key-0", "true")) else { panic!("it was used") };
    let refusal = answer.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::EffectUnknown);
    assert!(refusal.message.contains("long ago"), "{}", refusal.message);
    // Not even on its caller's word: nobody knows what it was.
    let mut rerun = input("key-0", "true");
    rerun.on_unknown = Some(ringfence_wire::contract::OnUnknown::Rerun);
    assert!(matches!(store.look_up(&rerun), Ok(Found::Answer(_))));
    // The oldest that is kept is replayed.
    let Ok(Found::Answer(answer)) = store.look_up(&input("key-1", "true")) else { panic!("it was used") };
    assert_eq!(answer.unwrap().receipt.tail, "job-1");
}

#[test]
fn an_exec_looks_at_no_more_rows_when_the_ledger_is_long_or_full() {
    let steps = |keys: u64, kept: u64| {
        let kept = Kept { receipts: kept, ..Kept::default() };
        let store = Store { kept, ..store() };
        store.sql.transaction(|| (0..keys).for_each(|n| exec(&store, n)));
        store.sql.count_steps(|| exec(&store, keys))
    };
    let (few, many, full) = (steps(50, 10_000), steps(2_000, 10_000), steps(2_000, 1_000));
    // SQLite's own count. One row is dropped for each that comes once it is full.
    assert!(many < few + 50, "{few} steps after 50 execs, {many} after 2,000");
    assert!(full < few + 200, "{few} steps after 50 execs, {full} when one is dropped");
}

/// Printed by `scripts/bench`: what the ledger costs an exec, and that it does not grow with the keys.
#[test]
#[ignore = "a bench"]
#[allow(clippy::disallowed_methods, reason = "natively there is a clock")]
fn bench_the_ledger_with_10_000_keys() {
    for keys in [100, 10_000] {
        let store = store();
        store.sql.transaction(|| (0..keys).for_each(|n| exec(&store, n)));
        let time = |what: &str, run: &dyn Fn(u64)| {
            let mut took: Vec<_> = (0..2_000)
                .map(|n| {
                    let began = Instant::now();
                    run(n);
                    began.elapsed()
                })
                .collect();
            took.sort();
            println!(
                "ledger, {keys:>6} keys: {what}: p50 {:>7.1} us, p99 {:>7.1} us",
                took[1_000].as_secs_f64() * 1e6,
                took[1_980].as_secs_f64() * 1e6
            );
        };
        time("look-up of a key that is there ", &|n| {
            drop(store.look_up(&input(&format!("key-{}", n * 31 % keys), "true")))
        });
        time("look-up of a key that is new   ", &|n| {
            drop(store.look_up(&input(&format!("new-{n}"), "true")))
        });
        time("a whole exec's statements      ", &|n| exec(&store, keys + n));
    }
}

fn event(n: u64) -> SandboxEvent {
    SandboxEvent {
        seq: 0,
        at: n,
        consumer: "ci".into(),
        key: "k".into(),
        operation: format!("operation-{n}"),
        id: None,
        ok: true,
        kind: None,
        reason: None,
        duration_ms: 0,
        generation: 1,
        labels: None,
        swept: None,
    }
}

#[test]
fn the_newest_events_are_kept_and_read_page_by_page_and_the_dropped_are_counted() {
    let store = store();
    for n in 1..=MAX_EVENTS + 5 {
        assert_eq!(store.log_event(&event(n)).unwrap(), n);
    }
    let (mut query, mut read, mut dropped) = (EventsQuery { cursor: None, limit: Some(300) }, Vec::new(), 0);
    loop {
        let page = store.events(query).unwrap();
        dropped += page.dropped;
        if page.events.is_empty() {
            break;
        }
        assert!(page.events.len() <= 300);
        read.extend(page.events);
        query.cursor = Some(page.next);
    }
    assert_eq!((read.len() as u64, dropped), (MAX_EVENTS, 5));
    assert!(
        read.iter().zip(6..).all(|(event, n)| event.seq == n && event.operation == format!("operation-{n}"))
    );
    // One at its end that reads on later misses nothing.
    store.log_event(&event(2_000)).unwrap();
    let page = store.events(query).unwrap();
    assert_eq!((page.events.len(), page.dropped), (1, 0));
}

#[test]
fn kinds_of_denials_over_the_bound_are_counted_together() {
    let store = store();
    let denial = |n: u64| DenialEvent {
        host: format!("h{n}"),
        method: "GET".to_owned(),
        path: "/".to_owned(),
        reason: "floor".to_owned(),
        count: 1,
    };
    for n in 0..MAX_DENIALS + 3 {
        store.count_denial(&denial(n)).unwrap();
    }
    store.count_denial(&denial(0)).unwrap();
    let denials = store.denials().unwrap();
    assert_eq!(denials.len() as u64, MAX_DENIALS + 1);
    let counted = |host: &str| denials.iter().find(|d| d.host == host).map(|d| d.count);
    assert_eq!((counted(OVERFLOW), counted("h0"), counted("h1")), (Some(3), Some(2), Some(1)));
}
