//! A job's standard input: writes in order, each at most once.
//!
//! Invariants: an operation key with the same bytes has one answer for ever; with other bytes it is a conflict. What
//! may be half in the pipe is `uncertain`, never retried. Bytes leave memory once they are written: of a finished
//! write only its digest stays. The writing task owns the pipe; whoever ends the job only closes.

use crate::job::JobRef;
use crate::limits;
use bytes::{Buf, Bytes};
use ringfence_wire::supervisor::{StdinAnswer, StdinResult};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use tokio::net::unix::pipe;

pub struct Stdin {
    open: Open,
    /// By operation key.
    operations: HashMap<String, Operation>,
    queue: VecDeque<Write>,
    /// Of the queue and of the write under way.
    pending_writes: usize,
    pending_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// `/dev/null`.
    Never,
    Yes,
    /// The last write in the queue ends it.
    UntilQueued,
    No,
}

struct Operation {
    digest: [u8; 32],
    /// Absent while it is pending.
    outcome: Option<(StdinResult, u64)>,
}

/// One write on its way.
pub struct Write {
    key: String,
    bytes: Bytes,
    eof: bool,
}

/// What became of a request to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Queued now, or queued before and not decided yet.
    Pending {
        replayed: bool,
    },
    Decided(StdinAnswer),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
    #[error("this job was started without standard input")]
    NoStdin,
    #[error("this operation key was used with other bytes")]
    Conflict,
    #[error(
        "{} writes or {} bytes are pending: the command does not read",
        limits::MAX_STDIN_WRITES,
        limits::MAX_STDIN_BYTES
    )]
    Full,
    #[error("{} operation keys are remembered for this job", limits::MAX_STDIN_OPERATIONS)]
    TooManyOperations,
}

impl Stdin {
    pub fn new(piped: bool) -> Self {
        Self {
            open: if piped { Open::Yes } else { Open::Never },
            operations: HashMap::new(),
            queue: VecDeque::new(),
            pending_writes: 0,
            pending_bytes: 0,
        }
    }

    /// Takes a write into the queue, or finds what became of it before.
    pub fn submit(&mut self, key: &str, bytes: Bytes, eof: bool) -> Result<Accepted, NotAccepted> {
        let digest = digest(&bytes, eof);
        if let Some(known) = self.operations.get(key) {
            return match (known.digest == digest, known.outcome) {
                (false, _) => Err(NotAccepted::Conflict),
                (true, None) => Ok(Accepted::Pending { replayed: true }),
                (true, Some(outcome)) => Ok(Accepted::Decided(answer(outcome, true))),
            };
        }
        if self.open == Open::Never {
            return Err(NotAccepted::NoStdin);
        }
        if self.operations.len() >= limits::MAX_STDIN_OPERATIONS {
            return Err(NotAccepted::TooManyOperations);
        }
        if self.open != Open::Yes {
            let closed = (StdinResult::Closed, 0);
            self.operations.insert(key.to_owned(), Operation { digest, outcome: Some(closed) });
            return Ok(Accepted::Decided(answer(closed, false)));
        }
        let full = self.pending_writes >= limits::MAX_STDIN_WRITES
            || self.pending_bytes + bytes.len() > limits::MAX_STDIN_BYTES;
        if full {
            return Err(NotAccepted::Full);
        }
        self.pending_writes += 1;
        self.pending_bytes += bytes.len();
        self.operations.insert(key.to_owned(), Operation { digest, outcome: None });
        self.queue.push_back(Write { key: key.to_owned(), bytes, eof });
        if eof {
            self.open = Open::UntilQueued;
        }
        Ok(Accepted::Pending { replayed: false })
    }

    /// What became of a known operation, once it is decided.
    pub fn outcome(&self, key: &str, replayed: bool) -> Option<StdinAnswer> {
        self.operations.get(key)?.outcome.map(|outcome| answer(outcome, replayed))
    }

    fn take(&mut self) -> Option<Write> {
        self.queue.pop_front()
    }

    fn is_closed(&self) -> bool {
        matches!(self.open, Open::No | Open::Never)
    }

    /// A write is decided: so many of its bytes are in the pipe.
    fn decide(&mut self, write: &Write, length: usize, written: usize) {
        let result = match written {
            all if all == length => StdinResult::Written,
            0 => StdinResult::Closed,
            _ => StdinResult::Uncertain,
        };
        if let Some(operation) = self.operations.get_mut(&write.key) {
            operation.outcome = Some((result, written as u64));
        }
        self.pending_writes -= 1;
        self.pending_bytes -= length;
    }

    /// Nothing more goes in: what is queued is decided, what is under way is cut by the writer.
    pub fn close(&mut self) {
        if self.open == Open::Never {
            return;
        }
        self.open = Open::No;
        while let Some(write) = self.take() {
            let length = write.bytes.len();
            // An empty write has nothing that could be missing, but its end of input was not given.
            self.pending_writes -= 1;
            self.pending_bytes -= length;
            if let Some(operation) = self.operations.get_mut(&write.key) {
                operation.outcome = Some((StdinResult::Closed, 0));
            }
        }
    }
}

fn answer((result, bytes): (StdinResult, u64), replayed: bool) -> StdinAnswer {
    StdinAnswer { result, bytes, replayed }
}

fn digest(bytes: &[u8], eof: bool) -> [u8; 32] {
    Sha256::new().chain_update([u8::from(eof)]).chain_update(bytes).finalize().into()
}

/// Writes the queue into the pipe until the end of input or the end of the job. Owns the pipe.
pub async fn write(job: JobRef, pipe: pipe::Sender) {
    loop {
        job.until(|job| job.stdin.is_closed() || !job.stdin.queue.is_empty()).await;
        let Some(mut write) = job.change(|job| job.stdin.take()) else { return };
        let length = write.bytes.len();
        let mut broken = false;
        while !write.bytes.is_empty() && !broken {
            tokio::select! {
                biased;
                () = job.until(|job| job.stdin.is_closed()) => broken = true,
                ready = pipe.writable() => broken = ready.is_err(),
            }
            if !broken {
                match pipe.try_write(&write.bytes) {
                    Ok(count) => write.bytes.advance(count),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => broken = true,
                }
            }
        }
        let written = length - write.bytes.len();
        job.change(|job| {
            job.stdin.decide(&write, length, written);
            if broken || write.eof {
                job.stdin.close();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn submit(stdin: &mut Stdin, key: &str, text: &str) -> Result<Accepted, NotAccepted> {
        stdin.submit(key, Bytes::copy_from_slice(text.as_bytes()), false)
    }

    fn finish(stdin: &mut Stdin, written: usize) {
        let write = stdin.take().unwrap();
        let length = write.bytes.len();
        stdin.decide(&write, length, written);
    }

    #[test]
    fn the_same_key_and_bytes_have_one_answer_and_other_bytes_are_a_conflict() {
        let mut stdin = Stdin::new(true);
        assert_eq!(submit(&mut stdin, "k", "abc"), Ok(Accepted::Pending { replayed: false }));
        assert_eq!(submit(&mut stdin, "k", "abc"), Ok(Accepted::Pending { replayed: true }));
        assert_eq!(submit(&mut stdin, "k", "abd"), Err(NotAccepted::Conflict));
        assert_eq!(stdin.submit("k", Bytes::from("abc"), true), Err(NotAccepted::Conflict));
        finish(&mut stdin, 3);
        let answer = StdinAnswer { result: StdinResult::Written, bytes: 3, replayed: true };
        assert_eq!(submit(&mut stdin, "k", "abc"), Ok(Accepted::Decided(answer)));
        assert!(stdin.take().is_none());
    }

    #[test]
    fn a_partial_write_is_uncertain_for_ever() {
        let mut stdin = Stdin::new(true);
        submit(&mut stdin, "k", "abc").unwrap();
        finish(&mut stdin, 2);
        let answer = StdinAnswer { result: StdinResult::Uncertain, bytes: 2, replayed: true };
        assert_eq!(submit(&mut stdin, "k", "abc"), Ok(Accepted::Decided(answer)));
    }

    #[test]
    fn after_the_end_of_input_and_after_a_close_a_write_is_closed() {
        let mut stdin = Stdin::new(true);
        stdin.submit("end", Bytes::new(), true).unwrap();
        let closed = StdinAnswer { result: StdinResult::Closed, bytes: 0, replayed: false };
        assert_eq!(submit(&mut stdin, "late", "x"), Ok(Accepted::Decided(closed.clone())));
        let mut stdin = Stdin::new(true);
        submit(&mut stdin, "queued", "x").unwrap();
        stdin.close();
        assert_eq!(stdin.outcome("queued", false), Some(closed));
    }

    #[test]
    fn a_job_without_standard_input_takes_none() {
        assert_eq!(submit(&mut Stdin::new(false), "k", "x"), Err(NotAccepted::NoStdin));
    }

    #[test]
    fn pending_writes_and_bytes_are_bounded_each_at_its_edge() {
        let mut stdin = Stdin::new(true);
        for n in 0..limits::MAX_STDIN_WRITES {
            submit(&mut stdin, &n.to_string(), "x").unwrap();
        }
        assert_eq!(submit(&mut stdin, "one more", "x"), Err(NotAccepted::Full));
        finish(&mut stdin, 1);
        assert_eq!(submit(&mut stdin, "one more", "x"), Ok(Accepted::Pending { replayed: false }));

        let mut stdin = Stdin::new(true);
        submit(&mut stdin, "half", &"x".repeat(limits::MAX_STDIN_BYTES - 1)).unwrap();
        submit(&mut stdin, "whole", "x").unwrap();
        assert_eq!(submit(&mut stdin, "one more", "x"), Err(NotAccepted::Full));
    }

    #[test]
    fn operation_keys_are_bounded_at_their_edge() {
        let mut stdin = Stdin::new(true);
        for n in 0..limits::MAX_STDIN_OPERATIONS {
            submit(&mut stdin, &n.to_string(), "").unwrap();
            finish(&mut stdin, 0);
        }
        assert_eq!(submit(&mut stdin, "one more", ""), Err(NotAccepted::TooManyOperations));
        assert!(matches!(submit(&mut stdin, "0", ""), Ok(Accepted::Decided(_))));
    }

    proptest! {
        #[test]
        fn whatever_happens_an_answer_never_changes_and_nothing_is_written_twice(
            steps in prop::collection::vec((0u8..5, 0usize..4, 0u8..4), 0..60),
        ) {
            let mut stdin = Stdin::new(true);
            let mut answers: HashMap<u8, (StdinResult, u64)> = HashMap::new();
            let mut taken: HashMap<String, u32> = HashMap::new();
            for (key, amount, action) in steps {
                match action {
                    0 | 1 => { let _ = submit(&mut stdin, &key.to_string(), "abc"); }
                    2 => if let Some(write) = stdin.take() {
                        *taken.entry(write.key.clone()).or_default() += 1;
                        stdin.decide(&write, 3, amount.min(3));
                    },
                    _ if amount == 3 => stdin.close(),
                    _ => {}
                }
                for key in 0..5u8 {
                    if let Some(answer) = stdin.outcome(&key.to_string(), true) {
                        let now = (answer.result, answer.bytes);
                        prop_assert_eq!(*answers.entry(key).or_insert(now), now);
                    }
                }
                prop_assert!(taken.values().all(|times| *times == 1));
            }
        }
    }
}
