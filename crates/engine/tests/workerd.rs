//! The unmodified workerd under `wrangler dev`, with a plain Worker that drives a container: the check that all else
//! here stands for. Needs the npm packages of `scripts/setup`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Answer, TestEngine, alive, eventually, modes, processes_of};
use serde_json::Value;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Serves its environment and path on port 7117, and ends with 3 on TERM.
const SERVING_INIT: &str = "#!/usr/bin/python3
import http.server, os, signal
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        b = (self.path + ' ' + os.environ.get('GREETING', '')).encode()
        self.send_response(200); self.send_header('content-length', str(len(b))); self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
http.server.ThreadingHTTPServer(('0.0.0.0', 7117), H).serve_forever()
";

struct Wrangler {
    process: Child,
    port: u16,
}

fn node_modules() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../node_modules/.bin");
    assert!(path.join("wrangler").exists(), "wrangler is missing: run scripts/setup");
    path.canonicalize().unwrap()
}

impl Wrangler {
    fn start(engine: &TestEngine) -> Self {
        let worker = engine.directory.join("worker");
        std::fs::create_dir_all(&worker).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/worker");
        for file in ["index.js", "wrangler.toml", "Dockerfile"] {
            std::fs::copy(fixture.join(file), worker.join(file)).unwrap();
        }
        let docker = engine.directory.join("docker");
        if !docker.exists() {
            std::fs::hard_link(engine.directory.join("engine"), &docker).unwrap();
        }
        let socket = format!("unix://{}", engine.directory.join("docker.sock").display());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(engine.directory.join("wrangler.log")).unwrap();
        let bin = node_modules();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let process = Command::new(bin.join("wrangler"))
            .args(["dev", "--ip", "127.0.0.1", "--inspector-port", "0", "--port", &port.to_string()])
            .args(["--persist-to", "state"])
            .current_dir(&worker)
            .env("PATH", path)
            .env("WRANGLER_DOCKER_BIN", docker)
            .env("WRANGLER_DOCKER_HOST", &socket)
            .env("DOCKER_HOST", &socket)
            .env("WRANGLER_SEND_METRICS", "false")
            .env("CI", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let wrangler = Self { process, port };
        let begun = Instant::now();
        while wrangler.call("/state", "").status != 200 {
            let log = std::fs::read_to_string(engine.directory.join("wrangler.log")).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(90), "{log}");
            std::thread::sleep(Duration::from_millis(100));
        }
        wrangler
    }

    fn call(&self, path: &str, body: &str) -> Answer {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return Answer { status: 0, body: Vec::new() };
        };
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let mut answer = common::read_answer(stream);
        answer.body = unchunked(answer.body);
        answer
    }

    fn json(&self, path: &str, body: &str) -> Value {
        let answer = self.call(path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    fn boot(&self) {
        self.json("/start", "");
        eventually("its port answers", || self.call("/port?port=7117&path=up", "").status == 200);
    }

    /// Ends wrangler and all it started.
    fn end(&mut self, signal: rustix::process::Signal) {
        let group = rustix::process::Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(group, signal);
        let _ = self.process.wait();
    }
}

impl Drop for Wrangler {
    fn drop(&mut self) {
        self.end(rustix::process::Signal::KILL);
    }
}

/// wrangler's front answers in chunks.
fn unchunked(body: Vec<u8>) -> Vec<u8> {
    let mut rest = body.as_slice();
    let mut whole = Vec::new();
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let size =
            std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size) = size.filter(|size| end + 2 + size <= rest.len()) else { return body };
        if size == 0 {
            return whole;
        }
        whole.extend(&rest[end + 2..end + 2 + size]);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    body
}

fn engine() -> TestEngine {
    TestEngine::start_with(modes()[0], SERVING_INIT, &[])
}

fn only_init(engine: &TestEngine) -> i32 {
    let containers = engine.containers();
    assert_eq!(containers.len(), 1, "{containers:?}");
    i32::try_from(containers[0]["initPid"].as_i64().unwrap()).unwrap()
}

#[test]
fn a_worker_boots_a_container_speaks_to_it_and_runs_commands_in_it() {
    let engine = engine();
    let wrangler = Wrangler::start(&engine);
    assert_eq!(wrangler.json("/state", "")["running"], false);
    wrangler.boot();
    let state = wrangler.json("/state", "");
    assert_eq!(state["running"], true);
    assert_eq!(state["inspect"]["labels"]["who"], "me");
    assert_eq!(wrangler.call("/port?port=7117&path=x", "").text(), "/x hello");
    let closed = wrangler.call("/port?port=7118&path=x", "");
    assert!(closed.text().contains("not listening"), "{}", closed.text());

    let done = wrangler.json("/exec", "echo out; echo err >&2; exit 7");
    assert_eq!(
        (&done["stdout"], &done["stderr"], &done["code"]),
        (&"out\n".into(), &"err\n".into(), &7.into())
    );
    assert_eq!(wrangler.json("/typed", "typed")["stdout"], "typed");
    let terminal = wrangler.json("/terminal", "");
    assert!(terminal["stdout"].as_str().unwrap().contains("33 99"), "{terminal}");
    assert_eq!(wrangler.json("/killed", "")["code"], 143);

    let processes = processes_of(only_init(&engine));
    assert!(processes.iter().all(|pid| alive(*pid)));
    assert_eq!(wrangler.json("/signal?number=15", "")["code"], 3, "PID 1's own code");
    eventually("it is seen not to run", || wrangler.json("/state", "")["running"] == false);
    wrangler.boot();
    let processes = processes_of(only_init(&engine));
    wrangler.json("/destroy", "");
    assert!(processes.iter().all(|pid| !alive(*pid)));
    assert_eq!(engine.containers().len(), 0);
}

#[test]
fn what_a_container_asks_of_the_network_reaches_the_workers_entrypoint() {
    let engine = engine();
    let wrangler = Wrangler::start(&engine);
    wrangler.boot();
    for (command, answer) in [
        ("curl -sS http://example.test/a", "fixture GET http://example.test/a"),
        ("curl -sS https://example.test/b", "fixture GET https://example.test/b"),
        ("curl -sS https://example.test:8443/c", "fixture GET https://example.test:8443/c"),
        ("curl -sS http://192.0.2.1:9999/d", "fixture GET http://192.0.2.1:9999/d"),
        ("curl -sS -d x https://192.0.2.1/e", "fixture POST https://192.0.2.1/e"),
    ] {
        let done = wrangler.json("/exec", command);
        assert_eq!(done["stdout"], answer, "{command}: {done}");
    }
    let raw = wrangler.json("/exec", "printf SSH | curl -sS -m 5 telnet://192.0.2.1:5432");
    assert_ne!(raw["code"], 0, "{raw}");
}

#[test]
fn a_container_outlives_workerd_and_wrangler_and_is_found_again() {
    use rustix::process::Signal;
    let engine = engine();
    let mut wrangler = Wrangler::start(&engine);
    wrangler.boot();
    let init = only_init(&engine);
    for signal in [Signal::KILL, Signal::INT] {
        wrangler.end(signal);
        assert!(alive(init));
        wrangler = Wrangler::start(&engine);
        assert_eq!(wrangler.json("/state", "")["running"], true, "{signal:?}");
        wrangler.json("/intercept", "");
        assert_eq!(wrangler.call("/port?port=7117&path=again", "").text(), "/again hello");
        let done = wrangler.json("/exec", "curl -sS https://example.test/again");
        assert_eq!(done["stdout"], "fixture GET https://example.test/again", "{done}");
        assert_eq!(only_init(&engine), init, "the same container");
    }
}
