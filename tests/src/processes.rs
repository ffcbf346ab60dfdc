//! Processes as the host's kernel sees them: the only witness of who is alive.
//!
//! A process is named by its host pid and its start time, so a reused pid is never taken for it. A zombie is
//! dead: it runs nothing and holds nothing.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub host_pid: i32,
    /// The pid in its innermost namespace: what the supervisor's evidence names.
    pub pid: i32,
    pub start_time: u64,
    pub args: Vec<String>,
}

impl Process {
    pub fn read(host_pid: i32) -> Option<Self> {
        let proc = Path::new("/proc").join(host_pid.to_string());
        let stat = Stat::read(&proc)?;
        let args = fs::read(proc.join("cmdline")).ok()?;
        let args = args.split(|b| *b == 0).filter(|a| !a.is_empty());
        Some(Self {
            host_pid,
            pid: innermost_pid(&proc)?,
            start_time: stat.start_time,
            args: args.map(|a| String::from_utf8_lossy(a).into_owned()).collect(),
        })
    }

    pub fn is_alive(&self) -> bool {
        let stat = Stat::read(&Path::new("/proc").join(self.host_pid.to_string()));
        stat.is_some_and(|s| s.start_time == self.start_time && !matches!(s.state, 'Z' | 'X'))
    }

    /// A real signal to exactly this process.
    pub fn signal(&self, signal: Signal) {
        assert!(self.is_alive(), "{self:?} was dead before it could be signalled");
        let pid = Pid::from_raw(self.host_pid).expect("a host pid is positive");
        kill_process(pid, signal).expect("the test may signal what it started");
    }

    /// A signal to what may be dead by now.
    pub fn try_signal(&self, signal: Signal) {
        if self.is_alive() {
            let pid = Pid::from_raw(self.host_pid).expect("a host pid is positive");
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether `word` is one of its arguments, whole.
    pub fn has_arg(&self, word: &str) -> bool {
        self.args.iter().any(|a| a == word)
    }
}

/// Every live process in the pid namespace whose init is `init`, the init included.
pub fn in_namespace_of(init: i32) -> Vec<Process> {
    let Some(namespace) = pid_namespace(init) else { return Vec::new() };
    all_pids()
        .filter(|pid| pid_namespace(*pid).as_deref() == Some(&namespace))
        .filter_map(Process::read)
        .filter(Process::is_alive)
        .collect()
}

/// Every live process of this machine.
pub fn everywhere() -> Vec<Process> {
    all_pids().filter_map(Process::read).filter(Process::is_alive).collect()
}

/// Every live descendant of `root`, nearest first.
pub fn descendants_of(root: i32) -> Vec<Process> {
    let parents: Vec<(i32, i32)> = all_pids()
        .filter_map(|p| Some((p, Stat::read(&Path::new("/proc").join(p.to_string()))?.parent)))
        .collect();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child));
        next += 1;
    }
    family.into_iter().skip(1).filter_map(Process::read).filter(Process::is_alive).collect()
}

fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("these tests need /proc");
    entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
}

fn pid_namespace(pid: i32) -> Option<String> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?.into_os_string().into_string().ok()
}

fn innermost_pid(proc: &Path) -> Option<i32> {
    let status = fs::read_to_string(proc.join("status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

struct Stat {
    state: char,
    parent: i32,
    start_time: u64,
}

impl Stat {
    fn read(proc: &Path) -> Option<Self> {
        let stat = fs::read_to_string(proc.join("stat")).ok()?;
        // The second field is the name in parentheses and may hold anything; the rest begins after the last one.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start_time })
    }
}
