//! Runs the real `ringfenced` and speaks to it as the Sandbox object does.
//!
//! A supervisor belongs to its [`Ringfenced`]: it, its namespace and its directories are gone when that is dropped.
//! Where the machine cannot give what a ground needs, the test fails and says what is missing.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use ringfence_wire::ids::{Order, ProcessId};
use ringfence_wire::supervisor::{
    BOOT_ID_HEADER, BOOT_KEY_HEADER, ErrorBody, ErrorCode, GENERATION_HEADER, Hello, JobKind, JobSpec,
    JobView, OutputPage, StartJob, StopReport, TeardownReport, start_env,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const BOOT_KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
pub const GENERATION: u64 = 7;

/// Where a supervisor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// PID 1 of its own pid namespace, jobs under another uid. Needs root.
    Namespace,
    /// PID 1 of its own pid namespace in a user namespace that maps one id.
    OneUid,
    /// In the machine's own pid namespace.
    Session,
}

pub const GROUNDS: [Ground; 3] = [Ground::Namespace, Ground::OneUid, Ground::Session];

pub struct Ringfenced {
    child: Child,
    /// The supervisor's pid as the test sees it.
    pub pid: i32,
    pub port: u16,
    pub directory: tempfile::TempDir,
    agent: ureq::Agent,
    next_order: AtomicU64,
}

/// What the supervisor answered.
pub struct Answer {
    pub status: u16,
    pub boot_id: Option<String>,
    pub generation: Option<String>,
    pub headers: ureq::http::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error} in {} {}", self.status, String::from_utf8_lossy(&self.body))
        })
    }

    pub fn code(&self) -> ErrorCode {
        self.json::<ErrorBody>().code
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A start environment that lasts ten minutes.
pub fn environment(directory: &Path) -> BTreeMap<String, String> {
    let place = |name: &str| directory.join(name).display().to_string();
    BTreeMap::from([
        (start_env::BOOT_KEY.to_owned(), BOOT_KEY.to_owned()),
        (start_env::GENERATION.to_owned(), GENERATION.to_string()),
        (start_env::DEADLINE_MS.to_owned(), (now_ms() + 600_000).to_string()),
        (start_env::PORT.to_owned(), "0".to_owned()),
        // Loopback only, wherever the test runs.
        (start_env::IDENTITY.to_owned(), "host_unsandboxed".to_owned()),
        (start_env::WORKSPACE.to_owned(), place("workspace")),
        (start_env::ARTIFACTS.to_owned(), place("artifacts")),
        (start_env::RUN.to_owned(), place("run")),
        ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
    ])
}

/// The executable under test: `RINGFENCED`, or the one cargo built.
pub fn binary() -> String {
    let built = option_env!("CARGO_BIN_EXE_ringfenced").map(str::to_owned);
    std::env::var("RINGFENCED").ok().or(built).expect("RINGFENCED names the executable")
}

/// The command that runs `ringfenced` on a ground.
pub fn command(ground: Ground) -> Command {
    let binary = binary();
    let namespace: &[&str] = match ground {
        Ground::Session => return Command::new(&binary),
        Ground::Namespace => {
            assert!(rustix::process::geteuid().is_root(), "a pid namespace with two uids needs root");
            &["--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
        }
        Ground::OneUid => {
            &["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
        }
    };
    let mut command = Command::new("unshare");
    command.args(namespace).arg(&binary);
    command
}

/// A directory that every uid can reach.
pub fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("ringfence-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

impl Ringfenced {
    pub fn start(ground: Ground) -> Self {
        Self::start_with(ground, &[])
    }

    pub fn start_with(ground: Ground, changes: &[(&str, &str)]) -> Self {
        Self::launch(command(ground), ground != Ground::Session, changes)
    }

    /// Under a command of the test's own, whose only child it becomes.
    pub fn start_under(outer: &[&str], changes: &[(&str, &str)]) -> Self {
        let (program, arguments) = outer.split_first().unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg(binary());
        Self::launch(command, true, changes)
    }

    /// A number that no other test on this machine uses.
    pub fn unique() -> u64 {
        let mut bytes = [0u8; 8];
        getrandom::fill(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn launch(mut command: Command, wrapped: bool, changes: &[(&str, &str)]) -> Self {
        let directory = open_directory();
        let said = directory.path().join("stderr");
        let mut environment = environment(directory.path());
        environment.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut child = command
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .expect("unshare or ringfenced can be run");
        let port = wait_for("the supervisor listens", || {
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the supervisor ended with {status} instead of listening: {text}");
            }
            let address = text.split("listens on ").nth(1)?;
            address.split([':', ',']).nth(1)?.parse().ok()
        });
        let outer = child.id() as i32;
        let pid = if wrapped { only_child(outer) } else { outer };
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        Self { child, pid, port, directory, agent, next_order: AtomicU64::new(1) }
    }

    pub fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// Waits until a job has made a file in the workspace: what it did before that is done.
    pub fn made(&self, name: &str) {
        let path = self.workspace().join(name);
        wait_for("a job makes its file", || path.exists().then_some(()));
    }

    /// Makes a file in the workspace that a job waits for (see [`until_made`]).
    pub fn make(&self, name: &str) {
        std::fs::write(self.workspace().join(name), "").unwrap();
    }

    pub fn artifacts(&self) -> PathBuf {
        self.directory.path().join("artifacts")
    }

    /// What the supervisor has written to its standard error.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stderr")).unwrap()
    }

    pub fn order(&self) -> Order {
        Order(self.next_order.fetch_add(1, Ordering::Relaxed))
    }

    pub fn request(&self, method: &str, path: &str, key: Option<&str>, body: Vec<u8>) -> Answer {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{}{path}", self.port))
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header(BOOT_KEY_HEADER, key);
        }
        let mut answered = self.agent.run(request.body(body).unwrap()).expect("the supervisor answers");
        let header = |name| answered.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        Answer {
            status: answered.status().as_u16(),
            boot_id: header(BOOT_ID_HEADER),
            generation: header(GENERATION_HEADER),
            headers: answered.headers().clone(),
            body: answered.body_mut().with_config().limit(64 << 20).read_to_vec().expect("a whole body"),
        }
    }

    pub fn call(&self, method: &str, path: &str, body: &impl Serialize) -> Answer {
        self.request(method, path, Some(BOOT_KEY), serde_json::to_vec(body).unwrap())
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, Some(BOOT_KEY), Vec::new())
    }

    pub fn hello(&self) -> Hello {
        self.get("/v1/hello").json()
    }

    /// Starts a job under the next order.
    pub fn job(&self, id: &str, kind: JobKind, command: &str) -> JobView {
        self.started(&self.start_request(id, kind, command))
    }

    pub fn start_request(&self, id: &str, kind: JobKind, command: &str) -> StartJob {
        StartJob {
            order: self.order(),
            id: id.into(),
            nonce: format!("nonce of {id}").into(),
            spec: JobSpec {
                kind,
                command: Some(command.to_owned()),
                argv: None,
                cwd: None,
                env: BTreeMap::new(),
                stdin: Default::default(),
                timeout_ms: None,
                log_path: None,
            },
            wait_ms: 0,
            wake_on_stopping: false,
            tail_bytes: 0,
        }
    }

    pub fn started(&self, request: &StartJob) -> JobView {
        let answer = self.call("POST", "/v1/jobs", request);
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// Runs a fenced command to its end; the view carries the tail.
    pub fn run(&self, id: &str, command: &str) -> JobView {
        let request = StartJob {
            wait_ms: 5_000,
            tail_bytes: 65_536,
            ..self.start_request(id, JobKind::Fenced, command)
        };
        let view = self.started(&request);
        assert!(view.end.is_some(), "{id} ended within its wait: {view:?}");
        view
    }

    pub fn view(&self, id: &str) -> JobView {
        self.get(&format!("/v1/jobs/{id}")).json()
    }

    /// The job's view once its command runs.
    pub fn running(&self, id: &str) -> JobView {
        wait_for("the command runs", || {
            let view = self.view(id);
            assert!(!view.state.is_terminal(), "{view:?}");
            view.pid.is_some().then_some(view)
        })
    }

    /// The job's view once it has ended.
    pub fn ended(&self, id: &str) -> JobView {
        wait_for("the job ends", || {
            let view: JobView = self.get(&format!("/v1/jobs/{id}?waitMs=5000&tailBytes=65536")).json();
            view.end.is_some().then_some(view)
        })
    }

    pub fn page(&self, id: &str, cursor: u64, limit: u64, wait_ms: u64) -> OutputPage {
        self.get(&format!("/v1/jobs/{id}/output?cursor={cursor}&limit={limit}&waitMs={wait_ms}")).json()
    }

    pub fn teardown(&self, spare: &[&str]) -> TeardownReport {
        let spare: Vec<ProcessId> = spare.iter().map(|id| (*id).into()).collect();
        self.call("POST", "/v1/teardown", &serde_json::json!({ "order": self.order(), "spare": spare }))
            .json()
    }

    pub fn stop(&self, id: &str) -> StopReport {
        self.request("DELETE", &format!("/v1/jobs/{id}"), Some(BOOT_KEY), Vec::new()).json()
    }

    /// Waits for the supervisor itself to end; its exit code.
    pub fn exit_code(&mut self, within: Duration) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < within {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the supervisor did not end within {within:?}: {}", self.said());
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Ringfenced {
    fn drop(&mut self) {
        // The supervisor first: as PID 1 it takes its namespace with it; else its leaders see it gone.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(self.pid).unwrap(),
                rustix::process::Signal::KILL,
            );
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn only_child(parent: i32) -> i32 {
    wait_for("unshare has its child", || {
        std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            (parent_of(pid)? == parent).then_some(pid)
        })
    })
}

/// A command that waits in a job's directory until the test has made a file there.
pub fn until_made(name: &str) -> String {
    format!("until [ -e {name} ]; do sleep 0.01; done")
}

/// A command that waits until the last background child runs its own program: until then it is a second shell.
pub fn until_last_child_is(program: &str) -> String {
    format!("until [ \"$(cat /proc/$!/comm)\" = {program} ]; do sleep 0.01; done")
}

/// The parent of a process as the test sees it.
pub fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Asks again until there is an answer; fails after a while.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
