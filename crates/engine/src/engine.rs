//! The engine: what it keeps, and what can be done with a container.
//!
//! It owns every container and sidecar. A container is removed from the registry only after it has been proven ended;
//! a name is free again from that moment. All maps are behind short locks that no await holds.

use crate::calls::{CallLog, Plane};
use crate::config::EngineConfig;
use crate::container::boot::{self, Boot, BootError};
use crate::container::cgroup::Cgroups;
use crate::container::ids::{IdPool, Ids};
use crate::container::record::{Archive, Plan};
use crate::container::spawner::Spawner;
use crate::container::{Container, Life};
use crate::docker_api::exec::Execs;
use crate::faults::Faults;
use crate::names;
use crate::namespace::exec::DEFAULT_PATH;
use crate::namespace::protocol::{BootSpec, ProcessEnd, RedirectTool};
use crate::namespace::trust;
use crate::network::authority::{Authority, AuthorityError};
use crate::network::denials::Denials;
use crate::network::dns::Names;
use crate::network::relay::{EgressPort, Relay};
use crate::network::sidecar::Sidecar;
use crate::state::StateDir;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A forced removal that is not proven by then is an error, and the container stays. Longer than a boot may take: one
/// that is under way ends first.
pub const REMOVE_DEADLINE: Duration = Duration::from_secs(30);
/// Of the container's id, as Docker does.
const MAX_HOSTNAME_BYTES: usize = 12;

pub struct Engine {
    pub config: EngineConfig,
    pub calls: CallLog,
    pub denials: Arc<Denials>,
    pub execs: Execs,
    pub faults: Faults,
    pub cgroups: Cgroups,
    pub ids: IdPool,
    pub redirect: Option<RedirectTool>,
    /// No container is created or started any more.
    closing: AtomicBool,
    state: StateDir,
    spawner: Spawner,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    sidecars: Mutex<BTreeMap<String, Arc<Sidecar>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("already started")]
    Already,
    #[error("the engine is ending")]
    Closing,
    #[error("it was removed while it started")]
    Removed,
    #[error("{error}{}", if log.is_empty() { String::new() } else { format!("; it said: {log}") })]
    Boot { error: BootError, log: String },
    #[error("the engine could not serve its network: {0}")]
    Network(io::Error),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("it is running; stop it first or remove it by force")]
    Running,
    #[error("its end was not seen within {REMOVE_DEADLINE:?}")]
    NotProven,
}

/// 64 hex digits, as Docker's ids are.
pub fn random_id() -> String {
    let mut bytes = [0_u8; 32];
    // Without randomness nothing here is safe to run; the kernel's source does not fail once it is seeded.
    if getrandom::fill(&mut bytes).is_err() {
        std::process::abort();
    }
    hex::encode(bytes)
}

impl Engine {
    pub fn new(config: EngineConfig, state: StateDir, spawner: Spawner) -> Arc<Self> {
        let mut cgroups = Cgroups::detect(state.path());
        cgroups.prepare();
        Arc::new(Self {
            calls: CallLog::default(),
            denials: Arc::default(),
            execs: Execs::default(),
            faults: Faults::default(),
            cgroups,
            ids: IdPool::new(state.path()),
            redirect: crate::doctor::redirect_tool(),
            closing: AtomicBool::new(false),
            state,
            spawner,
            containers: Mutex::default(),
            sidecars: Mutex::default(),
            config,
        })
    }

    fn containers(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Container>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sidecars(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Sidecar>>> {
        self.sidecars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By name or by id.
    pub fn container(&self, reference: &str) -> Option<Arc<Container>> {
        let containers = self.containers();
        containers.get(reference).or_else(|| containers.values().find(|c| c.id == reference)).cloned()
    }

    pub fn sidecar(&self, reference: &str) -> Option<Arc<Sidecar>> {
        let sidecars = self.sidecars();
        sidecars.get(reference).or_else(|| sidecars.values().find(|s| s.id == reference)).cloned()
    }

    pub fn all_containers(&self) -> Vec<Arc<Container>> {
        self.containers().values().cloned().collect()
    }

    pub fn all_sidecars(&self) -> Vec<Arc<Sidecar>> {
        self.sidecars().values().cloned().collect()
    }

    /// None: the name is in use.
    pub fn create_container(&self, name: String, plan: Plan) -> Option<Arc<Container>> {
        // Both maps are held, in this order everywhere: a name is one container's or one sidecar's.
        let (mut containers, sidecars) = (self.containers(), self.sidecars());
        if containers.contains_key(&name) || sidecars.contains_key(&name) {
            return None;
        }
        let container = Arc::new(Container::new(random_id(), name.clone(), plan));
        self.denials.begin(&name, container.plan.sandbox());
        containers.insert(name, container.clone());
        Some(container)
    }

    /// None: the name is in use.
    pub fn create_sidecar(&self, name: String) -> Result<Option<Arc<Sidecar>>, AuthorityError> {
        // A container that runs already trusts another sidecar's authority, for the rest of its life.
        let trusted =
            names::served_by(&name).and_then(|served| self.container(served)).and_then(|c| c.authority());
        let authority = trusted.map_or_else(|| Authority::new().map(Arc::new), Ok)?;
        let (containers, mut sidecars) = (self.containers(), self.sidecars());
        if containers.contains_key(&name) || sidecars.contains_key(&name) {
            return Ok(None);
        }
        let sidecar = Arc::new(Sidecar::new(random_id(), name.clone(), authority));
        sidecars.insert(name, sidecar.clone());
        Ok(Some(sidecar))
    }

    /// The sidecar beside a container.
    fn sidecar_of(&self, container: &Container) -> Option<Arc<Sidecar>> {
        self.sidecar(&names::sidecar_of(&container.name))
    }

    pub fn remove_sidecar(&self, sidecar: &Sidecar) {
        self.sidecars().remove(&sidecar.name);
        sidecar.stop();
    }

    /// Boots the container's processes and serves its network.
    pub async fn start_container(self: &Arc<Self>, container: &Arc<Container>) -> Result<(), StartError> {
        if self.is_closing() {
            return Err(StartError::Closing);
        }
        if !container.begin_start() {
            return Err(StartError::Already);
        }
        // To its end even when the caller leaves: a boot that nobody owns would be an orphan.
        let (engine, container) = (self.clone(), container.clone());
        let started = tokio::spawn(async move {
            let started = engine.boot(&container).await;
            if started.is_err() {
                container.start_failed();
            }
            started
        });
        started.await.unwrap_or_else(|error| Err(StartError::Network(io::Error::other(error))))
    }

    async fn boot(self: &Arc<Self>, container: &Arc<Container>) -> Result<(), StartError> {
        let authority = match self.sidecar_of(container) {
            Some(sidecar) => sidecar.authority.clone(),
            None => Arc::new(Authority::new()?),
        };
        let authority = container.trust(authority);
        let plan = Boot {
            spawner: &self.spawner,
            ids: &self.ids,
            cgroups: &self.cgroups,
            id: &container.id,
            log: container.log.clone(),
            archives: container.archives(),
        };
        let booted = boot::boot(plan, |ids| self.boot_spec(container, ids, authority.pem())).await;
        let (running, listeners) = booted
            .map_err(|error| StartError::Boot { error, log: container.log.text().trim().to_owned() })?;
        let relay = Relay {
            container: container.name.clone(),
            denials: self.denials.clone(),
            names: Names::default(),
            authority,
            egress_port: self.egress_port_of(container),
        };
        let tasks = relay.start(listeners.relay, listeners.responder).map_err(StartError::Network)?;
        let running = Arc::new(running);
        if !container.started(running.clone()) {
            return Err(StartError::Removed);
        }
        let (engine, container) = (self.clone(), container.clone());
        tokio::spawn(async move {
            let end = running.ended().await;
            drop(tasks);
            container.ended(end);
            let n = engine.calls.arrived(Plane::Engine, Some(&container.name), "ENDED", &format!("{end:?}"));
            engine.calls.answered(n, 200);
        });
        Ok(())
    }

    /// Looks the sidecar up each time: workerd deletes and makes it anew, and moves its port, while a container runs.
    fn egress_port_of(self: &Arc<Self>, container: &Container) -> EgressPort {
        let (engine, sidecar) = (Arc::downgrade(self), names::sidecar_of(&container.name));
        Box::new(move || engine.upgrade()?.sidecar(&sidecar)?.egress().port)
    }

    fn boot_spec(&self, container: &Container, ids: &Ids, authority: &str) -> BootSpec {
        let mut environment = vec![("PATH".to_owned(), DEFAULT_PATH.to_owned())];
        environment.extend(trust::environment());
        environment.extend(container.plan.environment.iter().cloned());
        // Said by the engine, which made the namespaces; a create body cannot say otherwise.
        environment.retain(|(name, _)| name != ringfence_identity::NAME);
        environment.push((ringfence_identity::NAME.into(), ringfence_identity::SANDBOXED.into()));
        BootSpec {
            engine_pid: i32::try_from(std::process::id()).unwrap_or_default(),
            hostname: container.id.chars().take(MAX_HOSTNAME_BYTES).collect(),
            supervisor: self.state.supervisor(),
            arguments: container.plan.arguments.clone(),
            environment,
            bounds: self.config.bounds,
            bind_ro: self.config.bind_ro.clone(),
            id_map: ids.map,
            authority: authority.to_owned(),
            mount_point: self.state.mount_point(),
            redirect: self.redirect.clone(),
        }
    }

    /// Keeps an archive for the start, or unpacks it into a running container.
    pub async fn put_archive(&self, container: &Container, archive: Archive) -> Result<(), String> {
        match container.life() {
            Life::Running(running) => {
                let done = running.keeper().unpack(archive.directory, &archive.bytes).await;
                done.map_err(|error| error.to_string())
            }
            Life::Created | Life::Starting => match container.keep_archive(archive) {
                true => Ok(()),
                false => Err("too many archives before the start".into()),
            },
            Life::Ended { .. } | Life::Removed { .. } => Err("the container has ended".into()),
        }
    }

    /// Ends the container if it runs, sees it ended, and frees its name.
    pub async fn remove_container(&self, container: &Arc<Container>, force: bool) -> Result<(), RemoveError> {
        let end = async {
            let mut life = container.watch();
            // A start that is under way ends first, one way or the other.
            let _ = life.wait_for(|life| !matches!(life, Life::Starting)).await;
            if let Some(running) = container.running() {
                if !force {
                    return Err(RemoveError::Running);
                }
                let _ = running.signal(Signal::KILL);
                let _ = life.wait_for(|life| !matches!(life, Life::Running(_))).await;
            }
            Ok(())
        };
        tokio::time::timeout(REMOVE_DEADLINE, end).await.unwrap_or(Err(RemoveError::NotProven))?;
        self.execs.forget(&container.id);
        let mut containers = self.containers();
        if containers.get(&container.name).is_some_and(|held| Arc::ptr_eq(held, container)) {
            containers.remove(&container.name);
        }
        container.removed();
        Ok(())
    }

    /// From now on nothing new is begun.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Ends every container, all at once. What did not end in time is named.
    pub async fn end_all(&self) -> Vec<String> {
        self.closing.store(true, Ordering::SeqCst);
        let ends = self.all_containers().into_iter().map(|container| async move {
            self.remove_container(&container, true).await.err().map(|_| container.name.clone())
        });
        let left = futures_join(ends).await;
        for sidecar in self.all_sidecars() {
            self.remove_sidecar(&sidecar);
        }
        self.cgroups.release();
        left.into_iter().flatten().collect()
    }
}

async fn futures_join<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = all.map(|future| Box::pin(future)).collect();
    let mut done = Vec::with_capacity(waiting.len());
    std::future::poll_fn(|context| {
        waiting.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => {
                done.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

/// How Docker numbers an end.
pub fn status_code(end: Option<ProcessEnd>) -> i32 {
    end.map_or(0, ProcessEnd::status_code)
}

mod ringfence_identity {
    pub const NAME: &str = "RINGFENCE_IDENTITY";
    pub const SANDBOXED: &str = "sandboxed_workspace";
}
