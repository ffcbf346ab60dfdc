//! `ringfence stop`: ends one detached process and prints the evidence. "Stopped" is said only when it is proven.

use super::logs::pick_process;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;

#[derive(clap::Args)]
#[command(after_help = "\
Exit 0 when the process is proven gone, 1 when it is not.

Examples:
  ringfence stop my-key                the sandbox's only process
  ringfence stop my-key 4f1c           by a prefix of its id
  ringfence stop --json my-key 4f1c    the evidence as JSON")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// The sandbox
    #[arg(value_name = "KEY", value_parser = super::key)]
    key: String,
    /// The process, or the beginning of its id; may be left out when there is only one
    process: Option<String>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let sandbox = arguments.connect.client().await?.sandbox(arguments.key.as_str());
    let process = pick_process(&sandbox, arguments.process.as_deref()).await?;
    let done = sandbox.stop(&process.id).await?;
    if arguments.json {
        print::json(&done)?;
    } else {
        let verdict = if done.stopped { "stopped" } else { "NOT stopped" };
        print::line(format_args!("{verdict}  {}", process.id))?;
        if let Some(detail) = &done.detail {
            print::line(format_args!("  {detail}"))?;
        }
        if let Some(evidence) = &done.evidence {
            print::line(format_args!("  {}", print::evidence(evidence)))?;
        }
    }
    Ok(if done.stopped { Exit::Ok } else { Exit::Failed })
}
