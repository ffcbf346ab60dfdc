//! What is left when an engine ends, in order or not: nothing. And what it refuses to start on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{
    Mode, TestEngine, WAITING_INIT, alive, command, eventually, fresh_directory, modes, processes_of,
};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Stdio;

fn booted(mode: Mode, options: &[&str]) -> (TestEngine, Vec<i32>) {
    let engine = TestEngine::start_with(mode, WAITING_INIT, options);
    engine.boot("one");
    engine.boot("two");
    let mut processes = Vec::new();
    for name in ["one", "two"] {
        assert_eq!(engine.sh(name, "", "setsid sleep 300 >/dev/null 2>&1 & sleep 0.1").code, 0);
        processes.extend(processes_of(engine.init_pid(name)));
    }
    assert!(processes.len() >= 4, "{processes:?}");
    assert!(processes.iter().all(|pid| alive(*pid)));
    (engine, processes)
}

/// Control groups of an engine's containers, wherever they are mounted.
fn groups(container: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let roots = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (path, kind) = (fields.nth(1)?, fields.next()?);
        kind.starts_with("cgroup").then(|| PathBuf::from(path))
    });
    fn find(directory: &PathBuf, container: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("ringfence-") && name.ends_with(container) {
                found.push(path);
            } else {
                find(&path, container, found);
            }
        }
    }
    let mut found = Vec::new();
    roots.for_each(|root| find(&root, container, &mut found));
    found
}

fn id_of(engine: &TestEngine, name: &str) -> String {
    let all = engine.containers();
    all.iter().find(|container| container["name"] == name).unwrap()["id"].as_str().unwrap().to_owned()
}

#[test]
fn containers_die_with_an_engine_that_is_killed_and_the_next_one_starts_clean() {
    for mode in modes() {
        let (mut engine, processes) = booted(mode, &[]);
        let id = id_of(&engine, "one");
        engine.signal(Signal::KILL);
        engine.wait();
        eventually("every process of its containers is dead", || processes.iter().all(|pid| !alive(*pid)));
        assert!(engine.directory.join("docker.sock").exists(), "a crash leaves its sockets");
        let directory = std::mem::take(&mut engine.directory);
        drop(engine);
        let next = TestEngine::start_in(directory, mode, WAITING_INIT, &[]);
        assert_eq!(next.containers().len(), 0);
        assert_eq!(groups(&id), Vec::<PathBuf>::new(), "groups of the crashed engine are gone");
        next.boot("one");
        assert!(alive(next.init_pid("one")));
    }
}

#[test]
fn an_engine_told_to_end_ends_its_containers_first_and_leaves_nothing() {
    for mode in modes() {
        for signal in [Signal::TERM, Signal::INT] {
            let (mut engine, processes) = booted(mode, &[]);
            let id = id_of(&engine, "one");
            engine.signal(signal);
            assert!(engine.wait().success(), "{}", engine.log());
            assert!(processes.iter().all(|pid| !alive(*pid)), "before the engine ended");
            assert!(!engine.directory.join("docker.sock").exists());
            assert!(!engine.directory.join("control.sock").exists());
            assert!(!engine.directory.join("state").exists());
            assert_eq!(groups(&id), Vec::<PathBuf>::new());
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
            assert!(!mounts.contains(engine.directory.to_str().unwrap()), "{mounts}");
        }
    }
}

#[test]
fn an_engine_told_to_follow_its_parent_ends_with_it() {
    let directory = fresh_directory();
    let mut inner = command(&directory, modes()[0], WAITING_INIT, &["--exit-with-parent"]);
    let program = inner.get_program().to_owned();
    let arguments: Vec<_> = inner.get_args().map(ToOwned::to_owned).collect();
    let _ = inner.stdin(Stdio::null());
    // A parent between: it starts the engine, says its pid, and waits to be killed.
    let script = "\"$@\" >/dev/null 2>&1 & echo $!; wait";
    let mut parent = std::process::Command::new("sh");
    parent.args(["-c", script, "sh"]).arg(program).args(arguments);
    let mut parent = parent.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut line)
        .unwrap();
    let engine: i32 = line.trim().parse().unwrap();
    eventually("it serves", || directory.join("control.sock").exists());
    assert!(alive(engine));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the engine ended", || !alive(engine));
    eventually("its sockets are gone", || !directory.join("docker.sock").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_container_whose_keeper_is_killed_is_dead_and_said_to_be() {
    for mode in modes() {
        let (engine, _) = booted(mode, &[]);
        let init = engine.init_pid("one");
        let inside = processes_of(init);
        let stat = std::fs::read_to_string(format!("/proc/{init}/stat")).unwrap();
        let keeper: i32 =
            stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_ne!(keeper, i32::try_from(engine.process.id()).unwrap());
        rustix::process::kill_process(rustix::process::Pid::from_raw(keeper).unwrap(), Signal::KILL).unwrap();
        let waited = engine.call("POST", "/containers/one/wait", "").json();
        assert_eq!(waited["StatusCode"], 137);
        assert!(inside.iter().all(|pid| !alive(*pid)), "when its end is told it is true");
        assert!(alive(engine.init_pid("two")), "the other lives on");
        assert_eq!(engine.sh("two", "", "echo on").stdout, "on\n");
    }
}

#[test]
fn two_engines_never_share_a_state_directory() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    let second = command(&engine.directory, engine.mode, WAITING_INIT, &[]).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another engine uses") && said.contains("--state-dir"), "{said}");
    assert!(alive(engine.init_pid("box")), "the first is not disturbed");
    assert_eq!(engine.call("GET", "/_ping", "").status, 200);
}

#[test]
fn without_a_user_namespace_the_engine_does_not_start_and_says_what_to_enable() {
    let directory = fresh_directory();
    let engine = command(&directory, Mode::Unprivileged, WAITING_INIT, &[]);
    // In a user namespace that may have no other below it. Its own program is reached by the path of the copy.
    let program = directory.join("engine");
    let _ = engine;
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c"])
        .arg("echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"")
        .arg("sh")
        .arg(program)
        .arg("--dir")
        .arg(&directory)
        .arg("--supervisor")
        .arg(directory.join("init"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("no user namespace") && said.contains("sysctl -w user.max_user_namespaces"),
        "{said}"
    );
    assert!(!directory.join("docker.sock").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_missing_supervisor_is_named() {
    let directory = fresh_directory();
    drop(command(&directory, modes()[0], WAITING_INIT, &[]));
    std::fs::remove_file(directory.join("init")).unwrap();
    let output = std::process::Command::new(directory.join("engine"))
        .arg("--dir")
        .arg(&directory)
        .args(["--supervisor", "/nowhere/ringfenced"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/nowhere/ringfenced") && said.contains("--supervisor"), "{said}");
    std::fs::remove_dir_all(directory).unwrap();
}
