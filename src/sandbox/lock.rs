//! The fence lock: one fence at a time per sandbox, first come first served.
//!
//! Invariant: at most one [`Hold`] exists; dropping it, also by a panic, passes the lock to the one that waits
//! longest. The queue is bounded and every wait has a deadline; over either, the caller is told `busy` with facts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;

use crate::clock;

/// How many callers may wait for the lock.
pub const MAX_WAITING: usize = 64;
/// How long one may wait.
pub const WAIT_DEADLINE_MS: u64 = 60_000;

/// Why the lock was not had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    pub waiting: usize,
    pub held_for_ms: u64,
    pub waited_ms: u64,
}

#[derive(Default)]
struct Inner {
    /// Since when it is held.
    held_since: Cell<Option<u64>>,
    queue: RefCell<VecDeque<oneshot::Sender<Hold>>>,
}

#[derive(Clone, Default)]
pub struct FenceLock(Rc<Inner>);

/// The right to open a fence, and to close a stale one.
pub struct Hold(Rc<Inner>);

impl FenceLock {
    pub fn is_held(&self) -> bool {
        self.0.held_since.get().is_some()
    }

    pub async fn acquire(&self) -> Result<Hold, Busy> {
        let since = clock::now_ms();
        if self.0.held_since.get().is_none() {
            self.0.held_since.set(Some(since));
            return Ok(Hold(Rc::clone(&self.0)));
        }
        if self.0.queue.borrow().len() >= MAX_WAITING {
            return Err(self.busy(since));
        }
        let (turn, wait) = oneshot::channel();
        self.0.queue.borrow_mut().push_back(turn);
        match clock::within(WAIT_DEADLINE_MS, wait).await {
            Ok(Ok(hold)) => Ok(hold),
            // Given up: the next to be served finds this place empty and is passed over.
            Ok(Err(_)) | Err(_) => Err(self.busy(since)),
        }
    }

    fn busy(&self, since: u64) -> Busy {
        let now = clock::now_ms();
        Busy {
            waiting: self.0.queue.borrow().iter().filter(|turn| !turn.is_canceled()).count(),
            held_for_ms: now.saturating_sub(self.0.held_since.get().unwrap_or(now)),
            waited_ms: now.saturating_sub(since),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let next = self.0.queue.borrow_mut().pop_front();
        match next {
            Some(turn) => {
                self.0.held_since.set(Some(clock::now_ms()));
                // To one that gave up the send fails, and the hold that comes back passes the lock on as it drops.
                drop(turn.send(Self(Rc::clone(&self.0))));
            }
            None => self.0.held_since.set(None),
        }
    }
}
