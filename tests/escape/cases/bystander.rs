//! In a shared pid namespace: a process that inherited a marker is not the job's by that alone.

use super::*;

use rustix::process::{Pid, Signal};
use std::process::Command;

pub const CASE: Case = Case {
    name: "a bystander with an older job's marker lives",
    command: |stage, _| {
        let place = stage.path().display();
        stage.shell(&format!("env | grep ^RINGFENCE_JOB_ | cut -d= -f1 > {place}/marker; $SIT"))
    },
    born: 1,
    applies: |system| system.promises() && system.shares_its_pid_namespace(),
    before: |stage, _| {
        let read = |name| std::fs::read_to_string(stage.path().join(name)).unwrap().trim().to_owned();
        // An orphan with another, older job's marker; and one with this very job's, whose parent lives elsewhere.
        let orphan = |marker: &str| {
            let say = format!("echo $$ > {}/orphan; exec sleep 600", stage.path().display());
            Command::new("setsid").args(["--fork", "sh", "-c", &say]).env(marker, "1").status().unwrap();
        };
        let child = |marker: &str| {
            let say = format!("echo $$ > {}/child; exec sleep 600", stage.path().display());
            let mut shell = Command::new("sh").args(["-c", &say]).env(marker, "1").spawn().unwrap();
            std::thread::spawn(move || shell.wait());
        };
        orphan(&read("spared-marker"));
        child(&read("marker"));
        for name in ["orphan", "child"] {
            crate::harness::wait_for(name, || pid(stage, name).filter(|pid| lives(*pid)));
        }
        Ok(())
    },
    after: |stage, _, _| {
        for name in ["orphan", "child"] {
            let pid = pid(stage, name).unwrap();
            if !lives(pid) {
                return Err(format!("the {name} is dead"));
            }
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        Ok(())
    },
    ..Case::PLAIN
};

fn pid(stage: &Stage, name: &str) -> Option<Pid> {
    Pid::from_raw(std::fs::read_to_string(stage.path().join(name)).ok()?.trim().parse().ok()?)
}

fn lives(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
