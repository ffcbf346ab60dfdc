//! One look at `/proc`: every process, its identity, its parent and whether it lives.
//!
//! Invariant: a look that could not finish is an error with its reason, never a shorter list. A process that ended
//! during the look is simply not in it.

use ringfence_core::job::CommandEnd;
use ringfence_core::sweep::{Marker, Seen};
use ringfence_wire::evidence::SeenProcess;
use ringfence_wire::ids::ProcessIdentity;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Longer than any `/proc/PID/stat`.
const STAT_BYTES: usize = 1_024;
/// A few entries: little time passes between the kernel's listing of a process and its reading.
const DIRECTORY_BYTES: usize = 128;

#[derive(Debug, thiserror::Error)]
pub enum LookFailed {
    #[error("/proc cannot be opened: {0}")]
    NoProc(Errno),
    #[error("/proc shows another pid namespace")]
    AnotherNamespace,
    #[error("/proc cannot be listed: {0}")]
    Listing(Errno),
    #[error("process {pid} cannot be read: {error}")]
    Unreadable { pid: i32, error: Errno },
    #[error("process {0} has an unknown form")]
    Malformed(i32),
}

pub struct Look {
    pub seen: Vec<Seen>,
    names: Vec<[u8; 16]>,
}

impl Look {
    pub fn take() -> Result<Self, LookFailed> {
        Self::take_and(|_| {})
    }

    /// Tells of each process the moment it is seen: what forks and exits faster than a look takes can only be hit
    /// while looking.
    pub fn take_and(mut tell: impl FnMut(&Seen)) -> Result<Self, LookFailed> {
        let proc = open_proc()?;
        let mut look = Self { seen: Vec::new(), names: Vec::new() };
        let mut entries = [MaybeUninit::uninit(); DIRECTORY_BYTES];
        let mut directory = RawDir::new(&proc, &mut entries);
        while let Some(entry) = directory.next() {
            let entry = entry.map_err(LookFailed::Listing)?;
            let name = entry.file_name();
            let Some(pid) = name.to_str().ok().and_then(|name| name.parse::<i32>().ok()) else { continue };
            if look.read(&proc, pid)?
                && let Some(seen) = look.seen.last()
            {
                tell(seen);
            }
        }
        Ok(look)
    }

    /// Whether the process was still there.
    fn read(&mut self, proc: &OwnedFd, pid: i32) -> Result<bool, LookFailed> {
        let mut text = [0u8; STAT_BYTES];
        let length = match read_stat(proc, pid, &mut text) {
            Ok(length) => length,
            Err(Errno::NOENT | Errno::SRCH) => return Ok(false),
            Err(error) => return Err(LookFailed::Unreadable { pid, error }),
        };
        let stat = text.get(..length).and_then(Stat::parse).ok_or(LookFailed::Malformed(pid))?;
        self.seen.push(Seen {
            identity: ProcessIdentity { pid, start_time: stat.start_time },
            parent: stat.parent,
            // A zombie whose threads live on is a thread leader that exited.
            alive: !matches!(stat.state, b'Z' | b'X' | b'x') || stat.threads > 1,
            stopped: matches!(stat.state, b'T' | b't'),
        });
        self.names.push(stat.name);
        Ok(true)
    }

    /// The process at this position, as evidence names it.
    pub fn named(&self, at: usize) -> Option<SeenProcess> {
        let seen = self.seen.get(at)?;
        let name = self.names.get(at)?;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(name.get(..length)?).into_owned();
        Some(SeenProcess { identity: seen.identity, name })
    }
}

/// The start time of a process, if there is one of this pid.
pub fn start_time(pid: i32) -> Option<u64> {
    let proc = rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .ok()?;
    let mut text = [0u8; STAT_BYTES];
    let length = read_stat(&proc, pid, &mut text).ok()?;
    Some(text.get(..length).and_then(Stat::parse)?.start_time)
}

/// How a process ended that its parent has not reaped: one that is traced goes to its tracer first.
pub fn end_of_unreaped(pid: i32, parent: i32) -> Option<CommandEnd> {
    let proc = open_proc().ok()?;
    // To whoever may not inspect the process the kernel writes 0 for the status; it says so here, by the same rule.
    rustix::fs::readlinkat(&proc, format!("{pid}/ns/user"), Vec::new()).ok()?;
    let mut text = [0u8; STAT_BYTES];
    let length = read_stat(&proc, pid, &mut text).ok()?;
    let text = text.get(..length)?;
    let stat = Stat::parse(text)?;
    if stat.state != b'Z' || stat.threads > 1 || stat.parent != parent {
        return None;
    }
    let status =
        std::str::from_utf8(text.rsplit(u8::is_ascii_whitespace).find(|word| !word.is_empty())?).ok()?;
    let status: i32 = status.parse().ok()?;
    Some(match status & 0x7f {
        0 => CommandEnd::Exited((status >> 8) & 0xff),
        signal => CommandEnd::Signaled(signal),
    })
}

/// Whether a process's environment carries this marker.
pub fn marker(pid: i32, marker: &str) -> Marker {
    match std::fs::read(format!("/proc/{pid}/environ")) {
        Ok(environment) if environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes()) => {
            Marker::Ours
        }
        Ok(_) => Marker::Absent,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Marker::Absent,
        Err(_) => Marker::Unreadable,
    }
}

fn open_proc() -> Result<OwnedFd, LookFailed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty()).map_err(LookFailed::NoProc)?;
    let me = rustix::fs::readlinkat(&proc, "self", Vec::new()).map_err(LookFailed::NoProc)?;
    if me.to_bytes() != rustix::process::getpid().as_raw_pid().to_string().as_bytes() {
        return Err(LookFailed::AnotherNamespace);
    }
    Ok(proc)
}

fn read_stat(proc: impl AsFd, pid: i32, into: &mut [u8]) -> Result<usize, Errno> {
    let mut path = [0u8; 24];
    let stat =
        rustix::fs::openat(proc, stat_path(pid, &mut path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::read(&stat, into)
}

/// `PID/stat` without an allocation: a look does this thousands of times.
fn stat_path(pid: i32, buffer: &mut [u8; 24]) -> &str {
    use std::io::Write;
    let mut rest: &mut [u8] = buffer.as_mut_slice();
    let before = rest.len();
    let written = match write!(rest, "{pid}/stat") {
        Ok(()) => before - rest.len(),
        Err(_) => 0,
    };
    buffer.get(..written).and_then(|path| std::str::from_utf8(path).ok()).unwrap_or_default()
}

struct Stat {
    name: [u8; 16],
    state: u8,
    parent: i32,
    threads: i64,
    start_time: u64,
}

impl Stat {
    /// `pid (name) state ppid … num_threads(20) … starttime(22) …`; the name may hold anything, parentheses too.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let mut name = [0u8; 16];
        for (slot, byte) in name.iter_mut().zip(text.get(open + 1..close)?) {
            *slot = *byte;
        }
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let threads = fields.nth(15)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        Some(Self { name, state, parent, threads, start_time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_and_blanks_does_not_shift_the_fields() {
        let text = b"42 (a) R 7 (b)) S 9 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 5555 1 2 3\n";
        let stat = Stat::parse(text).expect("parsed");
        assert_eq!((stat.state, stat.parent, stat.threads, stat.start_time), (b'S', 9, 3, 5555));
        assert!(stat.name.starts_with(b"a) R 7 (b)"));
    }

    #[test]
    fn a_cut_line_is_malformed() {
        assert!(Stat::parse(b"42 (a) S 9 42").is_none());
        assert!(Stat::parse(b"").is_none());
    }

    #[test]
    fn a_look_finds_this_very_process_with_its_parent() {
        let look = Look::take().expect("a look");
        let me = rustix::process::getpid().as_raw_pid();
        let at = look.seen.iter().position(|seen| seen.identity.pid == me).expect("in the look");
        assert_eq!(Some(look.seen[at].parent), rustix::process::getppid().map(|pid| pid.as_raw_pid()));
        assert!(look.seen[at].alive);
        assert_eq!(start_time(me), Some(look.seen[at].identity.start_time));
    }
}
