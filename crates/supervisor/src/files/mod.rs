//! Files in and out of the sandbox, through a worker with a job's credentials.
//!
//! Invariant: the supervisor itself opens no path that a job could have shaped. The worker is this same executable
//! under another name: it gives up every privilege, resolves the path beneath one of the allowed roots without
//! following anything out of it, and streams. What it says first is one line: [`Said`].

mod listing;
mod worker;

pub use worker::main;

use crate::ground::LOGS;
use crate::http::answer::{Answer, Refused, refuse};
use crate::launch::LaunchFailed;
use crate::leader::Orders as LeaderOrders;
use crate::supervisor::Shared;
use crate::{http, limits};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use ringfence_core::sweep::Root;
use ringfence_wire::supervisor::{ErrorCode, FILE_SHA256_HEADER, FileReceipt, MAX_FILE_BYTES};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// `argv[0]` of a worker.
pub const NAME: &str = "ringfenced: files";

/// What a worker is told, as one line before the content.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    root: PathBuf,
    /// Beneath the root.
    path: PathBuf,
    become_user: Option<(u32, u32)>,
    task: Task,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Task {
    Get {
        limit: u64,
    },
    Page {
        at: u64,
        limit: u64,
    },
    /// All regular files beneath the root but for what is beneath this directory.
    List {
        except: PathBuf,
        limit: usize,
    },
    Put {
        bytes: u64,
        sha256: String,
        temporary: String,
    },
}

/// What a worker says, as one line; after [`Said::Reading`] and [`Said::Paging`] comes the content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Reading { bytes: u64, sha256: String },
    Paging { bytes: u64, end: u64 },
    Listed { files: Vec<(String, u64)>, more: bool },
    Written,
    Refused { code: ErrorCode, message: String },
}

/// How much is read from a worker at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// `GET` and `PUT /v1/files`.
pub async fn serve(supervisor: &Shared, request: Request<Incoming>) -> Result<Answer, Refused> {
    let (head, mut body) = request.into_parts();
    let answered = answer(supervisor, &head, &mut body).await;
    if answered.is_err() {
        http::discard(&mut body).await;
    }
    answered
}

async fn answer(supervisor: &Shared, head: &Parts, body: &mut Incoming) -> Result<Answer, Refused> {
    let parameters = http::parameters(&head.uri);
    let parameter =
        |name: &str| parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
    let Some(path) = parameter("path") else {
        return refuse(ErrorCode::BadRequest, "path is missing");
    };
    let (root, beneath) = beneath_a_root(supervisor, &path)?;
    let orders = |task| Orders {
        root,
        path: beneath,
        become_user: LeaderOrders::user(supervisor.ground.credentials),
        task,
    };
    match head.method {
        Method::GET => {
            get(Worker::start(supervisor, &orders(Task::Get { limit: MAX_FILE_BYTES })).await?).await
        }
        Method::PUT => {
            let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
            let Some(bytes) = length else {
                return refuse(ErrorCode::BadRequest, "Content-Length is missing: it says how much was sent");
            };
            if bytes > MAX_FILE_BYTES {
                return refuse(
                    ErrorCode::TooLarge,
                    format!("a file may have at most {MAX_FILE_BYTES} bytes"),
                );
            }
            let sha256 = parameter("sha256").map(|digest| digest.to_ascii_lowercase()).unwrap_or_default();
            if sha256.len() != 64 || hex::decode(&sha256).is_err() {
                return refuse(ErrorCode::BadRequest, "sha256 must be the content's SHA-256 in hexadecimal");
            }
            let nonce = crate::launch::random().map_err(|failed| internal(failed.to_string()))?;
            let temporary = format!(".ringfence-{}", hex::encode(nonce));
            let task = Task::Put { bytes, sha256: sha256.clone(), temporary };
            let worker = Worker::start(supervisor, &orders(task)).await?;
            put(worker, body, FileReceipt { path, bytes, sha256 }).await
        }
        _ => refuse(ErrorCode::NotFound, "files take GET and PUT"),
    }
}

async fn get(mut worker: Worker) -> Result<Answer, Refused> {
    match worker.said().await? {
        Said::Reading { bytes, sha256 } => {
            let mut answer = http::answer::piped(worker, bytes);
            if let Ok(digest) = HeaderValue::from_str(&sha256) {
                answer.headers_mut().insert(FILE_SHA256_HEADER, digest);
            }
            Ok(answer)
        }
        Said::Refused { code, message } => refuse(code, message),
        _ => Err(lost_its_place()),
    }
}

/// Some bytes of a file beneath the artifact path, and how long it is.
pub async fn page(supervisor: &Shared, path: &str, at: u64, limit: u64) -> Result<(Vec<u8>, u64), Refused> {
    let absolute = supervisor.ground.artifacts.join(path);
    let (root, path) = beneath_a_root(supervisor, &absolute.to_string_lossy())?;
    let become_user = LeaderOrders::user(supervisor.ground.credentials);
    let orders = Orders { root, path, become_user, task: Task::Page { at, limit } };
    let mut worker = Worker::start(supervisor, &orders).await?;
    match worker.said().await? {
        Said::Paging { bytes, end } => Ok((worker.content(bytes).await?, end)),
        Said::Refused { code, message } => refuse(code, message),
        _ => Err(lost_its_place()),
    }
}

/// The regular files beneath the artifact path, relative to it, with their sizes; and whether there are more.
pub async fn list(supervisor: &Shared, limit: usize) -> Result<(Vec<(String, u64)>, bool), Refused> {
    let orders = Orders {
        root: supervisor.ground.artifacts.clone(),
        path: PathBuf::new(),
        become_user: LeaderOrders::user(supervisor.ground.credentials),
        task: Task::List { except: LOGS.into(), limit },
    };
    let mut worker = Worker::start(supervisor, &orders).await?;
    match worker.said().await? {
        Said::Listed { files, more } => Ok((files, more)),
        Said::Refused { code, message } => refuse(code, message),
        _ => Err(lost_its_place()),
    }
}

fn lost_its_place() -> Refused {
    internal("the file worker lost its place".to_owned())
}

async fn put(mut worker: Worker, body: &mut Incoming, receipt: FileReceipt) -> Result<Answer, Refused> {
    // The worker may refuse before it has read: its word counts, not the broken pipe.
    let sent = timeout(limits::FILE_TIMEOUT, worker.send(body)).await;
    if sent.is_err() {
        return refuse(ErrorCode::BadRequest, "the content did not arrive in time");
    }
    match worker.said().await? {
        Said::Written => Ok(http::answer::json(StatusCode::OK, &receipt)),
        Said::Refused { code, message } => refuse(code, message),
        _ => Err(lost_its_place()),
    }
}

fn internal(message: String) -> Refused {
    Refused { code: ErrorCode::Internal, message }
}

/// Which allowed root an absolute path lies beneath, by its text alone; the kernel checks what it leads to.
fn beneath_a_root(supervisor: &Shared, path: &str) -> Result<(PathBuf, PathBuf), Refused> {
    let plain =
        Path::new(path).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if path.contains('\0') || path.len() > limits::MAX_PATH_BYTES || !path.starts_with('/') || !plain {
        return refuse(
            ErrorCode::BadRequest,
            "path must be absolute, without . and .., and at most 4095 bytes",
        );
    }
    for root in &supervisor.ground.file_roots {
        if let Ok(beneath) = Path::new(path).strip_prefix(root)
            && beneath != Path::new("")
        {
            return Ok((root.clone(), beneath.to_owned()));
        }
    }
    let roots: Vec<String> =
        supervisor.ground.file_roots.iter().map(|root| root.display().to_string()).collect();
    refuse(ErrorCode::PathRefused, format!("path must lie beneath one of {}", roots.join(", ")))
}

/// A worker of the supervisor's; it is killed and reaped when it is dropped.
pub struct Worker {
    supervisor: Shared,
    pid: i32,
    input: Option<pipe::Sender>,
    output: BufReader<pipe::Receiver>,
}

impl Worker {
    async fn start(supervisor: &Shared, orders: &Orders) -> Result<Self, Refused> {
        let own = supervisor.roots.borrow().values().filter(|root| matches!(root, Root::Own)).count();
        if own > limits::MAX_FILE_WORKERS {
            return refuse(
                ErrorCode::LimitReached,
                format!("{} files are being moved", limits::MAX_FILE_WORKERS),
            );
        }
        let mut worker = Self::spawn(supervisor).map_err(|error| {
            let failed = LaunchFailed::no_process(error);
            Refused { code: failed.code(), message: format!("no file was touched: {failed}") }
        })?;
        let mut line = serde_json::to_vec(orders).map_err(|error| internal(error.to_string()))?;
        line.push(b'\n');
        if let Some(input) = &mut worker.input {
            input
                .write_all(&line)
                .await
                .map_err(|error| internal(format!("the file worker is gone: {error}")))?;
        }
        Ok(worker)
    }

    fn spawn(supervisor: &Shared) -> std::io::Result<Self> {
        let (worker_input, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (output, worker_output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let child = Command::new("/proc/self/exe")
            .arg0(NAME)
            .env_clear()
            .stdin(Stdio::from(worker_input))
            .stdout(Stdio::from(worker_output))
            .stderr(Stdio::null())
            .spawn()?;
        let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
        supervisor.roots.borrow_mut().insert(pid, Root::Own);
        Ok(Self {
            supervisor: supervisor.clone(),
            pid,
            input: Some(pipe::Sender::from_owned_fd(input)?),
            output: BufReader::with_capacity(CHUNK_BYTES, pipe::Receiver::from_owned_fd(output)?),
        })
    }

    async fn send(&mut self, body: &mut Incoming) {
        let Some(mut input) = self.input.take() else { return };
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            if input.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    async fn said(&mut self) -> Result<Said, Refused> {
        self.input = None;
        let mut line = Vec::new();
        match timeout(limits::FILE_TIMEOUT, self.output.read_until(b'\n', &mut line)).await {
            Ok(Ok(_)) => {
                serde_json::from_slice(&line).map_err(|_| internal("the file worker ended early".to_owned()))
            }
            Ok(Err(error)) => Err(internal(format!("the file worker cannot be heard: {error}"))),
            Err(_elapsed) => Err(internal("the file worker did not answer in time".to_owned())),
        }
    }

    /// The whole content, which is short.
    async fn content(&mut self, bytes: u64) -> Result<Vec<u8>, Refused> {
        let mut content = vec![0u8; usize::try_from(bytes).unwrap_or_default()];
        match timeout(limits::FILE_TIMEOUT, self.output.read_exact(&mut content)).await {
            Ok(Ok(_)) => Ok(content),
            Ok(Err(error)) => Err(internal(format!("the file worker broke off: {error}"))),
            Err(_elapsed) => Err(internal("the file worker did not go on in time".to_owned())),
        }
    }

    /// The next bytes of the content, at most `left`; an early end is an error.
    pub fn poll_content(&mut self, context: &mut Context<'_>, left: u64) -> Poll<std::io::Result<Bytes>> {
        let available = match Pin::new(&mut self.output).poll_fill_buf(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(available)) => available,
        };
        let length = available.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let bytes = Bytes::copy_from_slice(available.get(..length).unwrap_or_default());
        Pin::new(&mut self.output).consume(length);
        Poll::Ready(Ok(bytes))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Not reaped yet: the pid is still its own.
        if self.supervisor.roots.borrow().contains_key(&self.pid)
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
