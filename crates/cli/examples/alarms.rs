//! How often the alarm wakes a sandbox, idle and busy, with the shipped times, on the local stack (`scripts/bench alarms`
//! runs it).
//!
//! One sandbox is ensured and never called again; one runs a declared process. Both are read at the end alone, because a
//! look at a sandbox keeps it in memory. What is counted is each sandbox's own count of its alarms.

#![allow(clippy::print_stdout, reason = "a table is what this prints")]
#![allow(clippy::disallowed_macros, reason = "all that it prints is its own")]

use anyhow::{Context, ensure};
use ringfence_cli::stack::{Stack, StackOptions};
use ringfence_client::wire::contract::{
    AdmissionWish, EnsureOptions, EventsQuery, Recipe, StartDetachedInput,
};
use serde_json::json;
use std::time::{Duration, Instant};

const CONSUMER: &str = "bench";
/// The idle container is let go five minutes after its object has left memory, and looked at three minutes later.
const MINUTES: u64 = 12;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let minutes: u64 = match std::env::args().nth(1) {
        Some(text) => text.parse().context("the number of minutes")?,
        None => MINUTES,
    };
    ensure!(minutes > 0, "at least one minute");
    let root = std::env::current_dir()?;
    let run = tempfile::tempdir()?;
    let mut options = StackOptions::new(&root, run.path(), root.join("target/native/ringfence"))?;
    options.allow.insert(CONSUMER.to_owned(), json!({ "faces": ["http"] }));
    options.http_consumers = [CONSUMER.to_owned()].into();
    let stack = Stack::start(options, |text| eprintln!("{text}")).await?;
    let measured = measure(&stack, Duration::from_secs(60 * minutes)).await;
    stack.stop().await?;
    measured
}

async fn measure(stack: &Stack, span: Duration) -> anyhow::Result<()> {
    let client = stack.client(CONSUMER)?;
    let recipe: Recipe = serde_json::from_value(json!({ "version": "1" }))?;
    let (idle, busy) = (client.sandbox("idle"), client.sandbox("busy"));
    for sandbox in [&idle, &busy] {
        sandbox.ensure(&recipe, AdmissionWish::default(), &EnsureOptions::default()).await?;
    }
    let start: StartDetachedInput = serde_json::from_value(json!({
        "recipe": recipe, "command": "exec sleep 7200", "idempotencyKey": "sleep", "logPath": "sleep.log",
    }))?;
    busy.start_detached(&start).await?;

    let begun = Instant::now();
    tokio::time::sleep(span).await;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let containers = stack.control().containers().await?;
    println!("\nalarms over {minutes:.1} minutes, with the shipped times:");
    for (what, sandbox) in [("idle", &idle), ("busy", &busy)] {
        let wakeups = sandbox.events(EventsQuery::default()).await?.wakeups;
        let name = format!("{CONSUMER}:{}", sandbox.key());
        let runs = containers.iter().any(|c| c.sandbox.as_deref() == Some(&name) && c.state == "running");
        let per_hour = wakeups as f64 * 60.0 / minutes;
        let container = if runs { "its container runs" } else { "its container was let go" };
        println!("  {what}: {wakeups} wake-ups, {per_hour:.1} an hour; {container}");
        sandbox.abort().await?;
    }
    println!("an idle sandbox whose container was let go has no alarm left but its deadline's");
    Ok(())
}
