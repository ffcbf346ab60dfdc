//! A job's output: what its two streams said, in order of arrival, under one cursor.
//!
//! Invariants: a character whose bytes arrive in two reads enters the ring whole (its first bytes wait for the
//! rest), so no page splits one; each stream's byte count and SHA-256 cover every byte that was read, whatever the
//! ring dropped or the log refused.

pub mod log;
pub mod ring;

use log::Log;
use ring::Ring;
use ringfence_wire::supervisor::{OutputStream, StreamDigest};
use sha2::{Digest, Sha256};

pub struct Output {
    pub ring: Ring,
    log: Option<Log>,
    stdout: Stream,
    stderr: Stream,
}

#[derive(Default)]
struct Stream {
    digest: Sha256,
    bytes: u64,
    /// The first bytes of a character whose rest has not arrived.
    waiting: Vec<u8>,
    complete: bool,
    /// It did not end by itself.
    cut: bool,
}

impl Output {
    pub fn new(capacity: usize, log: Option<Log>) -> Self {
        Self { ring: Ring::new(capacity), log, stdout: Stream::default(), stderr: Stream::default() }
    }

    fn stream(&mut self, of: OutputStream) -> &mut Stream {
        match of {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Takes what one read of a stream gave.
    pub fn push(&mut self, of: OutputStream, bytes: &[u8]) {
        if let Some(log) = &mut self.log {
            log.append(bytes);
        }
        let stream = self.stream(of);
        stream.digest.update(bytes);
        stream.bytes += bytes.len() as u64;
        if stream.waiting.is_empty() {
            let (whole, rest) = bytes.split_at(bytes.len() - unfinished_tail(bytes));
            stream.waiting.extend_from_slice(rest);
            self.ring.push(of, whole);
        } else {
            let mut joined = std::mem::take(&mut stream.waiting);
            joined.extend_from_slice(bytes);
            let rest = joined.split_off(joined.len() - unfinished_tail(&joined));
            stream.waiting = rest;
            self.ring.push(of, &joined);
        }
    }

    /// The stream is complete: nothing more will be read from it. `cut`: somebody may still hold its other end.
    pub fn close(&mut self, of: OutputStream, cut: bool) {
        let stream = self.stream(of);
        stream.complete = true;
        stream.cut = cut;
        let rest = std::mem::take(&mut stream.waiting);
        self.ring.push(of, &rest);
        if self.is_complete() {
            self.log = self.log.take().map(Log::closed);
        }
    }

    pub fn is_complete(&self) -> bool {
        self.stdout.complete && self.stderr.complete
    }

    /// A stream was cut before its end.
    pub fn was_cut(&self) -> bool {
        self.stdout.cut || self.stderr.cut
    }

    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    pub fn log_truncated(&self) -> bool {
        self.log.as_ref().is_some_and(Log::is_truncated)
    }

    pub fn digest(&self, of: OutputStream) -> StreamDigest {
        let stream = match of {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        };
        StreamDigest { bytes: stream.bytes, sha256: hex::encode(stream.digest.clone().finalize()) }
    }
}

/// How many bytes at the end begin a character that is not finished.
pub fn unfinished_tail(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|length| {
            let tail = bytes.get(bytes.len() - length..).unwrap_or_default();
            matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringfence_wire::ids::Cursor;
    use ringfence_wire::supervisor::FrameEncoding;

    #[test]
    fn an_unfinished_character_is_recognised_at_every_length() {
        for (bytes, tail) in [
            (b"abc".as_slice(), 0),
            ("é".as_bytes(), 0),
            (&"é".as_bytes()[..1], 1),
            (&"€".as_bytes()[..2], 2),
            (&"𝄞".as_bytes()[..3], 3),
            (&[0xff], 0),
            (&[0x80], 0),
            (&[], 0),
        ] {
            assert_eq!(unfinished_tail(bytes), tail, "{bytes:?}");
        }
    }

    fn chunks() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
        let text = prop_oneof![
            "[a-zé€𝄞]{0,20}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..12),
        ];
        prop::collection::vec((any::<bool>(), text), 0..20)
    }

    proptest! {
        #[test]
        fn text_cut_anywhere_by_the_pipe_and_by_pages_comes_out_as_whole_characters(
            text in "[a-zé€𝄞]{0,60}", cuts in prop::collection::vec(1usize..7, 0..60), limit in 4u64..40,
        ) {
            let mut output = Output::new(100_000, None);
            let (mut rest, mut noise) = (text.as_bytes(), 0);
            for cut in cuts.iter().chain(std::iter::repeat(&3)) {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                output.push(OutputStream::Stdout, now);
                output.push(OutputStream::Stderr, b"!");
                noise += 1;
                rest = later;
            }
            output.close(OutputStream::Stdout, false);
            output.close(OutputStream::Stderr, false);
            let (mut cursor, mut said, mut marks) = (Cursor(0), String::new(), 0);
            loop {
                let page = output.ring.page(cursor, limit);
                prop_assert!(page.frames.iter().map(|f| f.data.len() as u64).sum::<u64>() <= limit);
                for frame in page.frames {
                    prop_assert_eq!(frame.encoding, FrameEncoding::Utf8);
                    match frame.stream {
                        OutputStream::Stdout => said.push_str(&frame.data),
                        OutputStream::Stderr => marks += frame.data.len(),
                    }
                }
                if page.next == cursor { break; }
                cursor = page.next;
            }
            prop_assert_eq!(said, text);
            prop_assert_eq!(marks, noise);
        }

        #[test]
        fn digests_and_counts_cover_every_byte_whatever_the_ring_dropped(chunks in chunks()) {
            let mut output = Output::new(16, None);
            let mut whole: [Vec<u8>; 2] = Default::default();
            for (err, bytes) in &chunks {
                let of = if *err { OutputStream::Stderr } else { OutputStream::Stdout };
                output.push(of, bytes);
                whole[usize::from(*err)].extend_from_slice(bytes);
            }
            output.close(OutputStream::Stdout, false);
            output.close(OutputStream::Stderr, false);
            for (of, bytes) in [(OutputStream::Stdout, &whole[0]), (OutputStream::Stderr, &whole[1])] {
                prop_assert_eq!(output.digest(of), StreamDigest {
                    bytes: bytes.len() as u64,
                    sha256: hex::encode(Sha256::digest(bytes)),
                });
            }
            prop_assert_eq!(output.ring.end(), Cursor((whole[0].len() + whole[1].len()) as u64));
        }
    }
}
