//! What is said and done when a part fails: a leader that is killed or stopped, a `/proc` that is of no use, two
//! ends at the same time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod harness;

use harness::{GROUNDS, Ground, Ringfenced, parent_of, wait_for};
use ringfence_wire::evidence::KillMethod;
use ringfence_wire::supervisor::{JobKind, JobState, JobView, TeardownReport};
use rustix::process::{Pid, Signal};

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The pids, as the test sees them, of all processes whose command line holds this word.
fn with_word(word: &str) -> Vec<i32> {
    processes().filter(|pid| command_line(*pid).contains(word)).collect()
}

fn unique(name: &str) -> String {
    format!("{name}-{}", Ringfenced::unique())
}

/// The leader above a process.
fn leader_of(supervisor: &Ringfenced, mut pid: i32) -> i32 {
    while let Some(parent) = parent_of(pid) {
        if parent == supervisor.pid {
            return pid;
        }
        pid = parent;
    }
    panic!("no leader above");
}

fn send(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A shell that stays, with a child in another session that stays, both known by a word.
fn staying(word: &str) -> String {
    format!("setsid bash -c 'while :; do sleep 0.1; done' {word} & while :; do sleep 0.1; done; : {word}")
}

#[test]
fn a_lost_leader_interrupts_its_job_and_nothing_it_led_gets_away_and_no_other_job_is_touched() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let (lost, other) = (unique("lost"), unique("other"));
        supervisor.job("lost", JobKind::Detached, &staying(&lost));
        supervisor.job("other", JobKind::Detached, &staying(&other));
        wait_for("alive before", || {
            (with_word(&lost).len() == 2 && with_word(&other).len() == 2).then_some(())
        });
        send(leader_of(&supervisor, with_word(&lost)[0]), Signal::KILL);
        let end = supervisor.ended("lost").end.unwrap();
        assert_eq!(end.state, JobState::Interrupted, "{ground:?}");
        assert!(end.sweep.complete && end.sweep.killed_count >= 2, "{ground:?} {:?}", end.sweep);
        assert!(
            !end.sweep.methods.contains(&KillMethod::NoChildLeft),
            "the proof is a look: {:?}",
            end.sweep
        );
        assert_eq!(with_word(&lost), [0; 0], "{ground:?}: dead after");
        assert_eq!(
            (with_word(&other).len(), supervisor.view("other").state),
            (2, JobState::Running),
            "{ground:?}"
        );
        let report = supervisor.teardown(&["other"]);
        assert!(report.evidence.complete, "{report:?}");
    }
}

#[test]
fn a_lost_leaders_command_still_reports_how_it_ended() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let word = unique("slow");
    supervisor.job(
        "a",
        JobKind::Detached,
        &format!("trap 'exit 9' TERM; touch trapped; while :; do sleep 0.05; done; : {word}"),
    );
    supervisor.made("trapped");
    send(leader_of(&supervisor, with_word(&word)[0]), Signal::KILL);
    let end = supervisor.ended("a").end.unwrap();
    assert_eq!((end.state, end.exit_code, end.signal), (JobState::Interrupted, Some(9), None));
}

#[test]
fn a_stopped_leader_is_roused_and_its_job_ends_with_the_kernels_proof() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let word = unique("held");
        supervisor.job("a", JobKind::Detached, &staying(&word));
        wait_for("alive before", || (with_word(&word).len() == 2).then_some(()));
        send(leader_of(&supervisor, with_word(&word)[0]), Signal::STOP);
        let report = supervisor.stop("a");
        assert!(
            report.evidence.complete && report.evidence.methods.contains(&KillMethod::NoChildLeft),
            "{report:?}"
        );
        assert_eq!(report.job.unwrap().state, JobState::Cancelled);
        assert_eq!(with_word(&word), [0; 0], "dead after");
    }
}

#[test]
fn without_a_proc_of_its_own_namespace_it_says_so_and_a_kill_all_is_complete_all_the_same() {
    let supervisor = Ringfenced::start_under(
        &["unshare", "--pid", "--fork", "--kill-child=SIGKILL"],
        &[("RINGFENCE_MAX_JOBS", "4")],
    );
    let (fenced, spared) = (unique("fenced"), unique("spared"));
    supervisor.job("spared", JobKind::Detached, &staying(&spared));
    supervisor.job("fenced", JobKind::Fenced, &staying(&fenced));
    wait_for("alive before", || {
        (with_word(&fenced).len() == 2 && with_word(&spared).len() == 2).then_some(())
    });
    let teardown = |path: &str, spare: &[&str]| -> TeardownReport {
        let body = serde_json::json!({ "order": supervisor.order(), "spare": spare, "graceMs": 200 });
        supervisor.call("POST", path, &body).json()
    };
    // What left the command's process group cannot be found: that is said, and never taken for complete.
    let report = teardown("/v1/teardown", &["spared"]);
    assert!(!report.evidence.complete);
    assert_eq!(report.evidence.unfinished.as_deref(), Some("/proc shows another pid namespace"));
    assert_eq!(with_word(&fenced).len(), 1);
    assert_eq!(with_word(&spared).len(), 2);
    let report = teardown("/v1/kill-all", &[]);
    let methods = &report.evidence.methods;
    assert!(
        methods.contains(&KillMethod::KillEveryone) && methods.contains(&KillMethod::NoChildLeft),
        "{report:?}"
    );
    assert!(report.evidence.complete, "{report:?}");
    assert_eq!((with_word(&fenced), with_word(&spared)), (vec![], vec![]), "dead after");
}

#[test]
fn a_stop_and_a_teardown_at_the_same_time_are_both_complete_and_agree() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    for round in 0..10 {
        let (id, word) = (format!("job-{round}"), unique("both"));
        supervisor.job(&id, JobKind::Detached, &staying(&word));
        wait_for("alive before", || (with_word(&word).len() == 2).then_some(()));
        let (stopped, torn) = std::thread::scope(|scope| {
            let stop = scope.spawn(|| supervisor.stop(&id));
            let teardown = scope.spawn(|| supervisor.teardown(&[]));
            (stop.join().unwrap(), teardown.join().unwrap())
        });
        assert!(stopped.evidence.complete && torn.evidence.complete, "{stopped:?} {torn:?}");
        let view: JobView = supervisor.view(&id);
        assert!([JobState::Cancelled, JobState::Killed].contains(&view.state));
        assert!(view.end.unwrap().sweep.complete);
        assert_eq!(with_word(&word), [0; 0], "dead after");
    }
}
