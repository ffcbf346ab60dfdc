//! What a command finds inside a sandbox, and what it does not: the rules, its whole command, its own truth about
//! where it ran, and no secret of the object's.

use crate::world::{World, tests};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{done, exec_input, fresh_key, long_sleep};
use ringfence_e2e::files::beneath;
use ringfence_e2e::http::{Endpoint, send};
use ringfence_wire::contract::{EventsDone, ReceiptEnd};
use ringfence_wire::refusal::Outcome;
use ringfence_wire::supervisor::ExecutionIdentity;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

tests! {
    shared:
        a_command_is_told_where_it_stands_that_its_background_work_ends_with_it,
        a_command_too_long_for_an_argument_runs_whole_and_leaves_no_file_behind,
        every_job_page_and_receipt_says_where_it_ran,
        a_sweep_is_one_event_that_names_what_it_killed,
        a_receipt_counts_the_commands_own_time_and_not_the_sweep_after_it,
        at_its_bound_on_processes_a_sandbox_says_so_and_works_again_once_they_are_ended,
        a_log_past_its_quota_says_that_it_is_truncated_and_its_command_ends_as_it_would,
        no_secret_of_the_objects_storage_is_anywhere_a_job_or_a_log_reader_can_look;
}

/// What a job's log on disk takes.
const LOG_QUOTA_BYTES: u64 = 256 * 1024 * 1024;

async fn a_command_is_told_where_it_stands_that_its_background_work_ends_with_it(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let receipt = done(sandbox.exec("cat \"$RINGFENCE_RULES\"").await).receipt;
    assert_eq!(receipt.exit_code, Some(0));
    assert!(receipt.tail.contains("background work ends with the command"), "{}", receipt.tail);
}

async fn a_command_too_long_for_an_argument_runs_whole_and_leaves_no_file_behind(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let listing = "ls -AR /tmp /workspace /run/ringfence /home 2>/dev/null";
    let before = done(sandbox.exec(listing).await).receipt.tail;
    let text = "ü7".repeat(50_000);
    let receipt = done(sandbox.exec(&format!("printf %s '{text}' | sha256sum")).await).receipt;
    let sum = hex::encode(Sha256::digest(&text));
    assert_eq!(receipt.tail.split_whitespace().next(), Some(sum.as_str()), "{receipt:?}");
    assert_eq!(done(sandbox.exec(listing).await).receipt.tail, before);
}

async fn every_job_page_and_receipt_says_where_it_ran(world: Arc<World>) {
    const HERE: ExecutionIdentity = ExecutionIdentity::SandboxedWorkspace;
    let sandbox = world.sandbox().await;
    let key = fresh_key();
    assert_eq!(done(sandbox.exec_as(&key, "true").await).receipt.identity, HERE);
    let replayed = done(sandbox.exec_as(&key, "true").await).receipt;
    assert_eq!((replayed.identity, replayed.deduped), (HERE, true));
    let id = done(sandbox.start("echo said; sleep 3600").await).process.id;
    assert_eq!(sandbox.output(id.as_str()).await.page.identity, HERE);
    assert_eq!(sandbox.list().await.processes[0].identity, HERE);
}

async fn at_its_bound_on_processes_a_sandbox_says_so_and_works_again_once_they_are_ended(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let hog = done(sandbox.start("echo begun; for ((;;)); do sleep 3600 & done").await).process.id;
    // One refusal or the other, by who bounds: the container's cgroup, or the job user's limit.
    let told = eventually("the sandbox is full", async || match sandbox.exec("true").await {
        Outcome::Refused(refusal) => Some(refusal.message),
        Outcome::Done(done) if done.receipt.exit_code == Some(127) => Some(done.receipt.tail),
        Outcome::Done(_) => None,
    })
    .await;
    assert!(told.contains("bound on processes") || told.contains("temporarily unavailable"), "{told}");
    let stop = sandbox.stop(hog.as_str()).await;
    assert!(
        stop.stopped && stop.evidence.as_ref().is_some_and(|e| e.complete && e.killed_count > 1_000),
        "{stop:?}"
    );
    assert_eq!(done(sandbox.exec("true").await).receipt.exit_code, Some(0));
}

async fn a_sweep_is_one_event_that_names_what_it_killed(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.exec("true").await);
    // Until a child runs its own program it goes by the shell's name.
    let child = format!("{} & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done", long_sleep().0);
    done(sandbox.exec(&format!("{child}; {child}")).await);
    let id = done(sandbox.start(&long_sleep().0).await).process.id;
    assert!(sandbox.stop(id.as_str()).await.stopped);
    let events: EventsDone = done(sandbox.call("events", &[]).await);
    let sweeps: Vec<_> =
        events.events.iter().filter_map(|event| Some((event, event.swept.as_ref()?))).collect();
    let [(fence, left), (stop, stopped)] = sweeps.as_slice() else {
        panic!("a quiet exec sweeps nothing: {sweeps:?}")
    };
    assert!(fence.ok && left.complete && left.killed_count == 2 && fence.id.is_none(), "{fence:?}");
    assert!(left.killed.iter().all(|name| name.starts_with("sleep (")), "{left:?}");
    assert!(stop.ok && stopped.killed_count >= 1 && stop.id.as_deref() == Some(id.as_str()), "{stop:?}");
}

async fn a_receipt_counts_the_commands_own_time_and_not_the_sweep_after_it(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let (sleep, _) = long_sleep();
    // What it leaves ignores TERM, so the sweep takes its whole grace.
    let ran = done(sandbox.exec(&format!("(trap '' TERM; {sleep}) & sleep 0.2")).await);
    assert_eq!(ran.receipt.end, ReceiptEnd::Exited);
    assert!((200..2_000).contains(&ran.receipt.duration_ms), "{:?}", ran.receipt);
    assert!(ran.killed >= 1, "{ran:?}");
}

async fn a_log_past_its_quota_says_that_it_is_truncated_and_its_command_ends_as_it_would(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let whole = done(sandbox.exec("echo all of it").await).receipt;
    assert_eq!(whole.log_truncated, None);
    let flood = format!("head -c {} /dev/zero | tr '\\0' x; echo; echo last", LOG_QUOTA_BYTES + 1);
    let mut input = exec_input(&fresh_key(), &flood);
    input["tailBytes"] = json!(6);
    let receipt = done(sandbox.exec_input(input).await).receipt;
    assert_eq!((receipt.end, receipt.exit_code), (ReceiptEnd::Exited, Some(0)));
    assert_eq!((receipt.log_truncated, receipt.truncated), (Some(true), true));
    assert_eq!(receipt.tail, "\nlast\n", "the ring went on");
}

async fn no_secret_of_the_objects_storage_is_anywhere_a_job_or_a_log_reader_can_look(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    done(sandbox.start(&long_sleep().0).await);
    // The boot key is 32 bytes in hexadecimal; whatever else of that form is stored is no business of a job either.
    let run = world.stack.directory();
    let stored = keys_beneath(&run.join("storage"));
    assert!(stored.len() > 1, "the storage holds keys: {stored:?}");

    // All that a job can read of processes, and every file but those of the machine's own programs.
    const LOOK: &str = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; env; \
        find / /workspace /artifacts /tmp /run /home /dev/shm -xdev \
        \\( -path /proc -o -path /sys -o -path /dev -o -path /usr -o -path /bin -o -path '/lib*' -o -path /sbin \\) -prune \
        -o -type f -size -4096k -print0 | xargs -0 cat";
    let look = format!("({LOOK}) 2>/dev/null | LC_ALL=C grep -aoE '[0-9a-f]{{64}}' | sort -u; echo looked");
    let mut input = exec_input(&fresh_key(), &look);
    input["tailBytes"] = json!(65_536);
    let found = done(sandbox.exec_input(input).await).receipt;
    assert!(found.tail.ends_with("looked\n") && !found.truncated, "{found:?}");
    assert_eq!(common(&keys_in(found.tail.as_bytes()), &stored), [] as [&str; 0], "read by a job");

    let block = fs::read(format!("/proc/{}/environ", sandbox.init().await.host_pid)).expect("it lives");
    assert_eq!(common(&keys_in(&block), &stored), [] as [&str; 0], "in the supervisor's environment");
    assert_eq!(common(&keys_beneath(&run.join("logs")), &stored), [] as [&str; 0], "in a log");
    let name = world.stack.container_name(&sandbox.object);
    let docker = Endpoint::Unix(run.join("docker.sock"));
    for (socket, path) in [
        (&docker, format!("/containers/{name}/json")),
        (&docker, "/containers/json?all=1".to_owned()),
        (&Endpoint::Unix(world.stack.control().socket().to_owned()), "/v1/containers".to_owned()),
    ] {
        let answer = send(socket, "GET", &path, &[], "").await.expect("the engine answers");
        assert!(answer.status == 200 && answer.text().contains(&name), "{path}: {}", answer.text());
        assert_eq!(common(&keys_in(&answer.body), &stored), [] as [&str; 0], "told by {path}");
    }
}

/// Every run of exactly 64 hexadecimal digits.
fn keys_in(bytes: &[u8]) -> BTreeSet<String> {
    let runs = bytes.split(|byte| !byte.is_ascii_hexdigit() || byte.is_ascii_uppercase());
    runs.filter(|run| run.len() == 64).map(|run| String::from_utf8_lossy(run).into_owned()).collect()
}

fn keys_beneath(directory: &Path) -> BTreeSet<String> {
    beneath(directory).iter().flat_map(|path| keys_in(&fs::read(path).unwrap_or_default())).collect()
}

fn common<'k>(one: &'k BTreeSet<String>, other: &'k BTreeSet<String>) -> Vec<&'k str> {
    one.intersection(other).map(String::as_str).collect()
}
