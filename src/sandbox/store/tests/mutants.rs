//! Mistakes sown into the ledger's statements. Each must be caught by the world, or its test proves little.

use std::cell::RefCell;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::world;
use crate::sql::sqlite::{Spoilt, Sql};

const MUTANTS: &[(&str, Spoilt)] = &[
    (
        "what is sent still counts as reserved",
        &[("SET state = 'running', start_order", "SET state = 'reserved', start_order")],
    ),
    (
        "a receipt is not recorded",
        &[(
            "outcome = ?, detail = NULL, ended_at = ? WHERE job = ?",
            "outcome = ?, detail = NULL, ended_at = ? WHERE job = ? AND 0",
        )],
    ),
    (
        "an unknown frees its key",
        &[(
            "UPDATE ledger SET state = 'unknown', detail = ?, ended_at = ?\n             WHERE job = ?",
            "DELETE FROM ledger WHERE ? <> '' AND ? > 0 AND job = ?",
        )],
    ),
    (
        "an abort frees the keys of what ran",
        &[(
            "UPDATE ledger SET state = 'unknown', detail = ?, ended_at = ? WHERE state = 'running'",
            "DELETE FROM ledger WHERE ? <> '' AND ? > 0 AND state = 'running'",
        )],
    ),
    (
        "an attestation is not kept",
        &[(
            "spent_at)\n             VALUES (?, ?, ?, ?, ?, ?, ?)",
            "spent_at)\n             SELECT ?, ?, ?, ?, ?, ?, ? WHERE 0",
        )],
    ),
    (
        "a release gives everybody's attestations back",
        &[("DELETE FROM attestations WHERE spender IN", "DELETE FROM attestations WHERE 1 OR spender IN")],
    ),
    (
        "a release keeps its attestation",
        &[("DELETE FROM attestations WHERE spender IN", "DELETE FROM attestations WHERE 0 AND spender IN")],
    ),
    (
        "a release keeps its key",
        &[(
            "DELETE FROM ledger WHERE job = ? AND detail IS NULL",
            "DELETE FROM ledger WHERE job = ? AND detail IS NULL AND 0",
        )],
    ),
    (
        "a second try that did not run frees the key of the first",
        &[(
            "UPDATE ledger SET state = 'unknown' WHERE job = ? AND detail IS NOT NULL",
            "DELETE FROM ledger WHERE job = ? AND detail IS NOT NULL",
        )],
    ),
    (
        "a second try gives up what its key had spent",
        &[(
            "(SELECT 'exec:' || idempotency_key FROM ledger WHERE job = ? AND detail IS NULL)",
            "(SELECT 'exec:' || idempotency_key FROM ledger WHERE job = ?)",
        )],
    ),
    (
        "what was sent is not found after a restart",
        &[("WHERE state IN ('reserved', 'running')", "WHERE state IN ('reserved')")],
    ),
    (
        "a dropped key is not remembered",
        &[(
            "SELECT 'exec', idempotency_key, job FROM ledger WHERE",
            "SELECT 'exec', idempotency_key, job FROM ledger WHERE 0 AND",
        )],
    ),
];

fn caught(spoilt: Spoilt, hits: &RefCell<u32>) -> bool {
    let config = Config { cases: 1_500, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[4; 32]));
    let result = runner.run(&world::ops(), |ops| {
        let sql = Sql::new();
        sql.spoil(spoilt);
        let result = world::survives(&sql, &ops);
        *hits.borrow_mut() += sql.spoilt_hits().iter().sum::<u32>();
        result
    });
    result.is_err()
}

#[test]
fn every_mistake_sown_into_the_ledger_is_caught() {
    let escaped: Vec<&str> = MUTANTS
        .iter()
        .filter(|(name, spoilt)| {
            let hits = RefCell::new(0);
            let caught = caught(spoilt, &hits);
            assert!(*hits.borrow() > 0, "{name}: the statement it spoils is no longer there");
            !caught
        })
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(escaped, [""; 0]);
}
