//! Starting the command: from the leader's privileges down to none.
//!
//! Order, in the child: own session → memory score → no privilege left → own domain → limits → working directory, as
//! the job user → signals opened → exec. A step that fails ends the start.

use super::Orders;
use crate::{apart, limits, privileges, sys};
use rustix::process::{Resource, Rlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Starts the command; its standard output and error are the leader's.
pub fn spawn(orders: &Orders, stdin: Option<OwnedFd>) -> io::Result<Child> {
    let (program, arguments) =
        orders.argv.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(orders.env.iter().map(|(name, value)| (name, value)))
        .stdin(stdin.map_or_else(Stdio::null, Stdio::from));
    let user = orders.become_user;
    let own_domain = orders.own_domain;
    let descriptors = orders.descriptors;
    let cwd = orders.cwd.clone();
    sys::before_exec(&mut command, move || prepare(user, own_domain, descriptors, &cwd));
    command.spawn()
}

fn prepare(
    user: Option<(u32, u32)>,
    own_domain: bool,
    descriptors: Option<u64>,
    cwd: &Path,
) -> io::Result<()> {
    rustix::process::setsid()?;
    raise_oom_score();
    privileges::give_up(user)?;
    if own_domain {
        apart::keep()?;
    }
    if let Some(soft) = descriptors {
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: hard })?;
    }
    rustix::process::chdir(cwd)?;
    // Last: a signal to the half-made child would be taken for the command's.
    sys::open_signals()
}

/// While the process may still write to its own `/proc` entry, which a change of uid closes; where it cannot be written the kernel's default stands.
fn raise_oom_score() {
    let _ = std::fs::write("/proc/self/oom_score_adj", limits::JOB_OOM_SCORE.to_string());
}

/// The line a failed start leaves in the job's standard error.
pub fn explain(orders: &Orders, error: &io::Error) -> String {
    let program = orders.argv.first().map(String::as_str).unwrap_or_default();
    let cwd: &PathBuf = &orders.cwd;
    // The child's failing step is not told apart by the error alone.
    if !cwd.is_dir() {
        return format!("ringfence: cannot start in {}: it is not a directory\n", cwd.display());
    }
    format!("ringfence: cannot start {program}: {error}\n")
}
