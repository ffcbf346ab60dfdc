//! What the facade costs, measured from inside a consumer Worker on the local stack (`scripts/bench` runs it).
//!
//! Each figure stands beside a baseline of the same run, in the same workerd: one plain round trip from the
//! consumer over a service binding to an object and to its container's port. Ratios to it carry over to another
//! machine, milliseconds do not.

#![allow(clippy::print_stdout, reason = "a table is what this prints")]
#![allow(clippy::disallowed_macros, reason = "all that it prints is its own")]

use anyhow::{Context, bail, ensure};
use ringfence_cli::stack::{Stack, StackOptions, WorkerSource};
use ringfence_client::wire::contract::{AdmissionWish, EnsureOptions, ExecInput, Recipe, StartDetachedInput};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds in one request, so that none takes minutes.
const ROUNDS_PER_REQUEST: usize = 20;
const GROUP: usize = 4;
const ABORT_ROUNDS: usize = 20;
const EXITS: usize = 100;
/// Just below the supervisor's default bound on running jobs.
const HELD_JOBS: usize = 30;
const BASELINE: &str = "plain";
const CALLS: [&str; 5] = [BASELINE, "exec", "start", "status-running", "status-exited"];

#[derive(Default, Deserialize)]
struct Samples {
    groups: Vec<f64>,
    singles: Vec<f64>,
}

struct Row {
    name: &'static str,
    what: &'static str,
    p50: f64,
    p99: f64,
    mean: f64,
    samples: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let rounds: usize = match std::env::args().nth(1) {
        Some(text) => text.parse().context("the number of rounds")?,
        None => 200,
    };
    let root = std::env::current_dir()?;
    let (stack, _run) = start(&root, false).await?;
    let measured = measure(&stack, rounds).await;
    stack.stop().await?;
    let (mut all, memory) = measured?;
    // By the engine's log of each call, which it keeps only where calls may meet faults.
    let (stack, _run) = start(&root, true).await?;
    let exits = exit_known(&stack).await;
    stack.stop().await?;
    all.insert("exit-known", exits?);
    report(&root, &rows(all)?, &memory)
}

/// A stack, and the directory that goes with it.
async fn start(root: &Path, faults: bool) -> anyhow::Result<(Stack, tempfile::TempDir)> {
    let run = tempfile::tempdir()?;
    let mut options = StackOptions::new(root, run.path(), root.join("target/native/ringfence"))?;
    options.faults = faults;
    // A look of the canary's would be measured with the rest.
    options.substrate = options.substrate.var("CANARY", r#"{"automatic":false}"#);
    options.consumers.push(WorkerSource::new(root.join("bench/wrangler.toml")));
    options.allow.insert("bench".to_owned(), json!({ "faces": ["rpc"] }));
    Ok((Stack::start(options, |text| eprintln!("{text}")).await?, run))
}

type ByName<T> = BTreeMap<&'static str, T>;

async fn measure(stack: &Stack, rounds: usize) -> anyhow::Result<(ByName<Samples>, ByName<u64>)> {
    let mut all = ByName::new();
    let mut done = 0;
    while done < rounds {
        let now = ROUNDS_PER_REQUEST.min(rounds - done);
        take(stack, &CALLS, now, GROUP, &mut all).await?;
        done += now;
        eprintln!("{done} of {rounds} rounds");
    }
    take(stack, &["abort-boot"], ABORT_ROUNDS, 1, &mut all).await?;
    post(stack, "end", &json!({})).await?;
    Ok((all, memory(stack).await?))
}

fn rows(mut all: ByName<Samples>) -> anyhow::Result<Vec<Row>> {
    let told = [
        (BASELINE, "baseline: a plain round trip to a container's port"),
        ("exec", "execUnderGrant(\"true\"), warm"),
        ("start", "startDetached, warm"),
        ("status-running", "detachedStatus of a running process"),
        ("status-exited", "detachedStatus of an exited process"),
        ("abort-boot", "abort, then ensureSandbox until the supervisor answers"),
        ("exit-known", "a command's exit until the object acts on it"),
    ];
    let mut rows = Vec::new();
    for (name, what) in told {
        let samples = all.remove(name).with_context(|| format!("no samples of {name}"))?;
        rows.push(Row {
            name,
            what,
            p50: percentile(&samples.groups, 0.50)?,
            p99: percentile(&samples.singles, 0.99)?,
            mean: samples.singles.iter().sum::<f64>() / count(samples.singles.len()),
            samples: samples.singles.len(),
        });
    }
    Ok(rows)
}

async fn take(
    stack: &Stack,
    calls: &[&'static str],
    rounds: usize,
    group: usize,
    all: &mut ByName<Samples>,
) -> anyhow::Result<()> {
    let request = json!({ "calls": calls, "rounds": rounds, "group": group });
    let mut answer: BTreeMap<String, Samples> =
        serde_json::from_str(&post(stack, "measure", &request).await?)?;
    for name in calls {
        let samples = answer.remove(*name).with_context(|| format!("no samples of {name}"))?;
        let into = all.entry(*name).or_default();
        into.groups.extend(samples.groups);
        into.singles.extend(samples.singles);
    }
    Ok(())
}

/// From a command's own word of when it ends to the teardown that its object asks for then, as the engine's log has it.
async fn exit_known(stack: &Stack) -> anyhow::Result<Samples> {
    let sandbox = stack.client("local")?.sandbox("exit-known");
    let recipe = recipe();
    sandbox.ensure(&recipe, AdmissionWish::default(), &EnsureOptions::default()).await?;
    let mut samples = Samples::default();
    for n in 0..EXITS {
        let since = stack.control().calls(0).await?.last().map_or(0, |call| call.n);
        let input = ExecInput {
            recipe: recipe.clone(),
            command: "sleep 0.05; exec date +%s%3N".into(),
            idempotency_key: format!("exit-known-{n}").into(),
            log_path: "bench.log".into(),
            timeout_ms: None,
            tail_bytes: None,
            lfs: None,
            approval: None,
            on_unknown: None,
        };
        let done = sandbox.exec(&input).await?;
        let ended: f64 = done.receipt.tail.trim().parse().context("the command's word of its end")?;
        let calls = stack.control().calls(since).await?;
        let acted = calls.iter().find(|call| call.path.starts_with("/v1/teardown")).context("a teardown")?;
        let at: f64 = acted.at_ms.to_string().parse()?;
        samples.singles.push((at - ended).max(0.0));
    }
    sandbox.abort().await?;
    samples.groups =
        samples.singles.chunks(GROUP).map(|few| few.iter().sum::<f64>() / count(few.len())).collect();
    Ok(samples)
}

fn recipe() -> Recipe {
    Recipe { version: "1".into(), repo: None, lfs: None, profiles: None, targets: None, enforcement: None }
}

/// RSS of the supervisor in KiB: idle, and with jobs it holds.
async fn memory(stack: &Stack) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let recipe = recipe();
    let sandbox = stack.client("local")?.sandbox("memory");
    sandbox.ensure(&recipe, AdmissionWish::default(), &EnsureOptions::default()).await?;
    let idle = supervisor_rss(stack).await?;
    for n in 0..HELD_JOBS {
        let input = StartDetachedInput {
            recipe: recipe.clone(),
            command: "exec sleep 600".into(),
            idempotency_key: format!("memory-{n}").into(),
            log_path: "memory.log".into(),
            approval: None,
            stdin: None,
            workspace_mode: None,
        };
        sandbox.start_detached(&input).await?;
    }
    let held = supervisor_rss(stack).await?;
    sandbox.abort().await?;
    Ok(BTreeMap::from([("idle", idle), ("held", held)]))
}

/// The only running container's PID 1.
async fn supervisor_rss(stack: &Stack) -> anyhow::Result<u64> {
    let containers = stack.control().containers().await?;
    let running: Vec<i32> =
        containers.iter().filter(|c| c.state == "running").filter_map(|c| c.init_pid).collect();
    let [pid] = running.as_slice() else {
        bail!("expected one running container, there are {}", running.len())
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

async fn post(stack: &Stack, path: &str, body: &Value) -> anyhow::Result<String> {
    let url = format!("{}/{path}", stack.worker_url("ringfence-bench"));
    // curl, which the setup brings: this is not what is measured.
    let out = tokio::process::Command::new("curl")
        .args(["-sS", "--max-time", "600", "-X", "POST", "--data", &body.to_string(), &url])
        .output()
        .await?;
    ensure!(out.status.success(), "{url}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

fn percentile(samples: &[f64], q: f64) -> anyhow::Result<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index within the list")]
    let at = (count(sorted.len()) * q).floor() as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().context("no samples")
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples")]
fn count(n: usize) -> f64 {
    n as f64
}

fn report(root: &Path, rows: &[Row], memory: &BTreeMap<&str, u64>) -> anyhow::Result<()> {
    let base = rows.iter().find(|row| row.name == BASELINE).context("the baseline")?.p50;
    println!(
        "{:<58}{:>8}{:>8}{:>8}{:>9}{:>9}",
        "call, from a consumer Worker", "p50 ms", "p99 ms", "mean", "samples", "ratio"
    );
    for row in rows {
        println!(
            "{:<58}{:>8.2}{:>8.0}{:>8.2}{:>9}{:>9.2}",
            row.what,
            row.p50,
            row.p99,
            row.mean,
            row.samples,
            row.p50 / base
        );
    }
    println!(
        "ratio: p50 to the baseline's p50. No peer is measured here: the vendor SDK's npm package (@cloudflare/sandbox"
    );
    println!("0.12) holds no in-container server, only its image does.\n");
    println!(
        "supervisor memory: {} KiB idle, {} KiB with {HELD_JOBS} running jobs",
        kib(memory, "idle"),
        kib(memory, "held")
    );
    let sizes = sizes(root)?;
    for (name, (raw, gzip)) in &sizes {
        println!("{name:<40}{raw:>10} bytes{gzip:>10} with gzip -9");
    }
    let calls: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({ "call": row.name, "p50Ms": row.p50, "p99Ms": row.p99, "meanMs": row.mean,
                    "samples": row.samples, "ratioToBaseline": row.p50 / base })
        })
        .collect();
    let sizes: BTreeMap<String, Value> =
        sizes.into_iter().map(|(name, (raw, gzip))| (name, json!({ "bytes": raw, "gzip": gzip }))).collect();
    let out = root.join("target/bench.json");
    let all = json!({ "calls": calls, "supervisorRssKib": memory, "heldJobs": HELD_JOBS, "sizes": sizes });
    std::fs::write(&out, serde_json::to_vec_pretty(&all)?)?;
    println!("\nthe same as JSON: {}", out.display());
    Ok(())
}

fn kib(memory: &BTreeMap<&str, u64>, name: &str) -> u64 {
    memory.get(name).copied().unwrap_or_default()
}

fn sizes(root: &Path) -> anyhow::Result<BTreeMap<String, (u64, u64)>> {
    let files =
        ["target/native/ringfenced", "target/native/ringfence", "build/index_bg.wasm", "build/index.js"];
    let mut sizes = BTreeMap::new();
    for file in files {
        let path: PathBuf = root.join(file);
        let raw = std::fs::metadata(&path).with_context(|| format!("{file}: build it first"))?.len();
        let gzip = Command::new("gzip").args(["-9c"]).arg(&path).output()?.stdout.len();
        sizes.insert(file.to_owned(), (raw, u64::try_from(gzip)?));
    }
    Ok(sizes)
}
