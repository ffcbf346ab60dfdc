//! Every property over what is committed in `fuzz/seeds` and `fuzz/corpus`, and over mutations of it: the run of the
//! fuzzer that every test run can afford. It needs neither its toolchain nor its instrumentation, and a failure names
//! the input, which `scripts/fuzz` and the corpus then take.
//!
//!   RINGFENCE_SEED=N cargo test -p ringfence-properties
//!
//! makes the same mutations again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use ringfence_properties::{ALL, Property};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Of each property, in a test run.
const MUTATIONS: usize = 20_000;
/// As the fuzzer's own.
const MAX_INPUT_BYTES: usize = 1024;
/// Changes on top of each other in one input.
const MOST_CHANGES: usize = 8;
/// Bytes at which readers differ.
const TELLING: &[u8] = b"\0\t\n\r %./:?#@[]\\-_*{}\"\xff";

#[test]
fn every_property_holds_for_every_committed_input() {
    for (name, holds) in ALL {
        for input in inputs(name) {
            assert_holds(name, *holds, &input);
        }
    }
}

#[test]
fn every_property_holds_for_mutations_of_committed_inputs() {
    let seed = std::env::var("RINGFENCE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("RINGFENCE_SEED={seed}");
    for (name, holds) in ALL {
        let mut rng = fastrand::Rng::with_seed(seed);
        let inputs = inputs(name);
        for _ in 0..MUTATIONS {
            assert_holds(name, *holds, &mutated(&mut rng, &inputs));
        }
    }
}

#[test]
fn every_property_has_a_fuzz_target_and_every_fuzz_target_is_a_property() {
    let targets: BTreeSet<String> = files(&fuzz().join("fuzz_targets"))
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    assert_eq!(targets, ALL.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[track_caller]
fn assert_holds(name: &str, holds: Property, input: &[u8]) {
    if catch_unwind(|| holds(input)).is_err() {
        panic!("{name} does not hold for {:?}", input.escape_ascii().to_string());
    }
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// In the order of their names, so that a seed makes the same mutations everywhere.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a directory's entry").path()).collect();
    files.sort();
    files
}

fn inputs(name: &str) -> Vec<Vec<u8>> {
    let inputs: Vec<_> = ["seeds", "corpus"]
        .iter()
        .flat_map(|kind| files(&fuzz().join(kind).join(name)))
        .map(|path| std::fs::read(path).expect("a committed file"))
        .collect();
    assert!(!inputs.is_empty(), "{name} has no committed input");
    inputs
}

/// One input with a few bytes flipped, replaced, left out or doubled, or continued as another one.
fn mutated(rng: &mut fastrand::Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let any = |rng: &mut fastrand::Rng| &inputs[rng.usize(..inputs.len())];
    let mut bytes = any(rng).clone();
    for _ in 0..rng.usize(1..=MOST_CHANGES) {
        let at = rng.usize(..=bytes.len());
        let end = rng.usize(at..=bytes.len());
        match rng.u8(0..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(0..8),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            2 => bytes.insert(at, TELLING[rng.usize(..TELLING.len())]),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let other = any(rng);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[rng.usize(..=other.len())..]);
            }
        }
    }
    bytes.truncate(MAX_INPUT_BYTES);
    bytes
}
