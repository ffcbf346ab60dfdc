//! A real engine in a process of its own, in a directory of its own, and a small client of its two sockets. Every test
//! has its own; dropping it kills the engine.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// With which privileges the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Root,
    Unprivileged,
}

/// The modes this test process can try.
pub fn modes() -> Vec<Mode> {
    match rustix::process::geteuid().is_root() {
        true => vec![Mode::Root, Mode::Unprivileged],
        false => vec![Mode::Unprivileged],
    }
}

/// A uid that is nobody's on the host.
const OTHER_UID: &str = "47114";

/// PID 1 for tests of the engine alone: waits, ends with 3 on TERM, and serves nothing.
pub const WAITING_INIT: &str =
    "#!/bin/sh\necho up\ntrap 'exit 3' TERM\nwhile :; do sleep 60 & wait $!; done\n";

pub struct TestEngine {
    pub process: Child,
    pub directory: PathBuf,
    pub mode: Mode,
}

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[derive(Debug)]
pub struct ExecOutput {
    pub code: i64,
    pub stdout: String,
    pub stderr: String,
}

/// The program of `examples/engine.rs`. A plain `cargo test` builds it; one that names its tests does not, and must not
/// pass on yesterday's engine.
pub fn engine_program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("examples/engine");
    let mend = "run cargo build -p ringfence-engine --examples";
    let built = path
        .metadata()
        .unwrap_or_else(|_| panic!("{} is missing: {mend}", path.display()))
        .modified()
        .unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert!(newest(&sources) <= built, "{} is older than its sources: {mend}", path.display());
    path
}

fn newest(directory: &Path) -> std::time::SystemTime {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { newest(&path) } else { path.metadata().unwrap().modified().unwrap() })
        .max()
        .unwrap()
}

pub fn fresh_directory() -> PathBuf {
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let path = std::env::temp_dir().join(format!("rf-{}", hex::encode(random)));
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    path
}

pub fn command(directory: &Path, mode: Mode, init: &str, options: &[&str]) -> Command {
    let supervisor = directory.join("init");
    if !supervisor.exists() {
        std::fs::write(&supervisor, init).unwrap();
        std::fs::set_permissions(&supervisor, PermissionsExt::from_mode(0o755)).unwrap();
    }
    // The program may lie where another uid cannot search.
    let program = directory.join("engine");
    if !program.exists() {
        // A link, not a copy: a file that was just written may not be run while another test forks.
        if std::fs::hard_link(engine_program(), &program).is_err() {
            std::fs::copy(engine_program(), &program).unwrap();
        }
    }
    let mut command = if mode == Mode::Unprivileged && rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", OTHER_UID, "--regid", OTHER_UID, "--clear-groups"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    command.arg("--dir").arg(directory).arg("--supervisor").arg(&supervisor).args(options);
    command
}

impl TestEngine {
    pub fn start(mode: Mode) -> Self {
        Self::start_with(mode, WAITING_INIT, &[])
    }

    pub fn start_with(mode: Mode, init: &str, options: &[&str]) -> Self {
        Self::start_in(fresh_directory(), mode, init, options)
    }

    pub fn start_in(directory: PathBuf, mode: Mode, init: &str, options: &[&str]) -> Self {
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let process =
            command(&directory, mode, init, options).stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let mut engine = Self { process, directory, mode };
        let ready = || UnixStream::connect(engine.directory.join("control.sock")).is_ok();
        let begun = Instant::now();
        while !ready() {
            let ended = engine.process.try_wait().unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < Duration::from_secs(20),
                "engine: {ended:?} {}",
                engine.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        engine
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        http(&self.directory.join("docker.sock"), method, path, body.as_bytes())
    }

    pub fn control(&self, method: &str, path: &str, body: &str) -> Answer {
        http(&self.directory.join("control.sock"), method, path, body.as_bytes())
    }

    /// Creates a sidecar and a container beside it, and starts both.
    pub fn boot(&self, name: &str) {
        self.create(name, &[]);
        let started = self.call("POST", &format!("/containers/{name}/start"), "");
        assert_eq!(started.status, 204, "{} {}", started.text(), self.log());
    }

    pub fn create(&self, name: &str, environment: &[&str]) {
        let sidecar = r#"{"Image":"proxy","ExposedPorts":{"39001/tcp":{}}}"#;
        assert_eq!(self.call("POST", &format!("/containers/create?name={name}-proxy"), sidecar).status, 201);
        assert_eq!(self.call("POST", &format!("/containers/{name}-proxy/start"), "").status, 204);
        let body = serde_json::json!({
            "Image": "image", "Env": environment, "HostConfig": { "NetworkMode": format!("container:{name}-proxy") },
        });
        assert_eq!(
            self.call("POST", &format!("/containers/create?name={name}"), &body.to_string()).status,
            201
        );
    }

    /// Runs a shell command in a container, as `root` or as `sandbox`.
    pub fn sh(&self, name: &str, user: &str, script: &str) -> ExecOutput {
        self.exec(name, user, &["sh", "-c", script], b"")
    }

    pub fn exec(&self, name: &str, user: &str, command: &[&str], input: &[u8]) -> ExecOutput {
        let body = serde_json::json!({
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Cmd": command, "User": user,
        });
        let created = self.call("POST", &format!("/containers/{name}/exec"), &body.to_string());
        assert_eq!(created.status, 201, "{}", created.text());
        let id = created.json()["Id"].as_str().unwrap().to_owned();
        let answer = self.attach(&id, input);
        assert_eq!(answer.status, 101, "{}", answer.text());
        let (mut stdout, mut stderr, mut rest) = (Vec::new(), Vec::new(), answer.body.as_slice());
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[4..8].try_into().unwrap()) as usize;
            let payload = &rest[8..8 + length];
            match rest[0] {
                1 => stdout.extend(payload),
                2 => stderr.extend(payload),
                other => panic!("unknown stream {other}"),
            }
            rest = &rest[8 + length..];
        }
        let inspected = self.call("GET", &format!("/exec/{id}/json"), "").json();
        assert_eq!(inspected["Running"], false, "the end of the stream comes after the recorded end");
        ExecOutput {
            code: inspected["ExitCode"].as_i64().unwrap(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    pub fn attach(&self, id: &str, input: &[u8]) -> Answer {
        let mut stream = UnixStream::connect(self.directory.join("docker.sock")).unwrap();
        let body = r#"{"Detach":false,"Tty":false}"#;
        write!(stream, "POST /exec/{id}/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream.write_all(input).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_answer(stream)
    }

    pub fn containers(&self) -> Vec<Value> {
        self.control("GET", "/v1/containers", "").json()["containers"].as_array().unwrap().clone()
    }

    /// PID 1 of a container, as the host counts.
    pub fn init_pid(&self, name: &str) -> i32 {
        let all = self.containers();
        let found = all.iter().find(|container| container["name"] == name).unwrap();
        i32::try_from(found["initPid"].as_i64().unwrap()).unwrap()
    }

    pub fn denials(&self, name: &str) -> Vec<Value> {
        let path = format!("/v1/denials?container={name}");
        self.control("GET", &path, "").json()["denials"].as_array().unwrap().clone()
    }

    /// Where the sidecar of a container listens.
    pub fn ingress(&self, name: &str) -> u16 {
        let sidecar = self.call("GET", &format!("/containers/{name}-proxy/json"), "").json();
        sidecar["NetworkSettings"]["Ports"]["39001/tcp"][0]["HostPort"].as_str().unwrap().parse().unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn http(socket: &Path, method: &str, path: &str, body: &[u8]) -> Answer {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: d\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    // An answer may come before the body is taken.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    read_answer(stream)
}

pub fn read_answer(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    parse_answer(&bytes).unwrap_or(Answer { status: 0, body: bytes })
}

/// Status 0: the connection was cut without an answer.
fn parse_answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = std::str::from_utf8(&bytes[..end]).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: bytes[end + 4..].to_vec() })
}

/// Whether a process exists and is no zombie.
pub fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits for a condition with a deadline.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Host pids of all processes in the pid namespace of `init`.
pub fn processes_of(init: i32) -> Vec<i32> {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(of_init) = namespace(init) else { return Vec::new() };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| namespace(*pid).as_ref() == Some(&of_init)).collect()
}
