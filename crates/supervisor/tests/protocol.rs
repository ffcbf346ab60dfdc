//! The protocol as a caller sees it: who is answered, what is refused, what a start means when it comes twice, late
//! or after its stop.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod harness;

use harness::{BOOT_KEY, GENERATION, GROUNDS, Ground, Ringfenced};
use ringfence_wire::evidence::{KillMethod, KillScope};
use ringfence_wire::ids::Order;
use ringfence_wire::supervisor::{
    ErrorCode, JobKind, JobList, JobState, JobUid, MAX_PAGE_BYTES, MAX_TAIL_BYTES, MAX_WAIT_MS,
    MIN_PAGE_BYTES, StartJob, StopFinding, start_env,
};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn hello_tells_the_ground_the_supervisor_stands_on() {
    for (ground, scope, uid) in [
        (Ground::Namespace, KillScope::Namespace, JobUid::Separate),
        (Ground::OneUid, KillScope::Namespace, JobUid::Same),
        (Ground::Session, KillScope::Session, JobUid::Separate),
    ] {
        let supervisor = Ringfenced::start(ground);
        let hello = supervisor.hello();
        assert_eq!((hello.scope, hello.job_uid, hello.generation), (scope, uid, GENERATION), "{ground:?}");
        assert!(hello.deadline_at_ms > hello.now_ms);
    }
}

#[test]
fn without_the_boot_key_there_is_401_and_nothing_else() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let wrong = BOOT_KEY.replace('c', "d");
    for key in [None, Some(""), Some("c0ffee"), Some(wrong.as_str())] {
        let answer = supervisor.request("GET", "/v1/hello", key, Vec::new());
        assert_eq!((answer.status, answer.body.len(), answer.boot_id), (401, 0, None));
    }
    let start = serde_json::to_vec(&supervisor.start_request("a", JobKind::Fenced, "true")).unwrap();
    assert_eq!(supervisor.request("POST", "/v1/jobs", Some(&wrong), start).status, 401);
    assert_eq!(supervisor.get("/v1/jobs/a").code(), ErrorCode::UnknownJob);
}

#[test]
fn every_answer_carries_boot_id_and_generation_and_a_new_supervisor_has_another_boot_id() {
    let (one, other) = (Ringfenced::start(Ground::Namespace), Ringfenced::start(Ground::Namespace));
    for answer in [one.get("/v1/hello"), one.get("/v1/jobs/none"), one.get("/nowhere")] {
        assert_eq!(answer.boot_id, Some(one.hello().boot_id.0));
        assert_eq!(answer.generation, Some(GENERATION.to_string()));
    }
    assert_ne!(one.hello().boot_id, other.hello().boot_id);
}

#[test]
fn a_supervisor_without_its_start_environment_refuses_to_start_and_names_what_is_missing() {
    for name in [start_env::BOOT_KEY, start_env::GENERATION, start_env::DEADLINE_MS] {
        let directory = harness::open_directory();
        let mut environment = harness::environment(directory.path());
        environment.remove(name);
        let output = harness::command(Ground::Session).env_clear().envs(environment).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(said.contains(&format!("{name} is not set")), "{said}");
        assert!(!said.contains(BOOT_KEY));
    }
}

#[test]
fn a_start_after_the_deadline_starts_nothing_and_exits_0() {
    let directory = harness::open_directory();
    let mut environment = harness::environment(directory.path());
    environment.insert(start_env::DEADLINE_MS.to_owned(), (harness::now_ms() - 1).to_string());
    let output = harness::command(Ground::Session).env_clear().envs(environment).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("the deadline has passed"));
}

#[test]
fn a_command_ends_with_its_own_code_its_output_and_a_proof() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let view = supervisor.run("a", "echo out; echo err >&2; exit 3");
        let end = view.end.unwrap();
        assert_eq!(
            (view.state, end.state, end.exit_code, end.signal),
            (JobState::Failed, JobState::Failed, Some(3), None)
        );
        assert_eq!((end.nonce.as_str(), end.boot_id), ("nonce of a", supervisor.hello().boot_id));
        assert_eq!((end.stdout.bytes, end.stderr.bytes), (4, 4));
        assert_eq!(end.stdout.sha256, sha256(b"out\n"));
        let tail = view.tail.unwrap();
        assert!(tail.text == "out\nerr\n" || tail.text == "err\nout\n", "{tail:?}");
        // Nothing was left, on the kernel's word, without a look.
        assert_eq!(
            (end.sweep.methods.as_slice(), end.sweep.scans),
            ([KillMethod::NoChildLeft].as_slice(), 0)
        );
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(bytes))
}

#[test]
fn a_signal_death_reports_the_signal_and_no_code_and_a_start_that_cannot_be_is_127_with_the_reason() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let end = supervisor.run("a", "kill -SEGV $$").end.unwrap();
    assert_eq!((end.state, end.exit_code, end.signal), (JobState::Failed, None, Some(11)));
    let mut missing = supervisor.start_request("b", JobKind::Fenced, "");
    missing.spec.command = None;
    missing.spec.argv = Some(vec!["/no/such/program".into()]);
    (missing.wait_ms, missing.tail_bytes) = (5_000, 1_000);
    let view = supervisor.started(&missing);
    assert_eq!(view.end.map(|end| (end.state, end.exit_code)), Some((JobState::Failed, Some(127))));
    assert!(view.tail.unwrap().text.contains("cannot start /no/such/program"));
    let mut nowhere = supervisor.start_request("c", JobKind::Fenced, "true");
    nowhere.spec.cwd = Some("/no/such/place".into());
    (nowhere.wait_ms, nowhere.tail_bytes) = (5_000, 1_000);
    let view = supervisor.started(&nowhere);
    assert_eq!(view.end.unwrap().exit_code, Some(127));
    assert!(view.tail.unwrap().text.contains("/no/such/place: it is not a directory"));
}

#[test]
fn the_same_start_twice_is_one_process_and_another_spec_under_its_id_is_a_conflict() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let start = supervisor.start_request("a", JobKind::Detached, "echo once >> started; sleep 60");
    let first = supervisor.started(&start);
    let again = supervisor.call("POST", "/v1/jobs", &start);
    assert_eq!(again.status, 200);
    assert_eq!(again.json::<ringfence_wire::supervisor::JobView>().started_at_ms, first.started_at_ms);
    // How its caller waits is not part of what it is.
    assert_eq!(supervisor.call("POST", "/v1/jobs", &StartJob { wait_ms: 50, ..start.clone() }).status, 200);
    let mut other = start.clone();
    other.spec.command = Some("sleep 61".into());
    assert_eq!(supervisor.call("POST", "/v1/jobs", &other).code(), ErrorCode::Conflict);
    let started = supervisor.workspace().join("started");
    harness::wait_for("it ran", || std::fs::read_to_string(&started).ok().filter(|text| text == "once\n"));
    assert_eq!(supervisor.get("/v1/jobs").json::<JobList>().jobs.len(), 1);
}

#[test]
fn a_start_that_arrives_after_its_fences_teardown_is_refused_unless_it_was_spared() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let late = supervisor.start_request("late", JobKind::Fenced, "touch late");
    let spared = supervisor.start_request("spared", JobKind::Detached, "sleep 60");
    supervisor.teardown(&["spared"]);
    assert_eq!(supervisor.call("POST", "/v1/jobs", &late).code(), ErrorCode::FenceClosed);
    assert_eq!(supervisor.call("POST", "/v1/jobs", &spared).status, 201);
    assert_eq!(supervisor.view("spared").order, spared.order);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!supervisor.workspace().join("late").exists());
}

#[test]
fn a_start_that_came_after_the_decision_is_not_killed_by_it() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.job("old", JobKind::Fenced, "sleep 60");
    let teardown_order = supervisor.order();
    supervisor.job("new", JobKind::Detached, "sleep 60");
    let report: ringfence_wire::supervisor::TeardownReport =
        supervisor.call("POST", "/v1/teardown", &json!({ "order": teardown_order })).json();
    assert_eq!(report.ended, ["old".into()]);
    assert!(report.evidence.complete);
    assert_eq!(supervisor.running("new").state, JobState::Running);
}

#[test]
fn a_stop_before_its_start_leaves_a_tombstone_that_refuses_the_start() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let start = supervisor.start_request("a", JobKind::Detached, "sleep 60");
    let report = supervisor.stop("a");
    assert_eq!((report.finding, report.evidence.complete), (StopFinding::NeverStarted, true));
    assert_eq!(supervisor.call("POST", "/v1/jobs", &start).code(), ErrorCode::FenceClosed);
    assert_eq!(supervisor.stop("a").finding, StopFinding::NeverStarted);
}

#[test]
fn an_end_is_kept_until_it_is_acknowledged_and_a_forgotten_one_is_never_called_absent() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let first = supervisor.run("job-0", "true");
    // One more than are kept once acknowledged.
    for n in 1..=128 {
        supervisor.run(&format!("job-{n}"), "true");
    }
    assert_eq!(supervisor.stop("job-0").finding, StopFinding::AlreadyEnded);
    let ends: Vec<String> = (0..=128).map(|n| format!("job-{n}")).collect();
    assert_eq!(supervisor.call("POST", "/v1/acknowledge", &json!({ "ends": ends })).status, 200);
    let list: JobList = supervisor.get("/v1/jobs").json();
    assert_eq!((list.jobs.len(), list.forgotten_mark), (128, first.order));
    assert_eq!(supervisor.get("/v1/jobs/job-0?order=1").code(), ErrorCode::Forgotten);
    let stopped: ringfence_wire::supervisor::StopReport =
        supervisor.request("DELETE", "/v1/jobs/job-0?order=1", Some(BOOT_KEY), Vec::new()).json();
    assert_eq!(stopped.finding, StopFinding::Forgotten);
    assert_eq!(supervisor.get("/v1/jobs/never?order=9999").code(), ErrorCode::UnknownJob);
    assert_eq!(supervisor.view("job-1").state, JobState::Completed);
}

#[test]
fn bad_input_is_refused_by_its_field_and_starts_nothing() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let good = json!({ "order": 1, "id": "a", "nonce": "n", "kind": "fenced", "command": "true" });
    let with = |changes: serde_json::Value| {
        let mut body = good.clone();
        for (name, value) in changes.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = supervisor.call("POST", "/v1/jobs", &body);
        let error: ringfence_wire::supervisor::ErrorBody = answer.json();
        (answer.status, error.message)
    };
    for (changes, status, names) in [
        (json!({ "command": "" }), 400, "command"),
        (json!({ "command": " \n" }), 400, "command"),
        (json!({ "command": "a\u{0}b" }), 400, "command"),
        (json!({ "command": "x".repeat(256 * 1024 + 1) }), 413, "command"),
        (json!({ "command": null, "argv": null }), 400, "argv"),
        (json!({ "argv": ["true"] }), 400, "not both"),
        (json!({ "command": null, "argv": [] }), 400, "argv"),
        (json!({ "command": null, "argv": ["true", "a\u{0}"] }), 400, "argv"),
        (json!({ "cwd": "relative" }), 400, "cwd"),
        (json!({ "env": { "A=B": "c" } }), 400, "env"),
        (json!({ "env": { "RINGFENCE_RULES": "c" } }), 400, "env"),
        (json!({ "env": { "A": "x".repeat(100_000), "B": "x".repeat(40_000) } }), 400, "env"),
        (json!({ "timeoutMs": 0 }), 400, "timeoutMs"),
        (json!({ "logPath": "../x" }), 400, "logPath"),
        (json!({ "logPath": "" }), 400, "logPath"),
        (json!({ "id": "" }), 400, "id"),
        (json!({ "id": "a/b" }), 400, "id"),
        (json!({ "id": "x".repeat(129) }), 400, "id"),
        (json!({ "nonce": "" }), 400, "nonce"),
        (json!({ "order": -1 }), 400, "order"),
        (json!({ "kind": "eternal" }), 400, "eternal"),
        (json!({ "waitMs": MAX_WAIT_MS + 1 }), 400, "waitMs"),
        (json!({ "tailBytes": MAX_TAIL_BYTES + 1 }), 400, "tailBytes"),
    ] {
        let (answered, message) = with(changes.clone());
        assert_eq!(answered, status, "{changes} {message}");
        assert!(message.contains(names), "{changes}: {message}");
    }
    assert_eq!(supervisor.request("POST", "/v1/jobs", Some(BOOT_KEY), b"{\"order\":".to_vec()).status, 400);
    assert_eq!(supervisor.request("POST", "/v1/jobs", Some(BOOT_KEY), vec![b' '; 3 << 20]).status, 413);
    supervisor.run("b", "true");
    for query in [
        format!("limit={}", MIN_PAGE_BYTES - 1),
        format!("limit={}", MAX_PAGE_BYTES + 1),
        "cursor=x".into(),
        format!("waitMs={}", MAX_WAIT_MS + 1),
    ] {
        assert_eq!(
            supervisor.get(&format!("/v1/jobs/b/output?{query}")).code(),
            ErrorCode::BadRequest,
            "{query}"
        );
    }
    assert_eq!(supervisor.get("/v1/jobs/b/output?limit=4").status, 200);
    assert_eq!(
        supervisor.request("DELETE", "/v1/jobs/b?graceMs=60001", Some(BOOT_KEY), Vec::new()).status,
        400
    );
    assert_eq!(supervisor.get("/v1/nothing").code(), ErrorCode::NotFound);
    assert_eq!(supervisor.get("/v1/jobs").json::<JobList>().jobs.len(), 1);
}

#[test]
fn one_job_more_than_may_run_is_refused_and_runs_once_there_is_room() {
    let supervisor = Ringfenced::start_with(Ground::Namespace, &[(start_env::MAX_JOBS, "2")]);
    supervisor.job("a", JobKind::Detached, "sleep 60");
    supervisor.job("b", JobKind::Detached, "sleep 60");
    let third = supervisor.start_request("c", JobKind::Detached, "sleep 60");
    assert_eq!(supervisor.call("POST", "/v1/jobs", &third).code(), ErrorCode::LimitReached);
    assert!(supervisor.stop("a").evidence.complete);
    assert_eq!(supervisor.call("POST", "/v1/jobs", &third).status, 201);
}

#[test]
fn a_wait_ends_with_the_job_not_with_its_time() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.job("a", JobKind::Detached, "sleep 60");
    supervisor.running("a");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| supervisor.ended("a"));
        std::thread::sleep(Duration::from_millis(300));
        supervisor.stop("a");
        assert!(waiting.join().unwrap().end.is_some());
    });
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn a_wait_that_asked_for_it_ends_when_the_command_has_ended_and_what_it_left_still_lives() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let start = StartJob {
        wait_ms: 5_000,
        wake_on_stopping: true,
        ..supervisor.start_request("a", JobKind::Fenced, "trap '' TERM; sleep 60 & exit 0")
    };
    let view = supervisor.started(&start);
    assert_eq!((view.state, view.end), (JobState::Stopping, None));
    assert!(view.command_ended_at_ms.is_some());
    let quiet = StartJob {
        wait_ms: 5_000,
        wake_on_stopping: true,
        ..supervisor.start_request("b", JobKind::Fenced, "true")
    };
    assert_eq!(supervisor.started(&quiet).state, JobState::Completed);
}

#[test]
fn a_timeout_ends_the_whole_tree_and_invents_no_code() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let mut start = supervisor.start_request("a", JobKind::Fenced, "sleep 61 & sleep 60");
        // Long enough for both to be there.
        start.spec.timeout_ms = Some(1_000);
        start.wait_ms = 5_000;
        let end = supervisor.started(&start).end.expect("ended");
        assert_eq!((end.state, end.exit_code, end.signal), (JobState::TimedOut, None, Some(15)));
        assert!(end.sweep.complete && end.sweep.killed_count >= 2, "{:?}", end.sweep);
    }
}

#[test]
fn an_overtaken_teardown_acts_only_on_what_is_below_it() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let overtaken = supervisor.order();
    supervisor.job("a", JobKind::Detached, "sleep 60");
    let report: ringfence_wire::supervisor::TeardownReport =
        supervisor.call("POST", "/v1/kill-all", &json!({ "order": overtaken })).json();
    assert_eq!((report.ended.len(), report.evidence.complete), (0, true));
    assert_eq!(supervisor.running("a").state, JobState::Running);
    assert!(supervisor.hello().order > Order(1));
}
