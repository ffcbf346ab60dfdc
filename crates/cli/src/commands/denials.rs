//! `ringfence denials`: which requests out of a sandbox were refused, counted by kind. Looking boots nothing.

use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;

#[derive(clap::Args)]
#[command(after_help = "\
Query strings are never kept. Exit 1 when there were refusals, so that a script can ask.

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
    #[arg(value_name = "KEY")]
    key: String,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let denials = arguments.connect.client()?.sandbox(arguments.key.as_str()).denials().await?;
    if arguments.json {
        print::json(&denials)?;
    } else {
        let rows: Vec<_> = denials
            .iter()
            .map(|d| {
                [d.count.to_string(), d.method.clone(), format!("{}{}", d.host, d.path), d.reason.clone()]
            })
            .collect();
        print!("{}", print::table(["COUNT", "METHOD", "WHERE", "WHY"], &rows));
    }
    Ok(if denials.is_empty() { Exit::Ok } else { Exit::Failed })
}
