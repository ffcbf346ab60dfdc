//! Output and standard input as a caller sees them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod harness;

use base64::Engine;
use harness::{GROUNDS, Ground, Ringfenced, until_last_child_is, until_made, wait_for};
use ringfence_wire::supervisor::{
    ArtifactList, ArtifactPage, ErrorCode, FrameEncoding, JobKind, JobState, OutputPage, OutputStream,
    StartJob, StdinAnswer, StdinMode, StdinResult,
};
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

fn text(page: &OutputPage) -> String {
    page.frames.iter().map(|frame| frame.data.as_str()).collect()
}

fn bytes(page: &OutputPage) -> Vec<u8> {
    let decode = |frame: &ringfence_wire::supervisor::OutputFrame| match frame.encoding {
        FrameEncoding::Utf8 => frame.data.clone().into_bytes(),
        FrameEncoding::Base64 => base64::engine::general_purpose::STANDARD.decode(&frame.data).unwrap(),
    };
    page.frames.iter().flat_map(decode).collect()
}

#[test]
fn one_cursor_reads_both_streams_in_order_of_arrival() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let script = format!(
            "echo one; {}; echo two >&2; {}; echo three",
            until_made("read-one"),
            until_made("read-two")
        );
        supervisor.job("a", JobKind::Fenced, &script);
        let arrived =
            |bytes| wait_for("a line arrives", || (supervisor.view("a").output_end.0 == bytes).then_some(()));
        arrived(4);
        supervisor.make("read-one");
        arrived(8);
        supervisor.make("read-two");
        supervisor.ended("a");
        let page = supervisor.page("a", 0, 65_536, 0);
        let frames: Vec<_> = page.frames.iter().map(|frame| (frame.stream, frame.data.as_str())).collect();
        assert_eq!(
            frames,
            [
                (OutputStream::Stdout, "one\n"),
                (OutputStream::Stderr, "two\n"),
                (OutputStream::Stdout, "three\n")
            ]
        );
        assert!(page.eof);
        let (mut cursor, mut whole) = (0, String::new());
        while whole.len() < 14 {
            let page = supervisor.page("a", cursor, 4, 0);
            assert!(text(&page).len() <= 4 && !page.frames.is_empty());
            whole += &text(&page);
            cursor = page.next.0;
        }
        assert_eq!(whole, "one\ntwo\nthree\n");
    }
}

#[test]
fn a_command_that_begins_with_a_dash_is_a_command_and_no_option_of_the_shell() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let view = supervisor.run("a", "-c 2>/dev/null; echo ran");
    assert_eq!(view.end.unwrap().exit_code, Some(0));
    assert_eq!(text(&supervisor.page("a", 0, 65_536, 0)), "ran\n");
}

#[test]
fn a_follower_waits_for_news_without_polling_and_is_told_the_end() {
    let supervisor = &Ringfenced::start(Ground::Namespace);
    let script = format!("{}; echo late; {}", until_made("speak"), until_made("end"));
    supervisor.job("a", JobKind::Detached, &script);
    let began = Instant::now();
    let page_once = |cursor, made: &str| {
        std::thread::scope(|scope| {
            let page = scope.spawn(move || supervisor.page("a", cursor, 65_536, 5_000));
            std::thread::sleep(Duration::from_millis(300));
            assert!(!page.is_finished(), "it waits for {made}");
            supervisor.make(made);
            page.join().unwrap()
        })
    };
    let page = page_once(0, "speak");
    assert_eq!((text(&page).as_str(), page.eof), ("late\n", false));
    let page = page_once(page.next.0, "end");
    assert_eq!((page.frames.len(), page.eof), (0, true));
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[test]
fn what_the_ring_dropped_is_counted_and_the_log_and_the_digest_have_it_all() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let mut start = supervisor.start_request("a", JobKind::Fenced, "seq 400000");
    start.spec.log_path = Some("numbers".into());
    start.wait_ms = 5_000;
    supervisor.started(&start);
    let end = supervisor.ended("a").end.unwrap();
    let whole: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(end.stdout.sha256, hex::encode(Sha256::digest(&whole)));
    assert_eq!((end.stdout.bytes, end.log_truncated), (whole.len() as u64, false));
    let page = supervisor.page("a", 0, 65_536, 0);
    assert_eq!(page.dropped, page.base.0);
    assert!(page.base.0 >= whole.len() as u64 - (1 << 20) && page.base.0 < whole.len() as u64);
    let at = page.base.0 as usize;
    assert_eq!(text(&page), whole[at..at + text(&page).len()]);

    let logs = supervisor.artifacts().join(".logs");
    let log = std::fs::read_dir(&logs).unwrap().next().unwrap().unwrap();
    assert_eq!(std::fs::read(log.path()).unwrap(), whole.as_bytes());
    let name = log.file_name().into_string().unwrap();
    assert!(name.starts_with("numbers.") && name.ends_with(".log") && name.len() > 40, "{name}");
}

#[test]
fn a_log_is_found_under_its_very_path_and_by_its_job_alone() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let paths = [
        ("a", "a/b"),
        ("b", "a_b"),
        ("c", "a b"),
        ("d", "\u{e9}"),
        ("e", "\u{e8}"),
        ("f", ".x"),
        ("g", "_x"),
    ];
    let logged = |id: &str, path: &str, says: &str| {
        let mut start = supervisor.start_request(id, JobKind::Fenced, &format!("echo {says}"));
        start.spec.log_path = Some(path.into());
        start.wait_ms = 5_000;
        supervisor.started(&start);
        supervisor.ended(id);
    };
    for (id, path) in paths {
        logged(id, path, id);
    }
    let page = |query: &str| supervisor.get(&format!("/v1/artifacts/page?{query}"));
    let content = |query: &str| page(query).json::<ArtifactPage>().content;
    let escaped = |path: &str| path.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for (id, path) in paths {
        assert_eq!(content(&format!("path={}", escaped(path))), format!("{id}\n"), "{path}");
    }
    let listed: Vec<String> = supervisor
        .get("/v1/artifacts")
        .json::<ArtifactList>()
        .artifacts
        .into_iter()
        .map(|a| a.path)
        .collect();
    for (_, path) in paths {
        assert!(listed.iter().any(|one| one == path), "{path} in {listed:?}");
    }

    logged("newer", "a/b", "newer");
    assert_eq!(content("path=a/b"), "newer\n");
    assert_eq!(content("path=a/b&job=a"), "a\n");
    assert_eq!(page("path=a/b&job=b").code(), ErrorCode::NoSuchFile);
    // A file of a log's path is there too, for whoever asks for the file.
    let artifacts = supervisor.artifacts();
    supervisor.run("files", &format!("mkdir {0}/a; echo file > {0}/a/b", artifacts.display()));
    assert_eq!((content("path=a/b"), content("path=a/b&source=file")), ("newer\n".into(), "file\n".into()));
    assert_eq!(page("path=a/c&source=log").code(), ErrorCode::NoSuchFile);
    assert_eq!(page("path=a/b&source=both").code(), ErrorCode::BadRequest);
}

#[test]
fn a_stream_that_somebody_else_still_holds_is_cut_and_the_end_record_says_so() {
    let supervisor = Ringfenced::start(Ground::Session);
    let script = format!("echo own; touch said; {}; exit 3", until_made("taken-hold"));
    supervisor.job("held", JobKind::Fenced, &script);
    let pid = supervisor.running("held").pid.unwrap();
    supervisor.made("said");
    let mut held = std::fs::File::options().write(true).open(format!("/proc/{pid}/fd/1")).unwrap();
    std::io::Write::write_all(&mut held, b"another's\n").unwrap();
    supervisor.make("taken-hold");
    let end = supervisor.ended("held").end.unwrap();
    assert_eq!((end.exit_code, end.output_cut), (Some(3), true));
    assert_eq!(text(&supervisor.page("held", 0, 65_536, 0)), "own\nanother's\n");
    drop(held);
    assert!(!supervisor.run("free", "echo own").end.unwrap().output_cut);
}

#[test]
fn all_rings_together_are_bounded_and_an_ended_jobs_gives_way_first() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.run("silent", "true");
    supervisor.run("ended", "seq 200000");
    for n in 0..29 {
        supervisor.job(&format!("loud-{n}"), JobKind::Detached, "seq 200000; sleep 60");
    }
    for n in 0..29 {
        harness::wait_for("all is said", || {
            (supervisor.view(&format!("loud-{n}")).output_end.0 == 1_288_895).then_some(())
        });
    }
    let jobs = supervisor.get("/v1/jobs").json::<ringfence_wire::supervisor::JobList>().jobs;
    let held = |job: &ringfence_wire::supervisor::JobView| job.output_end.0 - job.output_base.0;
    let all: u64 = jobs.iter().map(held).sum();
    assert!(all <= 24 << 20, "{all}");
    assert!(all > 12 << 20, "{all}");
    let ended = jobs.iter().find(|job| job.id == "ended".into()).unwrap();
    assert!(jobs.iter().filter(|job| job.end.is_none()).all(|job| held(job) > held(ended)));
}

#[test]
fn jobs_cannot_list_read_or_move_the_logs() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let mut start = supervisor.start_request("a", JobKind::Fenced, "echo secret");
    start.spec.log_path = Some("log".into());
    start.wait_ms = 5_000;
    supervisor.started(&start);
    let artifacts = supervisor.artifacts();
    let name = std::fs::read_dir(artifacts.join(".logs")).unwrap().next().unwrap().unwrap().file_name();
    for attempt in [
        "ls .logs".to_owned(),
        format!("cat .logs/{}", name.display()),
        "mv .logs mine".to_owned(),
        "rm -rf .logs".to_owned(),
    ] {
        let id = format!("try-{}", attempt.split(' ').next().unwrap());
        let view = supervisor.run(&id, &format!("cd {} && {attempt}", artifacts.display()));
        assert_ne!(view.end.unwrap().exit_code, Some(0), "{attempt}");
    }
    assert!(artifacts.join(".logs").join(name).exists());
    assert_eq!(
        supervisor.run("own", &format!("echo x > {}/mine", artifacts.display())).state,
        JobState::Completed
    );
}

#[test]
fn bytes_that_are_no_text_come_back_as_they_were() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let view = supervisor.run("a", r"printf 'a\377\000b'; printf '\303'; sleep 0.1; printf '\251'");
    assert_eq!(view.end.unwrap().stdout.bytes, 6);
    let page = supervisor.page("a", 0, 65_536, 0);
    assert_eq!(bytes(&page), b"a\xff\x00b\xc3\xa9");
}

#[test]
fn an_exec_whose_background_child_holds_its_output_ends_all_the_same() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let began = Instant::now();
        let view = supervisor.run("a", &format!("sleep 300 & {}; echo done", until_last_child_is("sleep")));
        let end = view.end.unwrap();
        assert_eq!((end.exit_code, end.stdout.bytes), (Some(0), 5));
        assert_eq!((end.sweep.complete, end.sweep.killed_count), (true, 1));
        assert_eq!(end.sweep.killed[0].name, "sleep");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
}

fn with_stdin(supervisor: &Ringfenced, id: &str, command: &str) -> StartJob {
    let mut start = supervisor.start_request(id, JobKind::Detached, command);
    start.spec.stdin = StdinMode::Pipe;
    start
}

fn write(
    supervisor: &Ringfenced,
    id: &str,
    key: &str,
    data: &str,
    eof: bool,
    wait_ms: u64,
) -> harness::Answer {
    let body = serde_json::json!({ "operationKey": key, "encoding": "utf8", "data": data, "eof": eof });
    supervisor.call("POST", &format!("/v1/jobs/{id}/stdin?waitMs={wait_ms}"), &body)
}

#[test]
fn writes_arrive_in_order_once_each_and_the_end_of_input_ends_the_command() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        supervisor.started(&with_stdin(&supervisor, "a", "cat"));
        let first: StdinAnswer = write(&supervisor, "a", "1", "one\n", false, 5_000).json();
        assert_eq!(first, StdinAnswer { result: StdinResult::Written, bytes: 4, replayed: false });
        let again: StdinAnswer = write(&supervisor, "a", "1", "one\n", false, 5_000).json();
        assert_eq!(again, StdinAnswer { result: StdinResult::Written, bytes: 4, replayed: true });
        assert_eq!(write(&supervisor, "a", "1", "uno\n", false, 5_000).code(), ErrorCode::Conflict);
        write(&supervisor, "a", "2", "two\n", true, 5_000);
        let view = supervisor.ended("a");
        assert_eq!((view.state, view.tail.unwrap().text), (JobState::Completed, "one\ntwo\n".to_owned()));
        let late: StdinAnswer = write(&supervisor, "a", "3", "x", false, 5_000).json();
        assert_eq!(late.result, StdinResult::Closed);
    }
}

#[test]
fn a_write_into_a_full_pipe_is_pending_and_cut_by_a_stop_it_is_uncertain_for_ever() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.started(&with_stdin(&supervisor, "a", "exec sleep 60"));
    let large = "x".repeat(200_000);
    let first: StdinAnswer = write(&supervisor, "a", "large", &large, false, 100).json();
    assert_eq!(first.result, StdinResult::Pending);
    let queued: StdinAnswer = write(&supervisor, "a", "behind", "y", false, 100).json();
    assert_eq!(queued.result, StdinResult::Pending);
    assert!(supervisor.stop("a").evidence.complete);
    for _ in 0..2 {
        let cut: StdinAnswer = write(&supervisor, "a", "large", &large, false, 0).json();
        assert_eq!((cut.result, cut.replayed), (StdinResult::Uncertain, true));
        assert!(cut.bytes > 0 && cut.bytes < 200_000);
    }
    let behind: StdinAnswer = write(&supervisor, "a", "behind", "y", false, 0).json();
    assert_eq!(behind, StdinAnswer { result: StdinResult::Closed, bytes: 0, replayed: true });
}

#[test]
fn starting_never_waits_for_input_and_a_slow_reader_gets_all_of_it() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.started(&with_stdin(&supervisor, "a", "sleep 0.3; sha256sum"));
    let large = "0123456789".repeat(50_000);
    let pending: StdinAnswer = write(&supervisor, "a", "1", &large, true, 0).json();
    assert_eq!(pending.result, StdinResult::Pending);
    let done: StdinAnswer = write(&supervisor, "a", "1", &large, true, 5_000).json();
    assert_eq!(done, StdinAnswer { result: StdinResult::Written, bytes: 500_000, replayed: true });
    let digest = hex::encode(Sha256::digest(&large));
    assert!(supervisor.ended("a").tail.unwrap().text.starts_with(&digest));
}

#[test]
fn a_job_without_standard_input_refuses_a_write_and_reads_nothing() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let view = supervisor.run("a", "cat; echo end");
    assert_eq!(view.tail.unwrap().text, "end\n");
    assert_eq!(write(&supervisor, "a", "1", "x", false, 0).code(), ErrorCode::StdinClosed);
    let over = "x".repeat((1 << 20) + 1);
    assert_eq!(write(&supervisor, "a", "1", &over, false, 0).code(), ErrorCode::TooLarge);
    assert_eq!(write(&supervisor, "a", "", "x", false, 0).code(), ErrorCode::BadRequest);
    assert_eq!(write(&supervisor, "a", &"k".repeat(129), "x", false, 0).code(), ErrorCode::BadRequest);
}

#[test]
fn a_command_longer_than_an_argument_may_be_runs_whole() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    for length in [99_000, 100_000, 100_001, 250_000] {
        let padding = "#".repeat(length - 40);
        let command = format!("{padding}\necho $((6*7)) \"$#\"; read x && exit 9; exit 5");
        let view = supervisor.run(&format!("long-{length}"), &command);
        assert_eq!(view.end.unwrap().exit_code, Some(5), "{length}");
        assert_eq!(view.tail.unwrap().text, "42 0\n");
    }
    assert_eq!(std::fs::read_dir(supervisor.workspace()).unwrap().count(), 0);
    assert!(std::fs::metadata(supervisor.workspace()).unwrap().permissions().mode() & 0o700 == 0o700);
}
