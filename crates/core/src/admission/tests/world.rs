//! A world around the gate in which every message can be lost, late or doubled and every call cut short: sandboxes
//! that boot and stop, tickets that expire, questions and answers on the way. Whether too many containers run is
//! counted on the sandboxes, never read from the gate's own rows.

use super::model::{name, pools};
use super::sqlite::{Cut, Fault, Sqlite};
use crate::admission::*;
use crate::ticket::TICKET_TTL_MS;
use proptest::prelude::*;
use ringfence_wire::contract::AdmissionMode;
use ringfence_wire::internal::AdmissionAnswer;
use std::collections::HashSet;

const SANDBOXES: usize = 6;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// The facade asks for a slot. `lost`: the answer never arrives.
    Touch {
        who: usize,
        mode: AdmissionMode,
        cut: Option<Cut>,
        lost: bool,
    },
    Boot {
        who: usize,
    },
    Stop {
        who: usize,
    },
    Withdraw {
        who: usize,
        cut: Option<Cut>,
    },
    Alarm {
        cut: Option<Cut>,
    },
    Deliver {
        message: usize,
        cut: Option<Cut>,
        reachable: bool,
    },
    Double {
        message: usize,
    },
    Lose {
        message: usize,
    },
    Pass {
        ms: u64,
    },
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let who = 0..SANDBOXES;
    let message = 0usize..16;
    let writes = 0u32..4;
    let cut = prop_oneof![
        6 => Just(None),
        1 => writes.clone().prop_map(|writes| Some(Cut::RolledBack { writes })),
        1 => writes.prop_map(|writes| Some(Cut::Kept { writes })),
    ];
    let mode = prop_oneof![3 => Just(AdmissionMode::Queue), 1 => Just(AdmissionMode::Refuse)];
    let op = prop_oneof![
        6 => (who.clone(), mode, cut.clone(), prop::bool::weighted(0.2))
            .prop_map(|(who, mode, cut, lost)| Op::Touch { who, mode, cut, lost }),
        5 => who.clone().prop_map(|who| Op::Boot { who }),
        3 => who.clone().prop_map(|who| Op::Stop { who }),
        1 => (who, cut.clone()).prop_map(|(who, cut)| Op::Withdraw { who, cut }),
        3 => cut.clone().prop_map(|cut| Op::Alarm { cut }),
        5 => (message.clone(), cut, prop::bool::weighted(0.7))
            .prop_map(|(message, cut, reachable)| Op::Deliver { message, cut, reachable }),
        1 => message.clone().prop_map(|message| Op::Double { message }),
        1 => message.prop_map(|message| Op::Lose { message }),
        3 => prop_oneof![Just(1_000), Just(ASK_EVERY_MS), Just(WAITER_TTL_MS), Just(SLOT_LEASE_MS)]
            .prop_map(|ms| Op::Pass { ms }),
    ];
    prop::collection::vec(op, 1..120)
}

#[derive(Clone, Debug)]
enum Message {
    Release(String),
    Ask(SlotToAsk),
    Heard(String, Heard),
}

#[derive(Default)]
struct Sandbox {
    /// A slot and until when its ticket boots.
    pass: Option<(String, u64)>,
    running: Option<String>,
    /// Slots it said it is done with: it boots under none of them again.
    done: HashSet<String>,
}

struct World<'a> {
    sql: &'a Sqlite,
    pools: Pools,
    sandboxes: Vec<Sandbox>,
    messages: Vec<Message>,
    now: u64,
    made: u32,
}

fn fail(fault: Fault) -> TestCaseError {
    TestCaseError::fail(format!("{fault:?}"))
}

/// A call that was cut short tells its caller nothing; any other fault is the gate's own.
fn uncut<T>(result: Result<T, Fault>) -> Result<Option<T>, TestCaseError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Cut) => Ok(None),
        Err(fault) => Err(fail(fault)),
    }
}

impl World<'_> {
    fn gate(&self) -> Gate<'_, Sqlite> {
        Gate::new(self.sql, &self.pools)
    }

    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Touch { who, mode, cut, lost } => {
                self.touch(who, mode, cut, lost)?;
            }
            Op::Boot { who } => self.boot(who),
            Op::Stop { who } => {
                if let Some(slot) = self.sandboxes[who].running.take() {
                    self.sandboxes[who].done.insert(slot.clone());
                    self.sandboxes[who].pass = None;
                    self.messages.push(Message::Release(slot));
                }
            }
            Op::Withdraw { who, cut } => {
                let (consumer, key) = name(who);
                let asked = self.sql.call(cut, || self.gate().withdraw(&consumer, &key, self.now));
                self.messages.extend(uncut(asked)?.flatten().map(Message::Ask));
            }
            Op::Alarm { cut } => {
                let asked = self.sql.call(cut, || self.gate().overdue(self.now));
                self.messages.extend(uncut(asked)?.into_iter().flatten().map(Message::Ask));
            }
            Op::Deliver { message, cut, reachable } => {
                if !self.messages.is_empty() {
                    let message = self.messages.remove(message % self.messages.len());
                    self.deliver(message, cut, reachable)?;
                }
            }
            Op::Double { message } => {
                let at = message % self.messages.len().max(1);
                self.messages.extend(self.messages.get(at).cloned());
            }
            Op::Lose { message } => {
                if !self.messages.is_empty() {
                    self.messages.remove(message % self.messages.len());
                }
            }
            Op::Pass { ms } => self.now += ms,
        }
        self.check()
    }

    fn touch(
        &mut self,
        who: usize,
        mode: AdmissionMode,
        cut: Option<Cut>,
        lost: bool,
    ) -> Result<bool, TestCaseError> {
        let (consumer, key) = name(who);
        let claim = Claimant { consumer: &consumer, key: &key, pool: Pool::Lean };
        self.made += 1;
        let id = format!("slot-{}", self.made);
        let answer = uncut(self.sql.call(cut, || self.gate().touch(claim, mode, &id, self.now)))?;
        let Some(AdmissionAnswer::Admitted { slot, .. }) = answer else { return Ok(false) };
        if !lost {
            self.sandboxes[who].pass = Some((slot, self.now + TICKET_TTL_MS));
        }
        Ok(!lost)
    }

    fn boot(&mut self, who: usize) {
        let sandbox = &mut self.sandboxes[who];
        if sandbox.running.is_some() {
            return;
        }
        match sandbox.pass.clone() {
            Some((slot, _)) if sandbox.done.contains(&slot) => {
                sandbox.pass = None;
                self.messages.push(Message::Release(slot));
            }
            Some((slot, until)) if self.now < until => sandbox.running = Some(slot),
            _ => {}
        }
    }

    fn deliver(&mut self, message: Message, cut: Option<Cut>, reachable: bool) -> Result<(), TestCaseError> {
        match message {
            Message::Release(slot) => {
                uncut(self.sql.call(cut, || self.gate().release(&slot)))?;
            }
            Message::Heard(slot, heard) => {
                uncut(self.sql.call(cut, || self.gate().heard(&slot, heard, self.now)))?;
            }
            Message::Ask(asked) => {
                let now = self.now;
                let who =
                    (0..SANDBOXES).find(|who| name(*who) == (asked.consumer.clone(), asked.key.clone()));
                let sandbox = &mut self.sandboxes[who.expect("a sandbox we know")];
                let holds = sandbox.running.as_ref() == Some(&asked.slot)
                    || sandbox.pass.as_ref().is_some_and(|(slot, until)| *slot == asked.slot && now < *until);
                let heard = match (reachable, holds) {
                    (false, _) => Heard::Unreachable,
                    (true, true) => Heard::Held,
                    (true, false) => {
                        sandbox.done.insert(asked.slot.clone());
                        Heard::Gone
                    }
                };
                self.messages.push(Message::Heard(asked.slot, heard));
            }
        }
        Ok(())
    }

    /// Never more containers than the cap.
    fn check(&self) -> Result<(), TestCaseError> {
        let running = self.sandboxes.iter().filter(|s| s.running.is_some()).count();
        prop_assert!(running as u32 <= self.pools.cap(Pool::Lean), "{} containers run", running);
        Ok(())
    }

    /// With the faults over: every slot comes back, and everybody who waits is served.
    fn heal(&mut self) -> Result<(), TestCaseError> {
        for who in 0..SANDBOXES {
            self.step(Op::Stop { who })?;
        }
        let mut served = HashSet::new();
        for _ in 0..80 {
            for who in (0..SANDBOXES).filter(|who| !served.contains(who)).collect::<Vec<_>>() {
                if self.touch(who, AdmissionMode::Queue, None, false)? {
                    self.boot(who);
                    self.check()?;
                    if self.sandboxes[who].running.is_some() {
                        served.insert(who);
                        self.step(Op::Stop { who })?;
                    }
                }
            }
            self.now += ASK_EVERY_MS;
            self.step(Op::Alarm { cut: None })?;
            while let Some(message) = self.messages.pop() {
                self.deliver(message, None, true)?;
            }
        }
        prop_assert_eq!(served.len(), SANDBOXES, "somebody was never served");
        let busy: u32 = self.gate().pool_use(self.now).map_err(fail)?.iter().map(|pool| pool.busy).sum();
        prop_assert_eq!(busy, 0, "a slot was lost for ever");
        Ok(())
    }
}

pub fn survives(sql: &Sqlite, ops: &[Op]) -> Result<(), TestCaseError> {
    let sandboxes = (0..SANDBOXES).map(|_| Sandbox::default()).collect();
    let mut world = World { sql, pools: pools(), sandboxes, messages: Vec::new(), now: 1_000_000, made: 0 };
    for op in ops {
        world.step(*op)?;
    }
    world.heal()
}

proptest! {
    #[test]
    fn whatever_is_lost_late_doubled_or_cut_short_no_pool_runs_over_and_no_slot_is_lost(ops in ops()) {
        survives(&Sqlite::new(), &ops)?;
    }
}
