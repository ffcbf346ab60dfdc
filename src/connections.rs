//! Test builds only (feature `test-origins`): the platform lets an object have six outgoing calls at a time and makes
//! the seventh wait; local development does not. Here every call of an object to its container takes one of six
//! permits, so that a test shows what waits and what does not.
//!
//! Invariant: a permit is given back as it drops, to whoever waits longest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;

const AT_ONCE: usize = 6;

#[derive(Clone, Debug, Default)]
pub struct Connections(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Cell<usize>,
    queue: RefCell<VecDeque<oneshot::Sender<Permit>>>,
}

#[derive(Debug)]
pub struct Permit(Rc<Inner>);

impl Connections {
    pub async fn permit(&self) -> Permit {
        if self.0.taken.get() < AT_ONCE {
            self.0.taken.set(self.0.taken.get() + 1);
            return Permit(Rc::clone(&self.0));
        }
        let (turn, wait) = oneshot::channel();
        self.0.queue.borrow_mut().push_back(turn);
        match wait.await {
            Ok(permit) => permit,
            // The queue goes only with the object.
            Err(oneshot::Canceled) => std::future::pending().await,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = self.0.queue.borrow_mut().pop_front();
        match next {
            // To one that gave up the send fails, and the permit that comes back passes on as it drops.
            Some(turn) => drop(turn.send(Self(Rc::clone(&self.0)))),
            None => self.0.taken.set(self.0.taken.get().saturating_sub(1)),
        }
    }
}
