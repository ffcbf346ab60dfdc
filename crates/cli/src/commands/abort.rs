//! `ringfence abort`: ends sandboxes, all at once. Idempotent.

use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;
use ringfence_wire::contract::AbortDone;
use serde_json::json;

#[derive(clap::Args)]
#[command(after_help = "\
Everything in the sandbox ends, its container is destroyed and its slot is free. Repeating it does no harm. Of a key
that no sandbox ever had it says so, and that is no failure.
Exit 0 when every container was seen gone, else 1.

Examples:
  ringfence abort my-key
  ringfence abort build-1 build-2 build-3")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Print the outcomes as JSON
    #[arg(long)]
    json: bool,
    /// The sandboxes
    #[arg(required = true, value_name = "KEY", value_parser = super::key)]
    keys: Vec<String>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.connect.client().await?;
    let mut calls = tokio::task::JoinSet::new();
    for (index, key) in arguments.keys.iter().enumerate() {
        let sandbox = client.sandbox(key.as_str());
        calls.spawn(async move {
            let end = sandbox.abort().await;
            let none = matches!(&end, Ok(done) if found_nothing(done)) && !super::was_ever(&sandbox).await;
            (index, end, none)
        });
    }
    let mut ends = calls.join_all().await;
    ends.sort_by_key(|(index, ..)| *index);

    let mut exit = Exit::Ok;
    let mut rows = Vec::new();
    for ((_, end, none), key) in ends.iter().zip(&arguments.keys) {
        let gone = matches!(end, Ok(done) if done.container_gone);
        if !gone {
            exit = Exit::Failed;
        }
        match end {
            _ if arguments.json => rows.push(match end {
                Ok(done) => json!({ "key": key, "outcome": done }),
                Err(error) => json!({ "key": key, "error": print::causes(error) }),
            }),
            Ok(_) if *none => print::line(super::unknown(key))?,
            Ok(done) if gone => print::line(format_args!("{key}  gone, {} killed", done.killed))?,
            Ok(done) => print::line(format_args!(
                "{key}  NOT seen gone, {} killed; the sandbox goes on trying",
                done.killed
            ))?,
            Err(error) => print::warn(format_args!("{key}  {}", print::causes(error))),
        }
    }
    if arguments.json {
        print::json(&rows)?;
    }
    Ok(exit)
}

/// As of a sandbox that is gone already, or of one that never was.
fn found_nothing(done: &AbortDone) -> bool {
    done.container_gone && done.killed == 0 && done.evidence.is_none()
}
