//! The engine as the tests see it through its control socket: which containers there are, one recorded log of
//! every call that went through it, and the faults it is told to make.
//!
//! The log is the engine's, written as calls arrive: what the Worker says it did is never read for an order.

use crate::http::{Endpoint, is_success, send, send_json};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct Control(Endpoint);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub id: String,
    pub state: String,
    /// The supervisor's pid on the host.
    #[serde(default)]
    pub init_pid: Option<i32>,
}

impl Container {
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    pub n: u64,
    pub at_ms: u64,
    #[serde(default)]
    pub container: Option<String>,
    pub plane: String,
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub status: Option<u16>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.plane, self.method, self.path)
    }
}

/// Calls in the order the engine saw them.
#[derive(Clone, Debug, Default)]
pub struct CallLog(pub Vec<Call>);

impl CallLog {
    /// Only what concerns containers whose name holds `part`.
    #[must_use]
    pub fn of(&self, part: &str) -> Self {
        let of =
            |c: &&Call| c.container.as_deref().is_some_and(|n| n.contains(part)) || c.path.contains(part);
        Self(self.0.iter().filter(of).cloned().collect())
    }

    /// Calls that match a pattern such as `ingress POST /v1/teardown*`, where `*` stands for any text.
    pub fn matching(&self, pattern: &str) -> Vec<&Call> {
        self.0.iter().filter(|c| matches(pattern, &c.to_string())).collect()
    }

    pub fn count(&self, pattern: &str) -> usize {
        self.matching(pattern).len()
    }

    /// That the patterns are met in this order, other calls between them allowed.
    #[track_caller]
    pub fn assert_order(&self, patterns: &[&str]) {
        let mut calls = self.0.iter().map(ToString::to_string);
        for pattern in patterns {
            let met = calls.any(|call| matches(pattern, &call));
            assert!(met, "no `{pattern}` in its place of {patterns:?}; the log:\n{self}");
        }
    }

    #[track_caller]
    pub fn assert_none(&self, pattern: &str) {
        assert_eq!(self.count(pattern), 0, "`{pattern}` in the log:\n{self}");
    }
}

impl fmt::Display for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|call| {
            let status = call.status.map_or_else(|| "-".to_owned(), |s| s.to_string());
            writeln!(f, "  {:>6} {status:>4} {call}", call.n)
        })
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|i| rest.is_char_boundary(*i)).any(|i| matches(after, &rest[i..]))
        }),
    }
}

/// Which calls a fault meets.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    pub plane: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Action {
    /// The request never reaches the other side; the caller's connection ends.
    DropBefore,
    /// The request is served; its answer is lost.
    DropAfter,
    /// The request waits, then goes on.
    Delay { ms: u64 },
    /// The request is served at once; its answer waits.
    DelayAnswer { ms: u64 },
    /// The request is delivered twice.
    Double,
    /// The engine answers in the other side's place, which sees nothing.
    Answer { status: u16, body: String },
}

impl Control {
    pub fn at(socket: &Path) -> Self {
        Self(Endpoint::Unix(socket.to_owned()))
    }

    /// The socket itself, for a program that is told where it is.
    pub fn socket(&self) -> &Path {
        match &self.0 {
            Endpoint::Unix(path) => path,
            Endpoint::Tcp(_) => panic!("the control socket is a unix socket"),
        }
    }

    pub async fn containers(&self) -> Vec<Container> {
        #[derive(Deserialize)]
        struct Answer {
            containers: Vec<Container>,
        }
        send(&self.0, "GET", "/v1/containers", &[], "")
            .await
            .expect("the engine answers")
            .json::<Answer>()
            .containers
    }

    /// The calls after number `n`.
    pub async fn calls_since(&self, n: u64) -> CallLog {
        #[derive(Deserialize)]
        struct Answer {
            calls: Vec<Call>,
        }
        let answer =
            send(&self.0, "GET", &format!("/v1/calls?since={n}"), &[], "").await.expect("the engine answers");
        CallLog(answer.json::<Answer>().calls)
    }

    /// The number of the latest call: what a test asks for the calls after.
    pub async fn now(&self) -> u64 {
        self.calls_since(0).await.0.last().map_or(0, |c| c.n)
    }

    /// Makes the next `times` calls that match meet `action`.
    pub async fn fault(&self, meets: Match, action: Action, times: u32) {
        let body = json!({ "match": meets, "action": action, "times": times });
        let answer = send_json(&self.0, "POST", "/v1/faults", &body).await.expect("the engine answers");
        assert!(is_success(answer.status), "{}: {}", answer.status, answer.text());
    }

    /// Ends the faults set for one container, by its name.
    pub async fn clear_faults_of(&self, container: &str) {
        let path = format!("/v1/faults?container={container}");
        let answer = send(&self.0, "DELETE", &path, &[], "").await.expect("the engine answers");
        assert!(is_success(answer.status), "{}: {}", answer.status, answer.text());
    }
}
