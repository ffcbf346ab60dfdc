//! Spending an attestation: a person's word that one exact command may run once.
//!
//! Invariant: (task, ordinal) is spent once, in the transaction that reserves the call's key, before anything boots.
//! A command that is proven not to have run gives its attestation back with its key. [`super::store::exec`] decides.

use ringfence_wire::refusal::Refusal;

use super::Object;
pub use super::store::exec::{Asked, Word};
use crate::clock;

impl Object {
    pub fn may_spend(&self, asked: &Asked<'_>) -> Result<Option<Word>, Refusal> {
        self.store.may_spend(asked, clock::now_ms())
    }
}
