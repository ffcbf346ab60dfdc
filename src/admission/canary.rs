//! Where the canary's standing is kept: one row, of the build that was last asked about.
//!
//! `ringfence_core::canary::Standing` decides; a call's statements run with no `await` between them.

use ringfence_core::canary::{Asker, Standing};
use ringfence_wire::contract::{CanaryDone, CanaryReport};
use ringfence_wire::internal::{CanaryAnswer, CanaryTurn};
use serde::Deserialize;

use crate::sql::{Sql, StoreError};

pub fn begin(sql: &Sql, build: &str, by_itself: bool, now: u64) -> Result<CanaryAnswer, StoreError> {
    let mut standing = read(sql)?.of(build);
    let turn = standing.begin(if by_itself { Asker::Itself } else { Asker::Somebody }, now);
    if turn == CanaryTurn::Look {
        write(sql, &standing)?;
    }
    Ok(answer(turn, standing))
}

pub fn end(sql: &Sql, report: CanaryReport) -> Result<CanaryAnswer, StoreError> {
    let mut standing = read(sql)?;
    standing.end(report);
    write(sql, &standing)?;
    Ok(answer(CanaryTurn::Rest, standing))
}

pub fn standing(sql: &Sql, build: &str) -> Result<CanaryAnswer, StoreError> {
    Ok(answer(CanaryTurn::Rest, read(sql)?.of(build)))
}

fn answer(turn: CanaryTurn, standing: Standing) -> CanaryAnswer {
    CanaryAnswer { turn, known: CanaryDone { verified: standing.verified, canary: standing.last } }
}

/// One that this version cannot read is no standing.
fn read(sql: &Sql) -> Result<Standing, StoreError> {
    #[derive(Deserialize)]
    struct Row {
        standing: String,
    }
    sql.run(
        "CREATE TABLE IF NOT EXISTS canary (one INTEGER PRIMARY KEY CHECK (one = 1), standing TEXT NOT NULL)",
        [],
    )?;
    let row: Option<Row> = sql.row("SELECT standing FROM canary WHERE one = 1", [])?;
    Ok(row.and_then(|row| serde_json::from_str(&row.standing).ok()).unwrap_or_default())
}

fn write(sql: &Sql, standing: &Standing) -> Result<(), StoreError> {
    let text = serde_json::to_string(standing)?;
    sql.run(
        "INSERT INTO canary (one, standing) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET standing = excluded.standing",
        [(&text).into()],
    )
}
