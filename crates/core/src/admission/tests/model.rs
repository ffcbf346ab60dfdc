//! The gate must answer exactly as a naive model of it does: two lists, walked.

use super::sqlite::{Fault, Sqlite};
use crate::admission::*;
use proptest::prelude::*;
use ringfence_wire::contract::AdmissionMode;
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use ringfence_wire::internal::AdmissionAnswer;
use ringfence_wire::refusal::AdmissionFacts;

const SANDBOXES: usize = 7;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Touch { who: usize, pool: Pool, mode: AdmissionMode },
    Withdraw { who: usize },
    Release { who: usize },
    Renew { who: usize },
    Overdue,
    Pass { ms: u64 },
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let who = 0..SANDBOXES;
    let pool = prop_oneof![3 => Just(Pool::Lean), 1 => Just(Pool::Task)];
    let mode = prop_oneof![3 => Just(AdmissionMode::Queue), 1 => Just(AdmissionMode::Refuse)];
    let op = prop_oneof![
        8 => (who.clone(), pool, mode).prop_map(|(who, pool, mode)| Op::Touch { who, pool, mode }),
        1 => who.clone().prop_map(|who| Op::Withdraw { who }),
        3 => who.clone().prop_map(|who| Op::Release { who }),
        1 => who.prop_map(|who| Op::Renew { who }),
        1 => Just(Op::Overdue),
        2 => prop_oneof![Just(1), Just(60_000), Just(WAITER_TTL_MS), Just(SLOT_LEASE_MS), Just(ASK_EVERY_MS)]
            .prop_map(|ms| Op::Pass { ms }),
    ];
    prop::collection::vec(op, 1..80)
}

pub fn pools() -> Pools {
    Pools::parse(Some(r#"{"lean":2,"task":1}"#)).unwrap()
}

struct Slot {
    id: String,
    who: usize,
    pool: Pool,
    renewed_at: u64,
    asked_at: u64,
}

struct Waiter {
    who: usize,
    pool: Pool,
    queued_at: u64,
    seen_at: u64,
}

#[derive(Default)]
struct Model {
    slots: Vec<Slot>,
    line: Vec<Waiter>,
}

impl Model {
    fn facts(
        &self,
        pool: Pool,
        cap: u32,
        who: Option<usize>,
        queued_at: Option<u64>,
        now: u64,
        retry: u64,
    ) -> AdmissionFacts {
        let mut in_line = self.line.iter().filter(|w| w.pool == pool);
        AdmissionFacts {
            pool: pool.as_str().to_owned(),
            pool_busy: self.slots.iter().filter(|s| s.pool == pool).count() as u32,
            cap,
            position: who.and_then(|who| in_line.position(|w| w.who == who)).map(|at| at as u32 + 1),
            queued_for_ms: queued_at.map_or(0, |at| now - at),
            retry_after_ms: retry,
        }
    }

    fn touch(
        &mut self,
        who: usize,
        pool: Pool,
        mode: AdmissionMode,
        id: &str,
        cap: impl Fn(Pool) -> u32,
        now: u64,
    ) -> AdmissionAnswer {
        if let Some(slot) = self.slots.iter_mut().find(|s| s.who == who) {
            if now >= slot.renewed_at + SLOT_LEASE_MS / RENEWALS_IN_A_LEASE {
                slot.renewed_at = now;
            }
            let (slot, pool) = (slot.id.clone(), slot.pool);
            let facts = self.facts(pool, cap(pool), None, None, now, 0);
            return AdmissionAnswer::Admitted { slot, pool: pool.as_str().into(), facts };
        }
        self.line.retain(|w| w.seen_at + WAITER_TTL_MS > now && (w.who != who || w.pool == pool));
        let free = cap(pool) as usize - self.slots.iter().filter(|s| s.pool == pool).count();
        let line: Vec<&Waiter> = self.line.iter().filter(|w| w.pool == pool).collect();
        let place = line.iter().position(|w| w.who == who);
        let queued_at = place.map(|at| line[at].queued_at);
        if place.unwrap_or(line.len()) < free {
            self.line.retain(|w| w.who != who);
            self.slots.push(Slot { id: id.into(), who, pool, renewed_at: now, asked_at: 0 });
            let facts = self.facts(pool, cap(pool), None, queued_at, now, 0);
            return AdmissionAnswer::Admitted { slot: id.into(), pool: pool.as_str().into(), facts };
        }
        match mode {
            AdmissionMode::Queue => {
                match self.line.iter_mut().find(|w| w.who == who) {
                    Some(waiter) => waiter.seen_at = now,
                    None => self.line.push(Waiter { who, pool, queued_at: now, seen_at: now }),
                }
                let queued_at = queued_at.or(Some(now));
                AdmissionAnswer::Waiting {
                    facts: self.facts(pool, cap(pool), Some(who), queued_at, now, RETRY_WAITING_MS),
                }
            }
            AdmissionMode::Refuse => AdmissionAnswer::Refused {
                facts: self.facts(pool, cap(pool), Some(who), queued_at, now, RETRY_REFUSED_MS),
            },
        }
    }

    fn overdue(&mut self, now: u64) -> Vec<String> {
        if now < SLOT_LEASE_MS {
            return Vec::new();
        }
        let due = |s: &&mut Slot| {
            s.renewed_at + SLOT_LEASE_MS <= now && s.asked_at <= now.saturating_sub(ASK_EVERY_MS)
        };
        let mut due: Vec<&mut Slot> = self.slots.iter_mut().filter(due).collect();
        due.sort_by(|a, b| (a.renewed_at, &a.id).cmp(&(b.renewed_at, &b.id)));
        due.into_iter()
            .take(MAX_ASKED)
            .map(|slot| {
                slot.asked_at = now;
                slot.id.clone()
            })
            .collect()
    }
}

pub fn name(who: usize) -> (ConsumerName, SandboxKey) {
    (format!("c{}", who % 2).into(), format!("k{who}").into())
}

/// Plays the operations on both and compares every answer.
pub fn agree(sql: &Sqlite, ops: &[Op]) -> Result<(), TestCaseError> {
    let pools = pools();
    let gate = Gate::new(sql, &pools);
    let mut model = Model::default();
    let fail = |fault: Fault| TestCaseError::fail(format!("{fault:?}"));
    let mut now = 1_000_000;
    for (n, op) in ops.iter().enumerate() {
        // Ids sort as they are made.
        let id = format!("slot-{n:03}");
        match *op {
            Op::Touch { who, pool, mode } => {
                let (consumer, key) = name(who);
                let claim = Claimant { consumer: &consumer, key: &key, pool };
                let answer = gate.touch(claim, mode, &id, now).map_err(fail)?;
                prop_assert_eq!(answer, model.touch(who, pool, mode, &id, |pool| pools.cap(pool), now));
            }
            Op::Withdraw { who } => {
                let (consumer, key) = name(who);
                let asked = gate.withdraw(&consumer, &key, now).map_err(fail)?;
                model.line.retain(|w| w.who != who);
                let held = model.slots.iter_mut().find(|s| s.who == who).map(|s| {
                    s.asked_at = now;
                    s.id.clone()
                });
                prop_assert_eq!(asked.map(|a| a.slot), held);
            }
            Op::Release { who } => {
                if let Some(at) = model.slots.iter().position(|s| s.who == who) {
                    gate.release(&model.slots.remove(at).id).map_err(fail)?;
                }
            }
            Op::Renew { who } => {
                let (consumer, key) = name(who);
                let held = model.slots.iter_mut().find(|s| s.who == who);
                let id = held.as_ref().map_or("none".into(), |s| s.id.clone());
                let renewed =
                    gate.renew(&id, (&consumer, &key), &Default::default(), now, now).map_err(fail)?;
                prop_assert_eq!(renewed, held.is_some());
                if let Some(held) = held {
                    held.renewed_at = now
                }
            }
            Op::Overdue => {
                let asked: Vec<String> =
                    gate.overdue(now).map_err(fail)?.into_iter().map(|a| a.slot).collect();
                prop_assert_eq!(asked, model.overdue(now));
            }
            Op::Pass { ms } => now += ms,
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_gate_answers_as_the_naive_model_does(ops in ops()) {
        agree(&Sqlite::new(), &ops)?;
    }
}
