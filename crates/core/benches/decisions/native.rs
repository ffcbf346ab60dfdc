//! The measurements.

use ringfence_core::admission::{Claimant, Gate, Pool, Pools};
use ringfence_core::approval::{ExtraRules, floor_rule};
use ringfence_core::egress::{Hop, Method, compose, decide};
use ringfence_wire::contract::AdmissionMode;
use ringfence_wire::supervisor::StdinMode;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::sqlite;

fn measure<T>(name: &str, rounds: u32, mut run: impl FnMut(u32) -> T) {
    let mut took: Vec<Duration> = (0..rounds)
        .map(|n| {
            let start = Instant::now();
            black_box(run(n));
            start.elapsed()
        })
        .collect();
    took.sort();
    let total: Duration = took.iter().sum();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    let rate = f64::from(rounds) / total.as_secs_f64();
    println!("{name:<44} p50 {:>10.1?}   p99 {:>10.1?}   {rate:>10.0}/s", at(50), at(99));
}

fn admission_attempts() {
    for waiters in [1u32, 10, 100, 1_000, 4_000] {
        let (sql, pools) = (sqlite::Sqlite::new(), Pools::parse(Some(r#"{"lean":1}"#)).unwrap());
        let attempt = |who: u32| {
            let (consumer, key) = ("ci".into(), format!("k{who}").as_str().into());
            let who = Claimant { consumer: &consumer, key: &key, pool: Pool::Lean };
            Gate::new(&sql, &pools).touch(who, AdmissionMode::Queue, &format!("slot-{key}"), 1_000).unwrap()
        };
        sql.transaction(|| (0..=waiters).for_each(|who| drop(attempt(who))));
        measure(&format!("admission attempt, {waiters} waiting"), 5_000, |n| {
            sql.transaction(|| attempt(1 + n % waiters))
        });
    }
}

fn floor() {
    let none = ExtraRules::default();
    let ordinary = "cd app && npm ci && npm test -- --run 2>&1 | tee test.log";
    measure("approval floor, an ordinary command", 20_000, |_| floor_rule(ordinary, StdinMode::None, &none));
    let long = "echo a line of a long script\n".repeat(256 * 1024 / 29);
    measure("approval floor, 256 KiB", 200, |_| floor_rule(&long, StdinMode::None, &none));
    let tangled = "env -a ".repeat(256 * 1024 / 7);
    measure("approval floor, 256 KiB of tangle", 200, |_| floor_rule(&tangled, StdinMode::None, &none));
}

fn egress() {
    let recipe = serde_json::from_str(r#"{"version":"1","profiles":["js-install","rust-install","cf-api"]}"#);
    let recipe = recipe.unwrap();
    measure("egress grant, composed of three profiles", 2_000, |_| compose(&recipe, false, None));
    let grant = compose(&recipe, false, None).unwrap();
    let url = "https://registry.npmjs.org/@types/node/-/node-24.0.0.tgz";
    let hop = Hop { method: Method::Get, url: url.parse().unwrap() };
    measure("egress hop, admitted", 50_000, |_| decide(&grant, &hop).is_ok());
    let hop = Hop { method: Method::Get, url: "https://example.com/".parse().unwrap() };
    measure("egress hop, denied", 50_000, |_| decide(&grant, &hop).is_ok());
}

pub fn run() {
    admission_attempts();
    floor();
    egress();
}
