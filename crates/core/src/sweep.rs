//! Whose a process is, and when a sweep signals, waits and ends.
//!
//! Invariants: where the supervisor is PID 1, membership is by default deny: whatever is neither the supervisor's
//! own nor below a leader is a stray. A process whose line of parents could not be followed, because one of them
//! ended during the look, is `Unsettled`: it is neither killed nor counted as absent, the next look decides. In a
//! shared pid namespace nothing is a job's without ancestry, an identity seen earlier, or a marker together with
//! start time and parentage.

use ringfence_wire::evidence::KillMethod;
use ringfence_wire::ids::ProcessIdentity;
use std::collections::{HashMap, HashSet};

/// One process as a look at `/proc` found it. Fully dead processes (zombies without a live thread) are left out
/// of a look's members, but stay in it as links of ancestry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub identity: ProcessIdentity,
    pub parent: i32,
    pub alive: bool,
    /// Stopped by a signal or by a tracer: it takes a TERM only after a CONT.
    pub stopped: bool,
}

/// A process the supervisor answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root<J> {
    /// The supervisor, or a process it runs for itself.
    Own,
    /// The leader of a job.
    Leader(J),
}

/// Whose a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<J> {
    Own,
    Leader(J),
    /// Below the leader of this job.
    Job(J),
    /// Below the supervisor or from outside, and below no leader.
    Stray,
    /// A parent ended during the look.
    Unsettled,
}

/// Places every process of one look. `roots` names the supervisor (`supervisor`) and everything it answers for.
pub fn place<J: Copy>(look: &[Seen], supervisor: i32, roots: &HashMap<i32, Root<J>>) -> Vec<Place<J>> {
    let by_pid: HashMap<i32, usize> =
        look.iter().enumerate().map(|(at, seen)| (seen.identity.pid, at)).collect();
    let mut places: Vec<Option<Place<J>>> = vec![None; look.len()];
    let mut line = Vec::new();
    for start in 0..look.len() {
        line.clear();
        let mut at = start;
        let found = loop {
            if let Some(Some(known)) = places.get(at) {
                break below(*known);
            }
            let Some(seen) = look.get(at) else { break Place::Unsettled };
            match roots.get(&seen.identity.pid) {
                Some(root) => {
                    let own = match root {
                        Root::Own => Place::Own,
                        Root::Leader(job) => Place::Leader(*job),
                    };
                    if let Some(slot) = places.get_mut(at) {
                        *slot = Some(own);
                    }
                    break below(own);
                }
                None if line.len() >= look.len() => break Place::Unsettled,
                None => line.push(at),
            }
            if seen.parent == supervisor || seen.parent == 0 {
                break match roots.get(&seen.parent) {
                    Some(Root::Leader(job)) => Place::Job(*job),
                    _ => Place::Stray,
                };
            }
            match by_pid.get(&seen.parent).and_then(|parent| look.get(*parent).map(|p| (*parent, p))) {
                // A parent younger than its child is another process under a reused pid.
                Some((parent, p)) if p.identity.start_time <= seen.identity.start_time => at = parent,
                _ => break Place::Unsettled,
            }
        };
        for member in &line {
            if let Some(slot) = places.get_mut(*member) {
                *slot = Some(found);
            }
        }
    }
    places.into_iter().map(|place| place.unwrap_or(Place::Unsettled)).collect()
}

/// What is below a process that has this place. Below the supervisor's own helpers is nothing of a job's.
fn below<J>(place: Place<J>) -> Place<J> {
    match place {
        Place::Own => Place::Own,
        Place::Leader(job) | Place::Job(job) => Place::Job(job),
        Place::Stray => Place::Stray,
        Place::Unsettled => Place::Unsettled,
    }
}

/// What a process's environment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// It carries this job's marker.
    Ours,
    /// It can be read and does not.
    Absent,
    /// It cannot be read.
    Unreadable,
}

/// The facts of one job in a shared pid namespace.
#[derive(Clone, Copy, Debug)]
pub struct SessionJob<'a> {
    /// The leader; `None` once it is lost.
    pub leader: Option<i32>,
    /// In the unit of [`ProcessIdentity::start_time`].
    pub started: u64,
    /// Processes that earlier looks of this job found to be its.
    pub known: &'a HashSet<ProcessIdentity>,
    pub supervisor: i32,
    /// Pids of the supervisor's other leaders and helpers: never this job's.
    pub others: &'a HashSet<i32>,
}

/// What a look in a shared pid namespace found to be one job's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionLook {
    /// Positions in the look, and by what rule.
    pub members: Vec<(usize, KillMethod)>,
    /// Orphans of the right age whose environment cannot be read: named and left alone.
    pub unreadable: Vec<usize>,
}

/// Membership in a shared pid namespace. `marker` is asked only about orphans that are old enough to matter.
pub fn session_members(
    look: &[Seen],
    job: &SessionJob<'_>,
    mut marker: impl FnMut(usize) -> Marker,
) -> SessionLook {
    let mut found = SessionLook::default();
    let by_pid: HashMap<i32, usize> =
        look.iter().enumerate().map(|(at, seen)| (seen.identity.pid, at)).collect();
    let mut verdicts: HashMap<usize, KillMethod> = HashMap::new();
    let mut unreadable = HashSet::new();
    for (at, seen) in look.iter().enumerate() {
        let pid = seen.identity.pid;
        if pid == job.supervisor || job.leader == Some(pid) || job.others.contains(&pid) {
            continue;
        }
        if job.known.contains(&seen.identity) {
            verdicts.insert(at, KillMethod::Identity);
            continue;
        }
        // The supervisor is a subreaper: what it did not start itself and yet is its child fell to it from a lost
        // leader.
        if job.leader.is_none() && seen.parent == job.supervisor {
            verdicts.insert(at, KillMethod::Ancestry);
            continue;
        }
        // Old enough, and an orphan: its parent is the system's init or this supervisor.
        let orphan = seen.parent == 1 || seen.parent == job.supervisor;
        if orphan && seen.identity.start_time >= job.started {
            match marker(at) {
                Marker::Ours => {
                    verdicts.insert(at, KillMethod::Marker);
                }
                Marker::Unreadable => {
                    unreadable.insert(at);
                }
                Marker::Absent => {}
            }
        }
    }
    // Descendants of the leader and of whatever is known by now.
    for (at, seen) in look.iter().enumerate() {
        let mut here = seen;
        let mut hops = 0;
        let by = loop {
            let pid = here.identity.pid;
            if pid == job.supervisor || job.others.contains(&pid) || hops > look.len() {
                break None;
            }
            if hops > 0
                && (job.leader == Some(pid) || by_pid.get(&pid).is_some_and(|p| verdicts.contains_key(p)))
            {
                break Some(KillMethod::Ancestry);
            }
            match by_pid.get(&here.parent).and_then(|parent| look.get(*parent)) {
                Some(parent) if parent.identity.start_time <= here.identity.start_time => here = parent,
                _ => break None,
            }
            hops += 1;
        };
        let leader = job.leader == Some(seen.identity.pid);
        if let (Some(method), false) = (by, leader) {
            verdicts.entry(at).or_insert(method);
        }
    }
    for (at, seen) in look.iter().enumerate() {
        if !seen.alive {
            continue;
        }
        match verdicts.get(&at) {
            Some(method) => found.members.push((at, *method)),
            None if unreadable.contains(&at) => found.unreadable.push(at),
            None => {}
        }
    }
    found
}

/// The looks and signals of one sweep, in time.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    phase: Phase,
    phase_ends_at: u64,
    empty_in_a_row: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// TERM once to each.
    Term,
    /// KILL every round.
    Kill,
}

/// What one look came to.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub now_ms: u64,
    /// Members still alive when this round signalled them.
    pub members: usize,
    /// Of those, seen for the first time.
    pub new: usize,
    pub unsettled: usize,
    /// Every leader concerned says that it has no child left, and no stray is possible.
    pub proven: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait so long, or until a leader speaks, then look again.
    WaitThenLook(u64),
    /// Look again at once, with KILL.
    LookWithKill,
    Done(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel's proof.
    Proven,
    /// Two looks in a row found nothing.
    EmptyTwice,
    /// Time ran out.
    GaveUp,
}

pub const RESCAN_MS: u64 = 50;
pub const DEFAULT_GRACE_MS: u64 = 5_000;
pub const KILL_PHASE_MS: u64 = 3_000;
const EMPTY_LOOKS_NEEDED: u32 = 2;

impl Rounds {
    /// A grace of 0 begins with KILL.
    pub fn begin(now_ms: u64, grace_ms: u64) -> Self {
        let (phase, lasts) =
            if grace_ms == 0 { (Phase::Kill, KILL_PHASE_MS) } else { (Phase::Term, grace_ms) };
        Self { phase, phase_ends_at: now_ms.saturating_add(lasts), empty_in_a_row: 0 }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Called after the round's signals were sent: no round looks at the clock before it has signalled.
    pub fn after(&mut self, round: Round) -> Next {
        if round.proven {
            return Next::Done(Verdict::Proven);
        }
        if round.members == 0 && round.unsettled == 0 {
            self.empty_in_a_row += 1;
            if self.empty_in_a_row >= EMPTY_LOOKS_NEEDED {
                return Next::Done(Verdict::EmptyTwice);
            }
        } else {
            self.empty_in_a_row = 0;
        }
        if round.now_ms >= self.phase_ends_at {
            return match self.phase {
                Phase::Term => {
                    self.phase = Phase::Kill;
                    self.phase_ends_at = round.now_ms.saturating_add(KILL_PHASE_MS);
                    Next::LookWithKill
                }
                Phase::Kill => Next::Done(Verdict::GaveUp),
            };
        }
        // Something that multiplies gets no rest.
        let pause = if self.phase == Phase::Kill && round.new > 0 { 0 } else { RESCAN_MS };
        Next::WaitThenLook(pause.min(self.phase_ends_at.saturating_sub(round.now_ms)))
    }
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;
