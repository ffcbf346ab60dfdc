//! The client against a peer that answers what it is told to, byte for byte: what a facade says, what a broken one
//! says, and what a dead one does. (That it speaks with the real facade is for the end-to-end tests.)

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not inside a test function, which is all that clippy.toml allows"
)]

use ringfence_client::wire::contract::{
    AdmissionWish, DetachedStatus, EnsureOptions, ExecInput, OutputQuery, Recipe,
};
use ringfence_client::wire::ids::{Cursor, IdempotencyKey, ProcessId};
use ringfence_client::wire::refusal::RefusalKind;
use ringfence_client::{CallError, Client, ScopedSandbox, teardown_pair};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the peer does with one request.
#[derive(Clone)]
enum Answer {
    Json(u16, &'static str),
    /// Reads the request and ends the connection.
    HangUp,
    /// Reads the request and never answers.
    Silence,
}

/// Serves one connection a request, and keeps what was asked.
struct Peer {
    client: Client,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    async fn new(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&log)));
            }
        });
        Self { client: Client::new(&url, "secret-token").unwrap(), asked }
    }

    async fn always(status: u16, body: &'static str) -> Self {
        Self::new(move |_| Answer::Json(status, body)).await
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The first line of every request so far.
    fn lines(&self) -> Vec<String> {
        self.asked().iter().map(|request| request.lines().next().unwrap().replace(" HTTP/1.1", "")).collect()
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<impl Fn(&str) -> Answer>, log: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        if read == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break;
        }
    }
    let text = String::from_utf8(request).unwrap();
    log.lock().unwrap().push(text.clone());
    match answer(text.lines().next().unwrap()) {
        Answer::Json(status, body) => {
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
        Answer::HangUp => {}
        Answer::Silence => std::future::pending().await,
    }
}

fn recipe() -> Recipe {
    Recipe { version: "1".into(), repo: None, lfs: None, profiles: None, targets: None, enforcement: None }
}

fn exec_input() -> ExecInput {
    ExecInput {
        recipe: recipe(),
        command: "true".into(),
        idempotency_key: IdempotencyKey::from("k"),
        log_path: "l".into(),
        timeout_ms: Some(1_000),
        tail_bytes: None,
        lfs: None,
        approval: None,
        on_unknown: None,
    }
}

#[tokio::test]
async fn a_call_carries_the_token_and_the_bodys_type() {
    let peer = Peer::always(200, r#"{"ok":true,"killed":0,"containerGone":true}"#).await;
    peer.client.sandbox("k").abort().await.unwrap();
    let request = peer.asked().remove(0).to_lowercase();
    assert!(request.starts_with("post /v1/sandboxes/k/abort http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: bearer secret-token\r\n"), "{request}");
    assert!(request.contains("\r\ncontent-type: application/json\r\n"), "{request}");
}

#[tokio::test]
async fn a_page_of_output_is_asked_for_with_only_the_parameters_that_were_given() {
    let peer = Peer::always(503, r#"{"ok":false,"kind":"sandbox-unavailable","message":"m"}"#).await;
    let sandbox = peer.client.sandbox("k");
    let id = ProcessId::from("p");
    let _ = sandbox.output(&id, OutputQuery::default()).await;
    let query = OutputQuery { cursor: Some(Cursor(7)), limit: None, wait_ms: Some(5_000) };
    let _ = sandbox.output(&id, query).await;
    assert_eq!(
        peer.lines(),
        [
            "GET /v1/sandboxes/k/detached/p/output",
            "GET /v1/sandboxes/k/detached/p/output?cursor=7&waitMs=5000"
        ]
    );
}

#[tokio::test]
async fn an_answer_becomes_the_contracts_own_type() {
    let peer =
        Peer::always(200, r#"{"ok":true,"status":{"state":"exited","exitCode":3},"addedLater":{"x":1}}"#)
            .await;
    let status = peer.client.sandbox("k").status(&ProcessId::from("p")).await.unwrap();
    assert_eq!(status, DetachedStatus::Exited { exit_code: Some(3), signal: None });
}

#[tokio::test]
async fn a_refusal_keeps_its_kind_its_field_and_its_facts() {
    let body = r#"{"ok":false,"kind":"admission-refused","message":"the pool is full","retryAfterMs":250,
        "admission":{"pool":"lean","poolBusy":6,"cap":6,"queuedForMs":0,"retryAfterMs":250}}"#;
    let peer = Peer::always(429, body).await;
    let error =
        peer.client.sandbox("k").ensure(&recipe(), AdmissionWish::default(), &EnsureOptions::default()).await;
    let Err(CallError::Refused(refusal)) = error else { panic!("{error:?}") };
    assert_eq!(refusal.kind, RefusalKind::AdmissionRefused);
    assert_eq!(refusal.retry_after_ms, Some(250));
    assert_eq!(refusal.admission.unwrap().cap, 6);
}

#[tokio::test]
async fn each_way_of_not_being_served_has_its_own_name() {
    type Is = fn(&CallError) -> bool;
    let cases: [(u16, &str, Is); 6] = [
        (401, "", |e| matches!(e, CallError::Unauthorized)),
        (404, "{}", |e| matches!(e, CallError::NotServed { call: "abort" })),
        (
            400,
            r#"{"title":"malformed","detail":"line 1"}"#,
            |e| matches!(e, CallError::Rejected { status: 400, problem, .. } if problem.detail == "line 1"),
        ),
        (413, "too large", |e| matches!(e, CallError::Rejected { status: 413, .. })),
        (200, r#"{"killed":0}"#, |e| matches!(e, CallError::Unintelligible { status: 200, .. })),
        (
            502,
            "<html>bad gateway</html>",
            |e| matches!(e, CallError::Unintelligible { status: 502, why, .. } if why.contains("bad gateway")),
        ),
    ];
    for (status, body, is) in cases {
        let peer = Peer::always(status, body).await;
        let error = peer.client.sandbox("k").abort().await.unwrap_err();
        assert!(is(&error), "HTTP {status}: {error:?}");
        assert!(!error.effect_unknown(), "HTTP {status}: an answer came");
    }
}

#[tokio::test]
async fn a_lost_answer_is_an_unknown_effect() {
    let peer = Peer::new(|_| Answer::HangUp).await;
    let error = peer.client.sandbox("k").exec(&exec_input()).await.unwrap_err();
    assert!(matches!(error, CallError::Transport { call: "execUnderGrant", .. }), "{error:?}");
    assert!(error.effect_unknown());
}

#[tokio::test]
async fn no_error_shows_the_token() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let client = Client::new(&format!("http://{gone}"), "secret-token").unwrap();
    let error = client.sandbox("k").abort().await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret-token"));
}

#[tokio::test]
async fn a_scope_that_is_closed_is_aborted_once() {
    let peer = Peer::new(|line| {
        if line.contains("/abort") {
            Answer::Json(200, r#"{"ok":true,"killed":2,"containerGone":true}"#)
        } else {
            Answer::Json(200, r#"{"ok":true,"generation":1,"rebuilt":true,"expiresAt":1}"#)
        }
    })
    .await;
    let (handle, mut runner) = teardown_pair(Duration::from_secs(5));
    let scope =
        ScopedSandbox::open(&peer.client, "k", &recipe(), Duration::from_secs(60), &handle).await.unwrap();
    assert_eq!(scope.close().await.unwrap().killed, 2);
    let report = runner.finish().await;
    assert!(
        report.ended.is_empty() && report.unproven.is_empty() && report.orphaned.is_empty(),
        "{report:?}"
    );
    assert_eq!(peer.lines(), ["POST /v1/sandboxes/k", "POST /v1/sandboxes/k/abort"]);
    assert!(peer.asked()[0].contains(r#""lifetimeMs":60000"#));
}

#[tokio::test]
async fn a_scope_dropped_in_the_middle_of_a_call_is_aborted_by_the_runner() {
    let peer = Peer::new(|line| {
        if line.contains("/abort") {
            Answer::Json(200, r#"{"ok":true,"killed":1,"containerGone":true}"#)
        } else if line.contains("/exec") {
            Answer::Silence
        } else {
            Answer::Json(200, r#"{"ok":true,"generation":1,"rebuilt":true,"expiresAt":1}"#)
        }
    })
    .await;
    let (handle, mut runner) = teardown_pair(Duration::from_secs(5));
    let call = async {
        let scope = ScopedSandbox::open(&peer.client, "k", &recipe(), Duration::from_secs(60), &handle)
            .await
            .unwrap();
        scope.exec(&exec_input()).await
    };
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err(), "the caller gave up");
    let report = runner.finish().await;
    assert_eq!(report.ended.iter().map(ToString::to_string).collect::<Vec<_>>(), ["k"]);
    assert_eq!(peer.lines().last().unwrap(), "POST /v1/sandboxes/k/abort");
    assert!(runner.finish().await.ended.is_empty(), "once is enough");
}

#[tokio::test]
async fn a_scope_dropped_while_it_opens_is_aborted_too_and_a_refused_one_is_not() {
    let peer = Peer::new(|line| {
        if line.contains("/abort") {
            Answer::Json(200, r#"{"ok":true,"killed":0,"containerGone":true}"#)
        } else if line.contains("/refused") {
            Answer::Json(503, r#"{"ok":false,"kind":"sandbox-unavailable","message":"m"}"#)
        } else {
            Answer::Silence
        }
    })
    .await;
    let (handle, mut runner) = teardown_pair(Duration::from_secs(5));
    let minute = Duration::from_secs(60);
    let recipe = recipe();
    let open = |key: &'static str| ScopedSandbox::open(&peer.client, key, &recipe, minute, &handle);
    assert!(tokio::time::timeout(Duration::from_millis(300), open("opening")).await.is_err());
    assert!(matches!(open("refused").await, Err(CallError::Refused(_))));
    let report = runner.finish().await;
    assert_eq!(report.ended.iter().map(ToString::to_string).collect::<Vec<_>>(), ["opening"]);
}

#[tokio::test]
async fn sandboxes_that_cannot_be_ended_are_named_after_one_grace_for_all() {
    let peer = Peer::new(|line| match line {
        line if line.contains("/abort") => Answer::Silence,
        _ => Answer::Json(200, r#"{"ok":true,"generation":1,"rebuilt":true,"expiresAt":1}"#),
    })
    .await;
    let (handle, mut runner) = teardown_pair(Duration::from_millis(400));
    for key in ["a", "b", "c"] {
        drop(
            ScopedSandbox::open(&peer.client, key, &recipe(), Duration::from_secs(60), &handle)
                .await
                .unwrap(),
        );
    }
    let begun = Instant::now();
    let report = runner.finish().await;
    assert!(begun.elapsed() < Duration::from_millis(1_000), "{:?}: all at once", begun.elapsed());
    let orphans: Vec<_> = report.orphaned.iter().map(|orphan| orphan.key.to_string()).collect();
    assert_eq!(orphans, ["a", "b", "c"]);
    assert!(report.orphaned.iter().all(|orphan| matches!(orphan.why, CallError::TimedOut { .. })));
}
