//! The open grant, and the passages admitted under it.
//!
//! Invariant: a grant lives in the memory of the object incarnation that applied it and nowhere else; storage says
//! only that a fence is open. So no crash leaves a usable grant behind. It admits from [`Gate::apply`] to
//! [`OpenGrant::close`], which comes before the teardown; [`OpenGrant::revoke`] also cuts every passage still under
//! way and waits for each to say that nothing of it moves any more. Dropping it, also by a panic, closes and cuts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use futures::channel::oneshot;
use ringfence_core::egress::Grant;
use ringfence_wire::internal::Held;

use crate::clock;

/// Passages under way at a time; one more is refused.
pub const MAX_PASSAGES: usize = 256;
/// How long a passage that was cut may take to say so.
pub const CUT_DEADLINE_MS: u64 = 1_000;

/// At most one grant, applied by the holder of the fence lock.
#[derive(Clone, Default)]
pub struct Gate(Rc<RefCell<Option<Applied>>>);

struct Applied {
    grant: Rc<Grant>,
    admits: bool,
    passages: HashMap<String, Hold>,
    /// Told when the last passage has ended.
    drained: Option<oneshot::Sender<()>>,
}

/// The call that a passage's entrypoint leaves with the object.
enum Hold {
    /// It has not arrived yet.
    Awaited,
    Held(oneshot::Sender<Held>),
    /// It was answered, or will be as it arrives: stop.
    Cut,
}

/// Passages that did not say in time that they had stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} requests under way were told to stop and did not say that they had")]
pub struct Unacknowledged {
    pub count: usize,
}

impl Gate {
    pub fn apply(&self, grant: Grant) -> OpenGrant {
        let applied =
            Applied { grant: Rc::new(grant), admits: true, passages: HashMap::new(), drained: None };
        // What an earlier grant still held is cut as it drops.
        *self.0.borrow_mut() = Some(applied);
        OpenGrant(self.clone())
    }

    /// The grant that admits now. `None`: nothing leaves.
    pub fn grant(&self) -> Option<Rc<Grant>> {
        self.0.borrow().as_ref().filter(|applied| applied.admits).map(|applied| Rc::clone(&applied.grant))
    }

    /// A passage under this id begins. False if too many are under way, or the grant has closed.
    pub fn begin(&self, passage: &str) -> bool {
        let mut gate = self.0.borrow_mut();
        match gate.as_mut().filter(|applied| applied.admits && applied.passages.len() < MAX_PASSAGES) {
            Some(applied) => applied.passages.insert(passage.to_owned(), Hold::Awaited).is_none(),
            None => false,
        }
    }

    pub fn knows(&self, passage: &str) -> bool {
        self.0.borrow().as_ref().is_some_and(|applied| applied.passages.contains_key(passage))
    }

    /// Left unanswered until the passage must stop or has ended.
    pub async fn hold(&self, passage: &str) -> Held {
        let told = {
            let mut gate = self.0.borrow_mut();
            let hold = gate.as_mut().and_then(|applied| applied.passages.get_mut(passage));
            match hold {
                Some(hold @ Hold::Awaited) => {
                    let (tell, told) = oneshot::channel();
                    *hold = Hold::Held(tell);
                    told
                }
                _ => return Held::Cut,
            }
        };
        told.await.unwrap_or(Held::Cut)
    }

    /// Nothing of the passage moves any more.
    pub fn end(&self, passage: &str) {
        let mut gate = self.0.borrow_mut();
        let Some(applied) = gate.as_mut() else { return };
        if let Some(Hold::Held(tell)) = applied.passages.remove(passage) {
            // Its entrypoint may be gone.
            let _ = tell.send(Held::Ended);
        }
        if applied.passages.is_empty()
            && let Some(drained) = applied.drained.take()
        {
            let _ = drained.send(());
        }
    }

    /// From here on no new request is admitted.
    pub fn close(&self) {
        if let Some(applied) = self.0.borrow_mut().as_mut() {
            applied.admits = false;
        }
    }

    /// Everything under way is told to stop.
    pub fn cut(&self) {
        self.close();
        let mut gate = self.0.borrow_mut();
        for hold in gate.iter_mut().flat_map(|applied| applied.passages.values_mut()) {
            if let Hold::Held(tell) = std::mem::replace(hold, Hold::Cut) {
                let _ = tell.send(Held::Cut);
            }
        }
    }

    fn drained(&self) -> Option<oneshot::Receiver<()>> {
        let mut gate = self.0.borrow_mut();
        let applied = gate.as_mut().filter(|applied| !applied.passages.is_empty())?;
        let (tell, told) = oneshot::channel();
        applied.drained = Some(tell);
        Some(told)
    }

    fn under_way(&self) -> usize {
        self.0.borrow().as_ref().map_or(0, |applied| applied.passages.len())
    }
}

pub struct OpenGrant(Gate);

impl OpenGrant {
    pub fn close(&self) {
        self.0.close();
    }

    /// Cuts what is still under way and waits until all of it says that it has stopped.
    pub async fn revoke(self) -> Result<(), Unacknowledged> {
        self.0.cut();
        let Some(drained) = self.0.drained() else { return Ok(()) };
        match clock::within(CUT_DEADLINE_MS, drained).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Unacknowledged { count: self.0.under_way() }),
        }
    }
}

impl Drop for OpenGrant {
    fn drop(&mut self) {
        self.0.cut();
        *self.0.0.borrow_mut() = None;
    }
}
