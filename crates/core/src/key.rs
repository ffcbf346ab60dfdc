//! Names: who a consumer is, what a sandbox is called, and how both become one object's name.
//!
//! Invariant: [`object_name`] is injective. A consumer's name has no colon, so the first colon of an object's
//! name separates, and no two (consumer, key) pairs share an object.

use ringfence_wire::ids::{ConsumerName, IdempotencyKey, ProcessId, SandboxKey};

pub const MAX_CONSUMER_BYTES: usize = 24;
pub const MAX_KEY_BYTES: usize = 38;
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;
/// A hyphenated UUID.
pub const PROCESS_ID_BYTES: usize = 36;

/// Why a name is not one. The messages say what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    #[error("a consumer's name is 1 to {MAX_CONSUMER_BYTES} characters of A-Z a-z 0-9 _ -")]
    Consumer,
    #[error(
        "a sandbox key is 1 to {MAX_KEY_BYTES} characters of A-Z a-z 0-9 . _ : - and neither `.` nor `..`"
    )]
    Key,
    #[error("an idempotency key is 1 to {MAX_IDEMPOTENCY_KEY_BYTES} printable ASCII characters")]
    IdempotencyKey,
    #[error("a process id is the lower-case UUID that startDetached returned")]
    ProcessId,
    #[error("an object's name is consumer:key")]
    ObjectName,
}

/// `[A-Za-z0-9_-]{1,24}`
pub fn parse_consumer(text: &str) -> Result<ConsumerName, NameFault> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if bounded(text, MAX_CONSUMER_BYTES, good) { Ok(text.into()) } else { Err(NameFault::Consumer) }
}

/// `[A-Za-z0-9._:-]{1,38}`, but for the two that a URL cannot carry: a client folds `/v1/sandboxes/./exec` into
/// `/v1/sandboxes/exec`, which is another sandbox and another call.
pub fn parse_key(text: &str) -> Result<SandboxKey, NameFault> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    if bounded(text, MAX_KEY_BYTES, good) && !matches!(text, "." | "..") {
        Ok(text.into())
    } else {
        Err(NameFault::Key)
    }
}

/// 1 to 128 printable ASCII characters.
pub fn parse_idempotency_key(text: &str) -> Result<IdempotencyKey, NameFault> {
    if bounded(text, MAX_IDEMPOTENCY_KEY_BYTES, |b| (b' '..=b'~').contains(&b)) {
        Ok(text.into())
    } else {
        Err(NameFault::IdempotencyKey)
    }
}

/// A lower-case hyphenated UUID.
pub fn parse_process_id(text: &str) -> Result<ProcessId, NameFault> {
    let hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let good = |(at, b): (usize, u8)| {
        if hyphen(at) { b == b'-' } else { b.is_ascii_digit() || (b'a'..=b'f').contains(&b) }
    };
    if text.len() == PROCESS_ID_BYTES && text.bytes().enumerate().all(good) {
        Ok(text.into())
    } else {
        Err(NameFault::ProcessId)
    }
}

/// The name of the Durable Object that owns this sandbox.
pub fn object_name(consumer: &ConsumerName, key: &SandboxKey) -> String {
    format!("{consumer}:{key}")
}

/// The inverse of [`object_name`]; both halves are checked again.
pub fn parse_object_name(name: &str) -> Result<(ConsumerName, SandboxKey), NameFault> {
    let (consumer, key) = name.split_once(':').ok_or(NameFault::ObjectName)?;
    Ok((parse_consumer(consumer)?, parse_key(key)?))
}

fn bounded(text: &str, max: usize, good: impl Fn(u8) -> bool) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(good)
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_names_are_taken_and_one_byte_more_is_not() {
        assert!(parse_consumer(&"c".repeat(24)).is_ok());
        assert_eq!(parse_consumer(&"c".repeat(25)), Err(NameFault::Consumer));
        assert!(parse_key(&"k".repeat(38)).is_ok());
        assert_eq!(parse_key(&"k".repeat(39)), Err(NameFault::Key));
        assert!(parse_idempotency_key(&"i".repeat(128)).is_ok());
        assert_eq!(parse_idempotency_key(&"i".repeat(129)), Err(NameFault::IdempotencyKey));
    }

    #[test]
    fn empty_names_slashes_controls_and_other_alphabets_are_refused() {
        for bad in ["", "a/b", "a b", "a\0", "é", "a\n"] {
            assert_eq!(parse_consumer(bad), Err(NameFault::Consumer), "{bad:?}");
            assert_eq!(parse_key(bad), Err(NameFault::Key), "{bad:?}");
        }
        for bad in ["", "a\n", "a\u{7f}", "é"] {
            assert_eq!(parse_idempotency_key(bad), Err(NameFault::IdempotencyKey), "{bad:?}");
        }
    }

    #[test]
    fn a_key_that_a_url_would_fold_away_is_refused_and_its_neighbours_are_not() {
        for bad in [".", ".."] {
            assert_eq!(parse_key(bad), Err(NameFault::Key), "{bad:?}");
        }
        for good in ["...", ".a", "a.", "..a", ":", "-"] {
            assert!(parse_key(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_consumer_that_could_be_glued_into_another_is_refused() {
        assert!(parse_key("b:c").is_ok());
        assert_eq!(parse_consumer("a:b"), Err(NameFault::Consumer));
    }

    #[test]
    fn a_process_id_is_a_lower_case_uuid_and_nothing_near_it() {
        assert!(parse_process_id("0f8fad5b-d9cb-469f-a165-70867728950e").is_ok());
        for bad in [
            "",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5b-d9cb-469f-a165-70867728950",
            "0f8fad5bxd9cb-469f-a165-70867728950e",
            "../../../../../../../../../../../etc",
        ] {
            assert_eq!(parse_process_id(bad), Err(NameFault::ProcessId), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_object_name_reads_back_as_the_pair_it_was_made_from(
            consumer in "[A-Za-z0-9_-]{1,24}", key in "[A-Za-z0-9._:-]{1,38}",
        ) {
            prop_assume!(parse_key(&key).is_ok());
            let pair = (parse_consumer(&consumer).unwrap(), parse_key(&key).unwrap());
            prop_assert_eq!(parse_object_name(&object_name(&pair.0, &pair.1)), Ok(pair));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            let _ = (parse_consumer(&text), parse_key(&text), parse_idempotency_key(&text));
            let _ = (parse_process_id(&text), parse_object_name(&text));
        }
    }
}
