//! The fence: apply grant → run → kill → revoke, as one operation under the fence lock.
//!
//! Invariant: once the grant is applied, however the region is left, the grant closes before the kill and nothing
//! that the command left survives the region, or the container does not. A kill that cannot prove it is complete
//! taints the sandbox, and its container is destroyed before any other fence.
//!
//! Order of effects: lock → stale fence closed → ensure → for a grant, interception set → in one transaction the fence is
//! marked open, its orders taken and the ledger row says `running` → apply → run → close → teardown → revoke → receipt
//! and ledger row, fence marked closed → unlock. The steps after the run have one deadline, [`END_DEADLINE_MS`].

use std::collections::BTreeMap;
use std::rc::Rc;

use ringfence_core::detached::{Fate, declaration_fates, spare_list};
use ringfence_core::egress::{self, Grant};
use ringfence_core::recipe::{DEFAULT_TAIL_BYTES, DEFAULT_TIMEOUT_MS, relative_log_path};
use ringfence_core::settle::{self, Sent, Settlement};
use ringfence_core::status::Record;
use ringfence_wire::contract::{Ensured, ExecDone, ExecInput, GoneReason, Granted, TeardownSummary};
use ringfence_wire::evidence::Evidence;
use ringfence_wire::ids::{Nonce, Order, ProcessId};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use ringfence_wire::supervisor::{
    JobKind, JobSpec, JobView, MAX_WAIT_MS, StartJob, StdinMode, TeardownMode, TeardownReport,
    TeardownRequest, TrackedJob,
};

use super::boot::{Up, Want};
use super::passage::Unacknowledged;
use super::settle::Unproven;
use super::store::ledger::Entry;
use super::{Object, refusals};
use crate::clock;
use crate::sql::StoreError;
use crate::supervisor::{SWEEP_DEADLINE_MS, Until};

/// Close, teardown and revoke together; then the container is destroyed.
pub const END_DEADLINE_MS: u64 = 15_000;
/// What a kill-all gets of it when the teardown has failed.
const KILL_ALL_DEADLINE_MS: u64 = END_DEADLINE_MS - SWEEP_DEADLINE_MS;
const KILL_ALL_GRACE_MS: u64 = 1_000;

/// How the kill went.
#[derive(Clone, Debug)]
pub struct Torn {
    pub mode: TeardownMode,
    pub evidence: Option<Evidence>,
}

impl Torn {
    fn destroyed(evidence: Option<Evidence>) -> Self {
        Self { mode: TeardownMode::Destroyed, evidence }
    }

    /// There was nothing to tear down.
    pub fn nothing() -> Self {
        Self { mode: TeardownMode::Selective, evidence: None }
    }
}

/// What runs in a fence.
pub struct FencedCommand {
    pub id: ProcessId,
    pub nonce: Nonce,
    pub command: String,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
    pub log_path: String,
    pub tail_bytes: u64,
}

impl FencedCommand {
    fn sent(&self, order: Order, up: &Up) -> Sent {
        Sent {
            id: self.id.clone(),
            kind: JobKind::Fenced,
            order,
            nonce: self.nonce.clone(),
            boot_id: up.boot_id.clone(),
            identity: up.identity,
        }
    }
}

/// A fence that is torn down and revoked, and still marked open.
pub struct Fenced<'a> {
    pub sent: Sent,
    pub ended: Result<JobView, Unproven>,
    pub torn: Torn,
    pub region: Region<'a>,
}

/// While this lives the region is open. Left by a panic, the next call finds the fence marked open and recovers.
pub struct Region<'a> {
    object: &'a Object,
    pub closed: bool,
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.object.must_recover();
        }
    }
}

impl Object {
    /// Runs one command behind the fence. The entry is reserved; this writes what became of it.
    pub async fn run_fenced(
        self: &Rc<Self>,
        epoch: u64,
        entry: &Entry,
        input: &ExecInput,
    ) -> Result<ExecDone, Unproven> {
        let grant = self.grant_of(input)?;
        let granted = grant.granted();
        let hold = self.lock.acquire().await.map_err(refusals::busy)?;
        self.still(epoch)?;
        self.recovered_held(epoch, &hold).await?;
        let want = Want::of(&input.recipe, false);
        let up = self.ensure_held(epoch, &want, &hold).await?;
        self.still(epoch)?;
        if up.rebuilt {
            self.show_in_registry_later();
        }

        let tail_bytes = input.tail_bytes.unwrap_or(DEFAULT_TAIL_BYTES);
        let command = FencedCommand {
            id: entry.job.clone(),
            nonce: entry.nonce.clone(),
            command: input.command.clone(),
            env: BTreeMap::new(),
            timeout_ms: input.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS),
            log_path: relative_log_path(&input.log_path),
            tail_bytes,
        };
        let opened = |order| self.store.mark_running(&entry.job, order, up.generation, &up.boot_id);
        let mut fence = self.fenced(epoch, &up, grant, &command, opened).await?;
        let result = match fence.ended {
            Ok(job) => done(&up, &job, &fence.sent, granted, fence.torn),
            Err(unproven) => Err(unproven),
        };
        if let Ok(done) = &result {
            // The command ran: whatever storage says now, its key is not free.
            self.store.record_receipt(&entry.job, done, clock::now_ms()).map_err(Unproven::unknown)?;
            self.acknowledge_later(&up);
        }
        self.store.close_fence().map_err(Unproven::unknown)?;
        fence.region.closed = true;
        result
    }

    /// One fence, from its order to the end of what ran in it. The caller holds the lock, writes down what became of
    /// it, and then marks the fence closed. `opened` joins the transaction that marks it open.
    pub async fn fenced(
        &self,
        epoch: u64,
        up: &Up,
        grant: Grant,
        command: &FencedCommand,
        opened: impl FnOnce(Order) -> Result<(), StoreError>,
    ) -> Result<Fenced<'_>, Unproven> {
        if !grant.is_empty() {
            self.intercepted().await?;
            self.still(epoch)?;
        }
        let region = Region { object: self, closed: false };
        let order = self.store.open_fence()?;
        let teardown_order = Order(order.0 + 1);
        opened(order)?;
        self.keep_watch()?;
        let grant = self.gate.apply(grant);
        #[cfg(feature = "panic-hook")]
        crate::panic_hook::trip(crate::panic_hook::Place::Apply, &command.command);
        let sent = command.sent(order, up);
        let ran = self.run(epoch, up, command, &sent).await;
        grant.close();
        let torn = self.tear_down(epoch, up, teardown_order).await;
        // Whatever the teardown says, what is still under way is cut.
        let revoked = grant.revoke().await;
        // A container whose end was not seen leaves the sandbox tainted and the fence marked open.
        let torn = torn.map_err(|refusal| Unproven::Unknown(refusal.message))?;
        let torn =
            self.contain(epoch, torn, revoked).await.map_err(|refusal| Unproven::Unknown(refusal.message))?;
        let ended = self.see_end(epoch, up, ran, command.tail_bytes).await;
        Ok(Fenced { sent, ended, torn, region })
    }

    async fn run(
        &self,
        epoch: u64,
        up: &Up,
        command: &FencedCommand,
        sent: &Sent,
    ) -> Result<JobView, Unproven> {
        let job = StartJob {
            order: sent.order,
            id: command.id.clone(),
            nonce: command.nonce.clone(),
            spec: JobSpec {
                kind: JobKind::Fenced,
                command: Some(command.command.clone()),
                argv: None,
                cwd: None,
                env: command.env.clone(),
                stdin: StdinMode::None,
                timeout_ms: Some(command.timeout_ms),
                log_path: Some(command.log_path.clone()),
            },
            wait_ms: MAX_WAIT_MS,
            wake_on_stopping: true,
            tail_bytes: command.tail_bytes,
        };
        let view = match up.supervisor.start_job(&job).await {
            Ok(view) => view,
            Err(error) => self.settle_start(up, sent, error).await?,
        };
        self.follow(epoch, up, view, command.tail_bytes, Until::CommandEnded, command.timeout_ms).await
    }

    /// After the teardown a job whose command had ended is soon terminal, and then has its end record.
    async fn see_end(
        &self,
        epoch: u64,
        up: &Up,
        ran: Result<JobView, Unproven>,
        tail_bytes: u64,
    ) -> Result<JobView, Unproven> {
        let job = self.follow(epoch, up, ran?, tail_bytes, Until::Terminal, 0).await?;
        Ok(self.with_tail(up, job, tail_bytes).await)
    }

    /// What this exec may reach, by its recipe and its consumer's configuration.
    fn grant_of(&self, input: &ExecInput) -> Result<Grant, Refusal> {
        let (config, head) = (self.config()?, self.known_head()?);
        let consumer = config.consumers.get(&head.consumer);
        let selectable = consumer.and_then(|entry| entry.profiles.as_deref());
        let lfs = input.lfs.or(input.recipe.lfs).unwrap_or(false);
        egress::compose(&input.recipe, lfs, selectable).map_err(|fault| {
            Refusal::new(RefusalKind::RecipeRejected, fault.message.clone()).field(fault.field)
        })
    }

    /// A request that was cut and did not say that it stopped may still move bytes: the container goes.
    async fn contain(
        &self,
        epoch: u64,
        torn: Torn,
        revoked: Result<(), Unacknowledged>,
    ) -> Result<Torn, Refusal> {
        let Err(unacknowledged) = revoked else { return Ok(torn) };
        if self.still(epoch).is_err() {
            self.destroyed_by_its_end().await?;
        } else if torn.mode != TeardownMode::Destroyed {
            self.end_container(GoneReason::ContainerStopped, &unacknowledged.to_string()).await?;
        }
        Ok(Torn::destroyed(torn.evidence))
    }

    /// Kills what the fence left and spares what is declared, or destroys the container. `order` was taken when the
    /// fence opened: what was started since has a later one and is not touched.
    pub async fn tear_down(&self, epoch: u64, up: &Up, order: Order) -> Result<Torn, Refusal> {
        if self.still(epoch).is_err() {
            self.destroyed_by_its_end().await?;
            return Ok(Torn::destroyed(None));
        }
        if !self.container_runs() {
            self.container_is_gone(GoneReason::ContainerStopped, "its container stopped")?;
            return Ok(Torn::destroyed(None));
        }
        let declared: Vec<_> = self.store.open_processes()?.iter().filter_map(|p| p.declared()).collect();
        let request = TeardownRequest { order, spare: spare_list(&declared), grace_ms: None };
        let answer = up.supervisor.teardown(&request).await;
        if self.still(epoch).is_err() {
            self.destroyed_by_its_end().await?;
            return Ok(Torn::destroyed(None));
        }
        let unproven = match answer {
            Ok(report) => {
                self.record_sweep(None, &report.evidence);
                self.apply_fates(order, Some(&report.tracked))?;
                match proven(report) {
                    Ok(torn) => return Ok(torn),
                    Err(evidence) => Some(evidence),
                }
            }
            Err(_) => match self.kill_everything(up).await? {
                Ok(torn) => return Ok(torn),
                Err(evidence) => evidence,
            },
        };
        if self.still(epoch).is_err() {
            self.destroyed_by_its_end().await?;
            return Ok(Torn::destroyed(unproven));
        }
        // If its end is not seen the sandbox stays tainted: only abort, stop and status are served.
        self.end_container(GoneReason::FenceKilled, "a teardown could not prove that it was complete")
            .await?;
        Ok(Torn::destroyed(unproven))
    }

    /// The job list cannot be read, so nobody is spared. `Err` carries what evidence there is that it did not do.
    async fn kill_everything(&self, up: &Up) -> Result<Result<Torn, Option<Evidence>>, Refusal> {
        let order = self.store.take_orders(1)?;
        let request = TeardownRequest { order, spare: Vec::new(), grace_ms: Some(KILL_ALL_GRACE_MS) };
        let answer = up.supervisor.kill_all(&request, KILL_ALL_DEADLINE_MS).await;
        match answer {
            Ok(report) => {
                self.record_sweep(None, &report.evidence);
                self.apply_fates(order, None)?;
                Ok(proven(report).map_err(Some))
            }
            Err(_) => Ok(Err(None)),
        }
    }

    /// What a teardown means for each declaration.
    fn apply_fates(&self, order: Order, tracked: Option<&[TrackedJob]>) -> Result<(), StoreError> {
        let declared: Vec<_> = self.store.open_processes()?.iter().filter_map(|p| p.declared()).collect();
        let now = clock::now_ms();
        for (id, fate) in declaration_fates(order, &declared, tracked) {
            let (reason, detail) = match fate {
                Fate::Survives | Fate::LeftToItsStop => continue,
                Fate::FenceKilled => (GoneReason::FenceKilled, "a teardown that spared nobody ended it"),
                Fate::NotTracked => (GoneReason::NotTracked, "its supervisor does not know it"),
            };
            self.store.set_record(&id, &Record::Gone { reason, detail: detail.to_owned() }, now)?;
        }
        Ok(())
    }
}

/// A report counts only if the look finished and found nothing left.
fn proven(report: TeardownReport) -> Result<Torn, Evidence> {
    let TeardownReport { mode, evidence, .. } = report;
    if evidence.complete && evidence.survivors.is_empty() {
        Ok(Torn { mode, evidence: Some(evidence) })
    } else {
        Err(evidence)
    }
}

/// The receipt, if there is a proof of it.
fn done(
    up: &Up,
    job: &JobView,
    sent: &Sent,
    granted: Vec<Granted>,
    torn: Torn,
) -> Result<ExecDone, Unproven> {
    let end = match settle::settle(sent, settle::Answer::Job(job)) {
        Settlement::Ended(end) => end,
        Settlement::Unknown(unknown) => return Err(Unproven::unknown(unknown)),
        _ => return Err(Unproven::unknown("its supervisor has no end record for it")),
    };
    Ok(ExecDone {
        receipt: settle::receipt(job, end, false),
        ensured: Ensured { generation: up.generation, rebuilt: up.rebuilt, expires_at: up.expires_at },
        granted,
        killed: settle::killed(&end.sweep, torn.evidence.as_ref()),
        teardown: TeardownSummary { mode: torn.mode, evidence: torn.evidence },
    })
}
