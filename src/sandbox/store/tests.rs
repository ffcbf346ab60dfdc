//! The production store over SQLite: what an exec's key goes through in a world that loses, doubles and delays every
//! message and cuts every step short, with mistakes sown into the statements to see them caught; databases that earlier
//! versions left; and bounds.

mod bounds;
mod migration;
mod mutants;
mod world;

use ringfence_wire::contract::{ExecDone, ExecInput};
use ringfence_wire::ids::Nonce;
use serde_json::json;

use super::exec::Fresh;

fn input(key: &str, command: &str) -> ExecInput {
    let input = json!({
        "recipe": { "version": "1" }, "command": command, "idempotencyKey": key, "logPath": "exec.log",
    });
    serde_json::from_value(input).unwrap()
}

fn fresh(n: u64, now: u64) -> Fresh {
    Fresh { job: format!("job-{n}").as_str().into(), nonce: Nonce(format!("nonce-{n}")), now }
}

/// A receipt that says which job it is of.
fn done(job: &str) -> ExecDone {
    let done = json!({
        "receipt": {
            "end": "exited", "exitCode": 0, "durationMs": 1, "deduped": false, "tail": job, "truncated": false,
            "identity": "sandboxed_workspace",
        },
        "ensured": { "generation": 1, "rebuilt": false, "expiresAt": 1 },
        "granted": [], "killed": 0, "teardown": { "mode": "selective" },
    });
    serde_json::from_value(done).unwrap()
}
