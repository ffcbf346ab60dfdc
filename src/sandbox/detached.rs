//! Detached processes: start, status, stop, list, output, input.
//!
//! Invariant: a record is written, with its order, before the supervisor is asked; a start proven not to have
//! happened frees its key. A look-up never boots a container, and says `gone` or `exited` only on proof, which is
//! kept. A detached process holds no grant, ever.
//!
//! Order of effects of a start: ticket → key looked up → in one transaction the attestation is spent and the record
//! declared → ensure (a fence is waited for only if the container must be built) → the record is bound to the boot →
//! start → confirmed. Of a stop: the record is `stopping`, so out of every spare list → kill → tombstone, only on
//! complete evidence or because the container it ran in is gone.

use std::rc::Rc;

use ringfence_core::fingerprint::{self, Call, Comparison};
use ringfence_core::settle::Sent;
use ringfence_core::status::{self, Reading, Record, View};
use ringfence_wire::contract::{
    DetachedInput, DetachedStatus, GoneReason, InputDone, ListDone, ListedProcess, OutputDone, OutputQuery,
    StartDetachedDone, StartDetachedInput, StartedProcess, StatusDone, StopDone,
};
use ringfence_wire::ids::{Nonce, ProcessId};
use ringfence_wire::internal::Pass;
use ringfence_wire::refusal::Refusal;
use ringfence_wire::supervisor::{
    ErrorCode, ExecutionIdentity, FrameEncoding, JobKind, JobSpec, JobView, StartJob, StdinMode, StdinWrite,
    StopFinding,
};

use super::approval::Asked;
use super::boot::{Up, Want};
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

    /// One transaction: the attestation is spent, the record written, its order taken.
    fn declare(&self, input: &StartDetachedInput, floor_rule: Option<&str>) -> Result<Process, Refusal> {
        let key = &input.idempotency_key;
        self.spend(&Asked {
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
        Ok(process)
    }

    async fn start(self: Rc<Self>, epoch: u64, process: Process, input: StartDetachedInput) -> StartResult {
        let want = Want { recipe_version: input.recipe.version.clone(), rebuild: false };
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
                log_path: Some(input.log_path),
            },
            wait_ms: 0,
            wake_on_stopping: false,
            tail_bytes: 0,
        };
        let sent = Sent { nonce: process.nonce.clone(), boot_id: up.boot_id.clone() };
        let started = match up.supervisor.start_job(&job).await {
            Ok(view) => Ok(view),
            Err(error) => self.settle_start(&up, &sent, &process.id, process.order, error).await,
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
                let reading = status::read(&Record::Starting, &seen(&view));
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

    /// The record first; the supervisor only about a process believed to run, and only if the container runs.
    pub async fn detached_status(&self, id: &ProcessId) -> Result<StatusDone, Refusal> {
        let Some(process) = self.store.process(id)? else {
            let status = if self.store.process_was_forgotten(id)? {
                let detail = "it ended long ago, and its record was dropped".to_owned();
                DetachedStatus::Gone { reason: GoneReason::NotTracked, is_final: true, detail }
            } else {
                status::never_started()
            };
            return Ok(StatusDone { status });
        };
        if let Some(status) = status::stored(&process.record) {
            return Ok(StatusDone { status });
        }
        let view = self.look(&process).await;
        self.note(id, &view)
    }

    /// Reads the record again, which may have changed meanwhile, and keeps what was proven.
    fn note(&self, id: &ProcessId, view: &View) -> Result<StatusDone, Refusal> {
        let Some(process) = self.store.process(id)? else {
            return Ok(StatusDone { status: status::never_started() });
        };
        let Reading { status, becomes } = status::read(&process.record, view);
        if let Some(record) = becomes {
            self.store.set_record(id, &record, clock::now_ms())?;
        }
        Ok(StatusDone { status })
    }

    /// What can be learned about a process now, without booting anything.
    pub async fn look(&self, process: &Process) -> View {
        let unreachable = |detail: String| View::Unreachable { detail };
        let head = match self.known_head() {
            Ok(head) => head,
            Err(refusal) => return unreachable(refusal.message),
        };
        if !self.container_runs() {
            return View::ContainerDown;
        }
        if process.boot_id.is_none() {
            return unreachable("its start is under way".to_owned());
        }
        if process.boot_id != head.boot_id {
            return View::BootChanged;
        }
        let up = match self.up(&head) {
            Ok(Some(up)) => up,
            Ok(None) => return unreachable("its container is being ended".to_owned()),
            Err(refusal) => return unreachable(refusal.message),
        };
        match up.supervisor.job(&process.id, process.order).await {
            Ok(view) => seen(&view),
            Err(_) if !self.container_runs() => View::ContainerDown,
            Err(error) => not_seen(&error),
        }
    }

    pub async fn detached_list(&self) -> Result<ListDone, Refusal> {
        let processes = self.store.processes()?;
        let believed = processes.iter().filter(|process| status::needs_supervisor(&process.record));
        let jobs = match believed.count() {
            0 => None,
            _ => Some(self.all_jobs().await),
        };
        let mut listed = Vec::with_capacity(processes.len());
        for process in processes {
            let status = match (status::stored(&process.record), &jobs) {
                (Some(status), _) => status,
                (None, Some(Ok(jobs))) => match jobs.iter().find(|job| job.id == process.id) {
                    Some(job) => self.note(&process.id, &seen(job))?.status,
                    // Not in the list: only its own look-up can tell unknown from forgotten.
                    None => self.detached_status(&process.id).await?.status,
                },
                (None, _) => self.detached_status(&process.id).await?.status,
            };
            listed.push(ListedProcess {
                id: process.id,
                started_at: process.started_at,
                idempotency_key: process.idempotency_key,
                log_path: process.log_path,
                identity: process.identity,
                status,
            });
        }
        Ok(ListDone { processes: listed })
    }

    async fn all_jobs(&self) -> Result<Vec<JobView>, Refusal> {
        let up = self.up(&self.known_head()?)?;
        let up = up.ok_or_else(|| refusals::unavailable("not-running", "the container does not run"))?;
        up.supervisor.jobs().await.map(|list| list.jobs).map_err(|e| refusals::supervisor(&e))
    }

    /// Never refuses: what went wrong is in the answer.
    pub async fn stop_detached(&self, id: &ProcessId) -> StopDone {
        self.stop(id).await.unwrap_or_else(|refusal| not_stopped(refusal.message))
    }

    async fn stop(&self, id: &ProcessId) -> Result<StopDone, Refusal> {
        let Some(process) = self.store.process(id)? else {
            return Ok(ended_before("no process of this id was started here"));
        };
        if status::stored(&process.record).is_some() {
            return Ok(ended_before("it had ended before"));
        }
        self.store.set_record(id, &Record::Stopping, clock::now_ms())?;
        let head = self.known_head()?;
        let here = process.boot_id.is_some() && process.boot_id == head.boot_id;
        if !self.container_runs() || (process.boot_id.is_some() && !here) {
            return self.stopped(id, StopDone { stopped: true, evidence: None, detail: None });
        }
        if process.boot_id.is_none() {
            // Its start was not sent; the call that was to send it finds the record stopping.
            return self.stopped(id, StopDone { stopped: true, evidence: None, detail: None });
        }
        let Some(up) = self.up(&head)? else {
            return Ok(not_stopped("its container is being ended".to_owned()));
        };
        let report = match up.supervisor.stop_job(id, process.order, STOP_GRACE_MS).await {
            Ok(report) => report,
            Err(CallError::Lost) => {
                return self.stopped(id, StopDone { stopped: true, evidence: None, detail: None });
            }
            Err(_) if !self.container_runs() => {
                return self.stopped(id, StopDone { stopped: true, evidence: None, detail: None });
            }
            Err(error) => return Ok(not_stopped(error.to_string())),
        };
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
                let view = report.job.as_ref().map_or(View::Forgotten, seen);
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

    pub async fn detached_output(&self, id: &ProcessId, query: OutputQuery) -> Result<OutputDone, Refusal> {
        let (_, up) = self.reach(id)?;
        let page = up.supervisor.output(id, query).await.map_err(|e| refusals::supervisor(&e))?;
        Ok(OutputDone { page })
    }

    pub async fn detached_input(&self, id: &ProcessId, input: DetachedInput) -> Result<InputDone, Refusal> {
        let (process, up) = self.reach(id)?;
        if !process.stdin {
            return Err(refusals::unavailable("stdin-closed", "it was not started with stdin: \"pipe\"")
                .field("processId"));
        }
        let write = StdinWrite {
            operation_key: input.operation_key,
            encoding: FrameEncoding::Utf8,
            data: input.data,
            eof: input.eof.unwrap_or(false),
        };
        match up.supervisor.write_stdin(id, &write).await {
            Ok(answer) => Ok(InputDone { accepted: answer.result, deduped: answer.replayed }),
            Err(error) if error.refused_as(ErrorCode::Conflict) => {
                Err(refusals::conflict().field("operationKey"))
            }
            Err(error) => Err(refusals::supervisor(&error)),
        }
    }

    /// The supervisor that has the process, if it is the one that runs now.
    fn reach(&self, id: &ProcessId) -> Result<(Process, Up), Refusal> {
        let gone = |detail: &str| refusals::unavailable("not-tracked", detail).field("processId");
        let Some(process) = self.store.process(id)? else {
            return Err(gone("no process of this id was started here"));
        };
        let head = self.known_head()?;
        match self.up(&head)? {
            Some(up) if process.boot_id.as_ref() == Some(&up.boot_id) => Ok((process, up)),
            _ => Err(gone("the container it ran in is gone, and its output with it")),
        }
    }
}

/// A supervisor's view of a job, as a status reads it.
pub fn seen(job: &JobView) -> View {
    let end = job.end.as_ref();
    View::Job {
        state: job.state,
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal),
    }
}

fn not_seen(error: &CallError) -> View {
    match error {
        CallError::Lost => View::BootChanged,
        error if error.refused_as(ErrorCode::UnknownJob) => View::Unknown,
        error if error.refused_as(ErrorCode::Forgotten) => View::Forgotten,
        error => View::Unreachable { detail: error.to_string() },
    }
}

fn ended_before(detail: &str) -> StopDone {
    StopDone { stopped: true, evidence: None, detail: Some(detail.to_owned()) }
}

fn not_stopped(detail: String) -> StopDone {
    StopDone { stopped: false, evidence: None, detail: Some(detail) }
}
