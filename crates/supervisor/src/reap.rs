//! PID 1's duty, and a subreaper's: every child that ends is reaped, whoever it was.
//!
//! Invariant: a pid leaves the table of roots in the very step in which it is reaped, so no reused pid is ever
//! taken for a leader.

use crate::driver;
use crate::job::JobRef;
use crate::supervisor::Shared;
use ringfence_core::job::CommandEnd;
use ringfence_core::sweep::Root;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};

/// Also children that were made without SIGCHLD (`__WALL`).
const EVERY_CHILD: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);

/// What the kernel says once everything that ended is reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    Left,
    /// There is no child at all. Whoever loses its leader falls to this process, so nothing it started is left.
    None,
}

/// Reaps whatever has ended.
pub fn children(supervisor: &Shared) -> Children {
    loop {
        let (pid, status) = match rustix::process::wait(EVERY_CHILD | WaitOptions::NOHANG) {
            Ok(Some(ended)) => ended,
            Err(Errno::CHILD) => return Children::None,
            Err(Errno::INTR) => continue,
            Ok(None) | Err(_) => return Children::Left,
        };
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
