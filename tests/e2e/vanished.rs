//! A caller that goes away in the middle of a call cancels nothing and leaves no orphan: what it asked for goes on to its
//! own end or timeout, its key joins it, and nothing runs past that. The connections here are closed, not timed out.

use crate::world::{World, tests};
use ringfence_e2e::control::{Action, Match};
use ringfence_e2e::eventually::{eventually, until};
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word, long_sleep};
use ringfence_e2e::http::Endpoint;
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{DetachedStatus, ReceiptEnd};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

tests! {
    shared:
        a_caller_that_vanishes_in_a_boot_has_its_command_run_once_and_its_key_joins_it,
        a_caller_that_vanishes_in_an_exec_leaves_nothing_past_its_timeout_and_the_grace,
        a_caller_that_vanishes_while_it_reads_output_ends_nothing_and_keeps_nothing_busy;
}

/// TERM, then KILL, of what a timeout ends.
const GRACE: Duration = Duration::from_secs(8);

async fn a_caller_that_vanishes_in_a_boot_has_its_command_run_once_and_its_key_joins_it(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (key, word) = (fresh_key(), fresh_word());
    let (control, name) = (world.stack.control(), world.stack.container_name(&sandbox.object));
    let start = Match {
        plane: "docker".to_owned(),
        method: Some("POST".to_owned()),
        path_prefix: Some(format!("/containers/{name}/start")),
        container: None,
    };
    control.fault(start, Action::Delay { ms: 2_000 }, 1).await;
    let since = control.now().await;
    let input = exec_input(&key, &say(&word));
    let caller = post(&sandbox, "exec", &input).await;
    let booting = || async {
        let log = sandbox.calls_since(since).await;
        (log.count(&format!("docker POST /containers/{name}/start")) > 0).then_some(())
    };
    eventually("its container is being started", booting).await;
    drop(caller);

    world.stack.witness().heard(&word).await;
    let joined = done(sandbox.exec_input(input).await).receipt;
    assert!(joined.deduped && joined.exit_code == Some(0), "{joined:?}");
    assert_eq!(world.stack.witness().count(&word), 1, "it ran once");
    assert_eq!(
        sandbox.calls_since(since).await.count("docker POST /containers/create*"),
        2,
        "one container and its proxy"
    );
}

async fn a_caller_that_vanishes_in_an_exec_leaves_nothing_past_its_timeout_and_the_grace(world: Arc<World>) {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let sandbox = world.sandbox().await;
    done(sandbox.ensure().await);
    let ((sleep, mark), (left, left_mark)) = (long_sleep(), long_sleep());
    let mut input = exec_input(&fresh_key(), &format!("setsid {left} & {sleep}"));
    input["timeoutMs"] = json!(TIMEOUT.as_millis());
    let (begun, caller) = (Instant::now(), post(&sandbox, "exec", &input).await);
    let (own, left) = (sandbox.process_with(&mark).await, sandbox.process_with(&left_mark).await);
    drop(caller);

    // It is not cancelled by that alone.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(own.is_alive() && left.is_alive());
    until("it is dead, and what it left", || !own.is_alive() && !left.is_alive()).await;
    assert!((TIMEOUT..TIMEOUT + GRACE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let receipt = done(sandbox.exec_input(input).await).receipt;
    assert!(receipt.deduped && receipt.end == ReceiptEnd::TimedOut, "{receipt:?}");
    // The fence is closed: the next runs at once.
    assert_eq!(done(sandbox.exec("echo next").await).receipt.tail, "next\n");
}

async fn a_caller_that_vanishes_while_it_reads_output_ends_nothing_and_keeps_nothing_busy(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    let (sleep, mark) = long_sleep();
    let id = done(sandbox.start(&sleep).await).process.id.to_string();
    let process = sandbox.process_with(&mark).await;
    let mut readers = Vec::new();
    // More than the connections that the object shares for its calls.
    for _ in 0..8 {
        let path = format!("detached/{id}/output?waitMs=5000");
        readers.push(request(&sandbox, "GET", &path, "").await);
    }
    let reading = || async {
        let log = world.stack.control().calls_since(0).await.of(&sandbox.object);
        (log.count(&format!("ingress GET /v1/jobs/{id}/output*")) >= 8).then_some(())
    };
    eventually("all of them wait for news", reading).await;
    drop(readers);

    assert_eq!(sandbox.status(&id).await, DetachedStatus::Running);
    assert!(process.is_alive());
    let asked = Instant::now();
    assert!(sandbox.stop(&id).await.stopped);
    assert!(asked.elapsed() < GRACE, "{:?}", asked.elapsed());
    assert!(!process.is_alive());
    assert!(sandbox.abort().await.container_gone);
}

async fn post(sandbox: &Sandbox, call: &str, body: &Value) -> TcpStream {
    request(sandbox, "POST", call, &body.to_string()).await
}

/// A request whose answer nobody will read: dropping this closes the connection.
async fn request(sandbox: &Sandbox, method: &str, path: &str, body: &str) -> TcpStream {
    let Endpoint::Tcp(address) = sandbox.stack.front() else { panic!("the HTTP face is on TCP") };
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "{method} /v1/sandboxes/{}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        sandbox.key,
        sandbox.stack.token("alpha"),
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("it is taken");
    stream
}
