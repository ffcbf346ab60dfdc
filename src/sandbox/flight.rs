//! Calls in flight, so that a second call for the same thing joins the first instead of doing it twice.
//!
//! Invariant: at most one piece of work runs under a name, and its name is free again when it ended, however it
//! ended. Storage is asked before and written by the work itself: a flight is only how its result is shared.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::rc::Rc;

use futures::future::{FutureExt, LocalBoxFuture, Shared};

pub type Flight<T> = Shared<LocalBoxFuture<'static, T>>;
type Table<K, T> = Rc<RefCell<HashMap<K, Flight<T>>>>;

pub struct Flights<K, T: Clone>(Table<K, T>);

impl<K: Clone + Eq + Hash + 'static, T: Clone + 'static> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<K: Clone + Eq + Hash + 'static, T: Clone + 'static> Flights<K, T> {
    pub fn get(&self, name: &K) -> Option<Flight<T>> {
        self.0.borrow().get(name).cloned()
    }

    /// Starts work under a name that is free.
    pub fn launch(&self, name: K, work: impl Future<Output = T> + 'static) -> Flight<T> {
        let landing = Landing { table: Rc::clone(&self.0), name: name.clone() };
        let flight = async move {
            let _landing = landing;
            work.await
        }
        .boxed_local()
        .shared();
        self.0.borrow_mut().insert(name, flight.clone());
        flight
    }

    /// Joins the work under this name, or starts it.
    pub fn join<F: Future<Output = T> + 'static>(&self, name: K, work: impl FnOnce() -> F) -> Flight<T> {
        match self.get(&name) {
            Some(flight) => flight,
            None => self.launch(name, work()),
        }
    }
}

/// Frees the name when the work ends, also by a panic.
struct Landing<K: Eq + Hash, T: Clone> {
    table: Table<K, T>,
    name: K,
}

impl<K: Eq + Hash, T: Clone> Drop for Landing<K, T> {
    fn drop(&mut self) {
        self.table.borrow_mut().remove(&self.name);
    }
}
