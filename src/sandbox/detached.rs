//! Detached processes: start and stop.
//!
//! Invariant: a record is written, with its order, before the supervisor is asked; a start proven not to have
//! happened frees its key. A detached process holds no grant, ever.
//!
//! Order of effects of a start: ticket → key looked up → in one transaction the attestation is spent and the record
//! declared → ensure (a fence is waited for only if the container must be built) → the record is bound to the boot →
//! start → confirmed. Of a stop: the record is `stopping`, so out of every spare list → kill → tombstone, only on
//! complete evidence or because the container it ran in is gone.

use std::rc::Rc;

use ringfence_core::fingerprint::{self, Call, Comparison};
use ringfence_core::recipe::relative_log_path;
use ringfence_core::status::{self, Record, View};
use ringfence_wire::contract::{GoneReason, StartDetachedDone, StartDetachedInput, StartedProcess, StopDone};
use ringfence_wire::ids::{Nonce, ProcessId};
use ringfence_wire::internal::Pass;
use ringfence_wire::refusal::Refusal;
use ringfence_wire::supervisor::{
    ExecutionIdentity, JobKind, JobSpec, JobView, StartJob, StdinMode, StopFinding,
};

use super::approval::Asked;
use super::boot::Want;
use super::lookup::{of_job, seen};
use super::settle::Unproven;
use super::store::ledger::KeyKind;
use super::store::processes::Process;
use super::{Object, new_id, random_hex, refusals};
use crate::clock;
use crate::supervisor::CallError;

/// TERM to KILL for a stop.
const STOP_GRACE_MS: u64 = 5_000;

pub type StartResult = Result<StartDetachedDone, Refusal>;

/// What the records say to a start.
enum Found {
    Free,
    Answer(StartResult),
    /// Declared, not confirmed.
    Open(Process),
}

impl Object {
    pub async fn start_detached(
        self: &Rc<Self>,
        pass: Option<&Pass>,
        input: StartDetachedInput,
        floor_rule: Option<&str>,
    ) -> StartResult {
        let head = self.known_head()?;
        self.admit(&head, pass)?;
        let epoch = self.epoch.get();
        let process = loop {
            match self.find(&input)? {
                Found::Answer(answer) => return answer,
                Found::Open(process) => match self.starts.get(&process.id.0) {
                    Some(flight) => {
                        return flight.await.map(|done| StartDetachedDone { deduped: true, ..done });
                    }
                    // An earlier incarnation left it: recovery settles it, and then the record knows.
                    None => self.must_recover(),
                },
                // From here to the declaration nothing awaits.
                Found::Free if self.recovered.get() => break self.declare(&input, floor_rule)?,
                Found::Free => {}
            }
            self.recovered(epoch).await?;
            self.still(epoch)?;
        };
        let object = Rc::clone(self);
        let id = process.id.0.clone();
        self.starts.launch(id, async move { object.start(epoch, process, input).await }).await
    }

    fn find(&self, input: &StartDetachedInput) -> Result<Found, Refusal> {
        let key = &input.idempotency_key;
        let Some(process) = self.store.process_of_key(key)? else {
            if self.store.key_was_forgotten(KeyKind::Process, key)? {
                let refusal = refusals::effect_unknown("it was used long ago, and its record was dropped");
                return Ok(Found::Answer(Err(refusal)));
            }
            return Ok(Found::Free);
        };
        match fingerprint::matches(&process.fingerprint, Call::Start(input)) {
            Comparison::Same => {}
            Comparison::Different => return Ok(Found::Answer(Err(refusals::conflict()))),
            Comparison::UnknownVersion => {
                return Ok(Found::Answer(Err(refusals::effect_unknown("it was used under another version"))));
            }
        }
        if !process.effect_known {
            return Ok(Found::Answer(Err(refusals::effect_unknown("its start could not be settled"))));
        }
        Ok(match process.record {
            Record::Starting => Found::Open(process),
            _ => Found::Answer(Ok(StartDetachedDone {
                process: StartedProcess { id: process.id, started_at: process.started_at },
                deduped: true,
            })),
        })
    }

    /// One transaction: the record is written, its order taken, the attestation spent; in this order, as for an exec.
    fn declare(&self, input: &StartDetachedInput, floor_rule: Option<&str>) -> Result<Process, Refusal> {
        let key = &input.idempotency_key;
        let word = self.may_spend(&Asked {
            kind: KeyKind::Process,
            key,
            command: &input.command,
            approval: input.approval.as_ref(),
            floor_rule,
        })?;
        let process = Process {
            id: new_id(),
            idempotency_key: key.clone(),
            fingerprint: fingerprint::start(input),
            record: Record::Starting,
            effect_known: true,
            order: self.store.take_orders(1)?,
            generation: 0,
            boot_id: None,
            nonce: Nonce(random_hex()?),
            identity: ExecutionIdentity::SandboxedWorkspace,
            log_path: input.log_path.clone(),
            stdin: input.stdin == Some(StdinMode::Pipe),
            started_at: clock::now_ms(),
        };
        self.store.declare(&process)?;
        self.store.spend(word.as_ref(), process.started_at)?;
        Ok(process)
    }

    async fn start(self: Rc<Self>, epoch: u64, process: Process, input: StartDetachedInput) -> StartResult {
        let want = Want::of(&input.recipe, false);
        let ready = match self.ensure(epoch, want).await {
            Ok(up) => self.still(epoch).map(|()| up),
            Err(refusal) => Err(refusal),
        };
        let up = match ready {
            Ok(up) => up,
            Err(refusal) => {
                // Nothing was sent.
                self.store.release_process(&process.id)?;
                return Err(refusal);
            }
        };
        if up.rebuilt {
            self.show_in_registry_later();
        }
        if !self.store.bind_to_boot(&process.id, up.generation, &up.boot_id, up.identity)? {
            return Err(refusals::unavailable("stopped", "it was stopped before its start was sent"));
        }
        self.keep_watch()?;
        let job = StartJob {
            order: process.order,
            id: process.id.clone(),
            nonce: process.nonce.clone(),
            spec: JobSpec {
                kind: JobKind::Detached,
                command: Some(input.command),
                argv: None,
                cwd: None,
                env: Default::default(),
                stdin: input.stdin.unwrap_or_default(),
                timeout_ms: None,
                log_path: Some(relative_log_path(&input.log_path)),
            },
            wait_ms: 0,
            wake_on_stopping: false,
            tail_bytes: 0,
        };
        let sent = process.sent(&up.boot_id, up.identity);
        let started = match up.supervisor.start_job(&job).await {
            Ok(view) => Ok(view),
            Err(error) => self.settle_start(&up, &sent, error).await,
        };
        self.conclude_start(epoch, &process, started)
    }

    /// Writes down what became of a start that was sent.
    pub fn conclude_start(
        &self,
        epoch: u64,
        process: &Process,
        started: Result<JobView, Unproven>,
    ) -> StartResult {
        match started {
            Ok(view) => {
                let reading = status::read(&Record::Starting, &of_job(&view));
                let record = reading.becomes.unwrap_or(Record::Running);
                self.store.confirm_start(&process.id, &record, view.started_at_ms)?;
                self.still(epoch)?;
                let process = StartedProcess { id: process.id.clone(), started_at: view.started_at_ms };
                Ok(StartDetachedDone { process, deduped: false })
            }
            Err(Unproven::NotRun(refusal)) => {
                self.store.release_process(&process.id)?;
                Err(refusal)
            }
            Err(Unproven::Unknown(detail)) => {
                // It may run: no fence spares it from here on, and nobody is told that it does.
                self.store.set_effect_unknown(&process.id)?;
                self.store.set_record(&process.id, &Record::Stopping, clock::now_ms())?;
                Err(refusals::effect_unknown(&detail))
            }
        }
    }

    /// Never refuses: what went wrong is in the answer.
    pub async fn stop_detached(&self, id: &ProcessId) -> StopDone {
        self.stop(id).await.unwrap_or_else(|refusal| not_stopped(refusal.message))
    }

    async fn stop(&self, id: &ProcessId) -> Result<StopDone, Refusal> {
        let Some(process) = self.store.process(id)? else {
            // A mistyped id, or another's key: what it meant to stop may run.
            return Ok(if self.store.process_was_forgotten(id)? {
                stopped_as("it ended long ago, and its record was dropped")
            } else {
                not_stopped("no process of this id was started under this key".to_owned())
            });
        };
        if status::stored(&process.record).is_some() {
            return Ok(stopped_as("it had ended before"));
        }
        self.store.set_record(id, &Record::Stopping, clock::now_ms())?;
        let head = self.known_head()?;
        let here = process.boot_id.is_some() && process.boot_id == head.boot_id;
        if !self.container_runs() || (process.boot_id.is_some() && !here) {
            return self.stopped(id, stopped_as(CONTAINER_GONE));
        }
        if process.boot_id.is_none() {
            // The call that was to send it finds the record stopping.
            return self.stopped(id, stopped_as("its start had not been sent, and will not be"));
        }
        let Some(up) = self.up(&head)? else {
            return Ok(not_stopped("its container is being ended".to_owned()));
        };
        let report = match up.supervisor.stop_job(id, process.order, STOP_GRACE_MS).await {
            Ok(report) => report,
            Err(CallError::Lost) => return self.stopped(id, stopped_as(CONTAINER_GONE)),
            Err(_) if !self.container_runs() => return self.stopped(id, stopped_as(CONTAINER_GONE)),
            Err(error) => return Ok(not_stopped(error.to_string())),
        };
        self.record_sweep(Some(id.0.clone()), &report.evidence);
        let evidence = Some(report.evidence);
        match report.finding {
            StopFinding::Stopped => {
                let complete = evidence.as_ref().is_some_and(|e| e.complete && e.survivors.is_empty());
                if complete {
                    self.stopped(id, StopDone { stopped: true, evidence, detail: None })
                } else {
                    let detail = Some("it could not be proven that nothing of it is left".to_owned());
                    Ok(StopDone { stopped: false, evidence, detail })
                }
            }
            StopFinding::NeverStarted => self.stopped(id, StopDone { stopped: true, evidence, detail: None }),
            StopFinding::AlreadyEnded | StopFinding::Forgotten => {
                let view = report.job.as_ref().map_or(View::Forgotten, |job| seen(&process, job));
                self.note(id, &view)?;
                Ok(StopDone { stopped: true, evidence, detail: Some("it had ended before".to_owned()) })
            }
        }
    }

    fn stopped(&self, id: &ProcessId, done: StopDone) -> Result<StopDone, Refusal> {
        let record = Record::Gone { reason: GoneReason::Stopped, detail: "it was stopped".to_owned() };
        self.store.set_record(id, &record, clock::now_ms())?;
        Ok(done)
    }
}

const CONTAINER_GONE: &str = "the container it ran in is gone, and all that ran in it";

/// On other proof than a sweep's evidence.
fn stopped_as(detail: &str) -> StopDone {
    StopDone { stopped: true, evidence: None, detail: Some(detail.to_owned()) }
}

fn not_stopped(detail: String) -> StopDone {
    StopDone { stopped: false, evidence: None, detail: Some(detail) }
}
