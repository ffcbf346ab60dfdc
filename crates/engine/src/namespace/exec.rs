//! One more process in a running container (`docker exec`), forked by the keeper, which already is in all the
//! container's namespaces. It gets the same bounds and filter as PID 1, and only the environment it was given: PID
//! 1's holds the boot key.

use super::init::{environment, to_c};
use super::privileges::{self, Filters};
use super::protocol::ExecSpec;
use crate::sys::{self, Fork};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use std::ffi::CString;
use std::io;

/// Exit codes of a command that could not be run, as a shell gives them.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Where a command without a slash is looked for when its environment has no `PATH`.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The process, and the other side of its terminal where it has one.
pub struct Started {
    pub pid: Pid,
    pub terminal: Option<OwnedFd>,
}

/// Starts the process. Its standard streams are `streams` (input, output, error), or a new terminal.
pub fn start(spec: &ExecSpec, streams: Vec<OwnedFd>, filter: &Filters, pids: u32) -> io::Result<Started> {
    let arguments: Vec<CString> = spec.command.iter().map(|word| to_c(word)).collect::<Result<_, _>>()?;
    let program =
        spec.command.first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "empty command"))?;
    let candidates = candidates(program, &spec.environment)?;
    let environment = environment(&spec.environment)?;
    let (streams, terminal) = if spec.terminal { open_terminal()? } else { (streams, None) };
    match sys::fork()? {
        Fork::Parent(pid) => Ok(Started { pid, terminal }),
        Fork::Child => {
            let code = match prepare(spec, &streams, filter, pids) {
                Ok(()) => run(&candidates, &arguments, &environment),
                Err(error) => {
                    let _ = rustix::io::write(rustix::stdio::stderr(), format!("exec: {error}\n").as_bytes());
                    NOT_EXECUTABLE
                }
            };
            sys::exit_now(code)
        }
    }
}

fn prepare(spec: &ExecSpec, streams: &[OwnedFd], filter: &Filters, pids: u32) -> io::Result<()> {
    for (stream, number) in streams.iter().zip(0..) {
        sys::duplicate_onto(stream.as_fd(), number)?;
    }
    rustix::process::setsid()?;
    if spec.terminal {
        sys::set_controlling_terminal(rustix::stdio::stdin())?;
    }
    rustix::process::chdir(spec.working_directory.as_deref().unwrap_or("/workspace"))?;
    privileges::limit_resources(pids).map_err(io::Error::other)?;
    privileges::drop_all(filter).map_err(io::Error::other)?;
    if spec.uid == 0 && spec.gid == 0 {
        privileges::keep_only_needed().map_err(io::Error::other)?;
    } else {
        // The change of uid clears every capability.
        rustix::thread::set_thread_groups(&[])?;
        let (uid, gid) = (Uid::from_raw(spec.uid), Gid::from_raw(spec.gid));
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    // Last: a change of uid clears it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

fn candidates(program: &str, environment: &[(String, String)]) -> io::Result<Vec<CString>> {
    if program.contains('/') {
        return Ok(vec![to_c(program)?]);
    }
    let path =
        environment.iter().rev().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    path.split(':').filter(|part| !part.is_empty()).map(|part| to_c(&format!("{part}/{program}"))).collect()
}

fn run(candidates: &[CString], arguments: &[CString], environment: &[CString]) -> i32 {
    let mut code = NOT_FOUND;
    for program in candidates {
        let errno = sys::execve(program, arguments, environment);
        if errno != rustix::io::Errno::NOENT && errno != rustix::io::Errno::NOTDIR {
            code = NOT_EXECUTABLE;
        }
    }
    code
}

fn open_terminal() -> io::Result<(Vec<OwnedFd>, Option<OwnedFd>)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let streams = vec![theirs.try_clone()?, theirs.try_clone()?, theirs];
    Ok((streams, Some(ours)))
}
