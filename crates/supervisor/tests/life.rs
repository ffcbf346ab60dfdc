//! The supervisor's own life: what jobs are given, what they cannot reach, and how everything ends.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod harness;

use harness::{BOOT_KEY, GROUNDS, Ground, Ringfenced, until_last_child_is, until_made, wait_for};
use ringfence_wire::evidence::KillMethod;
use ringfence_wire::supervisor::{
    Deadline, ErrorCode, JobKind, JobState, StartJob, TeardownMode, TeardownReport, start_env,
};
use rustix::process::Signal;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Whether a process, by a word of its command line, lives anywhere on the machine.
fn lives(word: &str) -> bool {
    count(word) > 0
}

fn count(word: &str) -> usize {
    let sleeps = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"sleep"))
            && words.any(|argument| argument == word.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(sleeps).count()
}

/// A length of sleep that no other test on this machine uses.
fn unique_sleep() -> String {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).unwrap();
    format!("7{}", u32::from_ne_bytes(bytes))
}

#[test]
fn a_job_has_no_capability_no_new_privileges_no_foreign_descriptor_and_a_session_of_its_own() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let view = supervisor.run("a", "id -u; id -G; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; ls /proc/self/fd | wc -l; ps -o sid= -o pgid= -p $$; echo $$");
        let text = view.tail.unwrap().text;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let id = if ground == Ground::OneUid { "0" } else { "1000" };
        assert_eq!(lines[0], id, "{ground:?}");
        // One uid: the groups of the user namespace's creator cannot be dropped there; they are all unmapped or 0.
        assert!(lines[1].split(' ').all(|group| group == id || ground == Ground::OneUid), "{text}");
        for set in &lines[2..7] {
            assert!(set.ends_with("0000000000000000"), "{ground:?} {set}");
        }
        assert!(lines[7].ends_with('1'), "{text}");
        // 0, 1, 2 and the listing's own.
        assert_eq!(lines[8], "4", "{ground:?}");
        let session: Vec<&str> = lines[9].split_ascii_whitespace().collect();
        assert_eq!(session, [lines[10], lines[10]], "{ground:?}");
    }
}

#[test]
fn a_jobs_environment_is_built_and_tells_the_rules() {
    let supervisor =
        Ringfenced::start_with(Ground::Namespace, &[("SECRET_OF_THE_IMAGE", "x"), ("TZ", "Europe/Berlin")]);
    let mut start =
        supervisor.start_request("a", JobKind::Fenced, "env; cat $RINGFENCE_RULES; ls -la $RINGFENCE_RULES");
    start.spec.env.insert("GIVEN".into(), "by the caller".into());
    (start.wait_ms, start.tail_bytes) = (5_000, 10_000);
    let text = supervisor.started(&start).tail.unwrap().text;
    for line in ["GIVEN=by the caller", "TZ=Europe/Berlin", "HOME=/home", "USER=sandbox"] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(
        !text.contains("SECRET_OF_THE_IMAGE")
            && !text.contains("RINGFENCE_BOOT")
            && !text.contains("DEADLINE")
    );
    assert!(text.contains("background work ends with the command"));
    let marker = text.lines().find(|line| line.starts_with("RINGFENCE_JOB_")).unwrap();
    let hash = marker.strip_prefix("RINGFENCE_JOB_").unwrap().strip_suffix("=1").unwrap();
    assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(supervisor.run("b", "echo x > $RINGFENCE_RULES").end.unwrap().exit_code, Some(1));
}

#[test]
fn the_boot_key_is_nowhere_a_job_can_read_and_gone_from_the_environment_block() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let block = std::fs::read(format!("/proc/{}/environ", supervisor.pid)).unwrap();
        assert!(block.iter().all(|byte| *byte == 0), "{ground:?}: {}", String::from_utf8_lossy(&block));
        let half = &BOOT_KEY[..32];
        // The pattern is written so that the search does not find itself.
        let pattern = format!("[{}]{}", &half[..1], &half[1..]);
        let search = format!(
            "grep -las '{pattern}' /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps; grep -rlas '{pattern}' {}; \
             for mem in /proc/[0-9]*/mem; do (exec 3<$mem) 2>/dev/null && echo open $mem; done; true",
            supervisor.directory.path().display()
        );
        let mut start = supervisor.start_request("search", JobKind::Fenced, &search);
        (start.wait_ms, start.tail_bytes) = (5_000, 10_000);
        let text = supervisor.started(&start).tail.unwrap().text;
        let found: Vec<&str> = text.lines().filter(|line| !line.starts_with("open ")).collect();
        assert!(found.is_empty(), "{ground:?}: {found:?}");
        let supervisors =
            format!("open /proc/{}/mem", if ground == Ground::Session { supervisor.pid } else { 1 });
        assert!(!text.lines().any(|line| line == supervisors), "{ground:?}: {text}");
    }
}

#[test]
fn signals_from_inside_are_ignored_and_counted() {
    let supervisor = Ringfenced::start(Ground::OneUid);
    supervisor.run("a", "kill -TERM 1; kill -INT 1; kill -HUP 1; kill -USR1 1; kill -KILL 1; true");
    assert_eq!(supervisor.hello().ignored_signals, 2);
    let session = Ringfenced::start(Ground::Session);
    assert_ne!(session.run("a", &format!("kill -TERM {}", session.pid)).end.unwrap().exit_code, Some(0));
    session.hello();
}

#[test]
fn term_from_outside_ends_all_jobs_at_once_within_the_grace_and_exits_0() {
    for ground in GROUNDS {
        let mut supervisor = Ringfenced::start(ground);
        let (plain, stubborn) = (unique_sleep(), unique_sleep());
        supervisor.job("a", JobKind::Detached, &format!("sleep {plain}"));
        supervisor.job("b", JobKind::Fenced, &format!("setsid sleep {plain} & sleep {plain}"));
        supervisor.job("c", JobKind::Detached, &format!("trap '' TERM; sleep {stubborn}"));
        wait_for("alive before", || (lives(&plain) && lives(&stubborn)).then_some(()));
        let began = Instant::now();
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.exit_code(Duration::from_secs(9)), Some(0), "{ground:?}");
        assert!(began.elapsed() < Duration::from_millis(7_500));
        assert!(!lives(&plain) && !lives(&stubborn), "{ground:?}: dead after");
        assert!(supervisor.said().contains("complete: true"), "{}", supervisor.said());
    }
}

#[test]
fn at_its_deadline_it_ends_everything_and_exits_0_and_only_the_object_moves_the_deadline() {
    let soon = (harness::now_ms() + 1_500).to_string();
    let mut supervisor = Ringfenced::start_with(Ground::Namespace, &[(start_env::DEADLINE_MS, &soon)]);
    let sleep = unique_sleep();
    supervisor.job("a", JobKind::Detached, &format!("sleep {sleep}"));
    let later = Deadline { deadline_at_ms: harness::now_ms() + 3_000 };
    assert_eq!(supervisor.call("POST", "/v1/deadline", &later).json::<Deadline>(), later);
    assert_eq!(supervisor.hello().deadline_at_ms, later.deadline_at_ms);
    std::thread::sleep(Duration::from_millis(1_700));
    assert!(lives(&sleep), "alive before");
    assert_eq!(supervisor.exit_code(Duration::from_secs(6)), Some(0));
    assert!(harness::now_ms() >= later.deadline_at_ms);
    assert!(!lives(&sleep), "dead after");
    assert!(supervisor.said().contains("the deadline"));
}

#[test]
fn a_deadline_moved_nearer_counts_at_once() {
    let mut supervisor = Ringfenced::start(Ground::Namespace);
    let now = Deadline { deadline_at_ms: harness::now_ms() };
    supervisor.call("POST", "/v1/deadline", &now);
    assert_eq!(supervisor.exit_code(Duration::from_secs(3)), Some(0));
}

#[test]
fn nothing_outlives_a_supervisor_that_is_killed() {
    for ground in GROUNDS {
        for _ in 0..5 {
            let mut supervisor = Ringfenced::start(ground);
            let sleep = unique_sleep();
            supervisor.job(
                "quiet",
                JobKind::Detached,
                &format!("trap '' TERM; (setsid sleep {sleep} &) ; sleep {sleep}"),
            );
            // Its leader is never at rest: orphans fall to it all the time.
            let busy = format!("sleep {sleep} & while :; do (sleep 0.001 &); done");
            supervisor.job("busy", JobKind::Detached, &busy);
            wait_for("alive before", || (count(&sleep) == 3).then_some(()));
            supervisor.signal(Signal::KILL);
            supervisor.exit_code(Duration::from_secs(3));
            wait_for("dead after", || (!lives(&sleep)).then_some(()));
        }
    }
}

#[test]
fn pid_1_reaps_every_orphan() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        supervisor.job("keeper", JobKind::Detached, "sleep 60");
        for n in 0..20 {
            supervisor.run(&format!("a{n}"), "for i in 1 2 3 4 5; do (sleep 0.01 &) ; done; sleep 0.05");
        }
        let zombies = || {
            let mine = |pid: i32| harness::parent_of(pid).is_some_and(|parent| parent == supervisor.pid);
            std::fs::read_dir("/proc")
                .unwrap()
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .filter(|pid| mine(*pid))
                .filter(|pid| {
                    std::fs::read_to_string(format!("/proc/{pid}/stat"))
                        .is_ok_and(|stat| stat.contains(") Z "))
                })
                .count()
        };
        wait_for("no zombie is left", || (zombies() == 0).then_some(()));
    }
}

#[test]
fn a_job_is_the_first_to_go_when_memory_runs_out_and_has_the_containers_own_limits() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let view = supervisor.run("a", "cat /proc/self/oom_score_adj; ulimit -Sn");
    let text = view.tail.unwrap().text;
    let own = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", supervisor.pid)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "500");
    assert!(own.trim().parse::<i32>().unwrap() < 500, "{own}");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
    assert_eq!(lines[1], limit.to_string());
}

#[test]
fn connections_that_never_show_the_key_cannot_keep_the_object_out() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.hello();
    let idle: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", supervisor.port)).unwrap();
            stream.write_all(b"GET /v1/hello HTTP/1.1\r\nhost: x\r\n").unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        supervisor.hello();
    }
    let fresh = Ringfenced::start(Ground::Namespace);
    fresh.hello();
    drop(idle);
    assert_eq!(supervisor.run("a", "true").state, JobState::Completed);
}

#[test]
fn a_deployment_may_run_jobs_as_root_and_they_still_have_no_capability() {
    let supervisor = Ringfenced::start_with(Ground::Namespace, &[(start_env::JOB_USER, "root")]);
    let text = supervisor.run("a", "id -u; grep -E '^Cap(Eff|Bnd)' /proc/self/status").tail.unwrap().text;
    assert_eq!(text, "0\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n");
}

#[test]
fn a_kill_all_by_name_ends_with_kill_everyone_unless_a_later_job_lives() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let sleep = unique_sleep();
    supervisor.job("a", JobKind::Fenced, &format!("trap '' TERM; sleep {sleep}"));
    wait_for("alive before", || lives(&sleep).then_some(()));
    let kill_all = |order| -> TeardownReport {
        supervisor.call("POST", "/v1/kill-all", &serde_json::json!({ "order": order, "graceMs": 100 })).json()
    };
    let report = kill_all(supervisor.order());
    assert!(
        report.evidence.complete && report.evidence.methods.contains(&KillMethod::KillEveryone),
        "{report:?}"
    );
    assert_eq!((report.mode, report.ended), (TeardownMode::KillAll, vec!["a".into()]));
    assert!(!lives(&sleep), "dead after");

    supervisor.job("b", JobKind::Fenced, &format!("trap '' TERM; sleep {sleep}"));
    let order = supervisor.order();
    supervisor.job("later", JobKind::Detached, "sleep 60");
    supervisor.running("b");
    supervisor.running("later");
    let report = kill_all(order);
    assert!(
        report.evidence.complete && !report.evidence.methods.contains(&KillMethod::KillEveryone),
        "{report:?}"
    );
    assert_eq!(report.ended, ["b".into()]);
    assert_eq!(supervisor.view("later").state, JobState::Running);
}

#[test]
fn a_job_that_was_killed_says_so_and_the_first_desired_end_wins() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let mut start = supervisor.start_request(
        "a",
        JobKind::Detached,
        &format!("trap '{}; exit 5' TERM; touch trapped; while :; do sleep 0.05; done", until_made("let-go")),
    );
    let timeout = Duration::from_secs(2);
    start.spec.timeout_ms = Some(timeout.as_millis() as u64);
    let began = Instant::now();
    supervisor.started(&start);
    supervisor.made("trapped");
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| supervisor.stop("a"));
        wait_for("it is being stopped", || (supervisor.view("a").state == JobState::Stopping).then_some(()));
        let tearing_down = scope.spawn(|| supervisor.teardown(&[]));
        std::thread::sleep((timeout + Duration::from_millis(200)).saturating_sub(began.elapsed()));
        supervisor.make("let-go");
        assert!(stopping.join().unwrap().evidence.complete);
        tearing_down.join().unwrap();
    });
    let end = supervisor.ended("a").end.unwrap();
    assert_eq!((end.state, end.exit_code, end.signal), (JobState::Cancelled, Some(5), None));
}

#[test]
fn a_detached_job_ends_with_its_command_and_what_it_left_is_swept_first() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let sleep = unique_sleep();
        supervisor.job(
            "a",
            JobKind::Detached,
            &format!("setsid sleep {sleep} >/dev/null 2>&1 & {}; exit 4", until_made("seen")),
        );
        wait_for("alive before", || lives(&sleep).then_some(()));
        supervisor.make("seen");
        let end = supervisor.ended("a").end.unwrap();
        assert_eq!((end.state, end.exit_code), (JobState::Failed, Some(4)));
        assert!(end.sweep.complete && end.sweep.killed_count == 1, "{:?}", end.sweep);
        assert!(!lives(&sleep), "dead after");
    }
}

#[test]
fn a_quiet_exec_pays_no_sweep_and_its_teardown_no_look() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.run("a", "true");
    let report = supervisor.teardown(&[]);
    assert_eq!(
        (report.evidence.scans, report.evidence.methods.as_slice()),
        (0, [KillMethod::NoChildLeft].as_slice())
    );
    assert!(report.evidence.complete);
}

#[test]
fn a_teardown_tells_what_the_jobs_own_end_had_swept_before_it_once() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.run("a", &format!("setsid sleep 60 >/dev/null 2>&1 & {}", until_last_child_is("sleep")));
    let report = supervisor.teardown(&[]);
    assert_eq!((report.evidence.killed_count, report.evidence.killed[0].name.as_str()), (1, "sleep"));
    assert_eq!(supervisor.teardown(&[]).evidence.killed_count, 0);
}

#[test]
fn a_supervisor_that_ends_takes_no_new_job() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    // It cannot have ended before it is asked: this job is there for the whole of the grace.
    supervisor.job("a", JobKind::Detached, "trap '' TERM; touch trapped; sleep 60");
    supervisor.made("trapped");
    supervisor.signal(Signal::TERM);
    let mut tries = 0;
    let code = wait_for("the signal has arrived", || {
        tries += 1;
        let late: StartJob = supervisor.start_request(&format!("late-{tries}"), JobKind::Fenced, "true");
        let answer = supervisor.call("POST", "/v1/jobs", &late);
        (answer.status != 201).then(|| answer.code())
    });
    assert_eq!(code, ErrorCode::ShuttingDown);
}
