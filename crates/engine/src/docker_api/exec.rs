//! `docker exec`: create, start (attached over an upgraded connection, or detached), inspect, resize.
//!
//! An exec belongs to its container and is forgotten with it. It gets the environment of its call and a `PATH`, nothing
//! of PID 1's.

use super::answer::{self, Answer};
use super::containers::{read_body, read_json, redacted};
use super::streams::{Ours, attach, plumb};
use super::types::{CreateExec, StartExec, environment};
use super::{Call, MAX_BODY_BYTES};
use crate::container::handle::StartedExec;
use crate::engine::{Engine, random_id};
use crate::names;
use crate::namespace::exec::DEFAULT_PATH;
use crate::namespace::protocol::ExecSpec;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::fd::OwnedFd;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Execs remembered per engine; those that have ended go when there is no room for another.
pub const MAX_EXECS: usize = 4096;

#[derive(Default)]
pub struct Execs(Mutex<HashMap<String, Arc<Exec>>>);

pub struct Exec {
    id: String,
    container: String,
    spec: ExecSpec,
    attach_stdin: bool,
    state: Mutex<State>,
}

enum State {
    Created,
    Running { pid: i32, terminal: Option<OwnedFd> },
    Ended { pid: i32, code: i32 },
}

impl Execs {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Exec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &str) -> Option<Arc<Exec>> {
        self.lock().get(id).cloned()
    }

    /// False: there are too many that have not ended.
    fn add(&self, exec: Arc<Exec>) -> bool {
        let mut execs = self.lock();
        if execs.len() >= MAX_EXECS {
            execs.retain(|_, held| !matches!(*held.lock(), State::Ended { .. }));
        }
        let room = execs.len() < MAX_EXECS;
        if room {
            execs.insert(exec.id.clone(), exec);
        }
        room
    }

    /// The container is gone.
    pub fn forget(&self, container: &str) {
        self.lock().retain(|_, exec| exec.container != container);
    }
}

impl Exec {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_such(id: &str) -> Answer {
    answer::error(StatusCode::NOT_FOUND, &format!("No such exec instance: {id}"))
}

pub async fn create(engine: &Engine, name: &str, request: Request<Incoming>) -> Answer {
    let Some(container) = engine.container(&names::canonical(name)) else {
        return answer::error(StatusCode::NOT_FOUND, &format!("No such container: {name}"));
    };
    if container.running().is_none() {
        return answer::error(StatusCode::CONFLICT, &format!("container {name} is not running"));
    }
    let body: CreateExec = match read_json(request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    if body.cmd.is_empty() {
        return answer::error(StatusCode::BAD_REQUEST, "Cmd is empty");
    }
    let (uid, gid) = match parse_user(body.user.as_deref(), engine.ids.has_ranges()) {
        Ok(ids) => ids,
        Err(error) => return answer::error(StatusCode::BAD_REQUEST, &error),
    };
    // As on the platform: the given environment and a PATH, nothing of PID 1's, which holds the boot key.
    let mut variables = vec![("PATH".to_owned(), DEFAULT_PATH.to_owned())];
    variables.extend(environment(body.env));
    let spec = ExecSpec {
        command: body.cmd,
        environment: variables,
        working_directory: body.working_dir.filter(|directory| !directory.is_empty()),
        uid,
        gid,
        terminal: body.tty,
    };
    let exec = Arc::new(Exec {
        id: random_id(),
        container: container.id.clone(),
        spec,
        attach_stdin: body.attach_stdin,
        state: Mutex::new(State::Created),
    });
    let id = exec.id.clone();
    if !engine.execs.add(exec) {
        return answer::error(StatusCode::CONFLICT, &format!("{MAX_EXECS} execs have not ended yet"));
    }
    answer::json(StatusCode::CREATED, &json!({ "Id": id }))
}

/// `uid`, `uid:gid`, or the two names every container has.
fn parse_user(user: Option<&str>, ranges: bool) -> Result<(u32, u32), String> {
    use crate::namespace::etc::{JOB_ID, JOB_NAME};
    let number = |text: &str| match text {
        "root" => Some(0),
        JOB_NAME => Some(JOB_ID),
        other => other.parse().ok(),
    };
    let text = user.unwrap_or_default();
    let (uid, gid) = match text.split_once(':') {
        _ if text.is_empty() => (Some(0), Some(0)),
        Some((uid, gid)) => (number(uid), number(gid)),
        None => (number(text), number(text)),
    };
    match (uid, gid) {
        (Some(0), Some(0)) => Ok((0, 0)),
        (Some(_), Some(_)) if !ranges => {
            Err(format!("User {text}: this engine has no privileges, so its containers have one user, 0"))
        }
        (Some(uid), Some(gid)) => Ok((uid, gid)),
        _ => Err(format!("User {text}: expected uid:gid in numbers, root or {JOB_NAME}")),
    }
}

pub async fn start(engine: &Arc<Engine>, id: &str, mut request: Request<Incoming>) -> Answer {
    let Some(exec) = engine.execs.get(id) else { return no_such(id) };
    let upgrade = hyper::upgrade::on(&mut request);
    let body = match read_body(request, MAX_BODY_BYTES).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let options: StartExec = match serde_json::from_slice(&body) {
        Ok(options) => options,
        Err(_) if body.is_empty() => StartExec::default(),
        Err(error) => return answer::error(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    if options.tty != exec.spec.terminal {
        return answer::error(StatusCode::BAD_REQUEST, "Tty differs from the create call's");
    }
    if !matches!(*exec.lock(), State::Created) {
        return answer::error(StatusCode::CONFLICT, "this exec was started before");
    }
    let (streams, ours) = match plumb(exec.spec.terminal, exec.attach_stdin, options.detach) {
        Ok(plumbed) => plumbed,
        Err(error) => return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let Some(running) = engine.container(&exec.container).and_then(|container| container.running()) else {
        return answer::error(StatusCode::CONFLICT, "the container is not running");
    };
    let started = match running.keeper().exec(&exec.spec, &streams).await {
        Ok(started) => started,
        Err(error) => return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    drop(streams);
    let StartedExec { pid, terminal, end } = started;
    let pid = inside_pid(pid).unwrap_or(pid);
    let pumped = match (&terminal, options.console_size) {
        (Some(terminal), size) => {
            if let Some([height, width]) = size {
                set_size(terminal, height, width);
            }
            terminal.try_clone().map(Ours::Terminal)
        }
        (None, _) => Ok(ours),
    };
    let pumped = match pumped {
        Ok(pumped) => pumped,
        Err(error) => return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    *exec.lock() = State::Running { pid, terminal };
    let ended = {
        let exec = exec.clone();
        async move {
            // No word of its end: its container's end took it.
            let code = end.await.map_or(libc::SIGKILL + 128, |end| end.status_code());
            *exec.lock() = State::Ended { pid, code };
        }
    };
    let raw = exec.spec.terminal;
    if options.detach {
        tokio::spawn(ended);
        return answer::empty(StatusCode::OK);
    }
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return ended.await };
        attach(TokioIo::new(upgraded), pumped, ended).await;
    });
    upgraded(raw)
}

fn upgraded(raw: bool) -> Answer {
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let kind =
        if raw { "application/vnd.docker.raw-stream" } else { "application/vnd.docker.multiplexed-stream" };
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("tcp"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The pid that a process has in its own pid namespace.
fn inside_pid(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    pids.split_whitespace().last()?.parse().ok()
}

pub fn inspect(engine: &Engine, id: &str) -> Answer {
    let Some(exec) = engine.execs.get(id) else { return no_such(id) };
    let (running, pid, code) = match *exec.lock() {
        State::Created => (false, 0, None),
        State::Running { pid, .. } => (true, pid, None),
        State::Ended { pid, code } => (false, pid, Some(code)),
    };
    let command = exec.spec.command.split_first();
    answer::json(
        StatusCode::OK,
        &json!({
            "ID": exec.id, "ContainerID": exec.container, "Running": running, "Pid": pid, "ExitCode": code,
            "OpenStdin": exec.attach_stdin, "OpenStdout": true, "OpenStderr": true, "CanRemove": !running,
            "ProcessConfig": {
                "tty": exec.spec.terminal, "entrypoint": command.map(|(program, _)| program),
                "arguments": command.map(|(_, arguments)| arguments), "env": redacted(&exec.spec.environment),
            },
        }),
    )
}

pub fn resize(engine: &Engine, id: &str, call: &Call) -> Answer {
    let Some(exec) = engine.execs.get(id) else { return no_such(id) };
    let size = |name: &str| call.query(name).and_then(|value| value.parse::<u16>().ok());
    let (Some(height), Some(width)) = (size("h"), size("w")) else {
        return answer::error(StatusCode::BAD_REQUEST, "h and w must be numbers below 65536");
    };
    match &*exec.lock() {
        State::Running { terminal: Some(terminal), .. } => {
            set_size(terminal, height, width);
            answer::empty(StatusCode::OK)
        }
        State::Running { terminal: None, .. } => {
            answer::error(StatusCode::BAD_REQUEST, "this exec has no terminal")
        }
        _ => answer::error(StatusCode::CONFLICT, "this exec does not run"),
    }
}

fn set_size(terminal: &OwnedFd, height: u16, width: u16) {
    let size = rustix::termios::Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    let _ = rustix::termios::tcsetwinsize(terminal, size);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(number: usize, state: State) -> Arc<Exec> {
        let spec = ExecSpec {
            command: vec!["true".into()],
            environment: Vec::new(),
            working_directory: None,
            uid: 0,
            gid: 0,
            terminal: false,
        };
        let id = number.to_string();
        Arc::new(Exec { id, container: "box".into(), spec, attach_stdin: false, state: Mutex::new(state) })
    }

    #[test]
    fn at_the_bound_only_ended_execs_make_room() {
        let execs = Execs::default();
        for number in 1..MAX_EXECS {
            assert!(execs.add(exec(number, State::Created)));
        }
        assert!(execs.add(exec(0, State::Ended { pid: 1, code: 0 })));
        assert!(execs.add(exec(MAX_EXECS, State::Created)), "the ended one goes");
        assert!(execs.get("0").is_none() && execs.get("1").is_some());
        assert!(!execs.add(exec(MAX_EXECS + 1, State::Created)));
        execs.forget("box");
        assert!(execs.get("1").is_none());
    }

    #[test]
    fn a_user_is_numbers_or_one_of_two_names() {
        assert_eq!(parse_user(None, true), Ok((0, 0)));
        assert_eq!(parse_user(Some(""), true), Ok((0, 0)));
        assert_eq!(parse_user(Some("1000:100"), true), Ok((1000, 100)));
        assert_eq!(parse_user(Some("1000"), true), Ok((1000, 1000)));
        assert_eq!(parse_user(Some("sandbox"), true), Ok((1000, 1000)));
        assert!(parse_user(Some("alice"), true).unwrap_err().contains("alice"));
        assert!(parse_user(Some("1000"), false).unwrap_err().contains("one user"));
        assert_eq!(parse_user(Some("root"), false), Ok((0, 0)));
    }
}
