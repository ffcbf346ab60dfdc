//! One recorded log of every call: Docker API calls, sidecar calls, and requests to supervisors, in the order they
//! were decided. Tests assert the order of effects on it. Bounded; what fell out is said by the numbers.

use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Calls kept.
pub const MAX_CALLS: usize = 20_000;

/// Where a call was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// A Docker API call.
    Docker,
    /// A call to a container's networking sidecar.
    Sidecar,
    /// An HTTP request to a port of a container.
    Ingress,
    /// A change of a container's life that no call asked for.
    Engine,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    pub n: u64,
    pub at_ms: u64,
    pub container: Option<String>,
    pub plane: Plane,
    pub method: String,
    pub path: String,
    /// Absent: no answer was given (a fault dropped it, or the caller left).
    pub status: Option<u16>,
}

#[derive(Default)]
pub struct CallLog(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    /// The number of the last call; they begin at 1.
    next: u64,
    kept: VecDeque<Call>,
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    millis(SystemTime::now())
}

pub fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl CallLog {
    /// Records that a call arrived; the number is for [`Self::answered`].
    pub fn arrived(&self, plane: Plane, container: Option<&str>, method: &str, path: &str) -> u64 {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.next += 1;
        let n = calls.next;
        if calls.kept.len() == MAX_CALLS {
            calls.kept.pop_front();
        }
        calls.kept.push_back(Call {
            n,
            at_ms: now_ms(),
            container: container.map(str::to_owned),
            plane,
            method: method.to_owned(),
            path: path.to_owned(),
            status: None,
        });
        n
    }

    pub fn answered(&self, n: u64, status: u16) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = calls.kept.front().map(|call| call.n) else { return };
        let index = n.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        if let Some(call) = index.and_then(|index| calls.kept.get_mut(index)) {
            call.status = Some(status);
        }
    }

    /// Calls after number `since`.
    pub fn since(&self, since: u64) -> Vec<Call> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.kept.iter().filter(|call| call.n > since).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_calls_fall_out_at_the_bound_and_numbers_go_on() {
        let log = CallLog::default();
        for _ in 0..=MAX_CALLS {
            log.arrived(Plane::Docker, None, "GET", "/info");
        }
        let last = MAX_CALLS as u64 + 1;
        log.answered(1, 200);
        log.answered(last, 204);
        let kept = log.since(0);
        assert_eq!((kept.len(), kept[0].n), (MAX_CALLS, 2));
        assert_eq!(log.since(last - 1)[0].status, Some(204));
        assert!(log.since(last).is_empty());
    }
}
