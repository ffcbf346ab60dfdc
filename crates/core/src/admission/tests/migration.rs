//! A database that the first version left is opened and gone on with. `tests/fixtures/README.md` says how it was
//! recorded: six slots taken in the pool `lean`, one of them of the sandbox `recorded` with its labels, and two waiters.

use super::sqlite::Sqlite;
use super::*;

const V1: &str = include_str!("../../../../../tests/fixtures/v1/admission.sql");

#[test]
fn a_database_of_the_first_version_keeps_its_slots_its_line_and_its_registry() {
    let (sql, pools) = (Sqlite::over(V1), Pools::default());
    let gate = Gate::new(&sql, &pools);
    let consumer = "local".into();
    let listed = gate.registry(&consumer, &[("run".to_owned(), "7".to_owned())]).unwrap();
    let [recorded] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(recorded.key.as_str(), "recorded");
    assert!(recorded.expires_at > recorded.created_at);
    let now = recorded.last_seen_at + 1_000;

    let touch = |key: &str, n: u64| {
        let key = key.into();
        let who = Claimant { consumer: &consumer, key: &key, pool: Pool::Lean };
        gate.touch(who, AdmissionMode::Queue, &format!("slot-{n}"), now).unwrap()
    };
    // The holder is re-entrant, those who waited keep their order, and one who comes now is behind them.
    let AdmissionAnswer::Admitted { slot, facts, .. } = touch("recorded", 1) else { panic!() };
    assert_eq!((facts.pool_busy, facts.cap), (6, 6));
    let position = |answer| match answer {
        AdmissionAnswer::Waiting { facts } => facts.position,
        other => panic!("{other:?}"),
    };
    let places = ["waiter-1", "waiter-2", "late"].map(|key| position(touch(key, 2)));
    assert_eq!(places, [Some(1), Some(2), Some(3)]);
    gate.release(&slot).unwrap();
    assert!(matches!(touch("late", 3), AdmissionAnswer::Waiting { .. }));
    assert!(matches!(touch("waiter-1", 4), AdmissionAnswer::Admitted { .. }));
    assert_eq!(position(touch("waiter-2", 5)), Some(1));
}
