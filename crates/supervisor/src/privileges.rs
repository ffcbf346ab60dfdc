//! From the supervisor's privileges down to a job's: none.
//!
//! Order: bounding set emptied → groups, gid, uid → every capability set emptied → no_new_privs. A step that fails
//! ends the start of whatever was to run: nothing ever runs with more than it should have.
//!
//! The supervisor's own file worker acts with a job's rights and stays out of the jobs' reach: it takes their ids as
//! its effective ones alone, so none of them may signal it. It executes nothing.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
use std::io;

/// Becomes the job user (uid and gid, or the same) without any capability, for good.
pub fn give_up(user: Option<(u32, u32)>) -> io::Result<()> {
    drop_to(user, |uid, gid| {
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    })
}

/// Has the rights of the job user and no capability, and is nobody's whom the job user may signal.
pub fn act_as(user: Option<(u32, u32)>) -> io::Result<()> {
    drop_to(user, |uid, gid| {
        rustix::thread::set_thread_res_gid(None, gid, None)?;
        rustix::thread::set_thread_res_uid(None, uid, None)
    })
}

fn drop_to(user: Option<(u32, u32)>, become_user: fn(Uid, Gid) -> rustix::io::Result<()>) -> io::Result<()> {
    empty_bounding_set()?;
    if let Some((uid, gid)) = user {
        rustix::thread::set_thread_groups(&[])?;
        become_user(Uid::from_raw(uid), Gid::from_raw(gid))?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
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
