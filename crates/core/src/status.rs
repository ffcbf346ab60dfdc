//! What a detached process's status is: its stored record, and what its supervisor said if it was asked.
//!
//! Invariant: `gone` and `exited` are said only on proof. A look-up that failed is `unreachable` and never final.
//! [`read`] also says what the record becomes, so that a proof once seen is kept and need not be asked for again.

use ringfence_wire::contract::{DetachedStatus, GoneReason};
use ringfence_wire::supervisor::JobState;
use serde::{Deserialize, Serialize};

/// Where a declared record stands, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Record {
    /// Written; the supervisor has not confirmed the start.
    Starting,
    /// The supervisor confirmed the start.
    Running,
    /// A stop was asked for and is not yet proven.
    Stopping,
    /// The command ended by itself.
    Exited { exit_code: Option<i32>, signal: Option<i32> },
    /// A tombstone.
    Gone { reason: GoneReason, detail: String },
}

/// What the object learned about the job just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The container is proven not to run.
    ContainerDown,
    /// Another supervisor answered: the one that had the job is gone, and the job with it.
    BootChanged,
    /// Nobody answered, or the answer could not be read.
    Unreachable { detail: String },
    /// The supervisor has the job. `exit_code` and `signal` are from its end record.
    Job { state: JobState, exit_code: Option<i32>, signal: Option<i32> },
    /// The same supervisor has no such job, and would remember it.
    Unknown,
    /// The same supervisor may have had the job and has forgotten it.
    Forgotten,
}

/// A status, and the record to store if this reading settled something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub status: DetachedStatus,
    pub becomes: Option<Record>,
}

/// Does a status need the supervisor's word? If not, [`stored`] answers it.
pub fn needs_supervisor(record: &Record) -> bool {
    matches!(record, Record::Starting | Record::Running | Record::Stopping)
}

/// The status of an id that no record names.
pub fn never_started() -> DetachedStatus {
    gone(GoneReason::NeverStarted, "no process of this id was started here")
}

/// The status a record proves by itself, or `None` when the supervisor must be asked.
pub fn stored(record: &Record) -> Option<DetachedStatus> {
    match record {
        Record::Exited { exit_code, signal } => {
            Some(DetachedStatus::Exited { exit_code: *exit_code, signal: *signal })
        }
        Record::Gone { reason, detail } => Some(gone(*reason, detail)),
        Record::Starting | Record::Running | Record::Stopping => None,
    }
}

/// The status of a record, given what was learned.
pub fn read(record: &Record, view: &View) -> Reading {
    if let Some(status) = stored(record) {
        return Reading { status, becomes: None };
    }
    match view {
        View::Unreachable { detail } => open(unreachable(detail)),
        View::Job { state, exit_code, signal } => job(record, *state, *exit_code, *signal),
        // Whether a start in flight happened is for the start's own settling to prove.
        View::ContainerDown | View::BootChanged | View::Unknown | View::Forgotten
            if *record == Record::Starting =>
        {
            open(unreachable("its start is not confirmed yet"))
        }
        View::ContainerDown | View::BootChanged | View::Unknown if *record == Record::Stopping => {
            settled(GoneReason::Stopped, "nothing of it is left")
        }
        View::ContainerDown => settled(GoneReason::ContainerStopped, "its container stopped"),
        View::BootChanged => settled(GoneReason::ContainerStopped, "its container was started anew"),
        View::Unknown => settled(GoneReason::NotTracked, "its supervisor does not know it"),
        View::Forgotten => settled(GoneReason::NotTracked, "it ended and its end was forgotten"),
    }
}

fn job(record: &Record, state: JobState, exit_code: Option<i32>, signal: Option<i32>) -> Reading {
    match state {
        // Also under a stop: until the end is proven it is not gone.
        JobState::Prepared | JobState::Running | JobState::Stopping => {
            let becomes = (*record == Record::Starting).then_some(Record::Running);
            Reading { status: DetachedStatus::Running, becomes }
        }
        // It ended by itself, whatever was asked of it meanwhile.
        JobState::Completed | JobState::Failed => Reading {
            status: DetachedStatus::Exited { exit_code, signal },
            becomes: Some(Record::Exited { exit_code, signal }),
        },
        JobState::Cancelled => settled(GoneReason::Stopped, "it was stopped"),
        JobState::Killed if *record == Record::Stopping => settled(GoneReason::Stopped, "it was stopped"),
        JobState::Killed => settled(GoneReason::FenceKilled, "a teardown that spared nobody ended it"),
        JobState::TimedOut => settled(GoneReason::Expired, "it reached its time limit"),
        JobState::Interrupted => settled(
            GoneReason::ContainerStopped,
            "its supervisor ended it: a deadline, a shutdown, or a lost leader",
        ),
    }
}

fn gone(reason: GoneReason, detail: &str) -> DetachedStatus {
    DetachedStatus::Gone { reason, is_final: reason != GoneReason::Unreachable, detail: detail.to_owned() }
}

fn unreachable(detail: &str) -> DetachedStatus {
    gone(GoneReason::Unreachable, detail)
}

fn open(status: DetachedStatus) -> Reading {
    Reading { status, becomes: None }
}

fn settled(reason: GoneReason, detail: &str) -> Reading {
    Reading {
        status: gone(reason, detail),
        becomes: Some(Record::Gone { reason, detail: detail.to_owned() }),
    }
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(reading: &Reading) -> Option<GoneReason> {
        match &reading.status {
            DetachedStatus::Gone { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    fn ended(state: JobState) -> View {
        View::Job { state, exit_code: None, signal: Some(9) }
    }

    #[test]
    fn a_process_that_exited_by_itself_is_exited_even_if_a_stop_was_asked_for() {
        let view = View::Job { state: JobState::Failed, exit_code: Some(3), signal: None };
        for record in [Record::Running, Record::Stopping] {
            let reading = read(&record, &view);
            assert_eq!(reading.status, DetachedStatus::Exited { exit_code: Some(3), signal: None });
            assert_eq!(reading.becomes, Some(Record::Exited { exit_code: Some(3), signal: None }));
        }
    }

    #[test]
    fn a_signal_death_reports_the_signal_and_no_code() {
        let reading = read(&Record::Running, &ended(JobState::Failed));
        assert_eq!(reading.status, DetachedStatus::Exited { exit_code: None, signal: Some(9) });
    }

    #[test]
    fn a_stopping_process_is_not_gone_while_it_lives() {
        let view = View::Job { state: JobState::Stopping, exit_code: None, signal: None };
        assert_eq!(read(&Record::Stopping, &view), open(DetachedStatus::Running));
    }

    #[test]
    fn each_way_to_be_gone_has_its_reason() {
        use GoneReason::*;
        for (record, view, expect) in [
            (Record::Running, View::ContainerDown, ContainerStopped),
            (Record::Running, View::BootChanged, ContainerStopped),
            (Record::Running, View::Unknown, NotTracked),
            (Record::Running, View::Forgotten, NotTracked),
            (Record::Running, ended(JobState::Killed), FenceKilled),
            (Record::Running, ended(JobState::Cancelled), Stopped),
            (Record::Stopping, ended(JobState::Killed), Stopped),
            (Record::Stopping, View::BootChanged, Stopped),
            (Record::Stopping, View::Forgotten, NotTracked),
        ] {
            assert_eq!(reason(&read(&record, &view)), Some(expect), "{record:?} {view:?}");
        }
        assert_eq!(never_started(), gone(NeverStarted, "no process of this id was started here"));
    }

    fn records() -> impl Strategy<Value = Record> {
        prop_oneof![
            Just(Record::Starting),
            Just(Record::Running),
            Just(Record::Stopping),
            Just(Record::Exited { exit_code: Some(0), signal: None }),
            Just(Record::Gone { reason: GoneReason::Aborted, detail: String::new() }),
        ]
    }

    fn views() -> impl Strategy<Value = View> {
        let state = prop_oneof![
            Just(JobState::Prepared),
            Just(JobState::Running),
            Just(JobState::Stopping),
            Just(JobState::Completed),
            Just(JobState::Failed),
            Just(JobState::TimedOut),
            Just(JobState::Cancelled),
            Just(JobState::Killed),
            Just(JobState::Interrupted),
        ];
        prop_oneof![
            Just(View::ContainerDown),
            Just(View::BootChanged),
            Just(View::Unreachable { detail: "timed out".into() }),
            Just(View::Unknown),
            Just(View::Forgotten),
            state.prop_map(|state| View::Job { state, exit_code: Some(1), signal: None }),
        ]
    }

    proptest! {
        #[test]
        fn only_unreachable_is_not_final_and_only_what_is_final_is_stored(record in records(), view in views()) {
            let reading = read(&record, &view);
            if let DetachedStatus::Gone { reason, is_final, .. } = &reading.status {
                prop_assert_eq!(*is_final, *reason != GoneReason::Unreachable);
                prop_assert!(*is_final || reading.becomes.is_none());
            }
        }

        #[test]
        fn what_is_stored_answers_the_same_without_the_supervisor(record in records(), view in views(), later in views()) {
            let first = read(&record, &view);
            if let Some(becomes) = &first.becomes && !needs_supervisor(becomes) {
                prop_assert_eq!(read(becomes, &later), open(first.status));
            }
        }

        #[test]
        fn a_start_in_flight_is_never_called_gone_for_good_on_an_absence(view in views()) {
            let reading = read(&Record::Starting, &view);
            if !matches!(view, View::Job { .. }) {
                prop_assert_eq!(reason(&reading), Some(GoneReason::Unreachable));
            }
        }
    }
}
