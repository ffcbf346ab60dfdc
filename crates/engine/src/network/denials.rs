//! What the engine itself refused, per container: facts that the Worker never sees. Aggregated and bounded.

use crate::calls::now_ms;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Different denials kept per container; more are counted together.
pub const MAX_DENIALS: usize = 256;
/// Containers whose denials are kept, the removed ones included.
pub const MAX_CONTAINERS: usize = 1024;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attempt {
    /// A TCP connection.
    Connect,
    /// A look-up of a name other than an address of it.
    Lookup,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    attempt: Attempt,
    host: String,
    port: u16,
    reason: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    pub source: &'static str,
    pub attempt: Attempt,
    pub host: String,
    pub port: u16,
    pub reason: &'static str,
    pub count: u64,
    pub last_at_ms: u64,
}

#[derive(Default)]
struct OfContainer {
    kept: BTreeMap<Key, (u64, u64)>,
    overflow: u64,
}

#[derive(Default)]
pub struct Denials(Mutex<BTreeMap<String, OfContainer>>);

impl Denials {
    pub fn record(&self, container: &str, attempt: Attempt, host: &str, port: u16, reason: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(container) && all.len() >= MAX_CONTAINERS {
            all.pop_first();
        }
        let of = all.entry(container.to_owned()).or_default();
        let key = Key { attempt, host: host.to_owned(), port, reason };
        if !of.kept.contains_key(&key) && of.kept.len() >= MAX_DENIALS {
            of.overflow += 1;
            return;
        }
        let entry = of.kept.entry(key).or_default();
        *entry = (entry.0 + 1, now_ms());
    }

    /// A new container of that name begins with none; those of a removed one stay readable until then.
    pub fn forget(&self, container: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(container);
    }

    /// The most frequent first, and how many more were not kept apart.
    pub fn of(&self, container: &str) -> (Vec<Denial>, u64) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of) = all.get(container) else { return (Vec::new(), 0) };
        let mut denials: Vec<Denial> = of
            .kept
            .iter()
            .map(|(key, (count, last_at_ms))| Denial {
                source: "engine",
                attempt: key.attempt,
                host: key.host.clone(),
                port: key.port,
                reason: key.reason,
                count: *count,
                last_at_ms: *last_at_ms,
            })
            .collect();
        denials.sort_by_key(|denial| std::cmp::Reverse(denial.count));
        (denials, of.overflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_counted_the_most_frequent_first_and_bounded() {
        let denials = Denials::default();
        for port in 0..=MAX_DENIALS as u16 {
            denials.record("a", Attempt::Connect, "198.18.0.1", port, "not-http");
        }
        denials.record("a", Attempt::Connect, "198.18.0.1", 7, "not-http");
        let (kept, overflow) = denials.of("a");
        assert_eq!((kept.len(), overflow), (MAX_DENIALS, 1));
        assert_eq!((kept[0].port, kept[0].count), (7, 2));
        assert!(denials.of("b").0.is_empty());
    }
}
