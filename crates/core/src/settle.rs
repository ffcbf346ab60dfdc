//! Settling: what an answer of the supervisor, or its absence, proves about an effect whose answer was lost.
//!
//! Invariants:
//! - An end is accepted only from the boot that was asked and with the nonce that was sent.
//! - A key is released only on the supervisor's word that the job never started *and never will*: a plain "no
//!   such job" may be overtaken by a delayed start, so it asks for the stop that leaves a tombstone.
//! - Everything else is pending (ask again, within the caller's deadline) or unknown for good. Nothing is ever
//!   run again for the caller.

use ringfence_wire::contract::{Receipt, ReceiptEnd};
use ringfence_wire::evidence::Evidence;
use ringfence_wire::ids::{BootId, Nonce, Order, ProcessId};
use ringfence_wire::supervisor::{
    EndRecord, ExecutionIdentity, JobKind, JobState, JobView, StopFinding, StopReport,
};

/// What the object sent, and to whom: a job is told by all of it together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub id: ProcessId,
    pub kind: JobKind,
    pub order: Order,
    pub nonce: Nonce,
    pub boot_id: BootId,
    /// Where that boot said that its jobs run.
    pub identity: ExecutionIdentity,
}

impl Sent {
    /// Is this the job that was sent? Its boot is looked at apart: another boot is a loss, no contradiction.
    pub fn is(&self, view: &JobView) -> bool {
        view.id == self.id
            && view.kind == self.kind
            && view.order == self.order
            && view.nonce == self.nonce
            && view.identity == self.identity
            && view.identity != ExecutionIdentity::LegacyUnbound
    }
}

/// What came back when the job was asked for by its id.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// Nobody answered, or nothing that can be read.
    Nobody,
    /// Another boot answered, or the container is proven gone.
    BootGone,
    /// `GET /v1/jobs/{id}` found it.
    Job(&'a JobView),
    /// `GET` says: no such job, and none was started.
    UnknownJob,
    /// Below the forgetting mark.
    Forgotten,
    /// `DELETE /v1/jobs/{id}`.
    Stop(&'a StopReport),
}

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `GET` again.
    Again,
    /// `DELETE`: ends it, or leaves a tombstone that refuses a later start.
    Stop,
}

/// Why nobody will ever know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error("the supervisor that was asked is gone; the command may have run")]
    BootGone,
    #[error("the supervisor has forgotten the job; the command may have run")]
    Forgotten,
    #[error("the supervisor's answer is not about what was sent; the command may have run")]
    WrongProof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement<'a> {
    /// Proven: it ended so.
    Ended(&'a EndRecord),
    /// Proven: it started and has not ended.
    Runs(&'a JobView),
    /// Proven: it never ran and never will.
    NeverRan,
    Pending(Ask),
    Unknown(Unknown),
}

pub fn settle<'a>(sent: &Sent, answer: Answer<'a>) -> Settlement<'a> {
    match answer {
        Answer::Nobody => Settlement::Pending(Ask::Again),
        Answer::BootGone => Settlement::Unknown(Unknown::BootGone),
        Answer::Forgotten => Settlement::Unknown(Unknown::Forgotten),
        Answer::UnknownJob => Settlement::Pending(Ask::Stop),
        Answer::Job(view) => seen(sent, view),
        Answer::Stop(report) => match (report.finding, &report.job) {
            (StopFinding::NeverStarted, _) => Settlement::NeverRan,
            (StopFinding::Forgotten, _) => Settlement::Unknown(Unknown::Forgotten),
            (StopFinding::AlreadyEnded, None) => Settlement::Unknown(Unknown::WrongProof),
            (StopFinding::Stopped, None) => Settlement::Pending(Ask::Again),
            (StopFinding::Stopped | StopFinding::AlreadyEnded, Some(view)) => match seen(sent, view) {
                // Asked to stop, and it goes on: ask again until it ends.
                Settlement::Runs(_) => Settlement::Pending(Ask::Stop),
                settled => settled,
            },
        },
    }
}

fn seen<'a>(sent: &Sent, view: &'a JobView) -> Settlement<'a> {
    if view.boot_id != sent.boot_id {
        return Settlement::Unknown(Unknown::BootGone);
    }
    if !sent.is(view) {
        return Settlement::Unknown(Unknown::WrongProof);
    }
    match &view.end {
        Some(end) if proves(sent, end) => Settlement::Ended(end),
        Some(_) => Settlement::Unknown(Unknown::WrongProof),
        // Terminal without its record: the record is being written.
        None if view.state.is_terminal() => Settlement::Pending(Ask::Again),
        None => Settlement::Runs(view),
    }
}

/// Is this the end of what was sent? A code and a signal exclude each other, and both digests must be there.
pub fn proves(sent: &Sent, end: &EndRecord) -> bool {
    let digest = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    end.nonce == sent.nonce
        && end.boot_id == sent.boot_id
        && end.state.is_terminal()
        && !(end.exit_code.is_some() && end.signal.is_some())
        && digest(&end.stdout.sha256)
        && digest(&end.stderr.sha256)
}

/// The receipt that the proven end of this job makes. `recovered`: a recovery's teardown ended it, not its own fence.
pub fn receipt(job: &JobView, end: &EndRecord, recovered: bool) -> Receipt {
    let tail = job.tail.as_ref();
    let told = match (end.state, end.signal) {
        (JobState::TimedOut, _) => ReceiptEnd::TimedOut,
        (JobState::Completed | JobState::Failed, Some(_)) => ReceiptEnd::Signaled,
        (JobState::Completed | JobState::Failed, None) => ReceiptEnd::Exited,
        _ => ReceiptEnd::Killed,
    };
    let interrupted = told == ReceiptEnd::Killed && (recovered || end.state == JobState::Interrupted);
    Receipt {
        end: told,
        exit_code: end.exit_code,
        signal: end.signal,
        interrupted: interrupted.then_some(true),
        duration_ms: end.duration_ms,
        deduped: false,
        tail: tail.map(|tail| tail.text.clone()).unwrap_or_default(),
        truncated: tail.map_or(end.stdout.bytes + end.stderr.bytes > 0, |tail| tail.truncated),
        log_truncated: end.log_truncated.then_some(true),
        output_cut: end.output_cut.then_some(true),
        identity: job.identity,
    }
}

/// How many processes ended with an exec: those its own end swept and those its teardown killed. A teardown that
/// came while the job was still ending is in both records, so a process that both name counts once.
pub fn killed(own: &Evidence, torn: Option<&Evidence>) -> u64 {
    let Some(torn) = torn else { return own.killed_count };
    let unnamed = |evidence: &Evidence| {
        evidence.killed_count.saturating_sub(u64::try_from(evidence.killed.len()).unwrap_or(u64::MAX))
    };
    let only_torn =
        torn.killed.iter().filter(|one| own.killed.iter().all(|other| other.identity != one.identity));
    let named = own.killed.iter().chain(only_torn).count();
    u64::try_from(named).unwrap_or(u64::MAX).saturating_add(unnamed(own).max(unnamed(torn)))
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringfence_wire::evidence::{KillMethod, KillScope, SeenProcess};
    use ringfence_wire::ids::{Cursor, ProcessIdentity};
    use ringfence_wire::supervisor::StreamDigest;

    fn sent() -> Sent {
        Sent {
            id: "i".into(),
            kind: JobKind::Fenced,
            order: Order(1),
            nonce: "n".into(),
            boot_id: "b".into(),
            identity: ExecutionIdentity::SandboxedWorkspace,
        }
    }

    fn evidence() -> Evidence {
        Evidence::nothing_to_do(KillScope::Namespace, KillMethod::NoChildLeft)
    }

    fn end(state: JobState) -> EndRecord {
        let digest = StreamDigest { bytes: 0, sha256: "e3".repeat(32) };
        EndRecord {
            nonce: "n".into(),
            boot_id: "b".into(),
            state,
            exit_code: matches!(state, JobState::Completed).then_some(0),
            signal: matches!(state, JobState::Killed).then_some(9),
            started_at_ms: 1,
            ended_at_ms: 5,
            duration_ms: 4,
            stdout: digest.clone(),
            stderr: digest,
            log_truncated: false,
            output_cut: false,
            sweep: evidence(),
        }
    }

    fn view(state: JobState, end: Option<EndRecord>) -> JobView {
        JobView {
            id: "i".into(),
            kind: JobKind::Fenced,
            order: Order(1),
            boot_id: "b".into(),
            nonce: "n".into(),
            state,
            identity: ExecutionIdentity::SandboxedWorkspace,
            pid: None,
            started_at_ms: 1,
            command_ended_at_ms: None,
            end,
            output_base: Cursor(0),
            output_end: Cursor(0),
            tail: None,
        }
    }

    fn stop(finding: StopFinding, job: Option<JobView>) -> StopReport {
        StopReport { id: "i".into(), finding, evidence: evidence(), job }
    }

    #[test]
    fn an_end_record_of_the_same_boot_and_nonce_is_the_receipt() {
        let view = view(JobState::Completed, Some(end(JobState::Completed)));
        let Settlement::Ended(end) = settle(&sent(), Answer::Job(&view)) else { panic!("{view:?}") };
        let receipt = receipt(&view, end, false);
        assert_eq!((receipt.end, receipt.exit_code), (ReceiptEnd::Exited, Some(0)));
        assert_eq!(receipt.identity, ExecutionIdentity::SandboxedWorkspace);
    }

    #[test]
    fn a_job_that_a_recovery_ended_is_killed_and_interrupted_with_no_code() {
        let receipt = |state, recovered| receipt(&view(state, None), &end(state), recovered);
        let recovered = receipt(JobState::Killed, true);
        assert_eq!(
            (recovered.end, recovered.exit_code, recovered.signal, recovered.interrupted),
            (ReceiptEnd::Killed, None, Some(9), Some(true))
        );
        assert_eq!(receipt(JobState::Killed, false).interrupted, None);
        assert_eq!(receipt(JobState::Interrupted, false).interrupted, Some(true));
        assert_eq!(receipt(JobState::TimedOut, true).end, ReceiptEnd::TimedOut);
    }

    #[test]
    fn a_start_that_is_not_there_yet_is_not_released_but_stopped() {
        assert_eq!(settle(&sent(), Answer::UnknownJob), Settlement::Pending(Ask::Stop));
        let report = stop(StopFinding::NeverStarted, None);
        assert_eq!(settle(&sent(), Answer::Stop(&report)), Settlement::NeverRan);
    }

    #[test]
    fn what_was_forgotten_or_lost_with_its_boot_is_unknown_and_never_absent() {
        assert_eq!(settle(&sent(), Answer::Forgotten), Settlement::Unknown(Unknown::Forgotten));
        assert_eq!(settle(&sent(), Answer::BootGone), Settlement::Unknown(Unknown::BootGone));
        let report = stop(StopFinding::Forgotten, None);
        assert_eq!(settle(&sent(), Answer::Stop(&report)), Settlement::Unknown(Unknown::Forgotten));
    }

    #[test]
    fn silence_and_an_unfinished_stop_are_asked_again() {
        assert_eq!(settle(&sent(), Answer::Nobody), Settlement::Pending(Ask::Again));
        let report = stop(StopFinding::Stopped, Some(view(JobState::Stopping, None)));
        assert_eq!(settle(&sent(), Answer::Stop(&report)), Settlement::Pending(Ask::Stop));
        let ended = view(JobState::Killed, None);
        assert_eq!(settle(&sent(), Answer::Job(&ended)), Settlement::Pending(Ask::Again));
    }

    #[test]
    fn a_running_job_is_a_proven_start() {
        let running = view(JobState::Running, None);
        assert_eq!(settle(&sent(), Answer::Job(&running)), Settlement::Runs(&running));
    }

    #[test]
    fn a_record_with_another_nonce_boot_or_shape_proves_nothing() {
        let good = end(JobState::Completed);
        assert!(proves(&sent(), &good));
        for bad in [
            EndRecord { nonce: "other".into(), ..good.clone() },
            EndRecord { boot_id: "other".into(), ..good.clone() },
            EndRecord { state: JobState::Running, ..good.clone() },
            EndRecord { signal: Some(9), ..good.clone() },
            EndRecord { stdout: StreamDigest { bytes: 0, sha256: "00".into() }, ..good.clone() },
        ] {
            assert!(!proves(&sent(), &bad));
            let view = view(JobState::Completed, Some(bad));
            assert_eq!(settle(&sent(), Answer::Job(&view)), Settlement::Unknown(Unknown::WrongProof));
        }
    }

    #[test]
    fn a_job_that_differs_in_anything_from_what_was_sent_is_not_it() {
        let good = view(JobState::Completed, Some(end(JobState::Completed)));
        assert!(sent().is(&good));
        let other_host = Sent { identity: ExecutionIdentity::HostUnsandboxed, ..sent() };
        let unbound = Sent { identity: ExecutionIdentity::LegacyUnbound, ..sent() };
        for (sent, bad) in [
            (sent(), JobView { id: "other".into(), ..good.clone() }),
            (sent(), JobView { kind: JobKind::Detached, ..good.clone() }),
            (sent(), JobView { order: Order(2), ..good.clone() }),
            (sent(), JobView { nonce: "other".into(), ..good.clone() }),
            (other_host, good.clone()),
            (unbound, JobView { identity: ExecutionIdentity::LegacyUnbound, ..good.clone() }),
        ] {
            assert_eq!(settle(&sent, Answer::Job(&bad)), Settlement::Unknown(Unknown::WrongProof), "{bad:?}");
        }
    }

    fn swept(pids: &[i32], count: u64) -> Evidence {
        let mut evidence = Evidence::nothing_to_do(KillScope::Namespace, KillMethod::NoChildLeft);
        evidence.killed = pids
            .iter()
            .map(|pid| SeenProcess {
                identity: ProcessIdentity { pid: *pid, start_time: 1 },
                name: String::new(),
            })
            .collect();
        evidence.killed_count = count;
        evidence
    }

    #[test]
    fn a_process_that_the_end_and_the_teardown_both_name_is_killed_once() {
        assert_eq!(killed(&swept(&[5], 1), Some(&swept(&[5], 1))), 1);
        assert_eq!(killed(&swept(&[5], 1), Some(&swept(&[6, 5], 2))), 2);
        assert_eq!(killed(&swept(&[], 0), Some(&swept(&[6], 1))), 1);
        assert_eq!(killed(&swept(&[5], 1), None), 1);
        let reused = {
            let mut other = swept(&[5], 1);
            other.killed[0].identity.start_time = 2;
            other
        };
        assert_eq!(killed(&swept(&[5], 1), Some(&reused)), 2, "another process under a reused pid");
    }

    #[test]
    fn what_was_killed_beyond_the_named_is_counted_once_too() {
        assert_eq!(killed(&swept(&[1, 2], 10), Some(&swept(&[2, 3], 7))), 3 + 8);
    }

    proptest! {
        #[test]
        fn only_a_tombstone_releases_and_only_a_matching_record_ends(
            finding in 0usize..4, state in 0usize..9, has_end in any::<bool>(), has_job in any::<bool>(),
            boot in "[bc]", nonce in "[nm]", by_stop in any::<bool>(),
        ) {
            const FINDINGS: [StopFinding; 4] = [
                StopFinding::Stopped, StopFinding::AlreadyEnded, StopFinding::NeverStarted, StopFinding::Forgotten,
            ];
            const STATES: [JobState; 9] = [
                JobState::Prepared, JobState::Running, JobState::Stopping, JobState::Completed, JobState::Failed,
                JobState::TimedOut, JobState::Cancelled, JobState::Killed, JobState::Interrupted,
            ];
            let state = STATES[state];
            let mut job = view(state, (has_end && state.is_terminal()).then(|| end(state)));
            job.boot_id = boot.as_str().into();
            job.nonce = nonce.as_str().into();
            let report = stop(FINDINGS[finding], has_job.then(|| job.clone()));
            let answer = if by_stop { Answer::Stop(&report) } else { Answer::Job(&job) };
            let right = boot == "b" && nonce == "n";
            match settle(&sent(), answer) {
                Settlement::NeverRan => prop_assert!(by_stop && report.finding == StopFinding::NeverStarted),
                Settlement::Ended(end) => prop_assert!(right && end.state.is_terminal()),
                Settlement::Runs(view) => prop_assert!(right && !by_stop && !view.state.is_terminal()),
                Settlement::Pending(_) => prop_assert!(!(by_stop && report.finding == StopFinding::Forgotten)),
                Settlement::Unknown(_) => {}
            }
        }
    }
}
