//! The absolute deadline: when the wall clock reaches it, everything ends, object or no object.
//!
//! Invariant: neither a wall clock that is set back nor one that jumps ahead extends a sandbox's life: time is
//! also counted by the boot clock from the moment the deadline was set, and the first of the two to arrive counts.

use crate::supervisor::Shared;
use crate::{clock, limits};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::time::sleep;

/// Ends when the deadline is reached.
pub async fn reached(supervisor: &Shared) {
    let mut last = supervisor.deadline_at_ms.get();
    let mut latest = by_boot_clock(last);
    loop {
        let moved = supervisor.deadline_moved.notified();
        let at = supervisor.deadline_at_ms.get();
        if at != last {
            last = at;
            latest = by_boot_clock(at);
        }
        let left_by_wall = at.saturating_sub(clock::now_ms());
        let left_by_boot = latest.saturating_sub(boot_ms());
        let left = Duration::from_millis(left_by_wall.min(left_by_boot));
        if left.is_zero() {
            return;
        }
        tokio::select! {
            () = moved => {}
            () = sleep(left.min(limits::DEADLINE_RECHECK)) => {}
        }
    }
}

fn by_boot_clock(deadline_at_ms: u64) -> u64 {
    boot_ms().saturating_add(deadline_at_ms.saturating_sub(clock::now_ms()))
}

/// Counts on while the machine sleeps.
fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
}
