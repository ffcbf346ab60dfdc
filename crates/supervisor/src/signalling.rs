//! Sending a signal to exactly the process that was seen.
//!
//! Invariant: every signal goes through a pidfd whose start time was read after it was opened, so a pid that was
//! reused between the look and the signal is never hit.

use crate::scan;
use ringfence_wire::ids::ProcessIdentity;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Delivered,
    /// The process that was seen is no more.
    Gone,
    Refused(Errno),
}

pub fn send(to: ProcessIdentity, signal: Signal) -> Sent {
    let Some(pid) = Pid::from_raw(to.pid) else { return Sent::Gone };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH | Errno::INVAL) => return Sent::Gone,
        Err(error) => return Sent::Refused(error),
    };
    if scan::start_time(to.pid) != Some(to.start_time) {
        return Sent::Gone;
    }
    match rustix::process::pidfd_send_signal(&pidfd, signal) {
        Ok(()) => Sent::Delivered,
        Err(Errno::SRCH) => Sent::Gone,
        Err(error) => Sent::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_signal_reaches_the_process_that_was_seen_and_no_other_under_its_pid() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        let pid = child.id() as i32;
        let start_time = scan::start_time(pid).expect("alive");
        let earlier = ProcessIdentity { pid, start_time: start_time - 1 };
        assert_eq!(send(earlier, Signal::KILL), Sent::Gone);
        assert!(child.try_wait().expect("waits").is_none(), "alive before");
        assert_eq!(send(ProcessIdentity { pid, start_time }, Signal::KILL), Sent::Delivered);
        assert!(!child.wait().expect("waits").success());
        assert_eq!(send(ProcessIdentity { pid, start_time }, Signal::KILL), Sent::Gone);
    }
}
