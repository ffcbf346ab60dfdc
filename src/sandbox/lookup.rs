//! Look-ups: status, list, output, a file. And input, which like them reaches a process that runs.
//!
//! Invariant: a look-up never boots a container. It says `gone` or `exited` only on proof, and a proof once seen is
//! kept, so that it need not be asked for again; a process known to have ended answers from storage, and only one
//! believed running asks the supervisor, and only if the container runs.

use ringfence_core::status::{self, Reading, View};
use ringfence_wire::contract::{
    ArtifactQuery, DetachedInput, DetachedStatus, FileDone, GoneReason, InputDone, ListDone, ListedProcess,
    OutputDone, OutputQuery, StatusDone,
};
use ringfence_wire::ids::ProcessId;
use ringfence_wire::refusal::{Refusal, RefusalKind};
use ringfence_wire::supervisor::{ArtifactList, ArtifactPage, ErrorCode, FrameEncoding, JobView, StdinWrite};

use super::boot::Up;
use super::store::processes::Process;
use super::{Object, refusals};
use crate::clock;
use crate::supervisor::{CallError, Supervisor};

impl Object {
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
    pub fn note(&self, id: &ProcessId, view: &View) -> Result<StatusDone, Refusal> {
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
        // Past the deadline the alarm is late, and what it would say is the truth: not that the container stopped.
        if self.reached_deadline(&head)
            && let Err(refusal) = self.expire().await
        {
            return unreachable(refusal.message);
        }
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
            Ok(view) => seen(process, &view),
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
                    Some(job) => self.note(&process.id, &seen(&process, job))?.status,
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

    /// Learns the ends of processes that nobody asked about.
    pub async fn note_ends(&self) -> Result<(), Refusal> {
        if self.store.open_processes()?.is_empty() {
            return Ok(());
        }
        let ended: Vec<_> =
            self.all_jobs().await?.into_iter().filter(|job| job.state.is_terminal()).collect();
        for process in self.store.open_processes()? {
            if let Some(job) = ended.iter().find(|job| job.id == process.id) {
                self.note(&process.id, &seen(&process, job))?;
            }
        }
        Ok(())
    }

    async fn all_jobs(&self) -> Result<Vec<JobView>, Refusal> {
        self.running()?.supervisor.jobs().await.map(|list| list.jobs).map_err(|e| refusals::supervisor(&e))
    }

    pub async fn detached_output(&self, id: &ProcessId, query: OutputQuery) -> Result<OutputDone, Refusal> {
        let (process, up) = self.reach(id)?;
        let supervisor = match query.wait_ms {
            Some(_) => self.waits_apart(&up)?,
            None => up.supervisor,
        };
        let page = supervisor.output(id, query).await.map_err(|e| refusals::supervisor(&e))?;
        if !process.runs_as(page.identity) {
            return Err(refusals::unavailable("unreadable", NOT_ABOUT_IT));
        }
        Ok(OutputDone { page })
    }

    pub async fn detached_input(&self, id: &ProcessId, input: DetachedInput) -> Result<InputDone, Refusal> {
        let (process, up) = self.reach(id)?;
        if !process.stdin {
            let message =
                "processId: it was not started with stdin: \"pipe\", so there is nothing to write to";
            return Err(Refusal::new(RefusalKind::RecipeRejected, message)
                .field("processId")
                .reason("stdin-closed"));
        }
        let write = StdinWrite {
            operation_key: input.operation_key,
            encoding: FrameEncoding::Utf8,
            data: input.data,
            eof: input.eof.unwrap_or(false),
        };
        match self.waits_apart(&up)?.write_stdin(id, &write).await {
            Ok(answer) => Ok(InputDone { accepted: answer.result, deduped: answer.replayed }),
            Err(error) if error.refused_as(ErrorCode::Conflict) => {
                Err(refusals::conflict().field("operationKey"))
            }
            Err(error) => Err(refusals::supervisor(&error)),
        }
    }

    /// A call that waits gets a connection of its own: the shared ones are few, and a stop or a teardown needs them.
    fn waits_apart(&self, up: &Up) -> Result<Supervisor, Refusal> {
        up.supervisor.apart(self.container()?).map_err(|e| refusals::supervisor(&e.into()))
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

    /// The text of one regular file beneath the paths that may be read.
    pub async fn read_file(&self, path: &str) -> Result<FileDone, Refusal> {
        let content = self.running()?.supervisor.read_file(path).await.map_err(path_refused)?;
        Ok(FileDone { content })
    }

    pub async fn artifacts(&self) -> Result<ArtifactList, Refusal> {
        self.running()?.supervisor.artifacts().await.map_err(|error| refusals::supervisor(&error))
    }

    pub async fn artifact(&self, path: &str, query: ArtifactQuery) -> Result<ArtifactPage, Refusal> {
        self.running()?.supervisor.artifact(path, query).await.map_err(path_refused)
    }

    fn running(&self) -> Result<Up, Refusal> {
        let up = match self.store.head()? {
            Some(head) => self.up(&head)?,
            None => None,
        };
        up.ok_or_else(|| refusals::unavailable("not-running", "the container does not run"))
    }
}

fn path_refused(error: CallError) -> Refusal {
    match error {
        CallError::Refused {
            code: ErrorCode::BadRequest | ErrorCode::PathRefused | ErrorCode::NoSuchFile | ErrorCode::TooLarge,
            message,
        } => Refusal::new(RefusalKind::RecipeRejected, message).field("path"),
        error => refusals::supervisor(&error),
    }
}

/// What an answer says that is about another job than the one asked for.
const NOT_ABOUT_IT: &str = "the supervisor's answer is not about what was asked for";

/// A supervisor's view of this process, as a status reads it.
pub fn seen(process: &Process, job: &JobView) -> View {
    let is_it = process.runs_as(job.identity)
        && process.boot_id.as_ref() == Some(&job.boot_id)
        && process.sent(&job.boot_id, job.identity).is(job);
    if is_it { of_job(job) } else { View::Unreachable { detail: NOT_ABOUT_IT.to_owned() } }
}

/// Likewise, of a job that is known to be the one.
pub fn of_job(job: &JobView) -> View {
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
