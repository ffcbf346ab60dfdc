//! `ringfence ps`: the registry, and under each sandbox its detached processes. Looking boots nothing.

use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;
use ringfence_client::CallError;
use ringfence_wire::contract::{ListedProcess, ListedSandbox};
use serde_json::json;

#[derive(clap::Args)]
#[command(after_help = "\
Exit 1 when a sandbox could not be asked for its processes; it is listed all the same.

Examples:
  ringfence ps
  ringfence ps --label job=nightly --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only sandboxes with this label; may be repeated, then all must be there
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::label)]
    label: Vec<(String, String)>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.connect.client().await?;
    let sandboxes = client.sandboxes(&arguments.label).await?;
    let mut calls = tokio::task::JoinSet::new();
    for (index, sandbox) in sandboxes.iter().enumerate() {
        let handle = client.sandbox(sandbox.key.clone());
        calls.spawn(async move { (index, handle.detached().await) });
    }
    let mut processes = calls.join_all().await;
    processes.sort_by_key(|(index, _)| *index);
    let found: Vec<(ListedSandbox, Result<Vec<ListedProcess>, CallError>)> =
        sandboxes.into_iter().zip(processes.into_iter().map(|(_, result)| result)).collect();
    let failed = found.iter().any(|(_, result)| result.is_err());

    if arguments.json {
        print::json(&found.iter().map(|(sandbox, result)| as_json(sandbox, result)).collect::<Vec<_>>())?;
    } else {
        let rows: Vec<_> = found.iter().flat_map(|(sandbox, result)| as_rows(sandbox, result)).collect();
        let header = ["SANDBOX", "POOL", "AGE", "ENDS IN", "PROCESS", "STATUS", "RUNS", "LOG"];
        print::lines(&print::table(header, &rows))?;
    }
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn as_json(sandbox: &ListedSandbox, processes: &Result<Vec<ListedProcess>, CallError>) -> serde_json::Value {
    match processes {
        Ok(processes) => json!({ "sandbox": sandbox, "processes": processes }),
        Err(error) => json!({ "sandbox": sandbox, "error": print::causes(error) }),
    }
}

fn as_rows(sandbox: &ListedSandbox, processes: &Result<Vec<ListedProcess>, CallError>) -> Vec<[String; 8]> {
    let left = sandbox.expires_at.saturating_sub(print::now_ms());
    let first = [
        sandbox.key.to_string(),
        sandbox.pool.clone(),
        print::age(sandbox.created_at),
        print::duration(left),
    ];
    let empty = || [const { String::new() }; 4];
    let row = |head: [String; 4], tail: [String; 4]| {
        let [a, b, c, d] = head;
        let [e, f, g, h] = tail;
        [a, b, c, d, e, f, g, h]
    };
    match processes {
        Err(error) => {
            vec![row(first, ["?".to_owned(), print::causes(error), String::new(), String::new()])]
        }
        Ok(processes) if processes.is_empty() => vec![row(first, empty())],
        Ok(processes) => {
            let mut head = Some(first);
            processes
                .iter()
                .map(|process| {
                    let tail = [
                        process.id.to_string(),
                        print::status(&process.status),
                        print::age(process.started_at),
                        process.log_path.clone(),
                    ];
                    row(head.take().unwrap_or_else(empty), tail)
                })
                .collect()
        }
    }
}
