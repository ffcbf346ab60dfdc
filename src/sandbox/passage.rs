//! The open grant.
//!
//! Invariant: a grant lives in the memory of the object incarnation that applied it and nowhere else; storage says
//! only that a fence is open. So no crash leaves a usable grant behind. It admits from [`Gate::apply`] to
//! [`OpenGrant::close`], which comes before the teardown; dropping it, also by a panic, closes it.

use std::cell::Cell;
use std::rc::Rc;

/// Whether requests are admitted now.
#[derive(Clone, Default)]
pub struct Gate(Rc<Cell<bool>>);

impl Gate {
    /// Opens the one grant. Only the holder of the fence lock may.
    pub fn apply(&self) -> OpenGrant {
        self.0.set(true);
        OpenGrant(self.clone())
    }

    /// From here on no new request is admitted.
    pub fn close(&self) {
        self.0.set(false);
    }
}

pub struct OpenGrant(Gate);

impl OpenGrant {
    pub fn close(&self) {
        self.0.close();
    }
}

impl Drop for OpenGrant {
    fn drop(&mut self) {
        self.close();
    }
}
