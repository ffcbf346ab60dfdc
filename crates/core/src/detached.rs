//! Which jobs a fence's teardown kills, and which declarations outlive it. The Sandbox object composes the
//! teardown with these functions; the supervisor runs the same ones.
//!
//! Invariant: a job is killed unless a live declaration names its id exactly, or it is newer than the teardown.
//! Whatever cannot be read counts as undeclared: killing a declared process is a wrong answer, leaving a
//! grant-holder alive is a worse one.

use ringfence_wire::ids::{Order, ProcessId};
use ringfence_wire::supervisor::TrackedJob;
use std::collections::HashSet;

/// Where a declaration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Written before the supervisor was asked; not yet confirmed.
    Starting,
    /// The supervisor confirmed the start.
    Confirmed,
    /// A stop was asked for: out of every spare list at once.
    Stopping,
    /// Its end is known and recorded; nothing is left to spare or to kill.
    Exited,
}

/// One declared record, as far as a fence needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub id: ProcessId,
    /// The order of its start.
    pub order: Order,
    pub phase: Phase,
}

impl Declared {
    fn is_spared(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Confirmed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKillMode {
    KillAll,
    Selective,
}

/// What a teardown means for one declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Survives,
    /// A kill-all took it: its tombstone says `fence-killed`.
    FenceKilled,
    /// The supervisor no longer knows it: its tombstone says `not-tracked`.
    NotTracked,
    /// It was being stopped; the stop that asked settles it.
    LeftToItsStop,
}

/// The ids a teardown is told to spare. A record newer than the teardown is named too: being spared by id and by
/// order is the same answer twice.
pub fn spare_list(declared: &[Declared]) -> Vec<ProcessId> {
    declared.iter().filter(|d| d.is_spared()).map(|d| d.id.clone()).collect()
}

/// Nothing to spare, or no readable job list: kill all.
pub fn fence_kill_mode(declared: &[Declared], tracked: Option<&[TrackedJob]>) -> FenceKillMode {
    if tracked.is_some() && declared.iter().any(Declared::is_spared) {
        FenceKillMode::Selective
    } else {
        FenceKillMode::KillAll
    }
}

/// The jobs a selective teardown ends: older than it, not yet ended, and not spared by exactly their id.
pub fn fenced_kill_set(teardown: Order, spare: &[ProcessId], tracked: &[TrackedJob]) -> Vec<ProcessId> {
    let spare: HashSet<&ProcessId> = spare.iter().collect();
    tracked
        .iter()
        .filter(|job| !job.state.is_terminal() && job.order < teardown && !spare.contains(&job.id))
        .map(|job| job.id.clone())
        .collect()
}

/// What becomes of each declaration, given what the supervisor tracked when the teardown was decided
/// (`None`: the list could not be read, so the teardown was a kill-all).
pub fn declaration_fates(
    teardown: Order,
    declared: &[Declared],
    tracked: Option<&[TrackedJob]>,
) -> Vec<(ProcessId, Fate)> {
    let known: Option<HashSet<&ProcessId>> = tracked.map(|jobs| jobs.iter().map(|job| &job.id).collect());
    let fate = |record: &Declared| match record.phase {
        // Newer than the teardown, or not yet confirmed: never touched here.
        _ if record.order > teardown => Fate::Survives,
        Phase::Starting | Phase::Exited => Fate::Survives,
        Phase::Stopping => Fate::LeftToItsStop,
        Phase::Confirmed => match &known {
            None => Fate::FenceKilled,
            Some(known) if known.contains(&record.id) => Fate::Survives,
            Some(_) => Fate::NotTracked,
        },
    };
    declared.iter().map(|record| (record.id.clone(), fate(record))).collect()
}

/// The declarations that outlive a teardown.
pub fn surviving_declarations(
    teardown: Order,
    declared: &[Declared],
    tracked: Option<&[TrackedJob]>,
) -> Vec<ProcessId> {
    declaration_fates(teardown, declared, tracked)
        .into_iter()
        .filter(|(_, fate)| *fate == Fate::Survives)
        .map(|(id, _)| id)
        .collect()
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringfence_wire::supervisor::JobState;

    fn declared() -> impl Strategy<Value = Vec<Declared>> {
        let phase = prop_oneof![
            Just(Phase::Starting),
            Just(Phase::Confirmed),
            Just(Phase::Stopping),
            Just(Phase::Exited)
        ];
        prop::collection::vec((0u8..8, 1u64..20, phase), 0..8).prop_map(|rows| {
            let mut seen = HashSet::new();
            rows.into_iter()
                .filter(|(id, ..)| seen.insert(*id))
                .map(|(id, order, phase)| Declared { id: id.to_string().into(), order: Order(order), phase })
                .collect()
        })
    }

    fn tracked() -> impl Strategy<Value = Vec<TrackedJob>> {
        let state = prop_oneof![Just(JobState::Running), Just(JobState::Stopping), Just(JobState::Completed)];
        prop::collection::vec((0u8..8, 1u64..20, state), 0..8).prop_map(|rows| {
            let mut seen = HashSet::new();
            rows.into_iter()
                .filter(|(id, ..)| seen.insert(*id))
                .map(|(id, order, state)| TrackedJob {
                    id: id.to_string().into(),
                    state,
                    order: Order(order),
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn a_spared_job_is_never_in_the_kill_set_and_every_other_older_live_job_is(
            declared in declared(), tracked in tracked(),
        ) {
            let spare = spare_list(&declared);
            let kill = fenced_kill_set(Order(10), &spare, &tracked);
            for job in &tracked {
                let must_die = !spare.contains(&job.id) && job.order < Order(10) && !job.state.is_terminal();
                prop_assert_eq!(kill.contains(&job.id), must_die);
            }
        }

        #[test]
        fn nothing_that_survives_was_killed(declared in declared(), tracked in tracked()) {
            let kill = fenced_kill_set(Order(10), &spare_list(&declared), &tracked);
            for id in surviving_declarations(Order(10), &declared, Some(&tracked)) {
                let record = declared.iter().find(|d| d.id == id).unwrap();
                let untouched = record.phase == Phase::Exited || record.order > Order(10);
                prop_assert!(untouched || !kill.contains(&id));
            }
        }

        #[test]
        fn an_unreadable_list_is_kill_all_and_leaves_only_what_it_may_not_touch(declared in declared()) {
            prop_assert_eq!(fence_kill_mode(&declared, None), FenceKillMode::KillAll);
            for (id, fate) in declaration_fates(Order(10), &declared, None) {
                let record = declared.iter().find(|d| d.id == id).unwrap();
                if record.phase == Phase::Confirmed && record.order <= Order(10) {
                    prop_assert_eq!(fate, Fate::FenceKilled);
                }
            }
        }
    }
}
