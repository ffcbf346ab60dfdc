//! The small tables: slots given up, what the alarm is for, denials, events.
//!
//! Invariant: a slot id that stands here is never used again by this object, so a late answer from the admission
//! gate cannot start a container in a slot that was given back. Every table has a bound.

use ringfence_wire::contract::{DenialEvent, EventsQuery, SandboxEvent};
use serde::{Deserialize, Serialize};

use super::Store;
use crate::sql::StoreError;

/// Given-up slots remembered; a ticket outlives its slot by minutes, so a few would do.
const MAX_SLOTS: u64 = 256;
/// Kinds of refused requests kept apart; what is over is counted under [`OVERFLOW`].
pub const MAX_DENIALS: u64 = 1_000;
pub const OVERFLOW: &str = "(more)";
/// Events kept, newest last.
pub const MAX_EVENTS: u64 = 1_000;
/// Of them in one page, unless it is asked for otherwise.
const EVENTS_PAGE: u64 = 200;

/// One reason for an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// The sandbox's deadline.
    Expire,
    /// Look whether a slot that was taken before a boot came to be used.
    Slot,
    /// Renew the slot, look whether the container still runs, re-arm the inactivity timeout.
    Renew,
    /// Settle what an earlier incarnation left open.
    Recover,
    /// Give slots back to the Admission object.
    Release,
    /// Destroy a container whose end was not seen.
    Destroy,
}

impl Task {
    pub fn text(self) -> &'static str {
        match self {
            Self::Expire => "expire",
            Self::Slot => "slot",
            Self::Renew => "renew",
            Self::Recover => "recover",
            Self::Release => "release",
            Self::Destroy => "destroy",
        }
    }
}

/// The three steps in which a slot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotEnd {
    /// It admits nobody any more; its container may live.
    Ending,
    /// Its container is seen gone; the Admission object is to take it back.
    Releasing,
    /// The Admission object has it back.
    Released,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Due {
    pub task: Task,
    pub at: u64,
}

impl Store {
    /// From now on the slot is given up.
    pub fn give_up_slot(&self, slot: &str, now: u64) -> Result<(), StoreError> {
        self.prepare()?;
        self.sql.run(
            "INSERT OR IGNORE INTO slots (slot, state, since) VALUES (?, 'releasing', ?)",
            [slot.into(), now.into()],
        )?;
        self.sql
            .run("UPDATE head SET slot = NULL, ticket = NULL WHERE one = 1 AND slot = ?", [slot.into()])?;
        self.sql.run(
            "DELETE FROM slots WHERE state = 'released' AND slot NOT IN
                (SELECT slot FROM slots ORDER BY since DESC LIMIT ?)",
            [MAX_SLOTS.into()],
        )
    }

    /// The Admission object has it back.
    pub fn slot_released(&self, slot: &str) -> Result<(), StoreError> {
        self.sql.run("UPDATE slots SET state = 'released' WHERE slot = ?", [slot.into()])
    }

    /// The containers of the slots that abort, checkpoint or expiry ended are gone. False if there were none.
    pub fn release_ending_slots(&self) -> Result<bool, StoreError> {
        #[derive(Deserialize)]
        struct Row {}
        let rows: Vec<Row> = self
            .sql
            .rows("UPDATE slots SET state = 'releasing' WHERE state = 'ending' RETURNING slot", [])?;
        Ok(!rows.is_empty())
    }

    pub fn slots_to_release(&self) -> Result<Vec<String>, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            slot: String,
        }
        let rows: Vec<Row> =
            self.sql.rows("SELECT slot FROM slots WHERE state = 'releasing' ORDER BY since", [])?;
        Ok(rows.into_iter().map(|row| row.slot).collect())
    }

    /// How far the slot's end is; none for one that was not given up.
    pub fn slot_end(&self, slot: &str) -> Result<Option<SlotEnd>, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            state: SlotEnd,
        }
        let row: Option<Row> = self.sql.row("SELECT state FROM slots WHERE slot = ?", [slot.into()])?;
        Ok(row.map(|row| row.state))
    }

    pub fn set_due(&self, task: Task, at: u64) -> Result<(), StoreError> {
        self.sql.run(
            "INSERT INTO due (task, at) VALUES (?, ?) ON CONFLICT (task) DO UPDATE SET at = excluded.at",
            [task.text().into(), at.into()],
        )
    }

    pub fn clear_due(&self, task: Task) -> Result<(), StoreError> {
        self.sql.run("DELETE FROM due WHERE task = ?", [task.text().into()])
    }

    /// Earliest first.
    pub fn dues(&self) -> Result<Vec<Due>, StoreError> {
        if self.blank.get() {
            Ok(Vec::new())
        } else {
            self.sql.rows("SELECT task, at FROM due ORDER BY at", [])
        }
    }

    /// Most counted first.
    pub fn denials(&self) -> Result<Vec<DenialEvent>, StoreError> {
        if self.blank.get() {
            return Ok(Vec::new());
        }
        self.sql.rows(
            "SELECT host, method, path, reason, count FROM denials ORDER BY count DESC, host, path LIMIT ?",
            [(MAX_DENIALS + 1).into()],
        )
    }

    /// Counts one more of a kind. Kinds over the bound are counted together.
    pub fn count_denial(&self, denial: &DenialEvent) -> Result<(), StoreError> {
        const COUNT: &str = "INSERT INTO denials (host, method, path, reason, count) VALUES (?, ?, ?, ?, 1)
            ON CONFLICT (host, method, path, reason) DO UPDATE SET count = count + 1";
        #[derive(Deserialize)]
        struct Found {}
        let DenialEvent { host, method, path, reason, .. } = denial;
        let found: Option<Found> = self.sql.row(
            "UPDATE denials SET count = count + 1
             WHERE host = ? AND method = ? AND path = ? AND reason = ? RETURNING 1 AS found",
            [host.into(), method.into(), path.into(), reason.into()],
        )?;
        if found.is_some() {
            return Ok(());
        }
        let full: Option<Found> =
            self.sql.row("SELECT 1 AS found FROM denials LIMIT 1 OFFSET ?", [(MAX_DENIALS - 1).into()])?;
        match full {
            None => self.sql.run(COUNT, [host.into(), method.into(), path.into(), reason.into()]),
            Some(_) => {
                self.sql.run(COUNT, [OVERFLOW.into(), OVERFLOW.into(), OVERFLOW.into(), OVERFLOW.into()])
            }
        }
    }

    /// A page of events, oldest first. One that this version cannot read is left out.
    pub fn events(&self, query: EventsQuery) -> Result<EventsPage, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            seq: u64,
            event: String,
        }
        #[derive(Deserialize)]
        struct Oldest {
            seq: Option<u64>,
        }
        let cursor = query.cursor.unwrap_or(0);
        if self.blank.get() {
            return Ok(EventsPage { events: Vec::new(), next: cursor, dropped: 0 });
        }
        let limit = query.limit.unwrap_or(EVENTS_PAGE).min(MAX_EVENTS);
        let rows: Vec<Row> = self.sql.rows(
            "SELECT seq, event FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
            [cursor.into(), limit.into()],
        )?;
        let oldest: Option<Oldest> = self.sql.row("SELECT MIN(seq) AS seq FROM events", [])?;
        let read = |row: &Row| {
            let event: SandboxEvent = serde_json::from_str(&row.event).ok()?;
            Some(SandboxEvent { seq: row.seq, ..event })
        };
        Ok(EventsPage {
            next: rows.last().map_or(cursor, |row| row.seq),
            dropped: oldest.and_then(|row| row.seq).map_or(0, |seq| seq.saturating_sub(cursor + 1)),
            events: rows.iter().filter_map(read).collect(),
        })
    }

    /// The newest event of this operation.
    pub fn last_event(&self, operation: &str) -> Result<Option<SandboxEvent>, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            event: String,
        }
        let row: Option<Row> = self.sql.row(
            "SELECT event FROM events WHERE json_extract(event, '$.operation') = ? ORDER BY seq DESC LIMIT 1",
            [operation.into()],
        )?;
        Ok(row.and_then(|row| serde_json::from_str(&row.event).ok()))
    }

    /// Adds one event and returns its number.
    pub fn log_event(&self, event: &SandboxEvent) -> Result<u64, StoreError> {
        #[derive(Deserialize)]
        struct Row {
            seq: u64,
        }
        let text = serde_json::to_string(event)?;
        let row: Option<Row> = self.sql.row(
            "INSERT INTO events (at, event) VALUES (?, ?) RETURNING seq",
            [event.at.into(), (&text).into()],
        )?;
        let seq = row.map(|row| row.seq).ok_or_else(|| StoreError("an event got no number".to_owned()))?;
        self.sql.run("DELETE FROM events WHERE seq <= ?", [seq.saturating_sub(MAX_EVENTS).into()])?;
        Ok(seq)
    }
}

/// What one look at the events gives.
#[derive(Debug)]
pub struct EventsPage {
    pub events: Vec<SandboxEvent>,
    pub next: u64,
    pub dropped: u64,
}
