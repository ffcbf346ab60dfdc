//! What a sweep did and saw, for the whole of it and for each of its jobs.
//!
//! Invariant: `complete` comes from the verdict alone; whoever was signalled is either among the killed or among the
//! survivors, never in neither list.

use super::{Owner, Sweep};
use crate::job::Leader;
use crate::limits;
use ringfence_core::job::{CommandEnd, Event};
use ringfence_core::sweep::Verdict;
use ringfence_wire::evidence::{Evidence, KillMethod, KillScope, SeenProcess};
use ringfence_wire::ids::ProcessIdentity;
use std::collections::BTreeSet;

impl Sweep<'_> {
    /// The sweep is over: its jobs learn of it, and it is told as evidence.
    pub(super) fn settle(mut self, verdict: Verdict) -> Evidence {
        let complete = match verdict {
            Verdict::Proven => {
                self.methods.insert(KillMethod::NoChildLeft);
                self.alive.clear();
                true
            }
            Verdict::EmptyTwice => {
                self.alive.clear();
                // Two empty looks are the proof: they went by this rule, also where it found nobody.
                self.methods.insert(self.looked_by());
                true
            }
            Verdict::GaveUp => {
                self.unfinished.get_or_insert_with(|| "time ran out".to_owned());
                false
            }
        };
        if complete && (self.targets.strays || self.a_leader_is_lost()) {
            self.supervisor.strays_possible.set(false);
        }
        // What other sweeps of the same jobs signalled meanwhile died in this one, too.
        for job in &self.targets.jobs {
            job.read(|job| {
                self.methods.extend(&job.methods);
                for (identity, process) in &job.signalled {
                    self.signalled.entry(*identity).or_insert_with(|| (process.clone(), Some(job.number)));
                }
            });
        }
        for job in &self.targets.jobs {
            let own = self.evidence(complete, Some(job.number));
            job.change(|job| {
                job.sweeps -= 1;
                job.swept = Some(match job.swept.take() {
                    Some(earlier) => continued(earlier, own),
                    None => own,
                });
                if complete && job.leader != Leader::Empty {
                    // The look, not the leader, is the proof.
                    if job.machine.command_end().is_none() {
                        job.machine.apply(Event::CommandEnded(CommandEnd::Unseen));
                    }
                    job.machine.apply(Event::TreeReaped);
                }
            });
        }
        self.evidence(complete, None)
    }

    fn looked_by(&self) -> KillMethod {
        match self.supervisor.ground.scope {
            KillScope::Namespace => KillMethod::Ancestry,
            KillScope::Session => KillMethod::Marker,
        }
    }

    /// The evidence of the whole sweep, or of one job in it.
    fn evidence(&self, complete: bool, of: Owner) -> Evidence {
        let concerns = |owner: &Owner| of.is_none() || *owner == of;
        let dead = |id: &ProcessIdentity| !self.alive.contains(id);
        let named = |wanted: bool| {
            let those =
                self.signalled.iter().filter(move |(id, (_, owner))| dead(id) == wanted && concerns(owner));
            those.map(|(_, (process, _))| process.clone())
        };
        Evidence {
            scope: self.supervisor.ground.scope,
            methods: self.methods.iter().copied().collect(),
            complete,
            killed: named(true).take(limits::MAX_NAMED).collect(),
            killed_count: named(true).count() as u64,
            survivors: named(false).take(limits::MAX_NAMED).collect(),
            unreadable: self.unreadable.values().take(limits::MAX_NAMED).cloned().collect(),
            scans: self.scans,
            elapsed_ms: self.elapsed_ms(),
            unfinished: self.unfinished.clone().filter(|_| !complete),
        }
    }
}

/// A later sweep of the same job: it knows what became of what the earlier one signalled.
fn continued(earlier: Evidence, later: Evidence) -> Evidence {
    Evidence {
        methods: together(&earlier, &later),
        scans: earlier.scans + later.scans,
        elapsed_ms: earlier.elapsed_ms + later.elapsed_ms,
        ..later
    }
}

/// Sweeps of different processes, told as one. It is complete only if both are.
pub fn joined(one: Evidence, other: Evidence) -> Evidence {
    fn chained(mut one: Vec<SeenProcess>, other: Vec<SeenProcess>) -> Vec<SeenProcess> {
        one.extend(other);
        one.truncate(limits::MAX_NAMED);
        one
    }
    Evidence {
        scope: one.scope,
        methods: together(&one, &other),
        complete: one.complete && other.complete,
        killed_count: one.killed_count + other.killed_count,
        killed: chained(one.killed, other.killed),
        survivors: chained(one.survivors, other.survivors),
        unreadable: chained(one.unreadable, other.unreadable),
        scans: one.scans + other.scans,
        elapsed_ms: one.elapsed_ms + other.elapsed_ms,
        unfinished: one.unfinished.or(other.unfinished),
    }
}

fn together(one: &Evidence, other: &Evidence) -> Vec<KillMethod> {
    let methods: BTreeSet<KillMethod> = one.methods.iter().chain(&other.methods).copied().collect();
    methods.into_iter().collect()
}
