//! Ends that nobody waits for: each is told to the object with the next request's question, or soon after by itself.
//!
//! Most requests of a busy client follow each other at once, and a call of its own for each end costs as much as the
//! decision. Invariant: an end is told until the object has answered; what a call carried that failed or was dropped
//! waits again, and whoever watches a passage stays until its end was told.

use std::cell::RefCell;

/// How long an end waits for a question to go with. A revoke waits for it that long.
pub const TOLD_AFTER_MS: u64 = 5;

thread_local! {
    /// Few: a boot has a bounded number of passages, and each leaves in moments.
    static ENDS: RefCell<Vec<End>> = const { RefCell::new(Vec::new()) };
}

struct End {
    /// The secret of the boot, which no two sandboxes share.
    boot: String,
    passage: String,
    under_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Waiting,
    /// Some call carries it.
    UnderWay,
    Told,
}

pub fn add(boot: &str, passage: &str) {
    let end = End { boot: boot.to_owned(), passage: passage.to_owned(), under_way: false };
    ENDS.with_borrow_mut(|ends| ends.push(end));
}

pub fn state(passage: &str) -> State {
    ENDS.with_borrow(|ends| match ends.iter().find(|end| end.passage == passage) {
        None => State::Told,
        Some(end) if end.under_way => State::UnderWay,
        Some(_) => State::Waiting,
    })
}

/// All of this boot that wait, to go with one call.
pub fn take(boot: &str) -> Carried {
    let mut carried = Carried { passages: Vec::new(), told: false };
    ENDS.with_borrow_mut(|ends| {
        for end in ends.iter_mut().filter(|end| !end.under_way && end.boot == boot) {
            end.under_way = true;
            carried.passages.push(end.passage.clone());
        }
    });
    carried
}

/// Ends on their way to the object. Dropped before they were told, they wait again.
pub struct Carried {
    pub passages: Vec<String>,
    told: bool,
}

impl Carried {
    pub fn told(mut self) {
        self.told = true;
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        ENDS.with_borrow_mut(|ends| {
            ends.retain_mut(|end| {
                let mine = self.passages.contains(&end.passage);
                end.under_way &= !mine;
                !(mine && self.told)
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_waits_until_a_call_that_carried_it_was_answered() {
        add("a", "1");
        add("a", "2");
        add("b", "3");
        let carried = take("a");
        assert_eq!(carried.passages, ["1", "2"]);
        assert_eq!((state("1"), state("3")), (State::UnderWay, State::Waiting));
        assert!(take("a").passages.is_empty(), "no end goes with two calls at a time");
        drop(carried);
        assert_eq!(state("2"), State::Waiting, "the call was lost");
        take("a").told();
        assert_eq!((state("1"), state("2"), state("3")), (State::Told, State::Told, State::Waiting));
        take("b").told();
        ENDS.with_borrow(|ends| assert!(ends.is_empty(), "nothing is kept of a sandbox that is quiet"));
    }
}
