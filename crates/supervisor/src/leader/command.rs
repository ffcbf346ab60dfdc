//! Starting the command: from the leader's privileges down to none.
//!
//! Order, in the child: own session → bounding set emptied → groups, gid, uid → every capability set emptied →
//! no_new_privs → memory score and limits → working directory, as the job user → signals opened → exec. A step that fails ends the
//! start: a command never runs with more than it should have.

use super::Orders;
use crate::{limits, sys};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
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
    let descriptors = orders.descriptors;
    let cwd = orders.cwd.clone();
    sys::before_exec(&mut command, move || give_up_privileges(user, descriptors, &cwd));
    command.spawn()
}

fn give_up_privileges(user: Option<(u32, u32)>, descriptors: Option<u64>, cwd: &Path) -> io::Result<()> {
    rustix::process::setsid()?;
    empty_bounding_set()?;
    if let Some((uid, gid)) = user {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    raise_oom_score();
    if let Some(soft) = descriptors {
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: hard })?;
    }
    rustix::process::chdir(cwd)?;
    // Last: a signal to the half-made child would be taken for the command's.
    sys::open_signals()
}

/// Only a privileged process may drop from the bounding set, and only such a one has something to drop.
fn empty_bounding_set() -> io::Result<()> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(false) => {}
            // The first number the kernel does not know.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
            Ok(true) => match rustix::thread::remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                // Unprivileged: no_new_privs and empty sets keep the bounding set from ever mattering.
                Err(Errno::PERM) if !rustix::process::geteuid().is_root() => break,
                Err(error) => return Err(error.into()),
            },
        }
    }
    Ok(())
}

/// Raising the score needs no privilege; where it cannot be written the kernel's default stands.
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
