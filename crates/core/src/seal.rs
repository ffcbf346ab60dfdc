//! Seals: proof that a call between our own objects was made by this deployment's Worker, so that another
//! Worker bound straight to an object's class gets nothing.
//!
//! A seal is an HMAC-SHA256 under a ticket secret, hex. Each subject has its own prefix, so a seal made for one
//! purpose is worth nothing for another.

use crate::ticket::Secrets;
use ringfence_wire::ids::{ConsumerName, SandboxKey};

/// What is being called.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The Sandbox object of this consumer and key.
    Sandbox { consumer: &'a ConsumerName, key: &'a SandboxKey },
    /// The Admission object.
    Admission,
}

impl Subject<'_> {
    fn text(&self) -> String {
        match self {
            Self::Sandbox { consumer, key } => format!("object-call:{consumer}:{key}"),
            Self::Admission => "admission-call".to_owned(),
        }
    }
}

/// Made with the newest secret.
pub fn seal(secrets: &Secrets, subject: Subject<'_>) -> String {
    secrets.sign(&subject.text())
}

/// True if any current secret made this seal for this subject. Constant time for each secret.
pub fn check(secrets: &Secrets, subject: Subject<'_>, seal: &str) -> bool {
    match hex::decode(seal) {
        Ok(bytes) => secrets.signed(&subject.text(), &bytes),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(fill: &str) -> Secrets {
        Secrets::new(vec![fill.repeat(32)]).unwrap()
    }

    #[test]
    fn a_seal_holds_for_its_own_subject_and_secret_only() {
        let (ours, theirs) = (secrets("a"), secrets("b"));
        let (consumer, key, other) = ("ci".into(), "run-1".into(), "run-2".into());
        let subject = Subject::Sandbox { consumer: &consumer, key: &key };
        let made = seal(&ours, subject);
        assert!(check(&ours, subject, &made));
        assert!(!check(&theirs, subject, &made));
        assert!(!check(&ours, Subject::Sandbox { consumer: &consumer, key: &other }, &made));
        assert!(!check(&ours, Subject::Admission, &made));
        for bad in ["", "zz", &made[..62], "é"] {
            assert!(!check(&ours, subject, bad), "{bad:?}");
        }
    }

    #[test]
    fn a_seal_made_before_a_rotation_still_holds() {
        let made = seal(&secrets("a"), Subject::Admission);
        let rotated = Secrets::new(vec!["b".repeat(32), "a".repeat(32)]).unwrap();
        assert!(check(&rotated, Subject::Admission, &made));
    }
}
