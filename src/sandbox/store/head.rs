//! The head row: who the sandbox is, its epoch, its counter of orders, its ticket and slot, its container's boot and
//! its deadline.
//!
//! Invariant: `epoch`, `generation` and `last_order` only grow. `boot` says what the object last knew of its
//! container, and is changed before the container is (so a crash in between is seen as the later state's worry).

use std::collections::BTreeMap;

use ringfence_wire::ids::{BootId, ConsumerName, Order, SandboxKey};
use ringfence_wire::internal::Pass;
use ringfence_wire::supervisor::{ExecutionIdentity, Hello};
use serde::{Deserialize, Serialize};

use super::Store;
use crate::sql::StoreError;

/// What the object last knew of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    /// None runs, and none was asked for.
    None,
    /// Start was called; its supervisor has not answered.
    Starting,
    /// Its supervisor answered with the boot key and the generation.
    Up,
    /// It must be destroyed before anything else happens in it.
    Tainted,
}

impl Boot {
    fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Tainted => "tainted",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Head {
    pub consumer: ConsumerName,
    pub key: SandboxKey,
    pub epoch: u64,
    pub generation: u64,
    pub ticket: Option<String>,
    pub slot: Option<String>,
    pub boot: Boot,
    pub boot_key: Option<String>,
    pub boot_id: Option<BootId>,
    pub egress_secret: Option<String>,
    pub identity: Option<ExecutionIdentity>,
    pub protocol: Option<u32>,
    /// The order of the fence that is open, or was when the object was lost.
    pub fence_order: Option<Order>,
    pub recipe_version: Option<String>,
    /// The checkout that the container is made with, by its name.
    pub repository: Option<String>,
    cloned: u8,
    labels: String,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
    pub wakeups: u64,
}

impl Head {
    pub fn labels(&self) -> BTreeMap<String, String> {
        serde_json::from_str(&self.labels).unwrap_or_default()
    }

    /// What the container was to be made with is all there.
    pub fn is_whole(&self) -> bool {
        self.repository.is_none() || self.cloned != 0
    }
}

/// What a boot is begun with.
pub struct NewBoot<'a> {
    pub boot_key: &'a str,
    pub egress_secret: &'a str,
    pub recipe_version: &'a str,
    pub repository: Option<&'a str>,
}

impl Store {
    /// `None` until the first call that changes something.
    pub fn head(&self) -> Result<Option<Head>, StoreError> {
        if self.blank.get() { Ok(None) } else { self.sql.row("SELECT * FROM head WHERE one = 1", []) }
    }

    /// The head, made if there is none yet.
    pub fn head_of(&self, consumer: &ConsumerName, key: &SandboxKey) -> Result<Head, StoreError> {
        if let Some(head) = self.head()? {
            return Ok(head);
        }
        self.prepare()?;
        self.sql.run(
            "INSERT INTO head (one, consumer, key) VALUES (1, ?, ?)",
            [consumer.as_str().into(), key.as_str().into()],
        )?;
        self.head()?.ok_or_else(|| StoreError("the head row is missing".to_owned()))
    }

    pub fn admit(&self, pass: &Pass) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE head SET ticket = ?, pool = ?, slot = ? WHERE one = 1",
            [(&pass.ticket).into(), (&pass.pool).into(), (&pass.slot).into()],
        )
    }

    /// Takes `count` orders and returns the first. Strictly increasing, never reused.
    pub fn take_orders(&self, count: u64) -> Result<Order, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            last_order: u64,
        }
        let row: Option<Row> = self.sql.row(
            "UPDATE head SET last_order = last_order + ? WHERE one = 1 RETURNING last_order",
            [count.into()],
        )?;
        let row = row.ok_or_else(|| StoreError("the head row is missing".to_owned()))?;
        Ok(Order(row.last_order + 1 - count))
    }

    /// A fence is about to open: its order is taken, the one after it is its teardown's.
    pub fn open_fence(&self) -> Result<Order, StoreError> {
        let order = self.take_orders(2)?;
        self.sql.run("UPDATE head SET fence_order = ? WHERE one = 1", [order.0.into()])?;
        Ok(order)
    }

    pub fn close_fence(&self) -> Result<(), StoreError> {
        self.sql.run("UPDATE head SET fence_order = NULL WHERE one = 1 AND fence_order IS NOT NULL", [])
    }

    /// A boot begins: a new generation with its own secrets. Returns the generation.
    pub fn begin_boot(&self, boot: &NewBoot<'_>) -> Result<u64, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            generation: u64,
        }
        let row: Option<Row> = self.sql.row(
            "UPDATE head SET generation = generation + 1, boot = 'starting', boot_key = ?, boot_id = NULL,
                egress_secret = ?, identity = NULL, protocol = NULL, fence_order = NULL, recipe_version = ?,
                repository = ?, cloned = 0
             WHERE one = 1 RETURNING generation",
            [
                boot.boot_key.into(),
                boot.egress_secret.into(),
                boot.recipe_version.into(),
                boot.repository.into(),
            ],
        )?;
        row.map(|row| row.generation).ok_or_else(|| StoreError("the head row is missing".to_owned()))
    }

    /// The handshake is done.
    pub fn booted(&self, hello: &Hello) -> Result<(), StoreError> {
        let identity = serde_json::to_value(hello.identity)?;
        self.sql.run(
            "UPDATE head SET boot = 'up', boot_id = ?, identity = ?, protocol = ? WHERE one = 1",
            [hello.boot_id.as_str().into(), identity.as_str().into(), u64::from(hello.protocol).into()],
        )
    }

    /// The repository is in the container.
    pub fn set_cloned(&self) -> Result<(), StoreError> {
        self.sql.run("UPDATE head SET cloned = 1 WHERE one = 1", [])
    }

    pub fn set_boot(&self, boot: Boot) -> Result<(), StoreError> {
        self.sql.run("UPDATE head SET boot = ? WHERE one = 1", [boot.text().into()])
    }

    /// The container is gone: what only meant something with it is erased.
    pub fn forget_container(&self) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE head SET boot = 'none', boot_key = NULL, boot_id = NULL, egress_secret = NULL,
                fence_order = NULL WHERE one = 1",
            [],
        )
    }

    /// A life begins or is prolonged. `created_at` stays what it was within one life.
    pub fn set_lifetime(&self, created_at: u64, expires_at: u64) -> Result<(), StoreError> {
        self.sql.run(
            "UPDATE head SET created_at = ?, expires_at = ? WHERE one = 1",
            [created_at.into(), expires_at.into()],
        )
    }

    pub fn set_labels(&self, labels: &BTreeMap<String, String>) -> Result<(), StoreError> {
        let text = serde_json::to_string(labels)?;
        self.sql.run("UPDATE head SET labels = ? WHERE one = 1", [(&text).into()])
    }

    /// The first step of abort, checkpoint and expiry: whatever awaits now will find another epoch, nothing can boot
    /// without a new ticket in another slot, and the life is over. Returns the new epoch.
    pub fn bump_epoch(&self, now: u64) -> Result<u64, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            epoch: u64,
        }
        self.sql.run(
            "INSERT OR IGNORE INTO slots (slot, state, since)
             SELECT slot, 'ending', ? FROM head WHERE one = 1 AND slot IS NOT NULL",
            [now.into()],
        )?;
        let row: Option<Row> = self.sql.row(
            "UPDATE head SET epoch = epoch + 1, ticket = NULL, slot = NULL, fence_order = NULL, created_at = NULL,
                expires_at = NULL, labels = '{}', boot = CASE boot WHEN 'none' THEN 'none' ELSE 'tainted' END
             WHERE one = 1 RETURNING epoch",
            [],
        )?;
        row.map(|row| row.epoch).ok_or_else(|| StoreError("the head row is missing".to_owned()))
    }

    pub fn count_wakeup(&self) -> Result<(), StoreError> {
        self.sql.run("UPDATE head SET wakeups = wakeups + 1 WHERE one = 1", [])
    }
}
