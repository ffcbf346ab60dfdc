//! The record of one application container and its life: created → starting → running → ended → removed. A life goes
//! forward only, and every change is seen by those who wait for it.

use super::boot::Running;
use super::log::TailLog;
use crate::names;
use crate::namespace::protocol::ProcessEnd;
use crate::network::authority::Authority;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;

/// What the create call said.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub image: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub labels: BTreeMap<String, String>,
    pub network_mode: String,
}

impl Plan {
    /// `consumer:key`, where a Sandbox object starts it.
    pub fn sandbox(&self) -> Option<&str> {
        let mut named = self.environment.iter().filter(|(name, _)| name == names::SANDBOX_VARIABLE);
        named.next().map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
pub enum Life {
    Created,
    Starting,
    Running(Arc<Running>),
    Ended { end: ProcessEnd, at: SystemTime },
    Removed { end: Option<ProcessEnd> },
}

impl Life {
    /// The name Docker has for it.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Created | Self::Starting => "created",
            Self::Running(_) => "running",
            Self::Ended { .. } => "exited",
            Self::Removed { .. } => "dead",
        }
    }

    /// How it ended, where it has.
    pub fn end(&self) -> Option<ProcessEnd> {
        match self {
            Self::Ended { end, .. } => Some(*end),
            Self::Removed { end } => *end,
            _ => None,
        }
    }
}

/// An archive put into the container before it runs.
#[derive(Clone)]
pub struct Archive {
    pub directory: String,
    pub bytes: bytes::Bytes,
}

pub struct Container {
    pub id: String,
    pub name: String,
    pub plan: Plan,
    pub created_at: SystemTime,
    pub log: Arc<TailLog>,
    life: watch::Sender<Life>,
    archives: Mutex<Vec<Archive>>,
    authority: OnceLock<Arc<Authority>>,
}

/// Archives kept for a container that does not run yet.
pub const MAX_ARCHIVES: usize = 16;

impl Container {
    pub fn new(id: String, name: String, plan: Plan) -> Self {
        Self {
            id,
            name,
            plan,
            created_at: SystemTime::now(),
            log: Arc::default(),
            life: watch::Sender::new(Life::Created),
            archives: Mutex::default(),
            authority: OnceLock::new(),
        }
    }

    pub fn life(&self) -> Life {
        self.life.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    /// The processes, while they run.
    pub fn running(&self) -> Option<Arc<Running>> {
        match &*self.life.borrow() {
            Life::Running(running) => Some(running.clone()),
            _ => None,
        }
    }

    /// What it was booted to trust.
    pub fn authority(&self) -> Option<Arc<Authority>> {
        self.authority.get().cloned()
    }

    /// Says what it trusts, once for its whole life.
    pub fn trust(&self, authority: Arc<Authority>) -> Arc<Authority> {
        self.authority.get_or_init(|| authority).clone()
    }

    /// Created → starting. False: it is past that.
    pub fn begin_start(&self) -> bool {
        self.life.send_if_modified(|life| {
            let first = matches!(life, Life::Created);
            if first {
                *life = Life::Starting;
            }
            first
        })
    }

    /// A start that failed may be tried again.
    pub fn start_failed(&self) {
        self.life.send_if_modified(|life| {
            let starting = matches!(life, Life::Starting);
            if starting {
                *life = Life::Created;
            }
            starting
        });
    }

    /// Starting → running. False: it was removed meanwhile, and the caller must end what it started.
    pub fn started(&self, running: Arc<Running>) -> bool {
        self.life.send_if_modified(|life| {
            let starting = matches!(life, Life::Starting);
            if starting {
                *life = Life::Running(running);
            }
            starting
        })
    }

    /// PID 1 ended.
    pub fn ended(&self, end: ProcessEnd) {
        self.life.send_if_modified(|life| {
            let running = matches!(life, Life::Running(_));
            if running {
                *life = Life::Ended { end, at: SystemTime::now() };
            }
            running
        });
    }

    /// The last change.
    pub fn removed(&self) {
        self.life.send_modify(|life| *life = Life::Removed { end: life.end() });
    }

    /// Keeps an archive for the start. False: there are too many.
    pub fn keep_archive(&self, archive: Archive) -> bool {
        let mut archives = self.archives.lock().unwrap_or_else(PoisonError::into_inner);
        let room = archives.len() < MAX_ARCHIVES;
        if room {
            archives.push(archive);
        }
        room
    }

    /// For a start. They stay: a start that failed may be tried again.
    pub fn archives(&self) -> Vec<Archive> {
        self.archives.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
