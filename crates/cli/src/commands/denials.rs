//! `ringfence denials`: which requests out of a sandbox were refused, counted by kind. Looking boots nothing.
//!
//! Beside a running `ringfence dev` the engine is asked too: it refuses what is no HTTP, which the Worker never sees,
//! and answers look-ups. The platform tells of no such event; there the Worker's record is all there is.

use crate::connect::{Connect, Engine};
use crate::exit::Exit;
use crate::print;
use crate::stack::{EngineDenial, EngineDenials};
use ringfence_client::Sandbox;
use ringfence_wire::contract::DenialEvent;
use serde::Serialize;
use std::time::Duration;

const LOOK_WITHIN: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
#[command(after_help = "\
Query strings are never kept. Beside a running `scripts/dev`, what the engine saw and the Worker never does is told
too, marked with the source `engine`: connections that were no HTTP, names looked up and not connected to.
Exit 1 when there were refusals, so that a script can ask.

Examples:
  ringfence denials my-key
  ringfence denials my-key --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The sandbox
    #[arg(value_name = "KEY", value_parser = super::key)]
    key: String,
}

/// One row: the Worker's as the contract has it, the engine's with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Row {
    Worker(DenialEvent),
    Engine(EngineDenial),
}

impl Row {
    fn count(&self) -> u64 {
        match self {
            Self::Worker(denial) => denial.count,
            Self::Engine(denial) => denial.count,
        }
    }

    fn cells(&self) -> [String; 5] {
        match self {
            Self::Worker(DenialEvent { host, method, path, reason, count }) => {
                [count.to_string(), method.clone(), format!("{host}{path}"), reason.clone(), String::new()]
            }
            Self::Engine(EngineDenial { source, attempt, host, port, reason, count }) => {
                [count.to_string(), attempt.clone(), format!("{host}:{port}"), reason.clone(), source.clone()]
            }
        }
    }
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let sandbox = arguments.connect.client().await?.sandbox(arguments.key.as_str());
    let denials = sandbox.denials().await?;
    let seen = match arguments.connect.engine() {
        None => EngineDenials::default(),
        Some(engine) => match engine.control.denials(&engine.consumer, &arguments.key).await {
            Ok(seen) => seen,
            Err(error) => {
                print::note(format_args!("what the engine saw could not be asked for: {error}"));
                EngineDenials::default()
            }
        },
    };
    let rows = merged(denials, seen);
    if arguments.json {
        print::json(&rows)?;
    } else if rows.is_empty() {
        print::note(match super::was_ever(&sandbox).await {
            true => format!("no request out of {} was refused", arguments.key),
            false => super::unknown(&arguments.key),
        });
    } else {
        let cells: Vec<_> = rows.iter().map(Row::cells).collect();
        print::lines(&print::table(["COUNT", "METHOD", "WHERE", "WHY", "SOURCE"], &cells))?;
    }
    Ok(if rows.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// How many requests out of a sandbox were refused, since its record began: what `ringfence run` asks before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    worker: u64,
    engine: u64,
}

impl Refused {
    /// Nothing where it cannot be learnt at once: whoever asks has more important things to tell.
    pub(crate) async fn so_far(connect: &Connect, sandbox: &Sandbox) -> Self {
        let look = async {
            let worker = sandbox.denials().await.map_or(0, |all| all.iter().map(|denial| denial.count).sum());
            let engine = match connect.engine() {
                None => 0,
                Some(Engine { control, consumer }) => control
                    .denials(&consumer, sandbox.key().as_str())
                    .await
                    .map_or(0, |seen| connections(&seen)),
            };
            Self { worker, engine }
        };
        tokio::time::timeout(LOOK_WITHIN, look).await.unwrap_or_default()
    }

    /// The Worker's record goes on; the engine's begins anew with each container.
    pub(crate) fn since(self, before: Self) -> u64 {
        let engine = self.engine.checked_sub(before.engine).unwrap_or(self.engine);
        self.worker.saturating_sub(before.worker) + engine
    }
}

/// A name that was looked up is no request.
fn connections(seen: &EngineDenials) -> u64 {
    seen.denials.iter().filter(|denial| denial.attempt == "connect").map(|denial| denial.count).sum()
}

/// The most frequent first.
fn merged(denials: Vec<DenialEvent>, seen: EngineDenials) -> Vec<Row> {
    const MORE: &str = "(more)";
    let more = (seen.overflow > 0).then(|| EngineDenial {
        source: "engine".to_owned(),
        attempt: MORE.to_owned(),
        host: MORE.to_owned(),
        port: 0,
        reason: MORE.to_owned(),
        count: seen.overflow,
    });
    let engine = seen.denials.into_iter().chain(more).map(Row::Engine);
    let mut rows: Vec<Row> = denials.into_iter().map(Row::Worker).chain(engine).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_since_then_is_counted_over_a_new_container_too() {
        let (before, after) = (Refused { worker: 2, engine: 5 }, Refused { worker: 3, engine: 7 });
        assert_eq!(after.since(before), 3);
        assert_eq!(Refused { worker: 2, engine: 1 }.since(before), 1, "the engine's began anew");
        assert_eq!(Refused::default().since(before), 0);
    }

    #[test]
    fn a_look_up_is_no_request_that_was_refused() {
        let seen = |attempt: &str| EngineDenial {
            source: "engine".into(),
            attempt: attempt.into(),
            host: "b.test".into(),
            port: 22,
            reason: "not-http".into(),
            count: 2,
        };
        assert_eq!(
            connections(&EngineDenials { denials: vec![seen("connect"), seen("lookup")], overflow: 1 }),
            2
        );
    }

    #[test]
    fn what_the_engine_saw_is_merged_by_count_and_says_its_source() {
        let worker = |count| DenialEvent {
            host: "a.test".into(),
            method: "GET".into(),
            path: "/".into(),
            reason: "host".into(),
            count,
        };
        let engine = EngineDenial {
            source: "engine".into(),
            attempt: "connect".into(),
            host: "b.test".into(),
            port: 22,
            reason: "not-http".into(),
            count: 2,
        };
        let seen = EngineDenials { denials: vec![engine], overflow: 5 };
        let rows = serde_json::to_value(merged(vec![worker(3), worker(1)], seen)).unwrap();
        let counts: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["count"].as_u64()).collect();
        assert_eq!(counts, [Some(5), Some(3), Some(2), Some(1)]);
        assert_eq!(rows[2]["source"], "engine");
        assert_eq!(rows[1].get("source"), None, "the contract's own row as it is");
    }
}
