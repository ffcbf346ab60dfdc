//! Measures one `ringfenced` and prints JSON: `RINGFENCED=path cargo run --release --example bench [-- --large]`.
//!
//! Needs root (the supervisor runs as PID 1 of its own pid namespace). `--large` adds the tree of 10,000 processes
//! and the log of 1 GiB. Times are milliseconds, on this machine, client included.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measurement fails by panicking"
)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use harness::{BOOT_KEY, Ground, Ringfenced, wait_for};
use ringfence_wire::supervisor::{JobKind, MAX_PAGE_BYTES, StartJob, start_env};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const JOBS: &str = "1024";

fn main() {
    let large = std::env::args().any(|argument| argument == "--large");
    let mut sizes = vec![1, 100, 1_000];
    if large {
        sizes.push(10_000);
    }
    let report = json!({
        "binaryBytes": std::fs::metadata(harness::binary()).unwrap().len(),
        "memory": memory(),
        "execTrue": exec_true(),
        "start": Vec::from([0, 100, 1_000].map(start_with_remembered)),
        "exitToSeen": exit_to_seen(),
        "teardown": sizes.into_iter().map(teardown).collect::<Vec<_>>(),
        "paging": paging(),
        "log": large.then(large_log),
    });
    println!("{}", serde_json::to_string_pretty(&report).unwrap());
}

fn supervisor() -> Ringfenced {
    Ringfenced::start_with(Ground::Namespace, &[(start_env::MAX_JOBS, JOBS)])
}

fn milliseconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 100_000.0).round() / 100.0
}

fn percentiles(mut samples: Vec<Duration>) -> Value {
    samples.sort();
    let at = |share: f64| milliseconds(samples[((samples.len() - 1) as f64 * share) as usize]);
    json!({ "samples": samples.len(), "p50": at(0.5), "p99": at(0.99) })
}

/// A field of `/proc/PID/FILE`, in KiB.
fn kib(pid: i32, file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

fn children(parent: i32) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| harness::parent_of(*pid) == Some(parent))
        .collect()
}

fn memory() -> Value {
    let supervisor = supervisor();
    supervisor.hello();
    let idle = kib(supervisor.pid, "status", "VmRSS:");
    for n in 0..100 {
        supervisor.job(&format!("quiet-{n}"), JobKind::Detached, "sleep 600");
    }
    wait_for("100 leaders run", || (children(supervisor.pid).len() == 100).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    let quiet = kib(supervisor.pid, "status", "VmRSS:");
    let leaders: Vec<i32> = children(supervisor.pid);
    let leaders_pss: u64 = leaders.iter().map(|pid| kib(*pid, "smaps_rollup", "Pss:")).sum();
    supervisor.teardown(&[]);
    for n in 0..100 {
        supervisor.job(&format!("loud-{n}"), JobKind::Detached, "seq 300000; sleep 600");
    }
    for n in 0..100 {
        wait_for("all is said", || {
            (supervisor.view(&format!("loud-{n}")).output_end.0 == 1_988_895).then_some(())
        });
    }
    let loud = kib(supervisor.pid, "status", "VmRSS:");
    json!({
        "idleKiB": idle,
        "hundredQuietJobsKiB": quiet,
        "theirLeadersPssKiB": leaders_pss,
        "hundredJobsOfTwoMiBOutputKiB": loud,
    })
}

fn exec_true() -> Value {
    let supervisor = supervisor();
    let exec = |n: usize| {
        let request = StartJob {
            wait_ms: 5_000,
            tail_bytes: 4_096,
            ..supervisor.start_request(&format!("exec-{n}"), JobKind::Fenced, "true")
        };
        let began = Instant::now();
        supervisor.started(&request);
        began.elapsed()
    };
    (0..20).for_each(|n| {
        exec(n);
    });
    percentiles((20..320).map(exec).collect())
}

fn start_with_remembered(remembered: usize) -> Value {
    let supervisor = supervisor();
    for n in 0..remembered {
        let request = StartJob {
            wait_ms: 5_000,
            ..supervisor.start_request(&format!("old-{n}"), JobKind::Fenced, "true")
        };
        supervisor.started(&request);
    }
    let start = |n: usize| {
        let mut request = supervisor.start_request(&format!("new-{n}"), JobKind::Detached, "");
        (request.spec.command, request.spec.argv) = (None, Some(vec!["sleep".into(), "600".into()]));
        let began = Instant::now();
        supervisor.started(&request);
        let elapsed = began.elapsed();
        supervisor.running(&format!("new-{n}"));
        elapsed
    };
    let samples = (0..20.min(1_024 - remembered)).map(start).collect();
    json!({ "remembered": remembered, "times": percentiles(samples) })
}

/// From a process's exit to the answer of a waiting call.
fn exit_to_seen() -> Value {
    let supervisor = supervisor();
    let samples = (0..50).map(|n| {
        let id = format!("ends-{n}");
        supervisor.job(&id, JobKind::Detached, "sleep 0.05; date +%s%N > ended");
        supervisor.ended(&id);
        let seen = harness::now_ms();
        let ended: u64 =
            std::fs::read_to_string(supervisor.workspace().join("ended")).unwrap().trim().parse().unwrap();
        Duration::from_millis(seen.saturating_sub(ended / 1_000_000))
    });
    percentiles(samples.collect())
}

fn teardown(size: usize) -> Value {
    let supervisor = supervisor();
    supervisor.job("neighbour", JobKind::Detached, "sleep 600");
    let script = format!("for i in $(seq {}); do sleep 600 & done; echo there; exec sleep 600", size - 1);
    supervisor.job("tree", JobKind::Detached, &script);
    while supervisor.view("tree").output_end.0 == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let began = Instant::now();
    let report = supervisor.teardown(&["neighbour"]);
    let elapsed = began.elapsed();
    json!({
        "processes": size,
        "milliseconds": milliseconds(elapsed),
        "killed": report.evidence.killed_count,
        "complete": report.evidence.complete,
        "scans": report.evidence.scans,
    })
}

/// User and system time a process has used.
fn cpu_time(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Whole pages over one connection. The client reads, but does not decode.
fn paging() -> Value {
    let supervisor = supervisor();
    let request = StartJob {
        wait_ms: 5_000,
        ..supervisor.start_request(
            "text",
            JobKind::Fenced,
            "yes 'A line of output, as a build would print it.' | head -c 1000000",
        )
    };
    supervisor.started(&request);
    let stream = TcpStream::connect(("127.0.0.1", supervisor.port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), BufReader::with_capacity(1 << 17, stream));
    let mut page = |cursor: u64| {
        let head = format!(
            "GET /v1/jobs/text/output?cursor={cursor}&limit={MAX_PAGE_BYTES} HTTP/1.1\r\nhost: x\r\nx-ringfence-boot-key: {BOOT_KEY}\r\n\r\n"
        );
        writer.write_all(head.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0u8; length];
        reader.read_exact(&mut body).unwrap();
        let text = std::str::from_utf8(&body[..200.min(length)]).unwrap();
        text.split("\"next\":").nth(1).unwrap().split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let cpu = cpu_time(supervisor.pid);
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let mut cursor = 0;
        while cursor < 1_000_000 {
            let next = page(cursor);
            read += next - cursor;
            cursor = next;
        }
    }
    let mebibytes = read as f64 / f64::from(1 << 20);
    json!({
        "pageBytes": MAX_PAGE_BYTES,
        "mebibytesPerSecond": (mebibytes / began.elapsed().as_secs_f64()).round(),
        // What the supervisor alone could do: the client's share and other load left out.
        "mebibytesPerSecondOfItsCpu": (mebibytes / (cpu_time(supervisor.pid) - cpu).as_secs_f64()).round(),
    })
}

/// A job that says 1 GiB: what it costs, and what is left of it.
fn large_log() -> Value {
    let supervisor = supervisor();
    let mut request = supervisor.start_request("loud", JobKind::Fenced, "head -c 1073741824 /dev/zero");
    request.spec.log_path = Some("loud".into());
    let began = Instant::now();
    supervisor.started(&request);
    let end = wait_for("it ends", || supervisor.ended("loud").end);
    json!({
        "bytes": end.stdout.bytes,
        "mebibytesPerSecond": (1024.0 / began.elapsed().as_secs_f64()).round(),
        "truncated": end.log_truncated,
        "supervisorKiB": kib(supervisor.pid, "status", "VmRSS:"),
    })
}
