//! PID 1's duty, and a subreaper's: every child that ends is reaped, whoever it was.
//!
//! Invariant: a pid leaves the table of roots in the very step in which it is reaped, so no reused pid is ever
//! taken for a leader.

use crate::driver;
use crate::job::JobRef;
use crate::supervisor::Shared;
use ringfence_core::job::CommandEnd;
use ringfence_core::sweep::Root;
use rustix::process::{WaitOptions, WaitStatus};

/// Also children that were made without SIGCHLD (`__WALL`).
const EVERY_CHILD: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);

/// Reaps whatever has ended.
pub fn children(supervisor: &Shared) {
    while let Ok(Some((pid, status))) = rustix::process::wait(EVERY_CHILD | WaitOptions::NOHANG) {
        let pid = pid.as_raw_pid();
        match supervisor.roots.borrow_mut().remove(&pid) {
            Some(Root::Leader(_) | Root::Own) => {}
            // Only a lost leader's command comes to be the supervisor's own child.
            None => {
                let lost = |job: &JobRef| {
                    job.read(|job| job.pid == Some(pid) && job.machine.command_end().is_none())
                };
                if let (Some(job), Some(end)) =
                    (supervisor.live_jobs().into_iter().find(lost), command_end(status))
                {
                    driver::command_ended(&job, end);
                }
            }
        }
    }
}

fn command_end(status: WaitStatus) -> Option<CommandEnd> {
    status
        .exit_status()
        .map(CommandEnd::Exited)
        .or_else(|| status.terminating_signal().map(CommandEnd::Signaled))
}
