//! `ringfence canary`: has a sandbox look at its own fence from inside, and say what it saw.

use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;
use crate::terminal::safe;
use ringfence_wire::contract::{CanaryDone, CanaryVerdict};

#[derive(clap::Args)]
#[command(after_help = "\
A sandbox of the deployment's own asks for an HTTPS host that no rule names, which must be refused and the refusal on
record, and connects to a plain TCP port, which must be unreachable. /health is 503 until the running build passed.

Exit 0 when it passed; 1 when it failed, or when it was inconclusive: that is no pass.

Examples:
  ringfence canary              look now
  ringfence canary --last       what the last look saw")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Do not look; tell of the last look of the running build
    #[arg(long)]
    last: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.connect.client().await?;
    let known = if arguments.last { client.canary_report().await? } else { client.canary().await? };
    if arguments.json {
        print::json(&known)?;
    } else {
        print::lines(&text(&known))?;
    }
    let passed = known.canary.is_some_and(|report| report.verdict == CanaryVerdict::Passed);
    Ok(if passed && known.verified { Exit::Ok } else { Exit::Failed })
}

fn text(known: &CanaryDone) -> String {
    let Some(report) = &known.canary else { return "the running build was not looked at yet\n".to_owned() };
    let mut out = format!(
        "{} in {}, {} ago, build {}\n",
        verdict(report.verdict),
        print::duration(report.duration_ms),
        print::age(report.at),
        safe(&report.build)
    );
    for check in &report.checks {
        out.push_str(&format!(
            "  {:<13}{:<6}{}: {}\n",
            verdict(check.verdict),
            safe(&check.what),
            safe(&check.target),
            safe(&check.detail)
        ));
    }
    if let Some(detail) = &report.detail {
        out.push_str(&format!("  no look was made: {}\n", safe(detail)));
    }
    for unseen in &report.unseen {
        out.push_str(&format!("  not seen     {}\n", safe(unseen)));
    }
    out
}

fn verdict(verdict: CanaryVerdict) -> &'static str {
    match verdict {
        CanaryVerdict::Passed => "passed",
        CanaryVerdict::Failed => "FAILED",
        CanaryVerdict::Inconclusive => "inconclusive",
    }
}
