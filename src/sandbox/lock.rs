//! The fence lock: one fence at a time per sandbox, first come first served.
//!
//! Invariant: at most one [`Hold`] exists; dropping it, also by a panic, passes the lock to the one that waits
//! longest. The queue is bounded and every wait has a deadline; over either, the caller is told `busy` with facts. One
//! that gives up, by its deadline or because nobody awaits it any more, leaves the queue at that moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;
use ringfence_wire::refusal::FenceFacts;

use crate::clock;

/// How many callers may wait for the lock.
pub const MAX_WAITING: usize = 64;
/// When one that was told to come back may do so.
const RETRY_MS: u64 = 1_000;

/// Who waits, the longest waiting first.
struct Line<T> {
    waiting: VecDeque<(u64, T)>,
    /// The number of the next to come.
    coming: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), coming: 0 }
    }
}

impl<T> Line<T> {
    /// The number of the place taken; none if the line is full.
    fn join(&mut self, turn: T) -> Option<u64> {
        if self.waiting.len() >= MAX_WAITING {
            return None;
        }
        let place = self.coming;
        self.coming += 1;
        self.waiting.push_back((place, turn));
        Some(place)
    }

    /// Does nothing for one that has been served.
    fn leave(&mut self, place: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != place);
    }

    fn serve(&mut self) -> Option<T> {
        self.waiting.pop_front().map(|(_, turn)| turn)
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}

struct Inner {
    /// Since when it is held.
    held_since: Cell<Option<u64>>,
    line: RefCell<Line<oneshot::Sender<Hold>>>,
    limit_ms: u64,
}

#[derive(Clone)]
pub struct FenceLock(Rc<Inner>);

/// The right to open a fence, and to close a stale one.
pub struct Hold(Rc<Inner>);

/// A place in the line, left however the wait ends.
struct Place<'a> {
    line: &'a RefCell<Line<oneshot::Sender<Hold>>>,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.borrow_mut().leave(self.number);
    }
}

impl FenceLock {
    /// `limit_ms`: how long one may wait for it.
    pub fn new(limit_ms: u64) -> Self {
        Self(Rc::new(Inner { held_since: Cell::new(None), line: RefCell::default(), limit_ms }))
    }

    pub fn is_held(&self) -> bool {
        self.0.held_since.get().is_some()
    }

    pub async fn acquire(&self) -> Result<Hold, FenceFacts> {
        let since = clock::now_ms();
        if !self.is_held() {
            self.0.held_since.set(Some(since));
            return Ok(Hold(Rc::clone(&self.0)));
        }
        let (turn, wait) = oneshot::channel();
        let joined = self.0.line.borrow_mut().join(turn);
        let Some(number) = joined else { return Err(self.busy(since)) };
        let place = Place { line: &self.0.line, number };
        let turn = clock::within(self.0.limit_ms, wait).await;
        drop(place);
        match turn {
            Ok(Ok(hold)) => Ok(hold),
            Ok(Err(_)) | Err(_) => Err(self.busy(since)),
        }
    }

    fn busy(&self, since: u64) -> FenceFacts {
        let now = clock::now_ms();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        FenceFacts {
            waiting: count(self.0.line.borrow().len()),
            most_waiting: count(MAX_WAITING),
            held_for_ms: now.saturating_sub(self.0.held_since.get().unwrap_or(now)),
            waited_ms: now.saturating_sub(since),
            limit_ms: self.0.limit_ms,
            retry_after_ms: RETRY_MS,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let next = self.0.line.borrow_mut().serve();
        match next {
            Some(turn) => {
                self.0.held_since.set(Some(clock::now_ms()));
                // One may give up in the moment it is served: then the send fails, or what was sent is dropped with its
                // channel, and either way the hold passes the lock on as it drops.
                drop(turn.send(Self(Rc::clone(&self.0))));
            }
            None => self.0.held_since.set(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waiting_is_served_first() {
        let mut line = Line::default();
        for n in 0..3 {
            line.join(n);
        }
        assert_eq!(
            [line.serve(), line.serve(), line.serve(), line.serve()],
            [Some(0), Some(1), Some(2), None]
        );
    }

    #[test]
    fn a_full_line_takes_one_more_only_when_one_has_left_it() {
        let mut line = Line::default();
        let places: Vec<u64> = (0..MAX_WAITING).map(|n| line.join(n).unwrap()).collect();
        assert_eq!(line.join(MAX_WAITING), None);
        // One in the middle gives up.
        line.leave(places[7]);
        assert_eq!(line.len(), MAX_WAITING - 1);
        assert!(line.join(MAX_WAITING).is_some());
        assert_eq!(line.join(MAX_WAITING + 1), None);
        let served: Vec<usize> = std::iter::from_fn(|| line.serve()).collect();
        assert_eq!(served, (0..=MAX_WAITING).filter(|n| *n != 7).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_was_served_takes_nobody_with_it_when_it_leaves() {
        let mut line = Line::default();
        let first = line.join("first").unwrap();
        line.join("second");
        line.serve();
        line.leave(first);
        assert_eq!(line.serve(), Some("second"));
    }
}
