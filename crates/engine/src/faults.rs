//! Faults for tests, injected where the engine passes calls on: a request that never arrives, an answer that is lost,
//! a delay, a doubled delivery. Served only with `--faults`; without it a call is not even looked at.

use crate::calls::Plane;
use crate::names;
use serde::Deserialize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Rules that are not used up.
pub const MAX_RULES: usize = 256;
/// The longest delay.
pub const MAX_DELAY_MS: u64 = 10 * 60 * 1000;

/// Which calls a rule is for. An absent field matches every call.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Match {
    pub plane: Plane,
    pub method: Option<String>,
    pub path_prefix: Option<String>,
    pub container: Option<String>,
}

/// What becomes of a matching call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// The request does not arrive; the caller's connection is cut.
    DropBefore,
    /// The request arrives and has its effect; the answer is lost.
    DropAfter,
    /// The request arrives later.
    Delay { ms: u64 },
    /// The request arrives at once, its answer later.
    DelayAnswer { ms: u64 },
    /// The request arrives twice, one after the other; the caller gets the second answer. Ingress only.
    Double,
    /// The request does not arrive; this is answered.
    Answer {
        status: u16,
        #[serde(default)]
        body: String,
    },
    /// The answer is cut after so many bytes of its body. Ingress only.
    Cut { bytes: u64 },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    #[serde(rename = "match")]
    pub matches: Match,
    pub action: Action,
    /// How many calls it is for.
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RuleError {
    #[error("{MAX_RULES} rules are set already; DELETE /v1/faults first")]
    TooMany,
    #[error("times: must be at least 1")]
    Never,
    #[error("action.ms: at most {MAX_DELAY_MS}")]
    TooLong,
    #[error("action.status: {0} is not an HTTP status")]
    Status(u16),
    #[error("action.kind: double and cut are for the ingress plane")]
    IngressOnly,
    #[error("match.plane: faults are for docker, sidecar and ingress calls")]
    Plane,
}

#[derive(Default)]
pub struct Faults(Mutex<Vec<Rule>>);

impl Faults {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, mut rule: Rule) -> Result<(), RuleError> {
        rule.check()?;
        rule.matches.container = rule.matches.container.as_deref().map(names::canonical);
        let mut rules = self.lock();
        if rules.len() >= MAX_RULES {
            return Err(RuleError::TooMany);
        }
        rules.push(rule);
        Ok(())
    }

    /// Forgets the rules for one container, or all of them.
    pub fn clear(&self, container: Option<&str>) {
        let container = container.map(names::canonical);
        self.lock().retain(|rule| container.is_some() && rule.matches.container != container);
    }

    /// What the first matching rule says; uses it once.
    pub fn take(&self, plane: Plane, container: Option<&str>, method: &str, path: &str) -> Option<Action> {
        let mut rules = self.lock();
        let index = rules.iter().position(|rule| rule.matches.covers(plane, container, method, path))?;
        let rule = rules.get_mut(index)?;
        let action = rule.action.clone();
        rule.times = rule.times.saturating_sub(1);
        if rule.times == 0 {
            rules.remove(index);
        }
        Some(action)
    }
}

impl Rule {
    fn check(&self) -> Result<(), RuleError> {
        if self.times == 0 {
            return Err(RuleError::Never);
        }
        if self.matches.plane == Plane::Engine {
            return Err(RuleError::Plane);
        }
        match self.action {
            Action::Delay { ms } | Action::DelayAnswer { ms } if ms > MAX_DELAY_MS => Err(RuleError::TooLong),
            Action::Answer { status, .. } if hyper::StatusCode::from_u16(status).is_err() => {
                Err(RuleError::Status(status))
            }
            Action::Double | Action::Cut { .. } if self.matches.plane != Plane::Ingress => {
                Err(RuleError::IngressOnly)
            }
            _ => Ok(()),
        }
    }
}

impl Match {
    fn covers(&self, plane: Plane, container: Option<&str>, method: &str, path: &str) -> bool {
        self.plane == plane
            && self.method.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && self.path_prefix.as_ref().is_none_or(|prefix| path.starts_with(prefix))
            && self.container.as_deref().is_none_or(|wanted| container == Some(wanted))
    }
}

/// Waits as a delay says.
pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The caller's connection is to be cut without an answer.
#[derive(Debug, thiserror::Error)]
#[error("cut by a fault")]
pub struct Cut;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_rule_is_used_as_often_as_it_says_and_only_where_it_matches() {
        let faults = Faults::default();
        let text = r#"{"match":{"plane":"ingress","method":"POST","pathPrefix":"/v1/jobs",
            "container":"workerd-0123456789abcdef-x"},"action":{"kind":"drop-after"},"times":2}"#;
        faults.add(rule(text)).unwrap();
        let take = |container, method, path| faults.take(Plane::Ingress, Some(container), method, path);
        assert_eq!(take("workerd-x", "GET", "/v1/jobs"), None);
        assert_eq!(take("workerd-y", "POST", "/v1/jobs"), None);
        assert_eq!(take("workerd-x", "POST", "/v1/teardown"), None);
        assert_eq!(faults.take(Plane::Docker, Some("workerd-x"), "POST", "/v1/jobs"), None);
        assert_eq!(take("workerd-x", "POST", "/v1/jobs"), Some(Action::DropAfter));
        assert_eq!(take("workerd-x", "POST", "/v1/jobs/1"), Some(Action::DropAfter));
        assert_eq!(take("workerd-x", "POST", "/v1/jobs"), None);
    }

    #[test]
    fn the_rules_of_one_container_are_cleared_without_anothers() {
        let faults = Faults::default();
        for container in ["workerd-0123456789abcdef-x", "workerd-y"] {
            let text = format!(
                r#"{{"match":{{"plane":"ingress","container":"{container}"}},"action":{{"kind":"drop-before"}}}}"#
            );
            faults.add(rule(&text)).unwrap();
        }
        faults.clear(Some("workerd-x"));
        let take = |container| faults.take(Plane::Ingress, Some(container), "GET", "/");
        assert_eq!(take("workerd-x"), None);
        assert_eq!(take("workerd-y"), Some(Action::DropBefore));
        faults.add(rule(r#"{"match":{"plane":"ingress"},"action":{"kind":"drop-before"}}"#)).unwrap();
        faults.clear(None);
        assert_eq!(take("workerd-y"), None);
    }

    #[test]
    fn a_rule_that_cannot_be_done_is_refused_and_says_why() {
        let faults = Faults::default();
        let add = |plane: &str, action: &str, times: u32| {
            faults
                .add(rule(&format!(r#"{{"match":{{"plane":"{plane}"}},"action":{action},"times":{times}}}"#)))
        };
        assert_eq!(add("docker", r#"{"kind":"double"}"#, 1), Err(RuleError::IngressOnly));
        assert_eq!(add("engine", r#"{"kind":"drop-before"}"#, 1), Err(RuleError::Plane));
        assert_eq!(add("ingress", r#"{"kind":"delay","ms":600001}"#, 1), Err(RuleError::TooLong));
        assert_eq!(add("ingress", r#"{"kind":"delay","ms":600000}"#, 1), Ok(()));
        assert_eq!(add("ingress", r#"{"kind":"drop-before"}"#, 0), Err(RuleError::Never));
        assert_eq!(add("ingress", r#"{"kind":"answer","status":99}"#, 1), Err(RuleError::Status(99)));
        for _ in 1..MAX_RULES {
            add("ingress", r#"{"kind":"drop-before"}"#, 1).unwrap();
        }
        assert_eq!(add("ingress", r#"{"kind":"drop-before"}"#, 1), Err(RuleError::TooMany));
        assert!(
            serde_json::from_str::<Rule>(
                r#"{"match":{"plane":"ingress","verb":"GET"},"action":{"kind":"double"}}"#
            )
            .is_err()
        );
    }
}
