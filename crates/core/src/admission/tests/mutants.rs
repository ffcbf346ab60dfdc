//! Mistakes sown into the gate's statements. Each must be caught by the model or by the world, or these tests
//! prove little.

use super::sqlite::Sqlite;
use super::{model, world};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;

type Spoilt = &'static [(&'static str, &'static str)];

const MUTANTS: &[(&str, Spoilt)] = &[
    (
        "the cap is not looked at",
        &[
            (
                "SELECT count(*) AS n FROM slots WHERE pool = ?",
                "SELECT 0 * count(*) AS n FROM slots WHERE pool = ?",
            ),
            (
                "(SELECT count(*) FROM slots WHERE pool = ?) < ?",
                "(SELECT 0 * count(*) FROM slots WHERE pool = ?) < ?",
            ),
        ],
    ),
    (
        "one more than the cap",
        &[
            (
                "SELECT count(*) AS n FROM slots WHERE pool = ?",
                "SELECT max(count(*) - 1, 0) AS n FROM slots WHERE pool = ?",
            ),
            (
                "(SELECT count(*) FROM slots WHERE pool = ?) < ?",
                "(SELECT count(*) FROM slots WHERE pool = ?) <= ?",
            ),
        ],
    ),
    (
        "whoever comes by takes the slot",
        &[("pool = ? AND seq < ? LIMIT ?", "pool = ? AND seq < 0 * ? LIMIT ?")],
    ),
    (
        "an expired slot is freed unasked",
        &[("UPDATE slots SET asked_at = ? WHERE", "DELETE FROM slots WHERE ? > 0 AND")],
    ),
    (
        "an unreachable sandbox loses its slot",
        &[("UPDATE slots SET unreachable = 1 WHERE", "DELETE FROM slots WHERE")],
    ),
    (
        "a release frees nothing",
        &[("DELETE FROM slots WHERE slot = ?", "DELETE FROM slots WHERE slot = ? AND 0")],
    ),
    (
        "a release frees a neighbour too",
        &[("DELETE FROM slots WHERE slot = ?", "DELETE FROM slots WHERE slot >= ?")],
    ),
    ("a slot is asked about once only", &[("AND asked_at <= ?", "AND asked_at = 0 AND asked_at <= ?")]),
    (
        "a slot is never renewed",
        &[("SET renewed_at = ?, unreachable = 0 WHERE slot = ?", "SET unreachable = 0 * ? WHERE slot = ?")],
    ),
    (
        "a silent waiter is never dropped",
        &[("DELETE FROM waiters WHERE seen_at <= ?", "DELETE FROM waiters WHERE seen_at < 0 * ?")],
    ),
    (
        "an attempt is no sign of life",
        &[(
            "UPDATE waiters SET seen_at = ? WHERE seq = ?",
            "UPDATE waiters SET seen_at = seen_at + 0 * ? WHERE seq = ?",
        )],
    ),
    (
        "the admitted stay in the queue",
        &[(
            "DELETE FROM waiters WHERE consumer = ? AND key = ?",
            "DELETE FROM waiters WHERE consumer = ? AND key = ? AND 0",
        )],
    ),
    ("a place counts oneself", &[("seq >= ? AND seq < ?) AS n", "seq >= ? AND seq <= ?) AS n")]),
    (
        "a pool's queue counts every pool's",
        &[("WHERE pool = ? AND seq < ? LIMIT ?", "WHERE pool <> ? || 'x' AND seq < ? LIMIT ?")],
    ),
];

fn caught(spoilt: Spoilt, hits: &Cell<u32>) -> bool {
    let config =
        || Config { cases: 400, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let seeded =
        |seed| TestRunner::new_with_rng(config(), TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let open = || Sqlite::spoilt(spoilt.to_vec());
    let run_model = seeded(1).run(&model::ops(), |ops| {
        let sql = open();
        let result = model::agree(&sql, &ops);
        hits.set(hits.get() + sql.spoilt_hits());
        result
    });
    let run_world = || {
        seeded(2).run(&world::ops(), |ops| {
            let sql = open();
            let result = world::survives(&sql, &ops);
            hits.set(hits.get() + sql.spoilt_hits());
            result
        })
    };
    run_model.is_err() || run_world().is_err()
}

#[test]
fn every_mistake_sown_into_the_statements_is_caught() {
    let escaped: Vec<&str> = MUTANTS
        .iter()
        .filter(|(name, spoilt)| {
            let hits = Cell::new(0);
            let caught = caught(spoilt, &hits);
            assert!(hits.get() > 0, "{name}: the statement it spoils is no longer there");
            !caught
        })
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(escaped, [""; 0]);
}
