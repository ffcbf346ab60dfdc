//! What a decision on one outbound request costs where it is made: as WebAssembly. No test: it asserts nothing, and only
//! `scripts/bench` runs it (`scripts/test` names the one target that it tests as WebAssembly).
#![cfg(target_arch = "wasm32")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench")]

use ringfence_core::egress::{Asked, compose, judge};
use std::hint::black_box;
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

#[wasm_bindgen]
extern "C" {
    /// Milliseconds, in steps of a few microseconds.
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;
}

const BATCHES: usize = 400;
/// Decisions in one step of the clock and more.
const BATCH: usize = 100;

#[wasm_bindgen_test]
fn the_cost_of_a_decision_on_one_hop() {
    let recipe = r#"{"version":"1","profiles":["js-install","rust-install","cf-api"]}"#;
    let grant = compose(&serde_json::from_str(recipe).unwrap(), false, None).unwrap();
    for (name, url) in [
        ("egress hop as wasm, admitted", "https://registry.npmjs.org/@types/node/-/node-24.0.0.tgz"),
        ("egress hop as wasm, denied", "https://example.com/"),
    ] {
        let asked = Asked { method: "GET", url, declared_bytes: None, upgrade: false };
        let mut took: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let begun = now();
                for _ in 0..BATCH {
                    let _ = black_box(judge(&grant, black_box(&asked)));
                }
                (now() - begun) * 1e3 / BATCH as f64
            })
            .collect();
        took.sort_by(f64::total_cmp);
        let at = |part: usize| took[(BATCHES - 1) * part / 100];
        console_log!("{name:<44} p50 {:>8.1}µs   p99 {:>8.1}µs, of means of {BATCH}", at(50), at(99));
    }
}
