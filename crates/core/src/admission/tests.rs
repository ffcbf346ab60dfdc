//! The production gate over real SQLite: against a naive model, through a world that loses, doubles and delays
//! every message and cuts every call short, and with mistakes sown into its statements to see them caught.

mod migration;
mod model;
mod mutants;
mod sqlite;
mod world;

use super::*;
use ringfence_wire::contract::AdmissionMode;
use ringfence_wire::internal::AdmissionAnswer;
use sqlite::Sqlite;
use std::collections::BTreeMap;

fn touch(sql: &Sqlite, pools: &Pools, key: &str, mode: AdmissionMode, now: u64) -> AdmissionAnswer {
    let (consumer, key) = ("ci".into(), key.into());
    let who = Claimant { consumer: &consumer, key: &key, pool: Pool::Lean };
    Gate::new(sql, pools).touch(who, mode, &format!("slot-of-{key}"), now).unwrap()
}

fn one_slot() -> Pools {
    Pools::parse(Some(r#"{"lean":1}"#)).unwrap()
}

#[test]
fn a_refusal_and_a_wait_carry_true_facts() {
    let (sql, pools) = (Sqlite::new(), one_slot());
    assert!(matches!(
        touch(&sql, &pools, "a", AdmissionMode::Refuse, 1_000),
        AdmissionAnswer::Admitted { .. }
    ));
    let AdmissionAnswer::Refused { facts } = touch(&sql, &pools, "b", AdmissionMode::Refuse, 1_000) else {
        panic!()
    };
    assert_eq!((facts.pool.as_str(), facts.pool_busy, facts.cap, facts.position), ("lean", 1, 1, None));
    assert!(facts.retry_after_ms > 0);
    touch(&sql, &pools, "b", AdmissionMode::Queue, 2_000);
    touch(&sql, &pools, "c", AdmissionMode::Queue, 3_000);
    let AdmissionAnswer::Waiting { facts } = touch(&sql, &pools, "c", AdmissionMode::Queue, 5_500) else {
        panic!()
    };
    assert_eq!((facts.position, facts.queued_for_ms), (Some(2), 2_500));
}

#[test]
fn a_freed_slot_goes_to_the_first_in_line_and_not_to_who_comes_by() {
    let (sql, pools) = (Sqlite::new(), one_slot());
    touch(&sql, &pools, "a", AdmissionMode::Refuse, 0);
    touch(&sql, &pools, "b", AdmissionMode::Queue, 0);
    Gate::new(&sql, &pools).release("slot-of-a").unwrap();
    assert!(matches!(touch(&sql, &pools, "c", AdmissionMode::Refuse, 1), AdmissionAnswer::Refused { .. }));
    assert!(matches!(touch(&sql, &pools, "c", AdmissionMode::Queue, 1), AdmissionAnswer::Waiting { .. }));
    assert!(matches!(touch(&sql, &pools, "b", AdmissionMode::Queue, 1), AdmissionAnswer::Admitted { .. }));
}

#[test]
fn a_waiter_keeps_its_place_for_exactly_its_time_to_live() {
    for (silence, admitted) in [(WAITER_TTL_MS - 1, false), (WAITER_TTL_MS, true)] {
        let (sql, pools) = (Sqlite::new(), one_slot());
        touch(&sql, &pools, "a", AdmissionMode::Refuse, 1_000);
        touch(&sql, &pools, "b", AdmissionMode::Queue, 1_000);
        Gate::new(&sql, &pools).release("slot-of-a").unwrap();
        let answer = touch(&sql, &pools, "c", AdmissionMode::Refuse, 1_000 + silence);
        assert_eq!(matches!(answer, AdmissionAnswer::Admitted { .. }), admitted, "{silence}");
    }
}

#[test]
fn a_holder_is_admitted_again_to_the_same_slot_even_when_its_recipe_would_take_another_pool() {
    let (sql, pools) = (Sqlite::new(), one_slot());
    touch(&sql, &pools, "a", AdmissionMode::Refuse, 0);
    let (consumer, key) = ("ci".into(), "a".into());
    let who = Claimant { consumer: &consumer, key: &key, pool: Pool::Browser };
    let answer = Gate::new(&sql, &pools).touch(who, AdmissionMode::Refuse, "new", 1).unwrap();
    let AdmissionAnswer::Admitted { slot, pool, facts } = answer else { panic!() };
    assert_eq!((slot.as_str(), pool.as_str(), facts.pool_busy), ("slot-of-a", "lean", 1));
}

#[test]
fn an_expired_slot_is_asked_about_and_kept_while_nobody_answers() {
    let (sql, pools) = (Sqlite::new(), one_slot());
    let gate = Gate::new(&sql, &pools);
    touch(&sql, &pools, "a", AdmissionMode::Refuse, 1_000);
    assert_eq!(gate.next_wake().unwrap(), Some(1_000 + SLOT_LEASE_MS));
    let expired = 1_000 + SLOT_LEASE_MS;
    assert_eq!(gate.overdue(expired - 1).unwrap(), []);
    let asked = gate.overdue(expired).unwrap();
    assert_eq!(asked.iter().map(|a| a.slot.as_str()).collect::<Vec<_>>(), ["slot-of-a"]);
    assert_eq!(gate.overdue(expired + 1).unwrap(), [], "asked once in a while, not always");
    gate.heard("slot-of-a", Heard::Unreachable, expired + 2).unwrap();
    let lean = &gate.pool_use(expired + 2).unwrap()[0];
    assert_eq!((lean.busy, lean.unreachable), (1, 1));
    assert!(matches!(
        touch(&sql, &pools, "b", AdmissionMode::Refuse, expired + 3),
        AdmissionAnswer::Refused { .. }
    ));
    assert_eq!(gate.next_wake().unwrap(), Some(expired + ASK_EVERY_MS));
    assert_eq!(gate.overdue(expired + ASK_EVERY_MS).unwrap().len(), 1);
    gate.heard("slot-of-a", Heard::Gone, expired + ASK_EVERY_MS).unwrap();
    assert!(matches!(
        touch(&sql, &pools, "b", AdmissionMode::Refuse, expired + ASK_EVERY_MS),
        AdmissionAnswer::Admitted { .. }
    ));
}

#[test]
fn withdrawing_leaves_the_queue_and_only_asks_about_a_slot() {
    let (sql, pools) = (Sqlite::new(), one_slot());
    let gate = Gate::new(&sql, &pools);
    touch(&sql, &pools, "a", AdmissionMode::Refuse, 0);
    touch(&sql, &pools, "b", AdmissionMode::Queue, 0);
    assert_eq!(gate.withdraw(&"ci".into(), &"b".into(), 1).unwrap(), None);
    assert_eq!(gate.pool_use(1).unwrap()[0].waiting, 0);
    let asked = gate.withdraw(&"ci".into(), &"a".into(), 1).unwrap().expect("the slot to ask about");
    assert_eq!(asked.slot, "slot-of-a");
    assert_eq!(gate.pool_use(1).unwrap()[0].busy, 1);
}

#[test]
fn the_registry_shows_a_consumer_its_own_sandboxes_by_label() {
    let (sql, pools) = (Sqlite::new(), Pools::default());
    let gate = Gate::new(&sql, &pools);
    for (n, key) in ["a", "b"].into_iter().enumerate() {
        touch(&sql, &pools, key, AdmissionMode::Refuse, n as u64);
    }
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let labels = BTreeMap::from([label("run", "7"), label("team", "x")]);
    let who = ("ci".into(), "a".into());
    assert!(gate.renew("slot-of-a", (&who.0, &who.1), &labels, 99, 50).unwrap());
    assert!(!gate.renew("slot-of-b", (&who.0, &who.1), &labels, 99, 50).unwrap(), "not its slot");
    let rows = gate.registry(&"ci".into(), &[label("run", "7"), label("team", "x")]).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].key.as_str(), rows[0].created_at, rows[0].expires_at, rows[0].last_seen_at),
        ("a", 0, 99, 50)
    );
    assert_eq!(gate.registry(&"ci".into(), &[label("run", "7"), label("team", "y")]).unwrap(), []);
    assert_eq!(gate.registry(&"ci".into(), &[]).unwrap().len(), 2);
    assert_eq!(gate.registry(&"other".into(), &[]).unwrap(), []);
}

#[test]
fn a_full_queue_refuses_one_more() {
    let (sql, pools) = (Sqlite::new(), one_slot());
    sql.transaction(|| {
        touch(&sql, &pools, "holder", AdmissionMode::Refuse, 0);
        for n in 0..MAX_WAITERS {
            let answer = touch(&sql, &pools, &format!("w{n}"), AdmissionMode::Queue, 0);
            assert!(matches!(answer, AdmissionAnswer::Waiting { .. }));
        }
        assert!(matches!(
            touch(&sql, &pools, "late", AdmissionMode::Queue, 0),
            AdmissionAnswer::Refused { .. }
        ));
        // The last place is told right, far behind.
        let last = touch(&sql, &pools, &format!("w{}", MAX_WAITERS - 1), AdmissionMode::Queue, 0);
        let AdmissionAnswer::Waiting { facts } = last else { panic!() };
        assert_eq!(u64::from(facts.position.unwrap()), MAX_WAITERS);
    });
}

#[test]
fn an_attempt_looks_at_no_more_rows_when_more_are_waiting() {
    let steps = |waiters: u64| {
        let (sql, pools) = (Sqlite::new(), one_slot());
        sql.transaction(|| {
            touch(&sql, &pools, "holder", AdmissionMode::Refuse, 0);
            for n in 0..waiters {
                touch(&sql, &pools, &format!("w{n}"), AdmissionMode::Queue, 0);
            }
            sql.count_steps(|| touch(&sql, &pools, &format!("w{}", waiters - 1), AdmissionMode::Queue, 0))
        })
    };
    // SQLite's own count of virtual machine steps. A run of 64 is counted in full, so compare full runs; what
    // grows is one row for each further 64 waiters.
    let (few, many) = (steps(64 - 1), steps(4096 - 1));
    assert!(many < few + 63 * 20, "{few} steps with 63 waiting, {many} with 4,095");
}

#[test]
fn the_schema_is_made_once_kept_and_a_newer_one_is_refused() {
    let sql = Sqlite::new();
    let pools = one_slot();
    touch(&sql, &pools, "a", AdmissionMode::Refuse, 0);
    migrate(&sql).unwrap();
    assert!(matches!(touch(&sql, &pools, "b", AdmissionMode::Refuse, 0), AdmissionAnswer::Refused { .. }));
    sql.run("UPDATE schema SET version = 2", &[]).unwrap();
    assert!(matches!(migrate(&sql), Err(SchemaFault::Newer { found: 2 })));
}
