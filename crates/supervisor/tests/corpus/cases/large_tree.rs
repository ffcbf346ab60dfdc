//! A wide and deep tree (`RINGFENCE_CORPUS_TREE`, default 1,000 processes).

use super::*;

pub const CASE: Case = Case {
    name: "a large tree",
    command: |stage, _| stage.command("tree", &[&tree_size().to_string()]),
    born: 1_000,
    before: |stage, _| stage.witness.wait_until_born(1 + tree_size()),
    after: |_, _, claim| match claim.killed {
        Some(killed) if killed < tree_size() as u64 => Err(format!("{claim:?}")),
        _ => Ok(()),
    },
    ..Case::PLAIN
};

fn tree_size() -> usize {
    std::env::var("RINGFENCE_CORPUS_TREE").ok().and_then(|size| size.parse().ok()).unwrap_or(1_000)
}
