//! One stack of a test's own: the stack that `ringfence dev` starts, on free ports and in a fresh directory, with
//! the fixture consumer beside the substrate and faults allowed.
//!
//! Owns every process it started, through the stack it wraps: they end when the handle is dropped, also when a
//! test panics, and even when this process is killed. The directory goes with it; after a failure its logs are
//! kept and named.

use crate::control::Control;
use crate::http::{Endpoint, send};
use crate::origin::Origins;
use crate::processes::Process;
use crate::witness::{self, Witness};
use anyhow::{Context, Result, ensure};
use ringfence_cli::stack::{self, BindReadOnly, StackOptions, WorkerSource};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The substrate's name in its own configuration.
const SUBSTRATE: &str = "ringfence";

/// For wrangler to start its runtime again: two seconds on an idle machine.
const RUNTIME_IS_BACK: Duration = Duration::from_secs(30);

/// What a test's stack differs in from the shipped one.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Another build of the Worker than the released one.
    pub entry: Option<PathBuf>,
    /// Variables of the substrate's that replace its own.
    pub vars: BTreeMap<String, Value>,
    /// Secrets of the substrate's beside its own.
    pub secrets: BTreeMap<String, String>,
    /// What every sandbox sees beside the system's directories, read-only.
    pub bind_read_only: Vec<BindReadOnly>,
    /// Hosts that an origin on loopback stands in for. Only the test build of the Worker looks there.
    pub origins: &'static [&'static str],
}

impl Setup {
    /// The test build of the Worker, which can be asked to panic and finds the hosts of [`Setup::origins`] on loopback.
    pub fn hooked() -> Self {
        Self { entry: Some(root().join("target/worker-panic-hook/src/entry.js")), ..Self::default() }
    }
}

pub struct Stack {
    inner: Mutex<stack::Stack>,
    front: Endpoint,
    control: Control,
    witness: Witness,
    origins: Origins,
    secrets: Vec<String>,
    tokens: BTreeMap<String, String>,
    /// None once its logs are to be kept.
    directory: std::sync::Mutex<Option<TempDir>>,
    run: PathBuf,
}

/// The consumers in good standing; what the fixture is bound as beyond these must be refused.
fn consumers() -> BTreeMap<String, Value> {
    let both = json!({ "faces": ["rpc", "http"] });
    [
        ("alpha", both.clone()),
        ("beta", both.clone()),
        ("a", both),
        ("http-only", json!({ "faces": ["http"] })),
    ]
    .map(|(name, row)| (name.to_owned(), row))
    .into()
}

impl Stack {
    pub async fn start(setup: Setup) -> Result<Self> {
        let root = root();
        let bundle = match &setup.entry {
            None => root.join("build/index.js"),
            Some(entry) => entry.clone(),
        };
        ensure!(bundle.is_file(), "{} is not built: run scripts/build-worker first", bundle.display());
        let directory = tempfile::Builder::new().prefix("ringfence-e2e-").tempdir()?;
        let witness = Witness::open(&probe()?)?;
        let origins = Origins::start(setup.origins).await?;
        let mut options = StackOptions::new(&root, directory.path(), shipped("ringfence")?)?;
        options.supervisor = Some(shipped("ringfenced")?);
        options.faults = true;
        options.bind_read_only =
            vec![BindReadOnly { source: witness.directory().to_owned(), target: witness::INSIDE.into() }];
        options.bind_read_only.extend(setup.bind_read_only);
        options.substrate.main = setup.entry;
        options.substrate.secrets = setup.secrets;
        // No test finds a slot taken, or a container, that it does not know of.
        options.substrate.vars.insert("CANARY".to_owned(), json!(r#"{"automatic":false}"#));
        if !setup.origins.is_empty() {
            let map = serde_json::to_string(&origins.map())?;
            options.substrate.vars.insert("EGRESS_ORIGINS".to_owned(), json!(map));
        }
        options.substrate.vars.extend(setup.vars);
        options.consumers = vec![WorkerSource::new(root.join("tests/consumer/wrangler.toml"))];
        options.allow = consumers();
        options.http_consumers = ["alpha", "beta", "http-only"].map(str::to_owned).into();

        let names = options.http_consumers.clone();
        let inner = stack::Stack::start(options, |_| {}).await?;
        let tokens =
            names.into_iter().filter_map(|name| Some((name.clone(), inner.token(&name)?.to_owned())));
        Ok(Self {
            front: Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, inner.port()))),
            control: Control::at(inner.control().socket()),
            secrets: inner.ticket_secrets().to_vec(),
            tokens: tokens.collect(),
            inner: Mutex::new(inner),
            witness,
            origins,
            run: directory.path().to_owned(),
            directory: std::sync::Mutex::new(Some(directory)),
        })
    }

    /// Everything that the run wrote is beneath it.
    pub fn run_directory(&self) -> &Path {
        &self.run
    }

    /// The one port: the HTTP face, and the fixture consumer beneath its own path.
    pub fn front(&self) -> &Endpoint {
        &self.front
    }

    pub fn control(&self) -> &Control {
        &self.control
    }

    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// What stands in for the internet.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// The bearer token of a consumer that has the HTTP face.
    pub fn token(&self, consumer: &str) -> &str {
        &self.tokens[consumer]
    }

    /// Where everything that the stack writes lies: the objects' storage and every log.
    pub fn directory(&self) -> &Path {
        &self.run
    }

    /// What this deployment's tickets are signed with: known to the tests alone, beside the Worker.
    pub fn ticket_secrets(&self) -> &[String] {
        &self.secrets
    }

    /// The name the engine keeps an object's container under.
    pub fn container_name(&self, object: &str) -> String {
        format!("workerd-{SUBSTRATE}-Sandbox-{object}")
    }

    /// SIGKILL to the runtime that runs the Workers; returns when another answers.
    pub async fn kill_workerd(&self) {
        let mut inner = self.inner.lock().await;
        let killed = inner.kill_workerd().await.expect("there is a runtime to kill");
        answer_again(&mut inner).await;
        let now = inner.workerd_process().expect("another runs");
        assert_ne!((now.pid, now.start_time), (killed.pid, killed.start_time));
    }

    /// The runtime that runs the Workers.
    pub async fn workerd(&self) -> Process {
        let pid = self.inner.lock().await.workerd_process().expect("a runtime runs").pid;
        Process::read(pid).expect("it lives")
    }

    /// SIGKILL to wrangler and all beneath it, as a crash would have it, and a new start on the same storage.
    pub async fn restart_wrangler(&self) {
        let mut inner = self.inner.lock().await;
        let wrangler = Process::read(inner.wrangler_process().pid).expect("wrangler runs");
        inner.kill_wrangler().await.expect("wrangler can be killed");
        assert!(!wrangler.is_alive());
        inner.start_wrangler(|_| {}).await.expect("it starts again");
    }

    /// Returns when the Workers answer, as after a kill under another test's hand.
    pub async fn answers(&self) {
        answer_again(&mut *self.inner.lock().await).await;
    }

    /// Puts storage where the runtime will look for it when a Sandbox object is first called.
    pub fn plant(&self, object: &str, dump: &str) {
        let directory = self.run.join("storage/v3/do").join(format!("{SUBSTRATE}-Sandbox"));
        std::fs::create_dir_all(&directory).expect("it is ours");
        let path = directory.join(format!("{object}.sqlite"));
        assert!(!path.exists(), "the object has storage of its own already: {}", path.display());
        let database = rusqlite::Connection::open(path).expect("a new database");
        database.execute_batch(dump).expect("a dump");
    }

    /// What the Workers and their runtime have written so far.
    pub fn worker_log(&self) -> String {
        let log = std::fs::read(self.run.join("logs/wrangler.log")).expect("wrangler writes a log");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Keeps the logs for whoever reads of the failure, and says where they are.
    pub fn keep_logs(&self) -> String {
        if let Some(directory) = self.directory.lock().expect("nobody panics while holding this").take() {
            let _ = directory.keep();
        }
        self.run.join("logs").display().to_string()
    }

    /// Ends everything in order and returns when nothing is left. A drop ends it too, and waits for nothing.
    pub async fn end(self) -> Result<()> {
        Ok(self.inner.into_inner().stop().await?)
    }

    /// One look at the HTTP face, whatever it says.
    pub async fn health(&self) -> Result<u16> {
        Ok(send(&self.front, "GET", "/health", &[], "").await?.status)
    }
}

/// Waits for wrangler to bring back a runtime that was killed. Seen once, on a loaded machine: it never did. Then it is
/// started anew on the same storage, which to the Workers is the same restart.
async fn answer_again(stack: &mut stack::Stack) {
    if let Ok(ready) = tokio::time::timeout(RUNTIME_IS_BACK, stack.wait_ready()).await {
        return ready.expect("wrangler runs");
    }
    eprintln!("wrangler did not bring its runtime back within {RUNTIME_IS_BACK:?}: it is started anew");
    stack.kill_wrangler().await.expect("wrangler can be killed");
    stack.start_wrangler(|_| {}).await.expect("it starts again");
}

/// The repository's top.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// A program as it ships, from where scripts/build-native puts it.
pub fn shipped(name: &str) -> Result<PathBuf> {
    let path = root().join("target/native").join(name);
    ensure!(path.is_file(), "{} is not built: run scripts/build-native first", path.display());
    Ok(path)
}

/// What runs inside a sandbox for the tests; cargo builds it with them, two directories up from their binary.
fn probe() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let profile =
        this.parent().and_then(Path::parent).context("the test binary lies in a target directory")?;
    Ok(profile.join("probe"))
}
