//! `ringfence demo`: the dispatcher's workflow against real parts, told as a timeline.
//!
//! Nothing is staged: the lines are the events that the workflow's durable steps recorded, and the last ones are
//! the engine's own word on what is left. Any failure ends with a non-zero code and the places to look.

use super::dev::{self, add_dispatcher, checkout, say};
use crate::exit::Exit;
use crate::http;
use crate::print;
use crate::stack::interrupt::Interrupt;
use crate::stack::{Stack, StackError};
use anyhow::{Context, bail};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The workflow takes some ten seconds; a machine under load may need much longer.
const WITHIN: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const ONE_REQUEST: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
#[command(after_help = "\
Run scripts/demo: it also brings the tools and builds everything first.
Exit 0 when every step did what it should and nothing is left running, else 1.")]
pub(crate) struct Arguments {
    /// Print the timeline as JSON at the end
    #[arg(long)]
    json: bool,
}

/// What the dispatcher answers for a run.
#[derive(Debug, Deserialize)]
struct Run {
    status: String,
    #[serde(default)]
    error: Option<Value>,
    events: Vec<Event>,
}

/// One line of the timeline, recorded by one durable step.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Event {
    at: u64,
    step: String,
    text: String,
    #[serde(default)]
    data: Value,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let root = checkout()?;
    let mut options = dev::options(&root, root.join(".ringfence/demo"), true)?;
    add_dispatcher(&mut options, &root)?;
    let begun = Instant::now();
    let stack = match Stack::start_until(options, say, interrupt.wait()).await {
        Err(error @ StackError::Interrupted) => {
            say(&error.to_string());
            return Ok(Exit::Interrupted);
        }
        other => other?,
    };
    let logs: Vec<String> =
        stack.logs().iter().map(|(name, path)| format!("{name}: {}", path.display())).collect();
    say(&format!(
        "ready after {:.1} s: engine, substrate and dispatcher at {}",
        begun.elapsed().as_secs_f64(),
        stack.url()
    ));

    let told = tokio::select! {
        told = tell(&stack, arguments.json) => Some(told),
        () = interrupt.wait() => None,
    };
    let stopped = stack.stop().await;
    match told {
        None => Ok(Exit::Interrupted),
        Some(Ok(())) => {
            stopped?;
            say("stopped; nothing is left running");
            Ok(Exit::Ok)
        }
        Some(Err(error)) => {
            print::warn(format_args!("the demo failed: {}", print::causes(error.as_ref())));
            for log in logs {
                print::warn(format_args!("  look in the log of {log}"));
            }
            Ok(Exit::Failed)
        }
    }
}

async fn tell(stack: &Stack, as_json: bool) -> anyhow::Result<()> {
    let port = stack.port();
    let started: Value =
        ask(port, Method::POST, "/@dispatcher/run").await.context("starting the workflow")?;
    let id = started.get("id").and_then(Value::as_str).context("the dispatcher gave no id")?.to_owned();
    if !as_json {
        print::line(format_args!("workflow {id}"))?;
    }
    let path = format!("/@dispatcher/run/{id}");
    let until = Instant::now() + WITHIN;
    let mut told = 0;
    let run = loop {
        let run: Run =
            ask(port, Method::GET, &path).await.context("asking the dispatcher for its timeline")?;
        let zero = run.events.first().map_or(0, |event| event.at);
        for event in run.events.iter().skip(told).filter(|_| !as_json) {
            print_event(zero, event)?;
        }
        told = run.events.len();
        match run.status.as_str() {
            "complete" => break run,
            "errored" | "terminated" => {
                bail!("the workflow is {}: {}", run.status, run.error.unwrap_or_default());
            }
            _ if Instant::now() >= until => bail!("the workflow is still {} after {WITHIN:?}", run.status),
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    };
    let left = nothing_left(stack).await?;
    if as_json {
        print::json(
            &json!({ "id": id, "status": run.status, "events": run.events, "containersLeft": left }),
        )?;
    } else {
        print::line(format_args!("{:>9}  {:<16}{left} containers left", "", "engine"))?;
    }
    Ok(())
}

/// The engine's own word, after the workflow's abort.
async fn nothing_left(stack: &Stack) -> anyhow::Result<usize> {
    let running: Vec<String> = stack
        .control()
        .containers()
        .await?
        .into_iter()
        .filter(|container| container.state == "running")
        .map(|container| container.name)
        .collect();
    if !running.is_empty() {
        bail!("the workflow has ended and these containers still run: {}", running.join(", "));
    }
    Ok(running.len())
}

fn print_event(zero: u64, event: &Event) -> std::io::Result<()> {
    let at = event.at.saturating_sub(zero);
    print::line(format_args!("{:>6}.{:03}s  {:<16}{}", at / 1_000, at % 1_000, event.step, event.text))?;
    if let Value::Object(data) = &event.data {
        for (name, value) in data {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            print::line(format_args!("{:>9}  {:<16}  {name}: {text}", "", ""))?;
        }
    }
    Ok(())
}

/// One request to the dispatcher, one JSON answer.
async fn ask<T: serde::de::DeserializeOwned>(port: u16, method: Method, path: &str) -> anyhow::Result<T> {
    let (status, body) =
        http::over_tcp(port, method, path, ONE_REQUEST).await.with_context(|| path.to_owned())?;
    let text = String::from_utf8_lossy(&body);
    if !status.is_success() {
        bail!("{path}: HTTP {status}: {text}");
    }
    serde_json::from_slice(&body).with_context(|| format!("{path}: {text}"))
}
