//! The command line against a running stack: what it prints, what it ends with, and that what it began is over
//! when it is.

use crate::world::{World, tests};
use ringfence_e2e::command::said;
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, fresh_word, long_sleep};
use ringfence_wire::contract::DetachedStatus;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};

tests! {
    shared:
        ps_lists_a_sandbox_and_its_process,
        logs_follows_both_streams_and_ends_with_the_process,
        logs_says_how_many_bytes_were_dropped,
        stop_takes_the_beginning_of_an_id_and_shows_the_evidence,
        run_streams_ends_with_the_commands_code_and_leaves_no_container,
        run_under_a_fence_tells_the_same_and_what_the_command_left,
        a_run_that_times_out_says_so_and_leaves_no_container,
        an_interrupted_run_tears_down_within_its_grace,
        a_grace_that_is_no_time_is_a_warning_and_the_default,
        egress_check_says_what_would_leave_and_by_which_rule,
        start_begins_a_process_once_and_tells_its_id,
        a_run_says_how_many_of_its_requests_were_refused,
        a_name_that_is_an_escape_sequence_reaches_no_terminal,
        abort_ends_several_sandboxes_and_may_be_repeated,
        of_a_key_that_was_never_used_it_says_that_nothing_is_recorded,
        what_cannot_be_done_is_said_and_is_no_success;
}

const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);

async fn ps_lists_a_sandbox_and_its_process(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let process = done(sandbox.start("sleep 600").await).process;

    let table = world.stack.ringfence_said(&["ps"]).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    let line = table.out.lines().find(|line| line.starts_with(&sandbox.key)).expect("its line");
    assert!(line.contains(process.id.as_str()) && line.contains("running"), "{line}");

    let json = world.stack.ringfence_said(&["ps", "--json"]).await;
    let listed: Vec<Value> = serde_json::from_str(&json.out).expect("JSON");
    let row = listed.iter().find(|row| row["sandbox"]["key"] == sandbox.key.as_str()).expect("its row");
    assert_eq!(row["processes"][0]["id"], process.id.as_str());
    assert_eq!(row["processes"][0]["status"]["state"], "running");
}

async fn logs_follows_both_streams_and_ends_with_the_process(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let gate = world.stack.witness().gate();
    let command = format!("echo one; echo two >&2; {}; echo three", gate.wait());
    done(sandbox.start(&command).await);

    let mut logs = world.stack.ringfence(&["logs", "-f", &sandbox.key]).spawn().expect("it starts");
    let mut lines = BufReader::new(logs.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("one"), "before the process ended");
    gate.open();
    assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("three"));
    assert_eq!(lines.next_line().await.expect("the end"), None);
    let end = said(logs).await;
    assert_eq!((end.code, end.err.as_str()), (Some(0), "two\n"));
}

async fn logs_says_how_many_bytes_were_dropped(world: Arc<World>) {
    const MEBIBYTE: usize = 1024 * 1024;
    let sandbox = world.sandbox().await;
    let process = done(sandbox.start("head -c 3145728 /dev/zero | tr '\\0' x").await).process;
    eventually("the process has exited", async || {
        matches!(sandbox.status(process.id.as_str()).await, DetachedStatus::Exited { .. }).then_some(())
    })
    .await;
    let logs = world.stack.ringfence_said(&["logs", &sandbox.key]).await;
    let dropped: usize = logs.err.split(' ').find_map(|word| word.parse().ok()).expect("how many");
    assert!(logs.err.contains("dropped"), "{}", logs.err);
    assert_eq!(logs.out.len() + dropped, 3 * MEBIBYTE, "what was printed and what was dropped are all");
    assert!(logs.out.len() >= MEBIBYTE / 2, "the newest is there: {}", logs.out.len());
}

async fn stop_takes_the_beginning_of_an_id_and_shows_the_evidence(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (first, second) = (fresh_word(), fresh_word());
    let id = done(sandbox.start(&format!("exec -a {first} sleep 600")).await).process.id;
    done(sandbox.start(&format!("exec -a {second} sleep 600")).await);
    let (first, second) = (sandbox.process_with(&first).await, sandbox.process_with(&second).await);

    let unsaid = world.stack.ringfence_said(&["stop", &sandbox.key]).await;
    assert_eq!(unsaid.code, FAILED, "which of two is not guessed");
    assert!(unsaid.err.contains(id.as_str()), "{}", unsaid.err);
    assert!(first.is_alive() && second.is_alive());

    let beginning = id.as_str().get(..13).expect("a UUID");
    let stopped = world.stack.ringfence_said(&["stop", &sandbox.key, beginning]).await;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.out.contains("1 killed, 0 left, complete"), "{}", stopped.out);
    assert!(!first.is_alive(), "dead after");
    assert!(second.is_alive(), "the other lives");
}

async fn run_streams_ends_with_the_commands_code_and_leaves_no_container(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let run =
        ["run", "--timeout", "60s", "--key", &sandbox.key, "--", "sh", "-c", "echo a b; echo c >&2; exit 7"];
    let run = world.stack.ringfence_said(&run).await;
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (Some(7), "a b\n", "c\n"));
    assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));
}

async fn run_under_a_fence_tells_the_same_and_what_the_command_left(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let command = "sleep 600 & echo a b; exit 7";
    let run = ["run", "--fenced", "--timeout", "60s", "--key", &sandbox.key, "--", command];
    let run = world.stack.ringfence_said(&run).await;
    assert_eq!((run.code, run.out.as_str()), (Some(7), "a b\n"), "{run:?}");
    assert!(run.err.contains("1 killed"), "{}", run.err);
    assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));
}

async fn a_run_that_times_out_says_so_and_leaves_no_container(world: Arc<World>) {
    for how in [&["--fenced"][..], &[]] {
        let sandbox = world.sandbox().await;
        let mut arguments = vec!["run", "--timeout", "1s", "--key", &sandbox.key];
        arguments.extend(how);
        arguments.extend(["--", "sleep", "600"]);
        let run = world.stack.ringfence_said(&arguments).await;
        assert_eq!(run.code, Some(124), "{run:?}");
        assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));
    }
}

async fn an_interrupted_run_tears_down_within_its_grace(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, word) = long_sleep();
    let run = ["run", "--timeout", "600s", "--key", &sandbox.key, "--", &sleep];
    let run = world.stack.ringfence(&run).spawn().expect("it starts");
    let process = sandbox.process_with(&word).await;
    assert!(process.is_alive(), "alive before");

    let pid = run.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("it runs"), rustix::process::Signal::INT).expect("it runs");
    let asked = Instant::now();
    let end = said(run).await;
    assert_eq!(end.code, Some(130), "{end:?}");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(!end.err.contains("Orphaned"), "{}", end.err);
    assert!(!process.is_alive(), "dead after");
    assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));
}

async fn a_grace_that_is_no_time_is_a_warning_and_the_default(world: Arc<World>) {
    for (grace, warned) in
        [("soon", true), ("-1", true), ("NaN", true), ("1e300", true), ("0.5", false), ("7", false)]
    {
        let sandbox = world.sandbox().await;
        let mut run =
            world.stack.ringfence(&["run", "--timeout", "60s", "--key", &sandbox.key, "--", "true"]);
        let run = said(run.env("RINGFENCE_TEARDOWN_GRACE", grace).spawn().expect("it starts")).await;
        assert_eq!(run.code, Some(0), "{grace}: {run:?}");
        let warning = format!("RINGFENCE_TEARDOWN_GRACE={grace} is not a number of seconds; using 5");
        assert_eq!(run.err.contains(&warning), warned, "{grace}: {}", run.err);
    }
}

async fn egress_check_says_what_would_leave_and_by_which_rule(world: Arc<World>) {
    let check = async |line: &str| {
        let arguments: Vec<&str> = ["egress", "check"].into_iter().chain(line.split(' ')).collect();
        world.stack.ringfence_said(&arguments).await
    };
    let allowed = check("--profile js-install GET https://registry.npmjs.org/react").await;
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(
        allowed.out.starts_with("allowed\n  by js-install: GET HEAD registry.npmjs.org/*"),
        "{}",
        allowed.out
    );
    let denied = check("--profile js-install PUT https://registry.npmjs.org/react").await;
    assert_eq!(
        (denied.code, denied.out.as_str()),
        (FAILED, "denied (method): the host is granted, but not for this method\n")
    );
    let sink = check("--profile github-api-read --enforcement report GET https://api.github.com/gists").await;
    assert_eq!(sink.code, FAILED, "{sink:?}");
    let report = check("--profile js-install --enforcement report --json GET https://a.test/").await;
    let told: Value = serde_json::from_str(&report.out).expect("JSON");
    assert_eq!(
        (report.code, &told["verdict"], &told["reason"]),
        (Some(0), &"forwarded".into(), &"would-deny: host".into())
    );
    for usage in
        ["GET not-a-url", "--profile nope GET https://a.test/", "--repo no GET https://a.test/", "GET"]
    {
        assert_eq!(check(usage).await.code, USAGE, "{usage}");
    }
}

async fn start_begins_a_process_once_and_tells_its_id(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, word) = long_sleep();
    let start = ["start", &sandbox.key, "web", "--", &sleep];
    let first = world.stack.ringfence_said(&start).await;
    assert_eq!((first.code, first.err.as_str()), (Some(0), ""), "{first:?}");
    let process = sandbox.process_with(&word).await;
    assert!(process.is_alive());
    let again = world.stack.ringfence_said(&start).await;
    assert_eq!((again.code, &again.out), (Some(0), &first.out), "{again:?}");
    assert!(again.err.contains("nothing was started now"), "{}", again.err);

    let other = world.stack.ringfence_said(&["start", &sandbox.key, "web", "--", "true"]).await;
    assert_eq!(other.code, FAILED, "the name is taken: {other:?}");
    let stop = world.stack.ringfence_said(&["stop", &sandbox.key, first.out.trim()]).await;
    assert_eq!(stop.code, Some(0), "{stop:?}");
    assert!(!process.is_alive());
}

async fn a_run_says_how_many_of_its_requests_were_refused(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let ask = "curl -s -o /dev/null https://pages.test/a; curl -s -o /dev/null https://pages.test/b";
    for how in [&["--fenced"][..], &[]] {
        let mut arguments = vec!["run", "--timeout", "60s", "--key", &sandbox.key];
        arguments.extend(how);
        arguments.extend(["--", ask]);
        let run = world.stack.ringfence_said(&arguments).await;
        let told = format!("ringfence: 2 requests refused: see `ringfence denials {}`\n", sandbox.key);
        assert_eq!((run.code, run.err), (Some(0), told), "those of this run alone");
    }
}

async fn a_name_that_is_an_escape_sequence_reaches_no_terminal(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let rename = r"printf '\033[2J\001\n' > /proc/self/comm; touch renamed; sleep 600; true";
    let command = format!("bash -c \"{rename}\" & until [ -e renamed ]; do sleep 0.01; done");
    let run = ["run", "--fenced", "--timeout", "60s", "--key", &sandbox.key, "--", &command];
    let run = world.stack.ringfence_said(&run).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let events = world.stack.ringfence_said(&["events", &sandbox.key]).await;
    assert!(events.out.contains(r"\x1b[2J\x01"), "{}", events.out);
    for text in [&run.out, &run.err, &events.out, &events.err] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    let json = world.stack.ringfence_said(&["events", "--json", &sandbox.key]).await;
    assert!(serde_json::from_str::<Value>(&json.out).is_ok() && !json.out.contains('\x1b'), "{}", json.out);
}

async fn of_a_key_that_was_never_used_it_says_that_nothing_is_recorded(world: Arc<World>) {
    let key = fresh_word();
    for command in ["abort", "denials", "events"] {
        let told = world.stack.ringfence_said(&[command, &key]).await;
        assert_eq!(told.code, Some(0), "{told:?}");
        let nothing = format!("nothing is recorded under the key {key}");
        assert!([told.out, told.err].concat().contains(&nothing), "{command}");
    }
}

async fn abort_ends_several_sandboxes_and_may_be_repeated(world: Arc<World>) {
    let (one, other) = (world.sandbox().await, world.sandbox().await);
    for sandbox in [&one, &other] {
        done(sandbox.start("sleep 600").await);
    }
    for _ in 0..2 {
        let abort = world.stack.ringfence_said(&["abort", "--json", &one.key, &other.key]).await;
        assert_eq!(abort.code, Some(0), "{abort:?}");
        let ends: Vec<Value> = serde_json::from_str(&abort.out).expect("JSON");
        assert!(ends.iter().all(|end| end["outcome"]["containerGone"] == true), "{ends:?}");
    }
    for sandbox in [&one, &other] {
        assert!(!sandbox.container().await.is_some_and(|container| container.is_running()));
    }
}

async fn what_cannot_be_done_is_said_and_is_no_success(world: Arc<World>) {
    let nobody = world.stack.ringfence_said(&["logs", &fresh_word()]).await;
    assert_eq!(nobody.code, FAILED);
    assert!(nobody.err.contains("has no detached process"), "{}", nobody.err);

    let mut stranger = world.stack.ringfence(&["ps"]);
    stranger.env("RINGFENCE_TOKEN", "rf_wrong");
    let stranger = said(stranger.spawn().expect("it starts")).await;
    assert_eq!(stranger.code, FAILED);
    assert!(stranger.err.contains("token"), "{}", stranger.err);
    assert!(!stranger.err.contains("rf_wrong"), "no message shows a token");

    let mut nowhere = world.stack.ringfence(&["ps"]);
    nowhere.env("RINGFENCE_URL", "http://127.0.0.1:1");
    let nowhere = said(nowhere.spawn().expect("it starts")).await;
    assert_eq!(nowhere.code, FAILED);
    assert!(nowhere.err.starts_with("ringfence: cannot connect to http://127.0.0.1:1: "), "{}", nowhere.err);
    let mut run = world.stack.ringfence(&["run", "--timeout", "5s", "--", "true"]);
    let run = said(run.env("RINGFENCE_URL", "http://127.0.0.1:1").spawn().expect("it starts")).await;
    assert_eq!(
        (run.code, run.err.lines().count()),
        (Some(125), 1),
        "the cause, and nothing else: {}",
        run.err
    );

    for usage in [
        &["ps", "--no-such-option"][..],
        &["run", "--", "true"],
        &["run", "--timeout", "soon", "--", "true"],
        &["run", "--timeout", "99h", "--", "true"],
        &["run", "--timeout", "5s", "--keyy=x", "true"],
        &["run", "--timeout", "5s", "--key=", "--", "true"],
        &["start", "k", "id", "true"],
        &["stop", "no/key"],
        &["ps", "--url", "nonsense"],
    ] {
        assert_eq!(world.stack.ringfence_said(usage).await.code, USAGE, "{usage:?}");
    }
}
