//! The last bytes of a job's output, addressed by cursor.
//!
//! Invariants: the ring never costs more than its capacity, its own bookkeeping included, so that a byte at a time
//! on alternating streams costs no more than a flood; `base` and every page's `next` lie between characters; reading
//! pages from `base` by their `next` gives every held byte once, in order of arrival.

use base64::Engine;
use ringfence_wire::ids::Cursor;
use ringfence_wire::supervisor::{FrameEncoding, OutputFrame, OutputStream, Tail};
use std::collections::VecDeque;

pub struct Ring {
    capacity: usize,
    base: u64,
    held: usize,
    /// In order; each ends between characters.
    runs: VecDeque<Run>,
}

/// What one reading took from the ring; the job adds whose it is and whether more will come.
pub struct Page {
    pub base: Cursor,
    pub next: Cursor,
    pub end: Cursor,
    pub dropped: u64,
    pub frames: Vec<OutputFrame>,
}

/// Consecutive bytes of one stream.
struct Run {
    stream: OutputStream,
    /// The cursor of the first held byte.
    at: u64,
    bytes: Vec<u8>,
    /// How many of `bytes` are given up already.
    gone: usize,
}

impl Run {
    /// A run's memory is given back as a whole: small enough that little is held for nothing.
    const BYTES: usize = 32 * 1024;
    /// What a run costs besides its bytes.
    const COST: usize = 64;

    fn held(&self) -> &[u8] {
        self.bytes.get(self.gone..).unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.at + self.held().len() as u64
    }

    fn room(&self) -> usize {
        Self::BYTES.saturating_sub(self.bytes.len())
    }

    /// Grows by doubling, but never past [`Self::BYTES`].
    fn append(&mut self, bytes: &[u8]) {
        let needed = self.bytes.len() + bytes.len();
        if needed > self.bytes.capacity() {
            let wanted = (self.bytes.capacity() * 2).clamp(needed, Self::BYTES.max(needed));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }
}

impl Ring {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, base: 0, held: 0, runs: VecDeque::new() }
    }

    pub fn base(&self) -> Cursor {
        Cursor(self.base)
    }

    pub fn end(&self) -> Cursor {
        Cursor(self.base + self.held as u64)
    }

    /// What the ring costs.
    pub fn cost(&self) -> usize {
        self.held + self.runs.len() * Run::COST
    }

    pub fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        // What alone exceeds the ring passes through it piece by piece.
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = match self.runs.back() {
                Some(run) if run.stream == stream && run.room() >= 4 => run.room(),
                _ => {
                    let at = self.end().0;
                    self.runs.push_back(Run { stream, at, bytes: Vec::new(), gone: 0 });
                    Run::BYTES
                }
            };
            let (piece, later) = rest.split_at(whole_characters(rest, room.min(self.capacity.max(4))));
            if let Some(run) = self.runs.back_mut() {
                run.append(piece);
            }
            self.held += piece.len();
            rest = later;
            self.shrink_to(self.capacity);
        }
    }

    /// Gives up the oldest bytes until the ring costs at most this.
    pub fn shrink_to(&mut self, cost: usize) {
        while self.cost() > cost {
            let excess = self.cost() - cost;
            let Some(run) = self.runs.front_mut() else { return };
            let held = run.held();
            // The rest of a character whose beginning goes is given up with it.
            let rest = held.iter().skip(excess).take(3).take_while(|byte| is_continuation(**byte)).count();
            let going = (excess + rest).min(held.len());
            if going == held.len() {
                self.runs.pop_front();
            } else {
                run.gone += going;
                run.at += going as u64;
            }
            self.held -= going;
            self.base += going as u64;
        }
    }

    /// At most `limit` bytes from `cursor` on.
    pub fn page(&self, cursor: Cursor, limit: u64) -> Page {
        let start = cursor.0.clamp(self.base, self.end().0);
        let mut pieces: Vec<(OutputStream, u64, Vec<u8>)> = Vec::new();
        let mut next = start;
        let mut room = usize::try_from(limit).unwrap_or(usize::MAX);
        let first = self.runs.partition_point(|run| run.end() <= start);
        for run in self.runs.range(first..) {
            let available = usize::try_from(next - run.at)
                .ok()
                .and_then(|skip| run.held().get(skip..))
                .unwrap_or_default();
            let taken = available.get(..whole_characters(available, room)).unwrap_or_default();
            match pieces.last_mut() {
                Some((stream, _, bytes)) if *stream == run.stream => bytes.extend_from_slice(taken),
                _ if !taken.is_empty() => {
                    let mut bytes = Vec::with_capacity(room.min(self.held));
                    bytes.extend_from_slice(taken);
                    pieces.push((run.stream, next, bytes));
                }
                _ => {}
            }
            next += taken.len() as u64;
            room -= taken.len();
            if taken.len() < available.len() || room == 0 {
                break;
            }
        }
        Page {
            base: self.base(),
            next: Cursor(next),
            end: self.end(),
            dropped: self.base.saturating_sub(cursor.0),
            frames: pieces.into_iter().map(|(stream, at, bytes)| frame(stream, at, bytes)).collect(),
        }
    }

    /// The last `limit` bytes, as text.
    pub fn tail(&self, limit: u64) -> Tail {
        let end = self.end().0;
        let from = end.saturating_sub(limit).max(self.base);
        let mut bytes = Vec::with_capacity((end - from) as usize);
        for run in self.runs.range(self.runs.partition_point(|run| run.end() <= from)..) {
            let skip = usize::try_from(from.saturating_sub(run.at)).unwrap_or(usize::MAX);
            bytes.extend_from_slice(run.held().get(skip..).unwrap_or_default());
        }
        let broken = bytes.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        let begins_inside = from > self.base && broken < bytes.len();
        let whole = bytes.get(if begins_inside { broken } else { 0 }..).unwrap_or_default();
        let mut text = String::from_utf8_lossy(whole).into_owned();
        // A replacement character is longer than the byte it stands for.
        let mut cut = text.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        let shortened = cut > 0;
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.drain(..cut);
        Tail { truncated: from > 0 || shortened, text }
    }
}

/// The longest length up to `limit` that does not end inside a character of at most four bytes; where it is no text
/// at all, `limit`.
fn whole_characters(bytes: &[u8], limit: usize) -> usize {
    if bytes.len() <= limit {
        return bytes.len();
    }
    let inside = |at: &usize| bytes.get(*at).is_some_and(|byte| is_continuation(*byte));
    let begins = (limit.saturating_sub(3)..=limit).rev().find(|at| !inside(at));
    begins.filter(|at| *at > 0 || limit < 4).unwrap_or(limit)
}

fn frame(stream: OutputStream, at: u64, bytes: Vec<u8>) -> OutputFrame {
    let (encoding, data) = encode(bytes);
    OutputFrame { stream, at: Cursor(at), encoding, data }
}

/// As text where it is text.
pub fn encode(bytes: Vec<u8>) -> (FrameEncoding, String) {
    match String::from_utf8(bytes) {
        Ok(text) => (FrameEncoding::Utf8, text),
        Err(not_text) => {
            let bytes = not_text.as_bytes();
            (FrameEncoding::Base64, base64::engine::general_purpose::STANDARD.encode(bytes))
        }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};
    use proptest::prelude::*;

    fn bytes_of(page: &Page) -> Vec<u8> {
        let decode = |frame: &OutputFrame| match frame.encoding {
            FrameEncoding::Utf8 => frame.data.clone().into_bytes(),
            FrameEncoding::Base64 => base64::engine::general_purpose::STANDARD.decode(&frame.data).unwrap(),
        };
        page.frames.iter().flat_map(decode).collect()
    }

    #[test]
    fn a_reader_that_fell_behind_is_told_how_much_it_missed() {
        let mut ring = Ring::new(8 + Run::COST);
        ring.push(Stdout, b"0123456789ab");
        let page = ring.page(Cursor(1), 64);
        assert_eq!((page.base, page.dropped, page.next, page.end), (Cursor(4), 3, Cursor(12), Cursor(12)));
        assert_eq!(bytes_of(&page), b"456789ab");
    }

    #[test]
    fn a_ring_at_its_capacity_drops_nothing_and_one_byte_more_drops_one() {
        let mut ring = Ring::new(4 + Run::COST);
        ring.push(Stdout, b"abcd");
        assert_eq!(ring.base(), Cursor(0));
        ring.push(Stdout, b"e");
        assert_eq!((ring.base(), bytes_of(&ring.page(Cursor(0), 64))), (Cursor(1), b"bcde".to_vec()));
    }

    #[test]
    fn a_byte_at_a_time_on_alternating_streams_costs_no_more_than_the_capacity() {
        let mut ring = Ring::new(10 * (1 + Run::COST));
        for _ in 0..100 {
            ring.push(Stdout, b"o");
            ring.push(Stderr, b"e");
        }
        assert_eq!((ring.cost(), ring.base()), (10 * (1 + Run::COST), Cursor(190)));
    }

    #[test]
    fn a_page_reads_over_runs_and_a_run_never_ends_inside_a_character() {
        let mut ring = Ring::new(1 << 20);
        let text = format!("a{}", "€".repeat(40_000));
        ring.push(Stdout, text.as_bytes());
        assert!(ring.runs.len() > 2);
        let page = ring.page(Cursor(0), 65_536);
        assert_eq!((page.frames.len(), page.frames[0].encoding), (1, FrameEncoding::Utf8));
        assert!(page.next.0 > 65_532);
        let rest = ring.page(page.next, 65_536);
        assert_eq!(format!("{}{}", page.frames[0].data, rest.frames[0].data), text);
    }

    #[test]
    fn a_cursor_past_the_end_reads_nothing_and_comes_back_to_the_end() {
        let mut ring = Ring::new(100);
        ring.push(Stdout, b"ab");
        assert_eq!(ring.page(Cursor(99), 64).next, Cursor(2));
    }

    #[test]
    fn the_smallest_page_moves_on_over_any_character() {
        let mut ring = Ring::new(1_000);
        ring.push(Stdout, "𝄞é€a".as_bytes());
        let mut cursor = Cursor(0);
        let mut sizes = Vec::new();
        while cursor < ring.end() {
            let page = ring.page(cursor, 4);
            sizes.push(page.next.0 - cursor.0);
            cursor = page.next;
        }
        assert_eq!(sizes, [4, 2, 4]);
    }

    #[test]
    fn a_tail_is_clamped_on_bytes_and_begins_with_a_whole_character() {
        let mut ring = Ring::new(1_000);
        ring.push(Stdout, "aé€".as_bytes());
        assert_eq!(ring.tail(4), Tail { text: "€".into(), truncated: true });
        assert_eq!(ring.tail(6), Tail { text: "aé€".into(), truncated: false });
        let mut ring = Ring::new(1_000);
        ring.push(Stdout, &[0xff; 10]);
        assert!(ring.tail(7).text.len() <= 7);
    }

    proptest! {
        #[test]
        fn paging_gives_every_held_byte_once_in_order_and_never_overfills(
            chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..30)), 0..30),
            capacity in 70usize..300, limit in 4u64..32,
        ) {
            let mut ring = Ring::new(capacity);
            let mut all = Vec::new();
            for (err, bytes) in &chunks {
                ring.push(if *err { Stderr } else { Stdout }, bytes);
                all.extend_from_slice(bytes);
                prop_assert!(ring.cost() <= capacity);
                prop_assert_eq!(ring.end().0, all.len() as u64);
            }
            let mut cursor = ring.base();
            let mut read = Vec::new();
            while cursor < ring.end() {
                let page = ring.page(cursor, limit);
                prop_assert!(page.next > cursor);
                prop_assert!(bytes_of(&page).len() as u64 <= limit);
                prop_assert_eq!(page.frames.first().map(|f| f.at), Some(cursor));
                read.extend(bytes_of(&page));
                cursor = page.next;
            }
            prop_assert_eq!(&read[..], &all[ring.base().0 as usize..]);
            ring.shrink_to(3 + Run::COST);
            prop_assert!(ring.cost() <= 3 + Run::COST);
            prop_assert_eq!(ring.end().0, all.len() as u64);
        }

        #[test]
        fn each_byte_keeps_its_stream(chunks in prop::collection::vec((any::<bool>(), "[a-z]{1,9}"), 0..30)) {
            let mut ring = Ring::new(10_000);
            let mut want: [String; 2] = Default::default();
            for (err, text) in &chunks {
                ring.push(if *err { Stderr } else { Stdout }, text.as_bytes());
                want[usize::from(*err)].push_str(text);
            }
            let mut got: [String; 2] = Default::default();
            for frame in ring.page(Cursor(0), 10_000).frames {
                got[usize::from(frame.stream == Stderr)].push_str(&frame.data);
            }
            prop_assert_eq!(got, want);
        }
    }
}
