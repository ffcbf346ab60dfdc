//! The gate's decisions over its rows. Time and new slot ids are arguments; what must be asked of a sandbox is
//! handed back for the caller to ask.

use super::rows::{Rows, SlotRow, Sql, WaiterRow};
use super::{
    ASK_EVERY_MS, MAX_ASKED, MAX_WAITERS, Pool, Pools, RENEWALS_IN_A_LEASE, RETRY_REFUSED_MS,
    RETRY_WAITING_MS, SLOT_LEASE_MS, WAITER_TTL_MS,
};
use ringfence_wire::contract::{AdmissionMode, ListedSandbox, PoolUse};
use ringfence_wire::ids::{ConsumerName, SandboxKey};
use ringfence_wire::internal::AdmissionAnswer;
use ringfence_wire::refusal::AdmissionFacts;
use std::collections::BTreeMap;

/// Behind everybody. Numbers in storage stay below 2^53, where a JSON number is exact.
const LINE_END: u64 = 1 << 53;

/// Who asks, and for which pool.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    pub consumer: &'a ConsumerName,
    pub key: &'a SandboxKey,
    pub pool: Pool,
}

/// A slot whose sandbox must be asked whether its container is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotToAsk {
    pub slot: String,
    pub consumer: ConsumerName,
    pub key: SandboxKey,
}

/// What a sandbox said of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing runs under this slot and nothing will.
    Gone,
    Held,
    /// It could not be asked: kept, and reported.
    Unreachable,
}

/// The gate over some storage. Cheap to make; holds nothing.
pub struct Gate<'a, S> {
    rows: Rows<'a, S>,
    pools: &'a Pools,
    lease_ms: u64,
}

impl<'a, S: Sql> Gate<'a, S> {
    /// The storage must have been brought to this schema ([`super::migrate`]).
    pub fn new(sql: &'a S, pools: &'a Pools) -> Self {
        Self { rows: Rows(sql), pools, lease_ms: SLOT_LEASE_MS }
    }

    /// Another lease than [`SLOT_LEASE_MS`], as the deployment configures it.
    #[must_use]
    pub fn leasing(self, lease_ms: u64) -> Self {
        Self { lease_ms, ..self }
    }

    /// Takes or renews the slot of a sandbox, or its place in the queue. `new_slot` is a fresh random id.
    pub fn touch(
        &self,
        who: Claimant<'_>,
        mode: AdmissionMode,
        new_slot: &str,
        now: u64,
    ) -> Result<AdmissionAnswer, S::Error> {
        let (consumer, key) = (who.consumer.as_str(), who.key.as_str());
        if let Some(held) = self.rows.slot_of(consumer, key)? {
            // A write is waited for until it is durable, by every call that passes here: only what must be written is.
            if now.saturating_sub(held.renewed_at) >= self.lease_ms / RENEWALS_IN_A_LEASE {
                self.rows.renew(&held.slot, now)?;
            }
            // What a cut-short admission left; it would only hold a place until it ran out.
            if self.rows.waiter_of(consumer, key)?.is_some() {
                self.rows.leave(consumer, key)?;
            }
            return self.admitted(held.slot, held.pool, None, now);
        }
        if let Some(seen_by) = now.checked_sub(WAITER_TTL_MS) {
            self.rows.drop_silent_waiters(seen_by)?;
        }
        let place = match self.rows.waiter_of(consumer, key)? {
            // Its recipe changed: another pool is another queue.
            Some(place) if place.pool != who.pool => {
                self.rows.leave(consumer, key)?;
                None
            }
            place => place,
        };
        let free = self.pools.cap(who.pool).saturating_sub(self.rows.taken(who.pool)?);
        // Each of the first `free` in line is entitled to a slot, and nobody else is.
        let seq = place.map_or(LINE_END, |place| place.seq);
        if self.rows.ahead(who.pool, seq, free)? < free {
            self.rows.take(new_slot, consumer, key, who.pool, self.pools.cap(who.pool), now)?;
            self.rows.leave(consumer, key)?;
            return self.admitted(new_slot.to_owned(), who.pool, place, now);
        }
        match (mode, place) {
            (AdmissionMode::Queue, Some(place)) => {
                self.rows.heard_of(place.seq, now)?;
                self.waiting(who.pool, place, now)
            }
            (AdmissionMode::Queue, None) if self.rows.waiting(who.pool)? < MAX_WAITERS => {
                self.rows.queue(consumer, key, who.pool, now)?;
                match self.rows.waiter_of(consumer, key)? {
                    Some(place) => self.waiting(who.pool, place, now),
                    None => self.refused(who.pool, None, now),
                }
            }
            (AdmissionMode::Queue, None) | (AdmissionMode::Refuse, _) => self.refused(who.pool, place, now),
        }
    }

    /// Gives up a place in the queue. A slot is not given up by the consumer's word: its sandbox is to be asked.
    pub fn withdraw(
        &self,
        consumer: &ConsumerName,
        key: &SandboxKey,
        now: u64,
    ) -> Result<Option<SlotToAsk>, S::Error> {
        self.rows.leave(consumer.as_str(), key.as_str())?;
        let Some(held) = self.rows.slot_of(consumer.as_str(), key.as_str())? else { return Ok(None) };
        self.rows.asked(&held.slot, now)?;
        Ok(Some(to_ask(held)))
    }

    /// The sandbox renews its slot and tells what the registry shows. False if it holds no such slot any more.
    pub fn renew(
        &self,
        slot: &str,
        who: (&ConsumerName, &SandboxKey),
        labels: &BTreeMap<String, String>,
        expires_at: u64,
        now: u64,
    ) -> Result<bool, S::Error> {
        let held = self.rows.slot_of(who.0.as_str(), who.1.as_str())?;
        if held.is_none_or(|held| held.slot != slot) {
            return Ok(false);
        }
        self.rows.renew(slot, now)?;
        let labels = serde_json::json!(labels).to_string();
        self.rows.describe(slot, &labels, expires_at)?;
        Ok(true)
    }

    /// The sandbox's container is proven gone. By slot id: a late or doubled release frees nothing newer.
    pub fn release(&self, slot: &str) -> Result<(), S::Error> {
        self.rows.free(slot)
    }

    /// The slots to ask about now, marked as asked.
    pub fn overdue(&self, now: u64) -> Result<Vec<SlotToAsk>, S::Error> {
        let Some(renewed_by) = now.checked_sub(self.lease_ms) else { return Ok(Vec::new()) };
        let silent = self.rows.silent(renewed_by, now.saturating_sub(ASK_EVERY_MS), MAX_ASKED)?;
        for row in &silent {
            self.rows.asked(&row.slot, now)?;
        }
        Ok(silent.into_iter().map(to_ask).collect())
    }

    /// What the sandbox said when it was asked.
    pub fn heard(&self, slot: &str, heard: Heard, now: u64) -> Result<(), S::Error> {
        match heard {
            Heard::Gone => self.rows.free(slot),
            Heard::Held => self.rows.renew(slot, now),
            Heard::Unreachable => self.rows.unreachable(slot),
        }
    }

    /// When [`Gate::overdue`] next has something, if nothing else happens. Nobody waits on an idle gate.
    pub fn next_wake(&self) -> Result<Option<u64>, S::Error> {
        self.rows.next_silence(self.lease_ms, ASK_EVERY_MS)
    }

    pub fn pool_use(&self, now: u64) -> Result<Vec<PoolUse>, S::Error> {
        if let Some(seen_by) = now.checked_sub(WAITER_TTL_MS) {
            self.rows.drop_silent_waiters(seen_by)?;
        }
        let counts = self.rows.use_by_consumer()?;
        let mut told = Vec::new();
        for pool in Pool::ALL {
            let mine = || counts.iter().filter(|count| count.pool == pool);
            told.push(PoolUse {
                pool: pool.as_str().to_owned(),
                cap: self.pools.cap(pool),
                busy: mine().map(|count| count.n).sum(),
                waiting: u32::try_from(self.rows.waiting(pool)?).unwrap_or(u32::MAX),
                unreachable: mine().map(|count| count.unreachable).sum(),
                consumers: mine().map(|count| (count.consumer.clone(), count.n)).collect(),
            });
        }
        Ok(told)
    }

    /// A consumer's own sandboxes, those of them that carry every one of these labels.
    pub fn registry(
        &self,
        consumer: &ConsumerName,
        labels: &[(String, String)],
    ) -> Result<Vec<ListedSandbox>, S::Error> {
        let listed = self.rows.slots_of(consumer.as_str())?.into_iter().map(listed);
        let wanted =
            |row: &ListedSandbox| labels.iter().all(|(name, value)| row.labels.get(name) == Some(value));
        Ok(listed.filter(wanted).collect())
    }

    fn admitted(
        &self,
        slot: String,
        pool: Pool,
        place: Option<WaiterRow>,
        now: u64,
    ) -> Result<AdmissionAnswer, S::Error> {
        let mut facts = self.facts(pool, None, now, 0)?;
        facts.queued_for_ms = queued_for(place, now);
        Ok(AdmissionAnswer::Admitted { slot, pool: pool.as_str().to_owned(), facts })
    }

    fn waiting(&self, pool: Pool, place: WaiterRow, now: u64) -> Result<AdmissionAnswer, S::Error> {
        Ok(AdmissionAnswer::Waiting { facts: self.facts(pool, Some(place), now, RETRY_WAITING_MS)? })
    }

    fn refused(&self, pool: Pool, place: Option<WaiterRow>, now: u64) -> Result<AdmissionAnswer, S::Error> {
        Ok(AdmissionAnswer::Refused { facts: self.facts(pool, place, now, RETRY_REFUSED_MS)? })
    }

    fn facts(
        &self,
        pool: Pool,
        place: Option<WaiterRow>,
        now: u64,
        retry_after_ms: u64,
    ) -> Result<AdmissionFacts, S::Error> {
        let position = match place {
            Some(place) => Some(u32::try_from(self.rows.place(pool, place.seq)? + 1).unwrap_or(u32::MAX)),
            None => None,
        };
        Ok(AdmissionFacts {
            pool: pool.as_str().to_owned(),
            pool_busy: self.rows.taken(pool)?,
            cap: self.pools.cap(pool),
            position,
            queued_for_ms: queued_for(place, now),
            retry_after_ms,
        })
    }
}

fn queued_for(place: Option<WaiterRow>, now: u64) -> u64 {
    place.map_or(0, |place| now.saturating_sub(place.queued_at))
}

fn to_ask(row: SlotRow) -> SlotToAsk {
    SlotToAsk { slot: row.slot, consumer: row.consumer, key: row.key }
}

fn listed(row: SlotRow) -> ListedSandbox {
    ListedSandbox {
        consumer: row.consumer,
        key: row.key,
        pool: row.pool.as_str().to_owned(),
        labels: serde_json::from_str(&row.labels).unwrap_or_default(),
        created_at: row.taken_at,
        expires_at: row.expires_at,
        last_seen_at: row.renewed_at,
    }
}
