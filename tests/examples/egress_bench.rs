//! What egress costs, from inside a sandbox to an origin on loopback (`scripts/bench egress` runs it). Beside each figure
//! stands the same request made from the host straight to the same origin, by the same program in the same run.

use anyhow::{Context, Result, ensure};
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key};
use ringfence_e2e::stack::{Setup, Stack};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const CLIENT: &str = include_str!("egress_client.py");
const HOST: &str = "pages.test";
const DOWNLOAD_BYTES: u64 = 256 << 20;
const CROWD: usize = 100;
const WARM_UP: usize = 20;

#[tokio::main]
async fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(400), |text| text.parse()).context("the rounds")?;
    let setup = Setup { origins: &[HOST], ..Setup::hooked() };
    let stack = Arc::new(Stack::start(setup).await?);
    let measured = measure(&stack, rounds).await;
    if let Some(stack) = Arc::into_inner(stack) {
        stack.end().await?;
    }
    let report = measured?;
    std::fs::write("target/bench-egress.json", serde_json::to_string_pretty(&report)?)?;
    Ok(())
}

async fn measure(stack: &Arc<Stack>, rounds: usize) -> Result<Value> {
    stack.witness().show("bench.py", CLIENT);
    let sandbox = stack.sandbox("ALPHA", "egress-bench").await;
    let direct = format!("http://127.0.0.1:{}", stack.origins().port(HOST));
    let through = format!("https://{HOST}");
    let mut report = serde_json::Map::new();
    println!("{:<44} {:>10} {:>10} {:>10} {:>10}", "", "direct p50", "p99", "egress p50", "p99");
    for kind in ["kept", "new"] {
        let task = format!("latency {kind} {rounds} {WARM_UP}");
        let base = outside(stack, &task, &direct)?;
        let ours = inside(&sandbox, &task, &through).await?;
        let name = if kind == "kept" {
            "request on a kept connection, ms"
        } else {
            "request on a new connection, ms"
        };
        println!(
            "{name:<44} {:>10.2} {:>10.2} {:>10.2} {:>10.2}   added p50 {:.2}, p99 {:.2}",
            of(&base, "p50"),
            of(&base, "p99"),
            of(&ours, "p50"),
            of(&ours, "p99"),
            of(&ours, "p50") - of(&base, "p50"),
            of(&ours, "p99") - of(&base, "p99"),
        );
        report.insert(format!("latency-{kind}"), json!({ "direct": base, "egress": ours }));
    }
    for path in ["long", "long-chunked"] {
        let base = Command::new("/bin/sh").args(["-c", &download(&direct, path)]).output()?;
        let base = downloaded(&String::from_utf8(base.stdout)?)?;
        let receipt = done(sandbox.exec_input(input(&download(&through, path))).await).receipt;
        let ours = downloaded(&receipt.tail)?;
        println!("256 MiB, {path}, MB/s: direct {:.0}, egress {:.0}", of(&base, "mbs"), of(&ours, "mbs"));
        report.insert(format!("download-{path}"), json!({ "direct": base, "egress": ours }));
    }
    let crowd = inside(&sandbox, &format!("crowd {CROWD}"), &through).await?;
    println!(
        "{CROWD} requests at once, ms: p50 {:.0}, p99 {:.0}, all {:.0}",
        of(&crowd, "p50"),
        of(&crowd, "p99"),
        of(&crowd, "all")
    );
    report.insert("crowd".to_owned(), crowd);
    // Interleaved, so that both meet the same machine.
    let (mut plain, mut granted) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(200) {
        plain.push(took(&sandbox, exec_input(&fresh_key(), "true")).await);
        granted.push(took(&sandbox, input("true")).await);
    }
    let (plain, granted) = (quantiles(plain), quantiles(granted));
    println!(
        "execUnderGrant(\"true\"), ms: without a grant p50 {:.2}, with one p50 {:.2}: apply and revoke {:.2}",
        of(&plain, "p50"),
        of(&granted, "p50"),
        of(&granted, "p50") - of(&plain, "p50")
    );
    report.insert("exec".to_owned(), json!({ "plain": plain, "granted": granted }));
    sandbox.abort().await;
    Ok(report.into())
}

/// By curl: an interpreter would be what is measured.
fn download(base: &str, path: &str) -> String {
    let url = format!("{base}/{path}-{DOWNLOAD_BYTES}");
    format!("curl -s -o /dev/null -w '%{{size_download}} %{{speed_download}}' {url}")
}

fn downloaded(said: &str) -> Result<Value> {
    let (bytes, speed) = said.split_once(' ').with_context(|| said.to_owned())?;
    ensure!(bytes == DOWNLOAD_BYTES.to_string(), "{bytes} bytes came, {DOWNLOAD_BYTES} were due");
    Ok(json!({ "mbs": speed.parse::<f64>()? / 1e6 }))
}

fn of(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(f64::NAN)
}

fn input(command: &str) -> Value {
    let mut input = exec_input(&fresh_key(), command);
    input["recipe"]["profiles"] = json!(["browser-fetch"]);
    input["recipe"]["targets"] = json!([HOST]);
    input
}

async fn took(sandbox: &Sandbox, input: Value) -> f64 {
    let begun = Instant::now();
    done(sandbox.exec_input(input).await);
    begun.elapsed().as_secs_f64() * 1e3
}

fn quantiles(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 100];
    json!({ "p50": at(50), "p99": at(99) })
}

fn outside(stack: &Stack, task: &str, base: &str) -> Result<Value> {
    let program = stack.witness().directory().join("bench.py");
    let mut command = Command::new("/usr/bin/python3");
    let output = command.arg(program).arg(base).args(task.split(' ')).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn inside(sandbox: &Sandbox, task: &str, base: &str) -> Result<Value> {
    let command = format!("/usr/bin/python3 /witness/bench.py {base} {task}");
    let receipt = done(sandbox.exec_input(input(&command)).await).receipt;
    serde_json::from_str(&receipt.tail).with_context(|| receipt.tail.clone())
}
