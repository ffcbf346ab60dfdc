//! Order: which starts a teardown shut out, which ids were stopped before they began, and what was forgotten.
//!
//! Invariants: a start at or below a teardown's order is refused unless that teardown spared its id; an id with a
//! tombstone never starts; whatever may have been forgotten is `Forgotten`, never absent. The marks only rise.

use crate::limits;
use ringfence_wire::ids::{Order, ProcessId};
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub struct Orders {
    /// The highest order acted on.
    highest: Order,
    /// The highest teardown.
    fence: Order,
    /// For ids that the highest teardown spared: the highest teardown that did not spare them.
    spared: HashMap<ProcessId, Order>,
    tombstones: HashMap<ProcessId, u64>,
    /// Tombstones by age, with the order of the start they refuse.
    by_age: BTreeMap<u64, (ProcessId, Order)>,
    next_age: u64,
    forgotten: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// At or below a teardown that did not spare it, or after a tombstone.
    FenceClosed,
    /// It may have run and been forgotten.
    Forgotten,
}

/// What is known of an id that has no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    NeverStarted,
    Forgotten,
}

impl Orders {
    pub fn highest(&self) -> Order {
        self.highest
    }

    pub fn forgotten_mark(&self) -> Order {
        self.forgotten
    }

    /// Whether a new id may start.
    pub fn admit(&mut self, id: &ProcessId, order: Order) -> Admission {
        if self.tombstones.contains_key(id) {
            return Admission::FenceClosed;
        }
        let shut_by = self.spared.get(id).copied().unwrap_or(self.fence);
        if order <= shut_by {
            return Admission::FenceClosed;
        }
        if order <= self.forgotten {
            return Admission::Forgotten;
        }
        self.highest = self.highest.max(order);
        Admission::Admitted
    }

    pub fn teardown(&mut self, order: Order, spare: &[ProcessId]) {
        let earlier = self.fence;
        let shut = |id: &ProcessId| self.spared.get(id).copied().unwrap_or(earlier);
        self.spared = if order >= earlier {
            // Later starts of these ids are shut out only by what shut them out before.
            spare.iter().map(|id| (id.clone(), shut(id))).collect()
        } else {
            // A teardown that was overtaken on the way shuts out what it did not spare, and no more.
            let raised = |(id, shut): (&ProcessId, &Order)| {
                let shut = if spare.contains(id) { *shut } else { (*shut).max(order) };
                (id.clone(), shut)
            };
            self.spared.iter().map(raised).collect()
        };
        self.fence = earlier.max(order);
        self.highest = self.highest.max(order);
    }

    /// The id was stopped before it began: it never will.
    pub fn bury(&mut self, id: &ProcessId, order: Option<Order>) {
        if self.tombstones.contains_key(id) {
            return;
        }
        if self.by_age.len() >= limits::MAX_TOMBSTONES
            && let Some((_, (oldest, its_order))) = self.by_age.pop_first()
        {
            self.tombstones.remove(&oldest);
            self.forget(its_order);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.tombstones.insert(id.clone(), age);
        // Without an order of its own, only everything so far is surely not below it.
        self.by_age.insert(age, (id.clone(), order.unwrap_or(self.highest)));
    }

    /// A job or a tombstone of this order is no longer remembered.
    pub fn forget(&mut self, order: Order) {
        self.forgotten = self.forgotten.max(order);
    }

    /// What is known of an id that has no job here. Without its order the answer errs towards `Forgotten`.
    pub fn absence(&self, id: &ProcessId, order: Option<Order>) -> Absence {
        if self.tombstones.contains_key(id) {
            return Absence::NeverStarted;
        }
        let below = order.map_or(self.forgotten > Order(0), |order| order <= self.forgotten);
        if below { Absence::Forgotten } else { Absence::NeverStarted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(name: &str) -> ProcessId {
        name.into()
    }

    #[test]
    fn a_start_delayed_past_its_teardown_is_shut_out_and_a_later_one_is_not() {
        let mut orders = Orders::default();
        orders.teardown(Order(10), &[]);
        assert_eq!(orders.admit(&id("a"), Order(10)), Admission::FenceClosed);
        assert_eq!(orders.admit(&id("a"), Order(9)), Admission::FenceClosed);
        assert_eq!(orders.admit(&id("a"), Order(11)), Admission::Admitted);
        assert_eq!(orders.highest(), Order(11));
    }

    #[test]
    fn a_spared_id_may_start_late_until_a_teardown_does_not_spare_it() {
        let mut orders = Orders::default();
        orders.teardown(Order(10), &[id("a")]);
        assert_eq!(orders.admit(&id("a"), Order(5)), Admission::Admitted);
        orders.teardown(Order(20), &[]);
        assert_eq!(orders.admit(&id("a"), Order(5)), Admission::FenceClosed);
    }

    #[test]
    fn sparing_an_id_does_not_undo_an_earlier_teardown_that_shut_it_out() {
        let mut orders = Orders::default();
        orders.teardown(Order(10), &[]);
        orders.teardown(Order(20), &[id("a")]);
        assert_eq!(orders.admit(&id("a"), Order(5)), Admission::FenceClosed);
        assert_eq!(orders.admit(&id("a"), Order(15)), Admission::Admitted);
    }

    #[test]
    fn a_buried_id_never_starts() {
        let mut orders = Orders::default();
        orders.bury(&id("a"), Some(Order(7)));
        assert_eq!(orders.admit(&id("a"), Order(7)), Admission::FenceClosed);
        assert_eq!(orders.absence(&id("a"), Some(Order(7))), Absence::NeverStarted);
    }

    #[test]
    fn one_tombstone_more_than_are_kept_makes_the_oldest_forgotten_and_no_start_below_it_is_admitted() {
        let mut orders = Orders::default();
        for n in 0..limits::MAX_TOMBSTONES as u64 {
            orders.bury(&id(&n.to_string()), Some(Order(n + 1)));
        }
        assert_eq!(orders.forgotten_mark(), Order(0));
        orders.bury(&id("one more"), Some(Order(5_000)));
        assert_eq!(orders.forgotten_mark(), Order(1));
        assert_eq!(orders.absence(&id("0"), Some(Order(1))), Absence::Forgotten);
        assert_eq!(orders.absence(&id("new"), Some(Order(2))), Absence::NeverStarted);
        assert_eq!(orders.absence(&id("new"), None), Absence::Forgotten);
        assert_eq!(orders.admit(&id("0"), Order(1)), Admission::Forgotten);
    }

    proptest! {
        /// The model: a start is shut out exactly when some teardown of its order or above did not spare it.
        #[test]
        fn a_start_is_admitted_exactly_when_every_teardown_at_or_above_it_spared_it(
            teardowns in prop::collection::vec((1u64..30, prop::collection::vec(0u8..5, 0..4)), 0..12),
            starts in prop::collection::vec((0u8..5, 1u64..35), 1..12),
        ) {
            let mut orders = Orders::default();
            for (order, spare) in &teardowns {
                let spare: Vec<ProcessId> = spare.iter().map(|n| id(&n.to_string())).collect();
                orders.teardown(Order(*order), &spare);
            }
            for (n, order) in starts {
                let spared_by_all = teardowns.iter().all(|(teardown, spare)| *teardown < order || spare.contains(&n));
                let admitted = orders.admit(&id(&n.to_string()), Order(order)) == Admission::Admitted;
                prop_assert_eq!(admitted, spared_by_all, "{} at {}", n, order);
            }
        }
    }
}
