//! No text is a ticket but one that was minted, and none makes the verifier panic.

use ringfence_core::ticket::{Secrets, verify};
use std::sync::LazyLock;

static SECRETS: LazyLock<Secrets> =
    LazyLock::new(|| Secrets::new(vec!["n".repeat(32), "o".repeat(32)]).expect("long enough"));

pub fn holds(bytes: &[u8]) {
    let Ok(ticket) = std::str::from_utf8(bytes) else { return };
    let found = verify(&SECRETS, Some(ticket), &"ci".into(), &"run-1".into(), 0);
    assert!(found.is_err(), "an HMAC was forged");
}
