//! What the engine itself saw and the Worker never does, per container: connections it refused, and names that were
//! looked up and never connected to. Aggregated and bounded.

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
    /// A look-up of a name: of anything but an address of it, or one that no connection followed.
    Lookup,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    attempt: Attempt,
    host: String,
    port: u16,
    reason: &'static str,
}

const DNS_PORT: u16 = 53;
/// Answered, and no connection to the name came of it: a name can carry data by itself.
const LOOKED_UP: &str = "looked-up";
const NO_SUCH_RECORD: &str = "no-such-record";

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
    /// Whose container it is or was: `consumer:key`.
    sandbox: Option<String>,
    kept: BTreeMap<Key, (u64, u64)>,
    overflow: u64,
}

#[derive(Default)]
pub struct Denials(Mutex<BTreeMap<String, OfContainer>>);

impl Denials {
    /// A refused connection.
    pub fn connection(&self, container: &str, host: &str, port: u16, reason: &'static str) {
        self.record(container, Attempt::Connect, host, port, reason);
    }

    /// A look-up; `address`: of the name's address, as before every connection by name.
    pub fn look_up(&self, container: &str, name: &str, address: bool) {
        let reason = if address { LOOKED_UP } else { NO_SUCH_RECORD };
        self.record(container, Attempt::Lookup, name, DNS_PORT, reason);
    }

    /// A connection to the name came: its look-up was for that.
    pub fn connected(&self, container: &str, name: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = all.get_mut(container) {
            let host = name.to_owned();
            of.kept.remove(&Key { attempt: Attempt::Lookup, host, port: DNS_PORT, reason: LOOKED_UP });
        }
    }

    fn record(&self, container: &str, attempt: Attempt, host: &str, port: u16, reason: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = entry(&mut all, container);
        let key = Key { attempt, host: host.to_owned(), port, reason };
        if !of.kept.contains_key(&key) && of.kept.len() >= MAX_DENIALS {
            of.overflow += 1;
            return;
        }
        let entry = of.kept.entry(key).or_default();
        *entry = (entry.0 + 1, now_ms());
    }

    /// A new container of that name begins with none; those of a removed one stay readable until then.
    pub fn begin(&self, container: &str, sandbox: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(container);
        entry(&mut all, container).sandbox = sandbox.map(str::to_owned);
    }

    /// The container of a sandbox, removed or not.
    pub fn container_of(&self, sandbox: &str) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(_, of)| of.sandbox.as_deref() == Some(sandbox)).map(|(name, _)| name.clone())
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

/// Of one container; the one first by name goes for a new one over the bound.
fn entry<'a>(all: &'a mut BTreeMap<String, OfContainer>, container: &str) -> &'a mut OfContainer {
    if !all.contains_key(container) && all.len() >= MAX_CONTAINERS {
        all.pop_first();
    }
    all.entry(container.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_counted_the_most_frequent_first_and_bounded() {
        let denials = Denials::default();
        for port in 0..=MAX_DENIALS as u16 {
            denials.connection("a", "198.18.0.1", port, "not-http");
        }
        denials.connection("a", "198.18.0.1", 7, "not-http");
        let (kept, overflow) = denials.of("a");
        assert_eq!((kept.len(), overflow), (MAX_DENIALS, 1));
        assert_eq!((kept[0].port, kept[0].count), (7, 2));
        assert!(denials.of("b").0.is_empty());
    }

    #[test]
    fn a_look_up_that_no_connection_followed_is_told_and_one_that_was_for_a_connection_is_not() {
        let denials = Denials::default();
        for name in ["used.test", "c2vjcmv0.test"] {
            denials.look_up("a", name, true);
            denials.look_up("a", name, true);
        }
        denials.connected("a", "used.test");
        denials.look_up("a", "used.test", false);
        let told: Vec<_> = denials.of("a").0.into_iter().map(|d| (d.host, d.reason, d.count)).collect();
        assert_eq!(
            told,
            [("c2vjcmv0.test".to_owned(), LOOKED_UP, 2), ("used.test".to_owned(), NO_SUCH_RECORD, 1)]
        );
    }

    #[test]
    fn a_container_is_found_by_its_sandbox_also_after_its_removal_and_a_new_one_begins_with_none() {
        let denials = Denials::default();
        denials.begin("box", Some("alpha:k"));
        denials.connection("box", "h", 22, "not-http");
        assert_eq!(denials.container_of("alpha:k").as_deref(), Some("box"));
        assert_eq!(denials.container_of("beta:k"), None);
        denials.begin("box", Some("alpha:k"));
        assert!(denials.of("box").0.is_empty());
    }

    #[test]
    fn containers_are_remembered_up_to_a_bound() {
        let denials = Denials::default();
        for index in 0..=MAX_CONTAINERS {
            denials.begin(&format!("box-{index:05}"), Some(&format!("a:{index}")));
        }
        assert_eq!(denials.container_of("a:0"), None);
        assert!(denials.container_of("a:1").is_some());
    }
}
