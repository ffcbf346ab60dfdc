//! What a call answers: the contract's outcome as JSON text, passed on as the object wrote it.

use ringfence_wire::refusal::{Outcome, Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug)]
pub struct Answer(pub String);

/// As much of an outcome as a status line needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    Refused { kind: RefusalKind, retry_after_ms: Option<u64> },
}

impl Answer {
    pub fn of<T: Serialize>(outcome: &Outcome<T>) -> Self {
        match serde_json::to_string(outcome) {
            Ok(json) => Self(json),
            Err(error) => Self::of::<()>(&Outcome::Refused(Refusal::new(
                RefusalKind::SandboxUnavailable,
                format!("the answer could not be written as JSON: {error}"),
            ))),
        }
    }

    pub fn done<T: Serialize>(value: T) -> Self {
        Self::of(&Outcome::Done(value))
    }

    pub fn refused(refusal: Refusal) -> Self {
        Self::of(&Outcome::<()>::Refused(refusal))
    }

    /// Whether it is a refusal for one of these machine-readable reasons.
    pub fn is_refused_for(&self, reasons: &[&str]) -> bool {
        #[derive(Deserialize)]
        struct Head {
            ok: bool,
            reason: Option<String>,
        }
        serde_json::from_str::<Head>(&self.0).is_ok_and(|head| {
            !head.ok && head.reason.is_some_and(|reason| reasons.contains(&reason.as_str()))
        })
    }

    /// A bare list (`denials`) is done; everything else says `ok`.
    pub fn verdict(&self) -> Result<Verdict, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            ok: bool,
            kind: Option<RefusalKind>,
            retry_after_ms: Option<u64>,
        }
        if self.0.starts_with('[') {
            return Ok(Verdict::Done);
        }
        let head: Head = serde_json::from_str(&self.0)?;
        match (head.ok, head.kind) {
            (true, _) => Ok(Verdict::Done),
            (false, Some(kind)) => Ok(Verdict::Refused { kind, retry_after_ms: head.retry_after_ms }),
            (false, None) => Err(serde::de::Error::custom("a refusal without its kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_read_off_and_nothing_else_has_one() {
        let released = Refusal::new(RefusalKind::AdmissionRefused, "m").reason("slot-released");
        assert!(Answer::refused(released.clone()).is_refused_for(&["other", "slot-released"]));
        assert!(!Answer::refused(released).is_refused_for(&["slot"]));
        assert!(
            !Answer(r#"{"ok":true,"reason":"slot-released"}"#.into())
                .is_refused_for(&["other", "slot-released"])
        );
        assert!(!Answer("[]".into()).is_refused_for(&["other", "slot-released"]));
    }

    #[test]
    fn a_verdict_is_read_off_any_outcome() {
        assert_eq!(
            Answer(r#"{"ok":true,"status":{"state":"running"}}"#.into()).verdict().unwrap(),
            Verdict::Done
        );
        assert_eq!(Answer("[]".into()).verdict().unwrap(), Verdict::Done);
        let busy = Refusal::new(RefusalKind::FenceBusy, "one at a time").retry_after_ms(1500);
        assert_eq!(
            Answer::refused(busy).verdict().unwrap(),
            Verdict::Refused { kind: RefusalKind::FenceBusy, retry_after_ms: Some(1500) }
        );
        assert!(Answer(r#"{"ok":false}"#.into()).verdict().is_err());
        assert!(Answer("{}".into()).verdict().is_err());
    }
}
