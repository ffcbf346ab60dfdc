//! The local stack: the engine, and `wrangler dev` with the substrate and the consumers beside it.
//!
//! The invariant: a [`Stack`] owns every process it started, and none of them outlives it: not after
//! [`Stack::stop`], not after a drop or a panic, not after SIGKILL of this very process (see [`guard`]).
//!
//! Order of effects. Start: prepare configurations and secrets → engine, until its control socket answers →
//! wrangler, until the Worker answers `/health` through the port. Stop: wrangler first (it tells the engine to
//! remove its containers) → engine (its containers die with it) → sockets removed. Run directories are kept:
//! they hold the logs, and the storage that a next start finds again.

mod control;
mod error;
pub mod guard;
mod guarded;
pub mod interrupt;
mod options;
mod port;
pub mod processes;
mod programs;
mod ready;
mod secrets;
mod sys;
mod tools;
mod workers;

pub use control::{Call, Container, EngineControl, EngineDenial, EngineDenials};
pub use error::StackError;
pub use guarded::ProgramEnd;
pub use options::{DEFAULT_STARTUP, StackOptions};
pub use processes::Process;
pub use ringfence_engine::BindReadOnly;
pub use tools::{Tools, find_checkout};
pub use workers::WorkerSource;

use guarded::Guarded;
use ringfence_client::Client;
use secrets::Secrets;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// `sockaddr_un` holds 108 bytes, the last one zero.
const MAX_SOCKET_PATH: usize = 107;
const ENGINE: &str = "engine";
const WRANGLER: &str = "wrangler";

/// A running stack.
pub struct Stack {
    options: StackOptions,
    layout: Layout,
    secrets: Secrets,
    prepared: Vec<PathBuf>,
    port: u16,
    url: String,
    engine: Guarded,
    wrangler: Guarded,
    /// Held while the stack lives: one stack per run directory.
    _lock: fs::File,
}

/// Where one run keeps its things.
struct Layout {
    docker_socket: PathBuf,
    control_socket: PathBuf,
    /// `docker`, which is our own executable under another name.
    docker_link: PathBuf,
    engine_log: PathBuf,
    wrangler_log: PathBuf,
    /// Kept while the stack lives, where the run directory's own path is too long for a socket.
    _sockets: Option<tempfile::TempDir>,
}

impl Stack {
    /// Starts everything and waits until the Worker answers. `progress` is told, in words, what is awaited.
    pub async fn start(options: StackOptions, progress: impl FnMut(&str)) -> Result<Self, StackError> {
        Self::start_until(options, progress, std::future::pending()).await
    }

    /// As [`Stack::start`], but gives up when `interrupted` is ready: what was started is then ended before
    /// [`StackError::Interrupted`] is returned.
    pub async fn start_until(
        options: StackOptions,
        mut progress: impl FnMut(&str),
        interrupted: impl Future<Output = ()>,
    ) -> Result<Self, StackError> {
        tokio::pin!(interrupted);
        make_directory(&options.run)?;
        let lock = lock(&options.run)?;
        let layout = Layout::make(&options)?;
        let secrets = Secrets::load_or_make(&options.run, &options.http_consumers)?;
        let prepared = options.prepare_workers(&secrets)?;
        let port = port::pick(options.port)?;

        progress("starting the engine");
        let mut engine = Guarded::start(programs::engine(&options, &layout)).await?;
        let control = EngineControl::new(&layout.control_socket);
        let ready = tokio::select! {
            ready = ready::engine(&control, &engine, &layout.engine_log, options.startup) => ready,
            () = &mut interrupted => Err(StackError::Interrupted),
        };
        if let Err(error) = ready {
            let _ = engine.stop().await;
            return Err(error);
        }
        progress("starting wrangler dev");
        match start_wrangler(&options, &layout, &prepared, port, &mut progress, interrupted).await {
            Ok(wrangler) => {
                let url = format!("http://127.0.0.1:{port}");
                Ok(Self { options, layout, secrets, prepared, port, url, engine, wrangler, _lock: lock })
            }
            Err(error) => {
                let _ = engine.stop().await;
                Err(error)
            }
        }
    }

    /// The substrate's HTTP face.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A consumer Worker's own HTTP, by its name in its wrangler configuration. No trailing slash.
    pub fn worker_url(&self, name: &str) -> String {
        format!("{}/@{name}", self.url)
    }

    /// The bearer token of one of [`StackOptions::http_consumers`].
    pub fn token(&self, consumer: &str) -> Option<&str> {
        self.secrets.tokens.get(consumer).map(String::as_str)
    }

    /// The ticket secrets this run uses, newest first, for a test that mints.
    pub fn ticket_secrets(&self) -> &[String] {
        &self.secrets.ticket_secrets
    }

    /// A client of the HTTP face as `consumer`.
    pub fn client(&self, consumer: &str) -> Result<Client, StackError> {
        Ok(Client::new(&self.url, self.token(consumer).unwrap_or_default())?)
    }

    pub fn control(&self) -> EngineControl {
        EngineControl::new(&self.layout.control_socket)
    }

    pub fn docker_socket(&self) -> &Path {
        &self.layout.docker_socket
    }

    pub fn run_directory(&self) -> &Path {
        &self.options.run
    }

    /// Name and path of each log, in the order in which one should look.
    pub fn logs(&self) -> [(&'static str, &Path); 2] {
        [(WRANGLER, &self.layout.wrangler_log), (ENGINE, &self.layout.engine_log)]
    }

    pub fn engine_process(&self) -> &Process {
        self.engine.process()
    }

    pub fn wrangler_process(&self) -> &Process {
        self.wrangler.process()
    }

    /// The runtime that runs the Workers. wrangler runs a second workerd, its front proxy, which is left out.
    pub fn workerd_process(&self) -> Result<Process, StackError> {
        let below = processes::descendants(self.wrangler.process().pid).map_err(StackError::Processes)?;
        below
            .into_iter()
            .filter(|process| process.name == "workerd" && process.state != 'Z')
            .find(|process| !serves_port(process.pid, self.port))
            .ok_or(StackError::NoProcess { name: "workerd" })
    }

    /// SIGKILL to the runtime that runs the Workers; wrangler starts another by itself. Returns when it is dead.
    pub async fn kill_workerd(&self) -> Result<Process, StackError> {
        let process = self.workerd_process()?;
        processes::signal(&process, rustix::process::Signal::KILL).map_err(StackError::Processes)?;
        ready::until_dead(&process).await;
        Ok(process)
    }

    /// SIGKILL to wrangler and all beneath it, as a crash would have it. [`Stack::start_wrangler`] starts it again.
    pub async fn kill_wrangler(&mut self) -> Result<(), StackError> {
        processes::signal(self.wrangler.process(), rustix::process::Signal::KILL)
            .map_err(StackError::Processes)?;
        self.wrangler.ended().await;
        Ok(())
    }

    /// Ends wrangler in order.
    pub async fn stop_wrangler(&mut self) -> Result<(), StackError> {
        self.wrangler.stop().await
    }

    /// Starts wrangler again, on the same port and the same storage.
    pub async fn start_wrangler(&mut self, mut progress: impl FnMut(&str)) -> Result<(), StackError> {
        let never = std::future::pending();
        self.wrangler =
            start_wrangler(&self.options, &self.layout, &self.prepared, self.port, &mut progress, never)
                .await?;
        Ok(())
    }

    /// Waits until the Worker answers again, as after [`Stack::kill_workerd`].
    pub async fn wait_ready(&self) -> Result<(), StackError> {
        ready::worker(self.port, &self.wrangler, &self.layout.wrangler_log, self.options.startup, &mut |_| {})
            .await
    }

    /// Returns when a part ended by itself: which one, and how.
    pub async fn part_ended(&mut self) -> (&'static str, ProgramEnd) {
        tokio::select! {
            end = self.engine.ended() => (ENGINE, end),
            end = self.wrangler.ended() => (WRANGLER, end),
        }
    }

    /// Ends everything, in order, and returns when nothing is left.
    pub async fn stop(mut self) -> Result<(), StackError> {
        let wrangler = self.wrangler.stop().await;
        let engine = self.engine.stop().await;
        for socket in [&self.layout.docker_socket, &self.layout.control_socket] {
            let _ = fs::remove_file(socket);
        }
        wrangler.and(engine)
    }
}

impl Layout {
    fn make(options: &StackOptions) -> Result<Self, StackError> {
        let run = &options.run;
        let logs = run.join("logs");
        make_directory(&logs)?;
        let longest = run.join("control.sock");
        let sockets = if longest.as_os_str().len() > MAX_SOCKET_PATH {
            let made = tempfile::Builder::new().prefix("ringfence-").tempdir();
            Some(made.map_err(|source| StackError::File {
                what: "making a directory for sockets beside",
                path: run.clone(),
                source,
            })?)
        } else {
            None
        };
        let home = sockets.as_ref().map_or(run.as_path(), tempfile::TempDir::path).to_path_buf();
        let bin = run.join("bin");
        make_directory(&bin)?;
        let docker_link = bin.join("docker");
        let _ = fs::remove_file(&docker_link);
        std::os::unix::fs::symlink(&options.ringfence, &docker_link).map_err(|source| StackError::File {
            what: "linking",
            path: docker_link.clone(),
            source,
        })?;
        Ok(Self {
            docker_socket: home.join("docker.sock"),
            control_socket: home.join("control.sock"),
            docker_link,
            engine_log: logs.join("engine.log"),
            wrangler_log: logs.join("wrangler.log"),
            _sockets: sockets,
        })
    }
}

async fn start_wrangler(
    options: &StackOptions,
    layout: &Layout,
    prepared: &[PathBuf],
    port: u16,
    progress: &mut impl FnMut(&str),
    interrupted: impl Future<Output = ()>,
) -> Result<Guarded, StackError> {
    let mut wrangler = Guarded::start(programs::wrangler(options, layout, prepared, port)).await?;
    let ready = tokio::select! {
        ready = ready::worker(port, &wrangler, &layout.wrangler_log, options.startup, progress) => ready,
        () = interrupted => Err(StackError::Interrupted),
    };
    match ready {
        Ok(()) => Ok(wrangler),
        Err(error) => {
            let _ = wrangler.stop().await;
            Err(error)
        }
    }
}

/// wrangler's front proxy is the workerd whose entry socket is the port we gave.
fn serves_port(pid: i32, port: u16) -> bool {
    let entry = format!("entry=127.0.0.1:{port}");
    processes::command_line(pid).split(' ').any(|argument| argument.ends_with(&entry))
}

fn lock(run: &Path) -> Result<fs::File, StackError> {
    let path = run.join("lock");
    let file = fs::File::create(&path).map_err(|source| StackError::File {
        what: "opening",
        path: path.clone(),
        source,
    })?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StackError::InUse { run: run.to_path_buf() }),
        Err(error) => Err(StackError::File { what: "locking", path, source: error.into() }),
    }
}

fn make_directory(path: &Path) -> Result<(), StackError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| StackError::File {
        what: "making the directory",
        path: path.to_path_buf(),
        source,
    })
}
