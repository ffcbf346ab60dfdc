//! The only unsafe code of the supervisor: what neither std nor rustix offers safely.
//!
//! Everything here runs in single-threaded processes: the supervisor, a leader or a file worker has no thread but
//! its main one, which is what makes touching the environment block, the signal mask and the state between fork
//! and exec sound.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::io::unix::AsyncFd;

/// Zeroes the block the kernel put the environment in, so that `/proc/self/environ` and a core hold nothing of it.
/// Afterwards the process has no environment. Must run before the first thread and after everything wanted was
/// copied out.
pub fn erase_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: no other thread exists, so nobody reads or changes `environ` meanwhile. Each entry is a
    // NUL-terminated string in the initial stack block, which is writable memory of this process; it is
    // overwritten up to its terminator and the list is then cut to length zero.
    unsafe {
        let list = environ;
        if list.is_null() {
            return;
        }
        let mut entry = list;
        while !(*entry).is_null() {
            let length = CStr::from_ptr(*entry).to_bytes().len();
            for offset in 0..length {
                std::ptr::write_volatile((*entry).add(offset), 0);
            }
            entry = entry.add(1);
        }
        *list = std::ptr::null_mut();
    }
}

/// Signals that mean a fault of this very process stay deliverable.
const FAULTS: [libc::c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// Blocks every signal that can be blocked, but faults.
pub fn block_signals() -> io::Result<()> {
    // SAFETY: `sigset_t` is plain data that sigfillset initialises whole; the old mask is not asked for.
    let done = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in FAULTS {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks no signal: what a command starts with.
pub fn open_signals() -> io::Result<()> {
    // SAFETY: `sigset_t` is plain data that sigemptyset initialises; the old mask is not asked for.
    let done = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor from which these signals can be read; they must be blocked. A read waits, unless the descriptor is
/// made not to.
pub fn signal_descriptor(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before sigaddset; the descriptor that signalfd returns is owned
    // by nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// `kill(-1, SIGKILL)`: everything this process may signal, but itself. Called by PID 1 of its own namespace only,
/// where the kernel does it in one step that no fork outruns.
pub fn kill_everyone() -> io::Result<()> {
    // SAFETY: no memory is passed. The caller is PID 1 of its namespace, so nothing outside it is reached.
    match unsafe { libc::kill(-1, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a descriptor that was handed down by number.
///
/// The caller must be the process the number was meant for, at its very start, and ask once per number.
pub fn inherited(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD only reads. It fails when the number is no open descriptor; when it is, the launcher opened
    // it for this process alone and nothing here has claimed it yet.
    unsafe {
        match libc::fcntl(fd, libc::F_GETFD) {
            -1 => None,
            _ => Some(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Marks every descriptor above standard error close-on-exec: whatever this process was started with goes no
/// further.
pub fn keep_descriptors_to_self() -> io::Result<()> {
    let (first, last) = (3 as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: close_range with CLOEXEC closes nothing and touches no memory; it only sets descriptor flags.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `prepare` in the child between fork and exec.
pub fn before_exec(command: &mut Command, prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the parent is single-threaded, so the child is a whole copy of it and no lock is held by a thread
    // that does not exist in the child: `prepare` may do whatever the parent could.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// `struct signalfd_siginfo`: `ssi_signo` at 0, `ssi_errno` at 4, `ssi_code` at 8, `ssi_pid` at 12.
pub const SIGNAL_INFORMATION_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// Waits for readiness of a descriptor that is owned by the watch itself.
pub fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its descriptor open and the same until it is dropped, which the `AsyncFd` that
    // owns it does only after it has deregistered it.
    unsafe { AsyncFd::register(descriptor) }.map_err(io::Error::from)
}
