//! From a ticket to a container that answers.
//!
//! Invariant: a container counts as up only when its supervisor answered hello with the boot key and the generation
//! it was given. Only the holder of the fence lock boots, rebuilds or destroys, besides abort, checkpoint and expiry;
//! those change the epoch first, and every step here looks at the epoch again after each await, so that what they
//! ended cannot be begun again by a call that was already under way. A container that is to hold a repository is fit
//! for no call before its clone is done.
//!
//! Order of effects: ticket verified → what is left of an earlier container destroyed → new generation, boot key and
//! egress secret written → interceptors set ([`super::interception`]) → start → inactivity timeout set → hello → clone ([`super::repository`]).
//! A boot that fails is destroyed and tried once more; then its slot is given up.

use std::collections::BTreeMap;
use std::rc::Rc;

use ringfence_core::checkout;
use ringfence_core::key::object_name;
use ringfence_wire::contract::{GoneReason, Recipe, Repo};
use ringfence_wire::ids::BootId;
use ringfence_wire::refusal::{Refusal, RefusalKind};
use ringfence_wire::supervisor::{ExecutionIdentity, Hello, PROTOCOL_VERSION, start_env};

use super::lock::Hold;
use super::store::head::{Boot, Head, NewBoot};
use super::store::tables::Task;
use super::{Object, random_hex, refusals};
use crate::clock;
use crate::container::{Container, ContainerError, StartOptions};
use crate::sql::StoreError;
use crate::supervisor::{CallError, Supervisor};

/// From start to hello.
const HANDSHAKE_DEADLINE_MS: u64 = 20_000;
/// One hello.
const HELLO_DEADLINE_MS: u64 = 2_000;
/// Between two hellos: doubles from the first to the second.
const HELLO_PAUSE_MS: (u64, u64) = (5, 100);
const BOOT_ATTEMPTS: u32 = 2;

/// What a call needs the container to be.
#[derive(Clone, Debug)]
pub struct Want {
    pub recipe_version: String,
    /// To be cloned into it.
    pub checkout: Option<Checkout>,
    pub rebuild: bool,
}

impl Want {
    pub fn of(recipe: &Recipe, rebuild: bool) -> Self {
        let lfs = recipe.lfs.unwrap_or(false);
        let checkout = recipe.repo.clone().map(|repo| Checkout { repo, lfs });
        Self { recipe_version: recipe.version.clone(), checkout, rebuild }
    }

    fn repository(&self) -> Option<String> {
        self.checkout.as_ref().map(|Checkout { repo, lfs }| checkout::name_of(repo, *lfs))
    }

    /// A recipe that names no repository makes do with a container that holds one.
    fn made(&self, head: &Head) -> bool {
        head.recipe_version.as_deref() == Some(self.recipe_version.as_str())
            && (self.checkout.is_none() || head.repository == self.repository())
    }
}

#[derive(Clone, Debug)]
pub struct Checkout {
    pub repo: Repo,
    pub lfs: bool,
}

/// A container that is up.
#[derive(Clone, Debug)]
pub struct Up {
    pub supervisor: Supervisor,
    pub generation: u64,
    pub boot_id: BootId,
    pub identity: ExecutionIdentity,
    pub expires_at: u64,
    /// This call built it.
    pub rebuilt: bool,
}

/// Why one attempt at a boot failed.
#[derive(Debug, thiserror::Error)]
enum BootFault {
    /// Whoever changed the epoch sees to the container.
    #[error("the sandbox was ended meanwhile")]
    Interrupted,
    #[error("{0}")]
    Container(#[from] ContainerError),
    #[error("the container stopped before its supervisor answered")]
    Stopped,
    #[error("its supervisor did not answer within {HANDSHAKE_DEADLINE_MS} ms; last: {0}")]
    Silent(CallError),
    #[error("another supervisor answered: {0}")]
    Stranger(CallError),
    #[error("its supervisor speaks protocol {0}; this deployment starts work on {PROTOCOL_VERSION} only")]
    Protocol(u32),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl From<Refusal> for BootFault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Object {
    /// The container if it is up and fit for `want`; `None` if it must be built. Refuses where building it would take
    /// a declared process or an open fence with it.
    pub fn fit(&self, head: &Head, want: &Want) -> Result<Option<Up>, Refusal> {
        let Some(up) = self.up(head)? else { return Ok(None) };
        let same_recipe = want.made(head);
        let same_protocol = head.protocol == Some(PROTOCOL_VERSION);
        if same_recipe && same_protocol {
            // Its clone is under way, and the lock with it; or it was lost half-way, and it is built anew.
            return Ok(head.is_whole().then_some(up));
        }
        let declared = self.store.open_processes()?.iter().any(|process| process.boot_id.is_some());
        let in_use = head.fence_order.is_some() || declared;
        if in_use && !want.rebuild {
            const REMEDY: &str = "stop its detached processes, or call ensureSandbox with rebuild: true";
            return Err(if same_recipe {
                // It is still read, stopped, torn down and aborted.
                let message = format!(
                    "the sandbox runs a supervisor of an earlier deployment, which starts nothing new; {REMEDY}"
                );
                refusals::unavailable("rebuild-needed", message)
            } else {
                let same_version = head.recipe_version.as_deref() == Some(want.recipe_version.as_str());
                let (field, what) =
                    if same_version { ("recipe.repo", "repository") } else { ("recipe.version", "version") };
                let message =
                    format!("the sandbox was built from another recipe {what} and is in use; {REMEDY}");
                Refusal::new(RefusalKind::RecipeRejected, message).field(field).reason("rebuild-needed")
            });
        }
        Ok(None)
    }

    /// The container if it is up, whatever it was built from.
    pub fn up(&self, head: &Head) -> Result<Option<Up>, Refusal> {
        if head.boot != Boot::Up || !self.container_runs() {
            return Ok(None);
        }
        let (Some(boot_id), Some(identity), Some(expires_at)) =
            (head.boot_id.clone(), head.identity, head.expires_at)
        else {
            return Ok(None);
        };
        let supervisor = self.supervisor(head).map_err(|e| refusals::supervisor(&e))?;
        Ok(Some(Up {
            supervisor,
            generation: head.generation,
            boot_id,
            identity,
            expires_at,
            rebuilt: false,
        }))
    }

    /// Up, by whatever it takes, for a caller that does not hold the fence lock: it takes it only if something must
    /// be built, and then together with everyone else who needs the same.
    pub async fn ensure(self: &Rc<Self>, epoch: u64, want: Want) -> Result<Up, Refusal> {
        if let Some(up) = self.fit(&self.known_head()?, &want)? {
            return Ok(up);
        }
        let name = (epoch, format!("{}\n{}", want.recipe_version, want.repository().unwrap_or_default()));
        let object = Rc::clone(self);
        let flight = self.boots.join(name, || async move {
            let hold = object.lock.acquire().await.map_err(refusals::busy)?;
            object.still(epoch)?;
            object.ensure_held(epoch, &want, &hold).await
        });
        flight.await
    }

    /// Likewise, for the holder of the fence lock.
    pub async fn ensure_held(&self, epoch: u64, want: &Want, hold: &Hold) -> Result<Up, Refusal> {
        let head = self.known_head()?;
        if let Some(up) = self.fit(&head, want)? {
            return Ok(up);
        }
        let up = self.build(epoch, &head, want).await?;
        if let Some(checkout) = &want.checkout {
            self.clone_repository(epoch, &up, checkout, hold).await?;
        }
        Ok(up)
    }

    async fn build(&self, epoch: u64, head: &Head, want: &Want) -> Result<Up, Refusal> {
        let container = self.container()?;
        self.check_ticket(head)?;
        self.begin_life(head)?;
        if let Some(up) = self.adopt(epoch, container, head, want).await? {
            return Ok(up);
        }
        if head.boot != Boot::None || container.running() {
            let detail =
                if container.running() { "its container was replaced" } else { "its container stopped" };
            self.end_container(GoneReason::ContainerStopped, detail).await?;
            self.still(epoch)?;
        }
        let mut last = String::new();
        for _ in 0..BOOT_ATTEMPTS {
            // The ticket may have expired, or been erased, while the attempt before this one failed.
            self.check_ticket(&self.known_head()?)?;
            match self.attempt(epoch, container, want).await {
                Ok((hello, expires_at)) => return self.count_as_up(&hello, expires_at),
                Err(BootFault::Interrupted) => return Err(refusals::interrupted()),
                Err(fault) => last = fault.to_string(),
            }
            self.still(epoch)?;
            self.end_container(GoneReason::ContainerStopped, "its container did not boot").await?;
            self.still(epoch)?;
        }
        self.give_up_slot()?;
        Err(refusals::unavailable("boot-failed", format!("the container did not boot: {last}")))
    }

    /// A boot that an earlier incarnation began and could not finish: its container may be up by now.
    async fn adopt(
        &self,
        epoch: u64,
        container: &Container,
        head: &Head,
        want: &Want,
    ) -> Result<Option<Up>, Refusal> {
        let (Some(expires_at), Boot::Starting, true, true) =
            (head.expires_at, head.boot, container.running(), want.made(head))
        else {
            return Ok(None);
        };
        let supervisor = self.supervisor(head).map_err(|e| refusals::supervisor(&e))?;
        let hello = self.shake_hands(epoch, container, &supervisor).await;
        self.still(epoch)?;
        match hello {
            Ok(hello) => self.count_as_up(&hello, expires_at).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The handshake is done: from here on every answer must carry this boot id.
    fn count_as_up(&self, hello: &Hello, expires_at: u64) -> Result<Up, Refusal> {
        self.store.booted(hello)?;
        let head = self.known_head()?;
        Ok(Up {
            supervisor: self.supervisor(&head).map_err(|e| refusals::supervisor(&e))?,
            generation: head.generation,
            boot_id: hello.boot_id.clone(),
            identity: hello.identity,
            expires_at,
            rebuilt: true,
        })
    }

    async fn attempt(
        &self,
        epoch: u64,
        container: &Container,
        want: &Want,
    ) -> Result<(Hello, u64), BootFault> {
        let (boot_key, egress_secret) = (random_hex()?, random_hex()?);
        let repository = want.repository();
        let boot = NewBoot {
            boot_key: &boot_key,
            egress_secret: &egress_secret,
            recipe_version: &want.recipe_version,
            repository: repository.as_deref(),
        };
        let generation = self.store.begin_boot(&boot)?;
        let Some(head) = self.store.head()? else { return Err(BootFault::Interrupted) };
        let Some(expires_at) = head.expires_at else { return Err(BootFault::Interrupted) };
        self.keep_watch()?;
        self.intercept(&head).await?;
        self.unless_interrupted(epoch)?;
        let mut env = BTreeMap::from([
            (start_env::BOOT_KEY, boot_key),
            (start_env::GENERATION, generation.to_string()),
            (start_env::DEADLINE_MS, expires_at.to_string()),
            (start_env::SANDBOX, object_name(&head.consumer, &head.key)),
        ]);
        if let Ok(user) = self.env.var(start_env::JOB_USER) {
            env.insert(start_env::JOB_USER, user.to_string());
        }
        container.start(&StartOptions { enable_internet: false, env, labels: &head.labels() })?;
        container.set_inactivity_timeout(self.times().inactivity_ms).await?;
        self.unless_interrupted(epoch)?;
        let supervisor = self.supervisor(&head).map_err(BootFault::Silent)?;
        let hello = self.shake_hands(epoch, container, &supervisor).await?;
        Ok((hello, expires_at))
    }

    async fn shake_hands(
        &self,
        epoch: u64,
        container: &Container,
        supervisor: &Supervisor,
    ) -> Result<Hello, BootFault> {
        let give_up_at = clock::now_ms() + HANDSHAKE_DEADLINE_MS;
        let mut pause = HELLO_PAUSE_MS.0;
        loop {
            let answer = supervisor.hello(HELLO_DEADLINE_MS).await;
            self.unless_interrupted(epoch)?;
            match answer {
                Ok(hello) if hello.protocol == PROTOCOL_VERSION => return Ok(hello),
                Ok(hello) => return Err(BootFault::Protocol(hello.protocol)),
                Err(error) if !error.is_silence() => return Err(BootFault::Stranger(error)),
                Err(_) if !container.running() => return Err(BootFault::Stopped),
                Err(error) if clock::now_ms() >= give_up_at => return Err(BootFault::Silent(error)),
                Err(_) => clock::sleep_ms(pause).await,
            }
            self.unless_interrupted(epoch)?;
            pause = (pause * 2).min(HELLO_PAUSE_MS.1);
        }
    }

    /// Destroys the container and, once it is seen to be gone, writes down what went with it. If it is not seen to
    /// be gone, it stays tainted, and the alarm tries again.
    pub async fn end_container(&self, reason: GoneReason, detail: &str) -> Result<(), Refusal> {
        self.store.set_boot(Boot::Tainted)?;
        self.plan(Task::Destroy, clock::now_ms() + super::lifetime::RETRY_MS)?;
        self.destroy().await.map_err(|e| {
            refusals::unavailable(
                refusals::CONTAINER_NOT_GONE,
                format!("the container could not be ended: {e}"),
            )
        })?;
        Ok(self.container_is_gone(reason, detail)?)
    }

    /// The container is proven gone: one transaction writes down what that means.
    pub fn container_is_gone(&self, reason: GoneReason, detail: &str) -> Result<(), StoreError> {
        let now = clock::now_ms();
        let (reason, detail) = match self.store.head()? {
            Some(head) if reason == GoneReason::ContainerStopped && self.reached_deadline(&head) => {
                (GoneReason::Expired, "the sandbox reached its deadline")
            }
            _ => (reason, detail),
        };
        self.store.bury_processes(reason, detail, now)?;
        self.store.bury_running_entries(detail, now)?;
        self.store.forget_container()?;
        self.done(Task::Destroy)
    }

    fn unless_interrupted(&self, epoch: u64) -> Result<(), BootFault> {
        self.still(epoch).map_err(|_| BootFault::Interrupted)
    }
}
