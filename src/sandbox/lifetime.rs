//! The sandbox's deadline, its slot's life, and the one alarm that sees to both.
//!
//! Invariant: while anything of the sandbox could need attention an alarm is set; the next one is set before
//! anything else is done in one, no failure leaves the handler, and no two come closer than a minimum interval. Each
//! fuse works without the others: this alarm, the platform's inactivity timeout, and the supervisor's own deadline,
//! which only the object can move.

use std::rc::Rc;

use ringfence_core::lifetime::{Life, next_alarm, prolonged};
use ringfence_core::recipe::DEFAULT_LIFETIME_MS;
use ringfence_wire::contract::{EnsureOptions, Ensured, GoneReason, Recipe};
use ringfence_wire::internal::{Pass, RenewAnswer};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use worker::console_error;
use worker::durable::ScheduledTime;

use super::boot::{Up, Want};
use super::store::head::{Boot, Head};
use super::store::tables::Task;
use super::{Object, refusals};
use crate::clock;
use crate::sql::StoreError;

/// A task that failed, or was begun and not seen to end, is tried again.
pub const RETRY_MS: u64 = 5_000;
/// The supervisor keeps the same deadline by its own clock: a container that stopped so shortly before it ended by it.
const CLOCK_SLACK_MS: u64 = 2_000;

impl Object {
    /// `ensureSandbox`: options, then a container that is up.
    pub async fn ensure_sandbox(
        self: &Rc<Self>,
        pass: Option<&Pass>,
        recipe: &Recipe,
        options: &EnsureOptions,
    ) -> Result<Ensured, Refusal> {
        let head = self.known_head()?;
        self.admit(&head, pass)?;
        let epoch = self.epoch.get();
        self.recovered(epoch).await?;
        self.still(epoch)?;
        let want = Want::of(recipe, options.rebuild.unwrap_or(false));
        let head = self.known_head()?;
        // Refused before anything is changed.
        self.fit(&head, &want)?;
        let expires_at = self.set_options(&head, options)?;
        let mut up = self.ensure(epoch, want).await?;
        self.still(epoch)?;
        up.expires_at = expires_at;
        if options.lifetime_ms.is_some() && !up.rebuilt {
            // Also when nothing changed: an earlier call may have failed between the two.
            self.prolong_inside(&up, expires_at).await?;
        }
        if up.rebuilt || options.labels.is_some() || options.lifetime_ms.is_some() {
            self.show_in_registry().await;
        }
        Ok(Ensured { generation: up.generation, rebuilt: up.rebuilt, expires_at: up.expires_at })
    }

    /// The registry shows a sandbox as its last renewal told it.
    pub async fn show_in_registry(&self) {
        let Ok(head) = self.known_head() else { return };
        if let Err(error) = self.renew_slot(&head).await {
            // The next renewal tells it.
            console_error!("registry: {error}");
        }
    }

    /// Off the caller's way, after a boot that no `ensureSandbox` asked for.
    pub fn show_in_registry_later(self: &Rc<Self>) {
        let object = Rc::clone(self);
        self.later(async move { object.show_in_registry().await });
    }

    /// Labels and lifetime. A life is prolonged from now, never shortened, and never past the maximum from its start.
    fn set_options(&self, head: &Head, options: &EnsureOptions) -> Result<u64, Refusal> {
        let now = clock::now_ms();
        if let Some(labels) = &options.labels {
            self.store.set_labels(labels)?;
        }
        let life = head.created_at.zip(head.expires_at);
        let life = life.map(|(created_at, expires_at)| Life { created_at, expires_at });
        let Ok(life) = prolonged(life, options.lifetime_ms, now) else {
            return Err(self.expired(now)?);
        };
        if head.expires_at != Some(life.expires_at) {
            self.store.set_lifetime(life.created_at, life.expires_at)?;
            self.plan(Task::Expire, life.expires_at)?;
        }
        Ok(life.expires_at)
    }

    /// A life begins with the first boot and ends with abort, checkpoint or expiry; a rebuild does not prolong it.
    pub fn begin_life(&self, head: &Head) -> Result<(), Refusal> {
        let now = clock::now_ms();
        match head.expires_at {
            None => {
                self.store.set_lifetime(now, now + DEFAULT_LIFETIME_MS)?;
                Ok(self.plan(Task::Expire, now + DEFAULT_LIFETIME_MS)?)
            }
            Some(at) if at > now => Ok(()),
            Some(_) => Err(self.expired(now)?),
        }
    }

    /// The alarm is late: it ends this life, and the next call begins another.
    fn expired(&self, now: u64) -> Result<Refusal, StoreError> {
        self.plan(Task::Expire, now)?;
        Ok(refusals::unavailable("expired", "the sandbox has reached its deadline; call again"))
    }

    async fn prolong_inside(&self, up: &Up, expires_at: u64) -> Result<(), Refusal> {
        match up.supervisor.set_deadline(expires_at).await {
            Ok(set) if set.deadline_at_ms == expires_at => Ok(()),
            Ok(_) => {
                Err(Refusal::new(RefusalKind::SandboxUnavailable, "its supervisor kept its earlier deadline"))
            }
            Err(error) => Err(refusals::supervisor(&error)),
        }
    }

    /// Something needs the container from now on: the alarm must not sleep through it.
    pub fn keep_watch(&self) -> Result<(), StoreError> {
        let by = clock::now_ms() + self.times().renew_busy_ms();
        match self.renew_at.get() {
            Some(at) if at <= by => Ok(()),
            _ => self.plan(Task::Renew, by),
        }
    }

    /// The task is due at this time, and an alarm is set for it.
    pub fn plan(&self, task: Task, at: u64) -> Result<(), StoreError> {
        if task == Task::Renew {
            self.renew_at.set(Some(at));
        }
        self.store.set_due(task, at)?;
        match self.alarm_at.get() {
            Some(set) if set <= at => Ok(()),
            _ => {
                self.set_alarm(at);
                Ok(())
            }
        }
    }

    /// Nothing is due for the task any more; if the alarm was for it, the alarm moves on to what is next.
    pub fn done(&self, task: Task) -> Result<(), StoreError> {
        self.store.clear_due(task)?;
        if task == Task::Renew {
            self.renew_at.set(None);
        }
        let next = self.store.dues()?.first().map(|due| due.at);
        match next {
            Some(next) if self.alarm_at.get() != Some(next) => self.set_alarm(next),
            _ => {}
        }
        Ok(())
    }

    fn set_alarm(&self, at: u64) {
        let Some(at) = next_alarm([at], self.last_alarm.get()) else { return };
        self.alarm_at.set(Some(at));
        let storage = self.state.storage();
        self.later(async move {
            let time = js_sys::Date::new(&(at as f64).into());
            if let Err(error) = storage.set_alarm(ScheduledTime::new(time)).await {
                console_error!("the alarm could not be set: {error}");
            }
        });
    }

    /// The alarm. Nothing leaves it: a failure is tried again, by an alarm that is already set.
    pub async fn wake(self: &Rc<Self>) {
        let now = clock::now_ms();
        self.last_alarm.set(now);
        self.alarm_at.set(None);
        let due = match self.begin_wake(now) {
            Ok(due) => due,
            Err(error) => {
                console_error!("alarm: {error}");
                return self.set_alarm(now + RETRY_MS);
            }
        };
        for task in due {
            if let Err(refusal) = self.perform(task).await {
                console_error!("alarm: {}: {}", task.text(), refusal.message);
            }
        }
        // The alarm that stood by in case this one was lost is for nothing once all is done.
        match self.store.dues() {
            Ok(dues) => {
                if let Some(next) = dues.first().filter(|next| self.alarm_at.get() != Some(next.at)) {
                    self.set_alarm(next.at);
                }
            }
            Err(error) => console_error!("alarm: {error}"),
        }
    }

    /// Counts the wake-up, puts off what is due by one retry, and sets the next alarm, before anything is done.
    fn begin_wake(&self, now: u64) -> Result<Vec<Task>, StoreError> {
        let dues = self.store.dues()?;
        if dues.is_empty() {
            return Ok(Vec::new());
        }
        self.store.count_wakeup()?;
        let due: Vec<Task> = dues.iter().filter(|due| due.at <= now).map(|due| due.task).collect();
        for task in &due {
            self.plan(*task, now + RETRY_MS)?;
        }
        let next = dues.iter().map(|due| due.at).filter(|at| *at > now).chain(self.alarm_at.get()).min();
        if let Some(next) = next.filter(|next| self.alarm_at.get() != Some(*next)) {
            self.set_alarm(next);
        }
        Ok(due)
    }

    async fn perform(self: &Rc<Self>, task: Task) -> Result<(), Refusal> {
        match task {
            Task::Expire => self.expire().await,
            Task::Slot => self.look_at_slot().await,
            Task::Renew => self.renew().await,
            Task::Recover => {
                self.recovered(self.epoch.get()).await?;
                Ok(self.done(Task::Recover)?)
            }
            Task::Release => {
                let released = self.release_slots().await;
                released.map_err(|e| refusals::unavailable("admission", e.to_string()))
            }
            Task::Destroy => self.destroy_tainted().await,
        }
    }

    /// Its deadline has passed, by the object's clock or, if its container stopped, by the supervisor's.
    pub fn reached_deadline(&self, head: &Head) -> bool {
        let stopped = head.boot == Boot::Up && !self.container_runs();
        let slack = if stopped { CLOCK_SLACK_MS } else { 0 };
        head.expires_at.is_some_and(|at| at <= clock::now_ms() + slack)
    }

    pub async fn expire(&self) -> Result<(), Refusal> {
        let head = self.known_head()?;
        match head.expires_at {
            Some(at) if !self.reached_deadline(&head) => self.plan(Task::Expire, at)?,
            Some(_) => {
                let end = self.end(GoneReason::Expired, "the sandbox reached its deadline");
                let ended = self.audited("expire", None, end).await?;
                if let Some(detail) = ended.detail {
                    return Err(refusals::unavailable(refusals::CONTAINER_NOT_GONE, detail));
                }
            }
            None => self.done(Task::Expire)?,
        }
        Ok(())
    }

    async fn destroy_tainted(&self) -> Result<(), Refusal> {
        let (head, began) = (self.known_head()?, clock::now_ms());
        let tainted = head.boot == Boot::Tainted && self.container_runs();
        if head.boot == Boot::Tainted {
            self.destroy()
                .await
                .map_err(|e| refusals::unavailable(refusals::CONTAINER_NOT_GONE, e.to_string()))?;
        }
        if !self.container_runs() {
            let detail = "its container had to be destroyed";
            self.ended_container_is_gone(head.generation, GoneReason::ContainerStopped, detail)?;
            if tainted {
                self.done_by_alarm(&head, "destroy", began);
            }
        }
        Ok(self.done(Task::Destroy)?)
    }

    /// The container runs: its slot lives on, and so does the container if something needs it. It does not run: what
    /// that means is written down, and the slot is given up.
    async fn renew(self: &Rc<Self>) -> Result<(), Refusal> {
        if !self.container_runs() {
            return self.rest();
        }
        let head = self.known_head()?;
        self.recovered(self.epoch.get()).await?;
        let needed = self.is_busy() || !self.store.open_processes()?.is_empty();
        let times = self.times();
        let next = if needed { times.renew_busy_ms() } else { times.renew_idle_ms() };
        self.plan(Task::Renew, clock::now_ms() + next)?;
        if needed {
            let timeout = self.container()?.set_inactivity_timeout(times.inactivity_ms).await;
            timeout.map_err(|e| refusals::unavailable("inactivity", e.to_string()))?;
        }
        if let Some(up) = self.up(&head)? {
            self.note_ends().await?;
            self.acknowledge(&up).await;
        }
        self.keep_slot(&head).await
    }

    /// No container runs: what that means is written down, and the slot is given up; unless a call is about to boot.
    fn rest(&self) -> Result<(), Refusal> {
        if self.is_busy() {
            return Ok(self.plan(Task::Renew, clock::now_ms() + self.times().renew_busy_ms())?);
        }
        if self.known_head()?.boot != Boot::None {
            self.container_is_gone(GoneReason::ContainerStopped, "its container stopped")?;
        }
        self.done(Task::Renew)?;
        Ok(self.give_up_slot()?)
    }

    /// A call took a slot and may not have needed it: a replay boots nothing.
    async fn look_at_slot(&self) -> Result<(), Refusal> {
        self.done(Task::Slot)?;
        if self.container_runs() { self.keep_slot(&self.known_head()?).await } else { self.rest() }
    }

    async fn keep_slot(&self, head: &Head) -> Result<(), Refusal> {
        let answer = self.renew_slot(head).await;
        match answer.map_err(|e| refusals::unavailable("admission", e.to_string()))? {
            RenewAnswer::Renewed => Ok(()),
            // Unless another slot was given to it meanwhile, what runs here was not admitted.
            RenewAnswer::NotHeld if self.known_head()?.slot != head.slot => Ok(()),
            RenewAnswer::NotHeld => self
                .end(GoneReason::ContainerStopped, "the admission gate does not know its slot")
                .await
                .map(drop),
        }
    }
}
