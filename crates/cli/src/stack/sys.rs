//! The one place for `unsafe` in this crate: what must happen between fork and exec.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The child is killed when the thread that spawned it ends. Call it from a thread that lives as long as the
/// process: parent-death signals belong to threads.
pub(super) fn die_with_spawning_thread(command: &mut Command) {
    // SAFETY: the closure makes one system call (prctl) that is async-signal-safe, allocates nothing and
    // touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
}
