//! The vectors of `cases/`, run natively and again as wasm by the same functions: what decides in the Worker and
//! what decides in the supervisor is shown to be the same.
//!
//! As wasm: `CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER=wasm-bindgen-test-runner
//! cargo test -p ringfence-core --target wasm32-unknown-unknown --test vectors`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use ringfence_core::approval::{ExtraRules, floor_rule};
use ringfence_core::egress::{Grant, Hop, Method, Next, decide, next};
use ringfence_core::recipe::Served;
use ringfence_core::status::{self, Record, View};
use ringfence_core::{candidate, detached, key, ticket};
use ringfence_wire::ids::{Order, ProcessId};
use ringfence_wire::supervisor::{JobState, StdinMode, TrackedJob};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    given: Value,
    expect: Value,
}

/// Runs `decide` on each case of a file; every case is run before any failure is told.
fn run(text: &str, decide: impl Fn(&Value) -> Value) {
    let file: File = serde_json::from_str(text).expect("a file of cases");
    assert!(!file.cases.is_empty());
    let wrong: Vec<String> = file
        .cases
        .iter()
        .map(|case| (case, decide(&case.given)))
        .filter(|(case, got)| *got != case.expect)
        .map(|(case, got)| format!("{}: expected {}, got {got}", case.name, case.expect))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tickets_are_refused_for_the_right_one_of_five_reasons() {
    run(include_str!("../cases/ticket.json"), ticket_case);
    run(include_str!("../cases/ticket_more.json"), ticket_case);
}

fn ticket_case(given: &Value) -> Value {
    const T: u64 = 1_000_000;
    let secrets = |text: &str| ticket::Secrets::new(vec![text.repeat(32)]).expect("long enough");
    let claims = |changed: &Value| {
        let text = |name: &str, default: &str| changed[name].as_str().unwrap_or(default).to_owned();
        ticket::Claims {
            consumer: text("consumer", "ci").into(),
            key: text("key", "run-1").into(),
            pool: text("pool", "lean"),
            expires_at: T,
        }
    };
    let minted = |given: &Value| {
        let signer = given["secret"].as_str().unwrap_or("right");
        let good = ticket::mint(&secrets(signer), &claims(&given["claims"]));
        let mut parts: Vec<String> = good.split('.').map(str::to_owned).collect();
        match given["flip"].as_str() {
            Some("signature") => flip_hex(&mut parts[2]),
            Some("claims") => flip_base64(&mut parts[1]),
            _ => {}
        }
        parts.join(".")
    };
    let ticket = match given {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        given => Some(minted(given)),
    };
    let now = match given["now"].as_str() {
        Some("T") => T,
        Some("T+1") => T + 1,
        _ => T - 1,
    };
    match ticket::verify(&secrets("right"), ticket.as_deref(), &"ci".into(), &"run-1".into(), now) {
        Ok(_) => json!("valid"),
        Err(fault) => json!(fault.reason()),
    }
}

fn flip_hex(text: &mut String) {
    let other = if text.ends_with('0') { '1' } else { '0' };
    text.pop();
    text.push(other);
}

fn flip_base64(text: &mut String) {
    let other = if text.starts_with('A') { "B" } else { "A" };
    text.replace_range(0..1, other);
}

#[test]
fn a_fence_kills_what_is_not_spared_and_reaps_what_is_forgotten() {
    run(include_str!("../cases/detached.json"), detached_case);
    run(include_str!("../cases/detached_more.json"), detached_case);
}

fn detached_case(given: &Value) -> Value {
    let teardown = Order(given["order"].as_u64().unwrap_or(10));
    let list = |name: &str| given[name].as_array().cloned();
    let declared: Vec<_> = list("declared").expect("declared").iter().map(declared).collect();
    let tracked: Option<Vec<_>> = list("tracked").map(|jobs| jobs.iter().map(tracked_job).collect());
    let tracked = tracked.as_deref();
    let survivors = detached::surviving_declarations(teardown, &declared, tracked);
    match detached::fence_kill_mode(&declared, tracked) {
        detached::FenceKillMode::Selective => {
            let kill = detached::fenced_kill_set(
                teardown,
                &detached::spare_list(&declared),
                tracked.expect("readable"),
            );
            json!({"mode": "selective", "kill": kill, "surviving": survivors})
        }
        detached::FenceKillMode::KillAll if declared.is_empty() => json!({"mode": "kill-all"}),
        detached::FenceKillMode::KillAll => {
            let killed = detached::declaration_fates(teardown, &declared, tracked)
                .iter()
                .any(|(_, fate)| *fate == detached::Fate::FenceKilled);
            let mut told = json!({"mode": "kill-all", "surviving": survivors});
            if killed {
                told["killedReason"] = json!("fence-killed");
            }
            told
        }
    }
}

fn id_and_order(value: &Value) -> (ProcessId, Order) {
    let id = value.as_str().or(value["id"].as_str()).expect("an id");
    (id.into(), Order(value["order"].as_u64().unwrap_or(1)))
}

fn declared(value: &Value) -> detached::Declared {
    let (id, order) = id_and_order(value);
    let phase = match (value["state"].as_str(), value["confirmed"].as_bool()) {
        (Some("stopping"), _) => detached::Phase::Stopping,
        (Some("exited"), _) => detached::Phase::Exited,
        (None, Some(false)) => detached::Phase::Starting,
        _ => detached::Phase::Confirmed,
    };
    detached::Declared { id, order, phase }
}

fn tracked_job(value: &Value) -> TrackedJob {
    let (id, order) = id_and_order(value);
    let state = match &value["state"] {
        Value::Null => JobState::Running,
        state => serde_json::from_value(state.clone()).expect("a job state"),
    };
    TrackedJob { id, state, order }
}

#[test]
fn the_approval_floor_names_the_rule_a_command_crosses() {
    run(include_str!("../cases/approval_floor.json"), floor_case);
    run(include_str!("../cases/approval_floor_more.json"), floor_case);
}

fn floor_case(given: &Value) -> Value {
    let command = given.as_str().or(given["command"].as_str()).expect("a command");
    let stdin = if given["stdin"] == "pipe" { StdinMode::Pipe } else { StdinMode::None };
    json!(floor_rule(command, stdin, &ExtraRules::default()))
}

#[test]
fn a_request_is_admitted_for_the_granted_host_only() {
    run(include_str!("../cases/egress_host.json"), host_case);
}

fn host_case(given: &Value) -> Value {
    let rule = json!({"methods": ["GET"], "path": "/**", "why": "a case"});
    let host = json!({"host": given["granted"], "sources": [], "rules": [rule]});
    let grant: Grant =
        serde_json::from_value(json!({"position": "enforce", "hosts": [host]})).expect("a grant");
    let url = given["url"].as_str().expect("a URL").parse().expect("a URL");
    json!(decide(&grant, &Hop { method: Method::Get, url }).is_ok())
}

#[test]
fn hops_are_admitted_or_denied_for_the_right_reason() {
    run(include_str!("../cases/egress_hop.json"), hop_case);
}

fn hop_case(given: &Value) -> Value {
    let recipe = serde_json::from_value(given["recipe"].clone()).expect("a recipe");
    let grant = ringfence_core::egress::compose(&recipe, recipe.lfs == Some(true), None).expect("a grant");
    let text = |name: &str| given[name].as_str().expect("a text");
    let (Some(method), Ok(url)) = (Method::parse(text("method")), text("url").parse()) else {
        return json!("unreadable");
    };
    match decide(&grant, &Hop { method, url }) {
        Ok(_) => json!("admitted"),
        Err(denial) => json!(denial.name()),
    }
}

#[test]
fn candidate_urls_are_plain_loopback_urls() {
    run(include_str!("../cases/candidate_urls.json"), |given| {
        json!(candidate::candidates(given.as_str().expect("an output"), &[]))
    });
}

#[test]
fn a_redirect_leads_where_the_standard_says_or_is_denied() {
    run(include_str!("../cases/redirect.json"), redirect_case);
}

fn redirect_case(given: &Value) -> Value {
    let hop = |url: &str| Hop {
        method: Method::parse(given["method"].as_str().expect("a method")).expect("a method"),
        url: url.parse().expect("a URL"),
    };
    let earlier: Vec<Hop> = (0..given["earlier"].as_u64().unwrap_or(0))
        .map(|n| hop(&format!("https://a.test/earlier/{n}")))
        .collect();
    let status = given["status"].as_u64().expect("a status") as u16;
    match next(&hop("https://a.test/x/y"), &earlier, status, given["location"].as_str(), true) {
        Ok(Next::Answer) => json!("answer"),
        Ok(Next::Follow { hop, body }) => json!([hop.method.as_str(), hop.url.as_str(), body]),
        Err(denial) => json!(denial.name()),
    }
}

#[test]
fn a_status_says_gone_only_on_proof() {
    run(include_str!("../cases/status.json"), status_case);
}

fn status_case(given: &Value) -> Value {
    let view = match given["view"].as_str() {
        Some("container-down") => View::ContainerDown,
        Some("boot-changed") => View::BootChanged,
        Some("unknown") => View::Unknown,
        Some("forgotten") => View::Forgotten,
        Some(_) => View::Unreachable { detail: String::new() },
        None => View::Job {
            state: serde_json::from_value(given["view"]["job"].clone()).expect("a job state"),
            exit_code: serde_json::from_value(given["view"]["exitCode"].clone()).expect("a code"),
            signal: serde_json::from_value(given["view"]["signal"].clone()).expect("a signal"),
        },
    };
    let record: Option<Record> = serde_json::from_value(given["record"].clone()).expect("a record");
    let status = match record {
        Some(record) => status::read(&record, &view).status,
        None => status::never_started(),
    };
    let mut told = json!(status);
    told.as_object_mut().expect("an object").remove("detail");
    told
}

#[test]
fn names_are_names_at_their_limits_and_no_further() {
    run(include_str!("../cases/names.json"), |given| {
        let (kind, text) = given.as_object().expect("an object").iter().next().expect("a name");
        let text = text.as_str().expect("a text");
        json!(match kind.as_str() {
            "consumer" => key::parse_consumer(text).is_ok(),
            "key" => key::parse_key(text).is_ok(),
            "idempotencyKey" => key::parse_idempotency_key(text).is_ok(),
            "processId" => key::parse_process_id(text).is_ok(),
            other => panic!("no name of this kind: {other}"),
        })
    });
}

#[test]
fn an_input_is_refused_for_its_first_field_at_fault() {
    const ALL: Served = Served {
        repo: true,
        lfs: true,
        egress: true,
        approval: true,
        stdin_pipe: true,
        shared_service: true,
    };
    run(include_str!("../cases/recipe.json"), |given| {
        let mut input = given.clone();
        for value in input.as_object_mut().expect("an object").values_mut() {
            if let (Some(text), Some(times)) = (value["repeat"][0].as_str(), value["repeat"][1].as_u64()) {
                *value = json!(text.repeat(times as usize));
            }
        }
        let input = serde_json::from_value(input).expect("an input of the right types");
        json!(ALL.exec(&input).err().map(|fault| fault.field))
    });
}
