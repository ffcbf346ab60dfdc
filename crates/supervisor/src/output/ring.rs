//! The last bytes of a job's output, addressed by cursor.
//!
//! Invariants: the ring never holds more than its capacity; `base` and every page's `next` lie between characters;
//! reading pages from `base` by their `next` gives every held byte once, in order of arrival.

use base64::Engine;
use ringfence_wire::ids::Cursor;
use ringfence_wire::supervisor::{FrameEncoding, OutputFrame, OutputPage, OutputStream, Tail};
use std::collections::VecDeque;

/// Where a shrunken ring's memory begins to matter.
const KEPT_ALLOCATION: usize = 4 * 1024;

pub struct Ring {
    capacity: usize,
    base: u64,
    bytes: VecDeque<u8>,
    /// Runs of one stream, in order; together exactly `bytes`.
    runs: VecDeque<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    stream: OutputStream,
    at: u64,
    length: usize,
}

impl Ring {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, base: 0, bytes: VecDeque::new(), runs: VecDeque::new() }
    }

    pub fn base(&self) -> Cursor {
        Cursor(self.base)
    }

    pub fn end(&self) -> Cursor {
        Cursor(self.base + self.bytes.len() as u64)
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let at = self.end().0;
        // What alone exceeds the ring is shortened to what fits; the rest is counted as dropped.
        let skipped = bytes.len().saturating_sub(self.capacity);
        if skipped > 0 {
            self.bytes.clear();
            self.runs.clear();
            self.base = at + skipped as u64;
        } else {
            self.make_room(bytes.len());
        }
        let kept = bytes.get(skipped..).unwrap_or_default();
        self.reserve(kept.len());
        self.bytes.extend(kept);
        match self.runs.back_mut() {
            Some(run) if run.stream == stream => run.length += kept.len(),
            _ => self.runs.push_back(Run { stream, at: at + skipped as u64, length: kept.len() }),
        }
        if skipped > 0 {
            self.drop_to_boundary();
        }
    }

    /// Grows by doubling, but never past the capacity.
    fn reserve(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let wanted = (self.bytes.capacity() * 2).clamp(needed, self.capacity.max(needed));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    fn make_room(&mut self, more: usize) {
        let excess = (self.bytes.len() + more).saturating_sub(self.capacity);
        self.drop_front(excess);
    }

    /// Gives up the oldest bytes until at most `keep` are held.
    pub fn shrink_to(&mut self, keep: usize) {
        self.drop_front(self.bytes.len().saturating_sub(keep));
        self.bytes.shrink_to(keep.max(KEPT_ALLOCATION));
        self.runs.shrink_to_fit();
    }

    fn drop_front(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.advance(count);
        self.drop_to_boundary();
    }

    /// Drops what is left of a character whose beginning was dropped.
    fn drop_to_boundary(&mut self) {
        let in_run = self.runs.front().map_or(0, |run| run.length);
        let rest = self.bytes.iter().take(in_run.min(3)).take_while(|byte| is_continuation(**byte)).count();
        self.advance(rest);
    }

    fn advance(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        self.base += count as u64;
        let mut left = count;
        while left > 0
            && let Some(run) = self.runs.front_mut()
        {
            let cut = left.min(run.length);
            run.length -= cut;
            run.at += cut as u64;
            left -= cut;
            if run.length == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// At most `limit` bytes from `cursor` on.
    pub fn page(&self, cursor: Cursor, limit: u64) -> OutputPage {
        let end = self.end().0;
        let start = cursor.0.clamp(self.base, end);
        let mut frames = Vec::new();
        let mut next = start;
        let mut room = usize::try_from(limit).unwrap_or(usize::MAX);
        let first = self.runs.partition_point(|run| run.at + run.length as u64 <= start);
        for run in self.runs.range(first..) {
            let run_end = run.at + run.length as u64;
            let available = usize::try_from(run_end - next).unwrap_or(usize::MAX);
            let mut length = available.min(room);
            if length < available {
                length = self.cut_between_characters(next, length);
            }
            if length == 0 {
                break;
            }
            frames.push(self.frame(run.stream, next, length));
            next += length as u64;
            room -= length;
            if length < available {
                break;
            }
        }
        OutputPage {
            base: self.base(),
            next: Cursor(next),
            end: Cursor(end),
            dropped: self.base.saturating_sub(cursor.0),
            eof: false,
            frames,
        }
    }

    /// The last `limit` bytes, as text.
    pub fn tail(&self, limit: u64) -> Tail {
        let end = self.end().0;
        let mut from = end.saturating_sub(limit).max(self.base);
        while from < end && from > self.base && self.byte(from).is_some_and(is_continuation) {
            from += 1;
        }
        let mut text = String::from_utf8_lossy(&self.copy(from, (end - from) as usize)).into_owned();
        // A replacement character is longer than the byte it stands for.
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if text.len() > limit {
            let mut cut = text.len() - limit;
            while !text.is_char_boundary(cut) {
                cut += 1;
            }
            text.drain(..cut);
        }
        Tail { truncated: from > 0 || text.len() < (end - from) as usize, text }
    }

    /// The longest length up to `length` that does not end inside a character, or `length` where no character of
    /// at most four bytes explains what is there.
    fn cut_between_characters(&self, at: u64, length: usize) -> usize {
        let mut cut = length;
        while cut > 0 && length - cut < 4 {
            if !self.byte(at + cut as u64).is_some_and(is_continuation) {
                return cut;
            }
            cut -= 1;
        }
        if length < 4 { cut } else { length }
    }

    fn byte(&self, at: u64) -> Option<u8> {
        self.bytes.get(usize::try_from(at.checked_sub(self.base)?).ok()?).copied()
    }

    fn copy(&self, at: u64, length: usize) -> Vec<u8> {
        let from = (at - self.base) as usize;
        let (front, back) = self.bytes.as_slices();
        let mut copied = Vec::with_capacity(length);
        if from < front.len() {
            let here = front.get(from..(from + length).min(front.len())).unwrap_or_default();
            copied.extend_from_slice(here);
        }
        let left = length - copied.len();
        let skip = (from + copied.len()).saturating_sub(front.len());
        copied.extend_from_slice(back.get(skip..skip + left).unwrap_or_default());
        copied
    }

    fn frame(&self, stream: OutputStream, at: u64, length: usize) -> OutputFrame {
        let (encoding, data) = match String::from_utf8(self.copy(at, length)) {
            Ok(text) => (FrameEncoding::Utf8, text),
            Err(not_text) => {
                (FrameEncoding::Base64, base64::engine::general_purpose::STANDARD.encode(not_text.as_bytes()))
            }
        };
        OutputFrame { stream, at: Cursor(at), encoding, data }
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

    fn bytes_of(page: &OutputPage) -> Vec<u8> {
        let decode = |frame: &OutputFrame| match frame.encoding {
            FrameEncoding::Utf8 => frame.data.clone().into_bytes(),
            FrameEncoding::Base64 => base64::engine::general_purpose::STANDARD.decode(&frame.data).unwrap(),
        };
        page.frames.iter().flat_map(decode).collect()
    }

    #[test]
    fn a_reader_that_fell_behind_is_told_how_much_it_missed() {
        let mut ring = Ring::new(8);
        ring.push(Stdout, b"0123456789ab");
        let page = ring.page(Cursor(1), 64);
        assert_eq!((page.base, page.dropped, page.next, page.end), (Cursor(4), 3, Cursor(12), Cursor(12)));
        assert_eq!(bytes_of(&page), b"456789ab");
    }

    #[test]
    fn a_ring_at_its_capacity_drops_nothing_and_one_byte_more_drops_one() {
        let mut ring = Ring::new(4);
        ring.push(Stdout, b"abcd");
        assert_eq!(ring.base(), Cursor(0));
        ring.push(Stderr, b"e");
        assert_eq!((ring.base(), bytes_of(&ring.page(Cursor(0), 64))), (Cursor(1), b"bcde".to_vec()));
    }

    #[test]
    fn a_cursor_past_the_end_reads_nothing_and_comes_back_to_the_end() {
        let mut ring = Ring::new(8);
        ring.push(Stdout, b"ab");
        assert_eq!(ring.page(Cursor(99), 64).next, Cursor(2));
    }

    #[test]
    fn the_smallest_page_moves_on_over_any_character() {
        let mut ring = Ring::new(64);
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
        let mut ring = Ring::new(64);
        ring.push(Stdout, "aé€".as_bytes());
        assert_eq!(ring.tail(4), Tail { text: "€".into(), truncated: true });
        assert_eq!(ring.tail(6), Tail { text: "aé€".into(), truncated: false });
        let mut ring = Ring::new(64);
        ring.push(Stdout, &[0xff; 10]);
        assert!(ring.tail(7).text.len() <= 7);
    }

    proptest! {
        #[test]
        fn paging_gives_every_held_byte_once_in_order_and_never_overfills(
            chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..30)), 0..30),
            capacity in 1usize..80, limit in 4u64..32,
        ) {
            let mut ring = Ring::new(capacity);
            let mut all = Vec::new();
            for (err, bytes) in &chunks {
                ring.push(if *err { Stderr } else { Stdout }, bytes);
                all.extend_from_slice(bytes);
                prop_assert!(ring.len() <= capacity);
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
            ring.shrink_to(3);
            prop_assert!(ring.len() <= 3);
            prop_assert_eq!(ring.end().0, all.len() as u64);
        }

        #[test]
        fn each_byte_keeps_its_stream(chunks in prop::collection::vec((any::<bool>(), "[a-z]{1,9}"), 0..30)) {
            let mut ring = Ring::new(1_000);
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
