//! Which processes of a look are a sweep's, as `core` decides it, with what only the system can tell added: the
//! markers in environments, and a second look where the first met a line of parents that was ending.

use super::{Owner, Sweep};
use crate::job::{JobNumber, JobRef, Leader};
use crate::scan::{self, Look};
use ringfence_core::sweep::{Marker, Place, SessionJob, place, session_members};
use ringfence_wire::evidence::KillMethod;
use ringfence_wire::ids::ProcessIdentity;
use std::collections::{BTreeMap, HashSet};

/// A position in the look, whose it is, and by what rule.
type Member = (usize, Owner, KillMethod);

impl Sweep<'_> {
    /// Members of this look, and how many processes a second look could not place either.
    pub(super) fn members_by_ancestry(&self, look: &Look) -> (Vec<Member>, usize) {
        let (members, unsettled) = self.place_all(look);
        if unsettled.is_empty() {
            return (members, 0);
        }
        let again = Look::take().map(|look| self.place_all(&look).1).unwrap_or_else(|_| unsettled.clone());
        (members, unsettled.intersection(&again).count())
    }

    fn place_all(&self, look: &Look) -> (Vec<Member>, HashSet<ProcessIdentity>) {
        let me = rustix::process::getpid().as_raw_pid();
        let places = place(&look.seen, me, &self.supervisor.roots.borrow());
        let mine: HashSet<JobNumber> = self.targets.jobs.iter().map(|job| job.number).collect();
        let mut members = Vec::new();
        let mut unsettled = HashSet::new();
        for ((at, seen), place) in look.seen.iter().enumerate().zip(places) {
            match place {
                _ if !seen.alive => {}
                Place::Job(number) if mine.contains(&number) => {
                    members.push((at, Some(number), KillMethod::Ancestry));
                }
                Place::Stray if self.targets.strays || self.a_leader_is_lost() => {
                    members.push((at, self.marked_owner(seen.identity.pid), KillMethod::Ancestry));
                }
                Place::Unsettled => {
                    unsettled.insert(seen.identity);
                }
                Place::Own | Place::Leader(_) | Place::Job(_) | Place::Stray => {}
            }
        }
        (members, unsettled)
    }

    pub(super) fn a_leader_is_lost(&self) -> bool {
        self.targets.jobs.iter().any(|job| job.read(|job| job.leader == Leader::Lost))
    }

    /// Whose a stray was, by the marker in its environment: for the evidence, not for the decision.
    fn marked_owner(&self, pid: i32) -> Owner {
        let lost = |job: &&JobRef| job.read(|job| job.leader == Leader::Lost);
        let mut lost = self.targets.jobs.iter().filter(lost);
        let first = lost.next()?;
        if lost.next().is_none() {
            return Some(first.number);
        }
        let carries =
            |job: &&JobRef| scan::marker(pid, &job.read(|job| format!("{}=1", job.marker))) == Marker::Ours;
        self.targets.jobs.iter().find(carries).map(|job| job.number)
    }

    pub(super) fn members_of_sessions(&mut self, look: &Look) -> Vec<Member> {
        let me = rustix::process::getpid().as_raw_pid();
        let mut members: BTreeMap<usize, (Owner, KillMethod)> = BTreeMap::new();
        for target in &self.targets.jobs {
            let leader = self.supervisor.leader_pid(target);
            let others: HashSet<i32> = {
                let roots = self.supervisor.roots.borrow();
                roots.keys().copied().filter(|pid| *pid != me && Some(*pid) != leader).collect()
            };
            let marker = target.read(|job| format!("{}=1", job.marker));
            let found = target.read(|job| {
                let facts = SessionJob {
                    leader: if job.leader == Leader::Lost { None } else { Some(leader.unwrap_or(0)) },
                    started: job.started_ticks,
                    known: &job.known,
                    supervisor: me,
                    others: &others,
                };
                session_members(&look.seen, &facts, |at| {
                    look.seen.get(at).map_or(Marker::Absent, |seen| scan::marker(seen.identity.pid, &marker))
                })
            });
            target.change(|job| {
                job.known.extend(
                    found.members.iter().filter_map(|(at, _)| look.seen.get(*at)).map(|seen| seen.identity),
                );
            });
            for (at, method) in found.members {
                members.entry(at).or_insert((Some(target.number), method));
            }
            for named in found.unreadable.into_iter().filter_map(|at| look.named(at)) {
                self.unreadable.insert(named.identity, named);
            }
        }
        members.into_iter().map(|(at, (owner, method))| (at, owner, method)).collect()
    }
}
