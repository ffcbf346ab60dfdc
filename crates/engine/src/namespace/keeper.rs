//! The keeper: makes one container's namespaces, forks its PID 1, and stays beside it.
//!
//! It owns PID 1 (its child) and every exec. Order: die with the engine → unshare → ids mapped → sources opened →
//! become the container's root → fork PID 1 (which builds the file system while the keeper builds the network) →
//! `Built` → archives → `Go` → serve sockets and execs until PID 1 ends. When the engine goes away the keeper ends
//! PID 1, and the kernel ends everything in its pid namespace.

use super::channel::{self, ChannelError};
use super::exec;
use super::init::{self, Init};
use super::network;
use super::privileges::{self, Filters};
use super::protocol::{BootSpec, ExecSpec, FromKeeper, IdMap, ProcessEnd, ToKeeper};
use super::rootfs::{Sources, Step, StepError};
use super::unpack;
use crate::sys::{self, Fork};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::thread::UnshareFlags;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A connection inside the container that is not made by then has failed: its server's backlog is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the keeper. Standard input is its end of the channel. Must be called while the process has one thread.
pub fn container_init() -> ExitCode {
    // What a listing of processes shows instead of `exe`.
    let _ = rustix::thread::set_name(c"ringfence-keep");
    let Ok(channel) = rustix::stdio::stdin().try_clone_to_owned() else { return ExitCode::FAILURE };
    match Keeper::boot(&channel) {
        Ok(keeper) => {
            keeper.serve();
            ExitCode::SUCCESS
        }
        Err(BootError::EngineGone) => ExitCode::FAILURE,
        Err(BootError::Step(error)) => {
            let failed = FromKeeper::Failed { step: error.step, error: error.source.to_string() };
            let _ = channel::send(&channel, &failed, &[]);
            ExitCode::FAILURE
        }
    }
}

enum BootError {
    EngineGone,
    Step(StepError),
}

impl From<StepError> for BootError {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl From<ChannelError> for BootError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed => Self::EngineGone,
            other => Self::Step(StepError {
                step: "talk to the engine".into(),
                source: std::io::Error::other(other),
            }),
        }
    }
}

struct Exec {
    id: u64,
    pid: Pid,
    pidfd: OwnedFd,
}

struct Connecting {
    id: u64,
    socket: OwnedFd,
    deadline: Instant,
}

struct Keeper<'a> {
    channel: &'a OwnedFd,
    pids: u32,
    filter: Filters,
    init: Pid,
    init_pidfd: OwnedFd,
    /// Says what PID 1 could not do, until its exec closes it.
    report: Option<BufReader<std::fs::File>>,
    go: Option<OwnedFd>,
    execs: Vec<Exec>,
    connecting: Vec<Connecting>,
}

impl<'a> Keeper<'a> {
    fn boot(channel: &'a OwnedFd) -> Result<Self, BootError> {
        let (message, descriptors) = channel::receive::<ToKeeper>(channel)?;
        let ToKeeper::Boot = message else { return Err(unexpected(&message)) };
        let mut descriptors = descriptors.into_iter();
        let spec: BootSpec =
            channel::from_memory_file(descriptors.next().ok_or(ChannelError::MissingDescriptor)?)?;
        let log = descriptors.next().ok_or(ChannelError::MissingDescriptor)?;
        follow_engine(spec.engine_pid)?;
        // A terminal's Ctrl-C is for the engine, which ends containers in order.
        rustix::process::setsid().step("leave the engine's session")?;

        let filter =
            privileges::filters().map_err(std::io::Error::other).step("build the system-call filter")?;
        let all = UnshareFlags::NEWUSER
            | UnshareFlags::NEWNS
            | UnshareFlags::NEWPID
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWCGROUP;
        sys::unshare(all).step("make namespaces")?;
        channel::send(channel, &FromKeeper::Unmapped, &[])?;
        let (message, _) = channel::receive::<ToKeeper>(channel)?;
        let ToKeeper::Mapped = message else { return Err(unexpected(&message)) };
        let sources = Sources::open(&spec)?;
        become_root(spec.id_map).step("become the container's root")?;
        follow_engine(spec.engine_pid)?;

        let (go_read, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe")?;
        let (report_read, report) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe")?;
        let init = match sys::fork().step("fork PID 1")? {
            Fork::Child => {
                // The keeper's ends: were they open here, neither side would see the other go.
                drop((go, report_read));
                init::run(Init { spec: &spec, sources: &sources, filter: &filter, log, go: go_read, report })
            }
            Fork::Parent(pid) => pid,
        };
        drop((report, log, go_read));
        let init_pidfd = rustix::process::pidfd_open(init, PidfdFlags::empty()).step("open PID 1")?;
        let listeners = network::set_up(spec.redirect.as_ref()).step("set up the network");
        let mut report = BufReader::new(std::fs::File::from(report_read));
        // PID 1's failure is the better story when both failed.
        root_is_built(&mut report)?;
        let listeners = listeners?;
        let built = FromKeeper::Built { init_pid: init.as_raw_nonzero().get() };
        channel::send(channel, &built, &[listeners.relay.as_fd(), listeners.responder.as_fd()])?;
        Ok(Self {
            channel,
            pids: spec.bounds.pids,
            filter,
            init,
            init_pidfd,
            report: Some(report),
            go: Some(go),
            execs: Vec::new(),
            connecting: Vec::new(),
        })
    }

    /// Until PID 1 has ended and the engine was told, or the engine is gone.
    fn serve(mut self) {
        while let Ok(ready) = self.wait_for_events() {
            // PID 1 first: when it ended, its namespace is empty and nothing else can matter.
            if ready.init
                && let Some(end) = reap(self.init)
            {
                let _ = self.send(&FromKeeper::Ended { end }, &[]);
                return;
            }
            self.finish_execs(&ready.execs);
            self.finish_connects(&ready.connecting);
            if ready.channel && self.handle_message().is_err() {
                break;
            }
        }
        // The engine is gone: so is this container.
        let _ = rustix::process::pidfd_send_signal(&self.init_pidfd, Signal::KILL);
        let _ = reap(self.init);
    }

    fn send(&self, message: &FromKeeper, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        channel::send(self.channel, message, descriptors)
    }

    fn wait_for_events(&self) -> Result<Ready, Errno> {
        const FIXED: usize = 2;
        let mut polled =
            vec![PollFd::new(&self.init_pidfd, PollFlags::IN), PollFd::new(self.channel, PollFlags::IN)];
        polled.extend(self.execs.iter().map(|exec| PollFd::new(&exec.pidfd, PollFlags::IN)));
        polled.extend(self.connecting.iter().map(|c| PollFd::new(&c.socket, PollFlags::OUT)));
        let now = Instant::now();
        let timeout = self.connecting.iter().map(|c| c.deadline.saturating_duration_since(now)).min();
        let timeout = timeout.and_then(|t| rustix::event::Timespec::try_from(t).ok());
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut events = polled.iter().map(|fd| !fd.revents().is_empty());
        let (init, channel) = (events.next().unwrap_or_default(), events.next().unwrap_or_default());
        debug_assert_eq!(polled.len(), FIXED + self.execs.len() + self.connecting.len());
        let execs = events.by_ref().take(self.execs.len()).collect();
        Ok(Ready { init, channel, execs, connecting: events.collect() })
    }

    fn finish_execs(&mut self, ready: &[bool]) {
        let mut ended = Vec::new();
        let mut ready = ready.iter().copied();
        self.execs.retain(|exec| {
            if !ready.next().unwrap_or_default() {
                return true;
            }
            let end = reap(exec.pid);
            ended.extend(end.map(|end| FromKeeper::ExecEnded { id: exec.id, end }));
            end.is_none()
        });
        for message in ended {
            let _ = self.send(&message, &[]);
        }
    }

    fn finish_connects(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let mut ready = ready.iter().copied();
        for connecting in std::mem::take(&mut self.connecting) {
            if ready.next().unwrap_or_default() {
                match rustix::net::sockopt::socket_error(&connecting.socket) {
                    Ok(Ok(())) => self.connected(connecting.id, &connecting.socket),
                    Ok(Err(errno)) | Err(errno) => self.connect_failed(connecting.id, errno),
                }
            } else if connecting.deadline <= now {
                self.connect_failed(connecting.id, Errno::TIMEDOUT);
            } else {
                self.connecting.push(connecting);
            }
        }
    }

    fn connected(&self, id: u64, socket: &OwnedFd) {
        let _ = self.send(&FromKeeper::Connected { id }, &[socket.as_fd()]);
    }

    fn connect_failed(&self, id: u64, errno: Errno) {
        let refused = errno == Errno::CONNREFUSED;
        let _ = self.send(&FromKeeper::ConnectFailed { id, refused, error: errno.to_string() }, &[]);
    }

    fn handle_message(&mut self) -> Result<(), ChannelError> {
        let (message, descriptors) = channel::receive::<ToKeeper>(self.channel)?;
        let mut descriptors = descriptors.into_iter();
        match message {
            ToKeeper::Connect { id, address } => self.connect(id, address),
            ToKeeper::Unpack { id, directory } => {
                let archive = descriptors.next().ok_or(ChannelError::MissingDescriptor)?;
                let error = unpack::unpack(&directory, archive).err().map(|error| error.to_string());
                self.send(&FromKeeper::Unpacked { id, error }, &[])?;
            }
            ToKeeper::Go => self.go()?,
            ToKeeper::Exec { id } => {
                let spec =
                    channel::from_memory_file(descriptors.next().ok_or(ChannelError::MissingDescriptor)?)?;
                self.exec(id, &spec, descriptors.collect())?;
            }
            ToKeeper::Boot | ToKeeper::Mapped => {}
        }
        Ok(())
    }

    /// Lets PID 1 run, and waits for its exec: a supervisor that cannot run is a failed start, not a short life.
    fn go(&mut self) -> Result<(), ChannelError> {
        let (Some(go), Some(mut report)) = (self.go.take(), self.report.take()) else { return Ok(()) };
        let sent = rustix::io::write(&go, b"\n");
        let mut said = String::new();
        let read = report.read_line(&mut said);
        let message = match (sent, read) {
            (Ok(_), Ok(0)) => FromKeeper::Running,
            (Err(errno), _) => FromKeeper::Failed { step: "run PID 1".into(), error: errno.to_string() },
            (_, Err(error)) => FromKeeper::Failed { step: "run PID 1".into(), error: error.to_string() },
            (Ok(_), Ok(_)) => FromKeeper::Failed { step: "run PID 1".into(), error: said.trim().to_owned() },
        };
        self.send(&message, &[])
    }

    fn connect(&mut self, id: u64, address: SocketAddr) {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::socket_with(family, SocketType::STREAM, flags, None) {
            Ok(socket) => socket,
            Err(errno) => return self.connect_failed(id, errno),
        };
        match rustix::net::connect(&socket, &address) {
            Ok(()) => self.connected(id, &socket),
            Err(Errno::INPROGRESS | Errno::AGAIN) => {
                self.connecting.push(Connecting { id, socket, deadline: Instant::now() + CONNECT_TIMEOUT });
            }
            Err(errno) => self.connect_failed(id, errno),
        }
    }

    fn exec(&mut self, id: u64, spec: &ExecSpec, streams: Vec<OwnedFd>) -> Result<(), ChannelError> {
        let started = exec::start(spec, streams, &self.filter, self.pids).and_then(|started| {
            let pidfd = rustix::process::pidfd_open(started.pid, PidfdFlags::empty())?;
            Ok((started, pidfd))
        });
        match started {
            Ok((started, pidfd)) => {
                let pid = started.pid.as_raw_nonzero().get();
                let terminal: Vec<_> = started.terminal.iter().map(AsFd::as_fd).collect();
                self.send(&FromKeeper::ExecStarted { id, pid }, &terminal)?;
                self.execs.push(Exec { id, pid: started.pid, pidfd });
                Ok(())
            }
            Err(error) => self.send(&FromKeeper::ExecFailed { id, error: error.to_string() }, &[]),
        }
    }
}

struct Ready {
    init: bool,
    channel: bool,
    execs: Vec<bool>,
    connecting: Vec<bool>,
}

fn unexpected(message: &ToKeeper) -> BootError {
    let source = std::io::Error::other(format!("unexpected {message:?}"));
    BootError::Step(StepError { step: "talk to the engine".into(), source })
}

/// Set again after every change of ids, which clears it.
fn follow_engine(engine: i32) -> Result<(), BootError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("follow the engine")?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    // From inside the new user namespace the engine is still in our pid namespace, so its pid is unchanged.
    if parent == Some(engine) { Ok(()) } else { Err(BootError::EngineGone) }
}

fn become_root(id_map: IdMap) -> rustix::io::Result<()> {
    if let IdMap::Range { .. } = id_map {
        rustix::thread::set_thread_groups(&[])?;
    }
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn root_is_built(report: &mut impl BufRead) -> Result<(), StepError> {
    let mut line = String::new();
    report.read_line(&mut line).step("hear from PID 1")?;
    match line.as_str() {
        "\n" => Ok(()),
        "" => Err(StepError { step: "build the root".into(), source: std::io::Error::other("PID 1 ended") }),
        said => Err(StepError {
            step: "build the root".into(),
            source: std::io::Error::other(said.trim().to_owned()),
        }),
    }
}

/// The end of a child, once it has ended. For PID 1 the kernel gives it only when its whole namespace is gone.
fn reap(pid: Pid) -> Option<ProcessEnd> {
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(status) => {
                let status = status?;
                return status
                    .exit_status()
                    .map(ProcessEnd::Exited)
                    .or_else(|| status.terminating_signal().map(ProcessEnd::Signaled));
            }
        }
    }
}
