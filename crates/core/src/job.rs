//! A job's state machine, as the supervisor runs it.
//!
//! Invariants: the first desired end wins, and a command that ended by itself before any end was wanted keeps its
//! own end for good. A job is terminal only when its command's end is known, both streams are complete and its
//! tree is reaped. Nothing leaves a terminal state.

use ringfence_wire::supervisor::{JobState, OutputStream};

/// Why somebody ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndWanted {
    /// Its own `timeoutMs` passed.
    TimedOut,
    /// It was stopped by its id.
    Cancelled,
    /// A teardown or a kill-all took it.
    Killed,
    /// The supervisor is ending, or the job's leader was lost.
    Interrupted,
}

impl EndWanted {
    fn state(self) -> JobState {
        match self {
            Self::TimedOut => JobState::TimedOut,
            Self::Cancelled => JobState::Cancelled,
            Self::Killed => JobState::Killed,
            Self::Interrupted => JobState::Interrupted,
        }
    }
}

/// How the command itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    Exited(i32),
    Signaled(i32),
    /// It could not be started: reported as 127, as a shell does.
    NotStarted,
    /// Nobody saw it end: its leader was lost, and the process is gone.
    Unseen,
}

pub const COULD_NOT_START: i32 = 127;

impl CommandEnd {
    /// Present exactly when the command exited by itself.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::NotStarted => Some(COULD_NOT_START),
            Self::Signaled(_) | Self::Unseen => None,
        }
    }

    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Signaled(signal) => Some(signal),
            Self::Exited(_) | Self::NotStarted | Self::Unseen => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command's process exists.
    Started,
    CommandEnded(CommandEnd),
    Want(EndWanted),
    /// A stream is complete: its digest is known.
    StreamDone(OutputStream),
    /// The kernel or a finished look says that nothing of the job is left.
    TreeReaped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    started: bool,
    command: Option<CommandEnd>,
    wanted: Option<EndWanted>,
    stdout_done: bool,
    stderr_done: bool,
    reaped: bool,
}

impl Job {
    pub fn apply(&mut self, event: Event) {
        if self.state().is_terminal() {
            return;
        }
        match event {
            Event::Started => self.started = true,
            Event::CommandEnded(end) => {
                self.command.get_or_insert(end);
            }
            // A command that ended by itself was ended by nobody.
            Event::Want(end) if self.command.is_none() => {
                self.wanted.get_or_insert(end);
            }
            Event::Want(_) => {}
            Event::StreamDone(OutputStream::Stdout) => self.stdout_done = true,
            Event::StreamDone(OutputStream::Stderr) => self.stderr_done = true,
            Event::TreeReaped => self.reaped = true,
        }
    }

    pub fn state(&self) -> JobState {
        let Some(command) = self.command else {
            return match (self.wanted, self.started) {
                (Some(_), _) => JobState::Stopping,
                (None, true) => JobState::Running,
                (None, false) => JobState::Prepared,
            };
        };
        if !(self.stdout_done && self.stderr_done && self.reaped) {
            return JobState::Stopping;
        }
        match (self.wanted, command) {
            (Some(wanted), _) => wanted.state(),
            (None, CommandEnd::Exited(0)) => JobState::Completed,
            (None, CommandEnd::Exited(_) | CommandEnd::Signaled(_) | CommandEnd::NotStarted) => {
                JobState::Failed
            }
            (None, CommandEnd::Unseen) => JobState::Interrupted,
        }
    }

    pub fn command_end(&self) -> Option<CommandEnd> {
        self.command
    }

    /// Nothing of the job's tree is left.
    pub fn is_reaped(&self) -> bool {
        self.reaped
    }

    pub fn wanted(&self) -> Option<EndWanted> {
        self.wanted
    }
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Started),
            (0i32..3).prop_map(|code| Event::CommandEnded(CommandEnd::Exited(code))),
            Just(Event::CommandEnded(CommandEnd::Signaled(9))),
            Just(Event::CommandEnded(CommandEnd::NotStarted)),
            Just(Event::CommandEnded(CommandEnd::Unseen)),
            Just(Event::Want(EndWanted::TimedOut)),
            Just(Event::Want(EndWanted::Cancelled)),
            Just(Event::Want(EndWanted::Killed)),
            Just(Event::Want(EndWanted::Interrupted)),
            Just(Event::StreamDone(OutputStream::Stdout)),
            Just(Event::StreamDone(OutputStream::Stderr)),
            Just(Event::TreeReaped),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_order_a_terminal_state_has_exit_digests_and_a_reaped_tree_and_is_never_left(
            events in prop::collection::vec(event(), 0..40),
        ) {
            let mut job = Job::default();
            let (mut exit, mut out, mut err, mut reaped) = (false, false, false, false);
            let mut terminal = None;
            for event in events {
                exit |= matches!(event, Event::CommandEnded(_));
                out |= event == Event::StreamDone(OutputStream::Stdout);
                err |= event == Event::StreamDone(OutputStream::Stderr);
                reaped |= event == Event::TreeReaped;
                job.apply(event);
                prop_assert_eq!(job.state().is_terminal(), exit && out && err && reaped);
                if let Some(state) = terminal {
                    prop_assert_eq!(job.state(), state);
                } else if job.state().is_terminal() {
                    terminal = Some(job.state());
                }
            }
        }

        #[test]
        fn the_first_of_own_end_and_wanted_end_decides(
            events in prop::collection::vec(event(), 1..40),
        ) {
            let mut job = Job::default();
            let first = events.iter().copied().find(|e| matches!(e, Event::CommandEnded(_) | Event::Want(_)));
            for event in events {
                job.apply(event);
            }
            for last in [
                Event::CommandEnded(CommandEnd::Exited(0)),
                Event::StreamDone(OutputStream::Stdout),
                Event::StreamDone(OutputStream::Stderr),
                Event::TreeReaped,
            ] {
                job.apply(last);
            }
            let expected = match first {
                Some(Event::Want(wanted)) => wanted.state(),
                Some(Event::CommandEnded(CommandEnd::Exited(0))) | None => JobState::Completed,
                Some(Event::CommandEnded(CommandEnd::Unseen)) => JobState::Interrupted,
                Some(_) => JobState::Failed,
            };
            prop_assert_eq!(job.state(), expected);
        }
    }

    #[test]
    fn a_signal_death_reports_the_signal_and_no_code() {
        assert_eq!(
            (CommandEnd::Signaled(11).exit_code(), CommandEnd::Signaled(11).signal()),
            (None, Some(11))
        );
        assert_eq!((CommandEnd::Exited(3).exit_code(), CommandEnd::Exited(3).signal()), (Some(3), None));
        assert_eq!(CommandEnd::NotStarted.exit_code(), Some(127));
    }
}
