//! Looking at processes through `/proc`, and signalling exactly the one that was looked at.

use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs;
use std::io;

/// One line of the process table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Clock ticks since boot: with the pid, it names one process for ever.
    pub start_time: u64,
    pub name: String,
    pub state: char,
}

/// Every process that could be read. One that ends meanwhile is left out.
pub fn all() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|text| text.parse::<i32>().ok())
            && let Some(process) = one(pid)
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// `None`: no such process.
pub fn one(pid: i32) -> Option<Process> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// True while this very process (not another under its pid) exists and is not a zombie.
pub fn is_alive(process: &Process) -> bool {
    one(process.pid).is_some_and(|now| now.start_time == process.start_time && now.state != 'Z')
}

/// Everything below `root`, nearest first, `root` left out.
pub fn descendants(root: i32) -> io::Result<Vec<Process>> {
    let everyone = all()?;
    let mut below: Vec<Process> = Vec::new();
    let mut frontier = vec![root];
    while !frontier.is_empty() {
        let next: Vec<Process> = everyone.iter().filter(|p| frontier.contains(&p.parent)).cloned().collect();
        frontier = next.iter().map(|p| p.pid).collect();
        below.extend(next);
    }
    Ok(below)
}

/// Sends `signal` to this very process. `Ok(false)`: it had ended.
pub fn signal(process: &Process, signal: Signal) -> io::Result<bool> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(false) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // The pidfd is held, so what is read now is what will be signalled.
    if one(process.pid).is_none_or(|now| now.start_time != process.start_time) {
        return Ok(false);
    }
    match rustix::process::pidfd_send_signal(&pidfd, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The command line, arguments separated by spaces; empty where it cannot be read.
pub fn command_line(pid: i32) -> String {
    fs::read(format!("/proc/{pid}/cmdline"))
        .map(|bytes| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.trim_end_matches('\0').replace('\0', " ")
        })
        .unwrap_or_default()
}

/// `pid (name) state ppid …`; the name may hold spaces and parentheses, so it ends at the last `)`.
fn parse_stat(text: &str) -> Option<Process> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let pid = text.get(..open)?.trim().parse().ok()?;
    let name = text.get(open + 1..close)?.to_owned();
    let mut fields = text.get(close + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22; state is field 3 and the parent field 4.
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, start_time, name, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_whole() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1";
        let process = parse_stat(line).unwrap();
        assert_eq!((process.pid, process.parent, process.start_time), (42, 7, 987_654));
        assert_eq!((process.name.as_str(), process.state), ("a) b (c)", 'S'));
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_process() {
        for bad in ["", "42", "42 (x", "42 (x) S 7", "x (y) S 7"] {
            assert_eq!(parse_stat(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_signal_for_an_earlier_holder_of_a_pid_reaches_nobody() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut process = one(i32::try_from(child.id()).unwrap()).unwrap();
        process.start_time += 1;
        assert!(!signal(&process, Signal::KILL).unwrap());
        assert!(child.try_wait().unwrap().is_none(), "alive before");
        process.start_time -= 1;
        assert!(signal(&process, Signal::KILL).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!is_alive(&process), "dead after");
    }
}
