//! PID 1 of a container, from the keeper's fork to the supervisor's first instruction.
//!
//! Order: die with the keeper → host name → root file system → wait until the network stands and the archives are
//! in → bounds → privileges dropped → exec. Nothing after the drop may fail open: an error ends the process.

use super::privileges::{self, Filters};
use super::protocol::BootSpec;
use super::rootfs::{self, SUPERVISOR, Sources, Step, StepError};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Signal;
use std::ffi::CString;
use std::io::{Read, Write};

/// Exit code of a PID 1 whose supervisor could not be run.
pub const NOT_STARTED: i32 = 127;

/// What the child of the fork is given.
pub struct Init<'a> {
    pub spec: &'a BootSpec,
    pub sources: &'a Sources,
    pub filter: &'a Filters,
    /// PID 1's standard output and error.
    pub log: OwnedFd,
    /// A byte comes when PID 1's program may run.
    pub go: OwnedFd,
    /// One line: empty when the root is built, else what failed. Closed by the exec.
    pub report: OwnedFd,
}

/// Never returns: runs the supervisor or ends.
pub fn run(init: Init<'_>) -> ! {
    let report = init.report.try_clone();
    let error = prepare_and_exec(init);
    if let Ok(report) = report {
        let _ = writeln!(std::fs::File::from(report), "{error}");
    }
    sys::exit_now(NOT_STARTED)
}

fn prepare_and_exec(init: Init<'_>) -> StepError {
    match prepare(&init) {
        Err(error) => error,
        Ok(()) => exec(&init),
    }
}

fn prepare(init: &Init<'_>) -> Result<(), StepError> {
    die_with_parent().step("follow the keeper")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::system::sethostname(init.spec.hostname.as_bytes()).step("set the host name")?;
    rootfs::enter(init.spec, init.sources)?;
    let mut report = std::fs::File::from(init.report.try_clone().step("report")?);
    report.write_all(b"\n").step("report")?;
    let mut go = std::fs::File::from(init.go.try_clone().step("wait")?);
    go.read_exact(&mut [0]).step("wait for the keeper")
}

/// The keeper is outside this pid namespace: if it is already gone, its control of this process is too, and the
/// wait for its word ends the process.
fn die_with_parent() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

fn exec(init: &Init<'_>) -> StepError {
    match exec_checked(init) {
        Err(error) => error,
        Ok(errno) => StepError { step: "run the supervisor".into(), source: errno.into() },
    }
}

fn exec_checked(init: &Init<'_>) -> Result<rustix::io::Errno, StepError> {
    let arguments: Vec<CString> = std::iter::once("ringfenced")
        .chain(init.spec.arguments.iter().map(String::as_str))
        .map(to_c)
        .collect::<Result<_, _>>()
        .step("arguments")?;
    let environment = environment(&init.spec.environment).step("environment")?;
    let program = to_c(SUPERVISOR).step("program")?;
    redirect_standard_streams(init).step("standard streams")?;
    let drop = || -> Result<(), privileges::PrivilegeError> {
        privileges::limit_resources(init.spec.bounds.pids)?;
        privileges::drop_all(init.filter)
    };
    drop().map_err(std::io::Error::other).step("drop privileges")?;
    Ok(sys::execve(&program, &arguments, &environment))
}

/// `NAME=value` strings for an exec.
pub fn environment(pairs: &[(String, String)]) -> std::io::Result<Vec<CString>> {
    pairs.iter().map(|(name, value)| to_c(&format!("{name}={value}"))).collect()
}

/// A string for the kernel: no NUL inside.
pub fn to_c(text: &str) -> std::io::Result<CString> {
    CString::new(text).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
}

fn redirect_standard_streams(init: &Init<'_>) -> rustix::io::Result<()> {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    sys::duplicate_onto(null.as_fd(), 0)?;
    sys::duplicate_onto(init.log.as_fd(), 1)?;
    sys::duplicate_onto(init.log.as_fd(), 2)
}
