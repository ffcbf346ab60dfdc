//! Which host ids a container's ids are. As root each container gets a range of its own, so that no two share a uid
//! on the host; without privileges there is one id, the user's own.

use crate::namespace::protocol::{ID_RANGE, IdMap};
use rustix::process::{getegid, geteuid};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The first host id of the ranges. Above the ids that `useradd`, `/etc/subuid` and container managers hand out
/// by default, below 2^31, where some programs read ids as negative.
pub const ID_BASE: u32 = 0x7000_0000;
/// Containers that may run at once.
pub const MAX_SLOTS: u32 = 1024;

/// Hands out the ranges.
#[derive(Clone)]
pub struct IdPool {
    taken: Arc<Mutex<Vec<bool>>>,
    /// Where this engine's slots begin: two engines of one machine begin at different ones.
    first: u32,
    ranges: bool,
}

/// One container's ids. Dropping it gives the range back.
pub struct Ids {
    pub map: IdMap,
    slot: Option<usize>,
    pool: IdPool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{MAX_SLOTS} containers are running already; stop one first")]
pub struct NoSlot;

impl IdPool {
    pub fn new(state_dir: &Path) -> Self {
        let mut hasher = DefaultHasher::new();
        state_dir.hash(&mut hasher);
        let first = (hasher.finish() % u64::from(MAX_SLOTS)) as u32;
        Self { taken: Arc::default(), first, ranges: can_map_ranges() }
    }

    /// Whether jobs get uids of their own.
    pub fn has_ranges(&self) -> bool {
        self.ranges
    }

    pub fn take(&self) -> Result<Ids, NoSlot> {
        if !self.ranges {
            let map = IdMap::Single { uid: geteuid().as_raw(), gid: getegid().as_raw() };
            return Ok(Ids { map, slot: None, pool: self.clone() });
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        let number = u32::try_from(slot).ok().filter(|slot| *slot < MAX_SLOTS).ok_or(NoSlot)?;
        match taken.get_mut(slot) {
            Some(entry) => *entry = true,
            None => taken.push(true),
        }
        let map = IdMap::Range { base: ID_BASE + (self.first + number) % MAX_SLOTS * ID_RANGE };
        Ok(Ids { map, slot: Some(slot), pool: self.clone() })
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        let mut taken = self.pool.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = self.slot.and_then(|slot| taken.get_mut(slot)) {
            *entry = false;
        }
    }
}

impl Ids {
    /// Writes the maps of a process that has just made its user namespace.
    pub fn write_maps(&self, pid: i32) -> std::io::Result<()> {
        let write = |name: &str, text: String| std::fs::write(format!("/proc/{pid}/{name}"), text);
        match self.map {
            IdMap::Range { base } => {
                let line = format!("0 {base} {ID_RANGE}\n");
                write("uid_map", line.clone())?;
                write("gid_map", line)
            }
            IdMap::Single { uid, gid } => {
                write("setgroups", "deny".into())?;
                write("uid_map", format!("0 {uid} 1\n"))?;
                write("gid_map", format!("0 {gid} 1\n"))
            }
        }
    }
}

/// Root, with all the ranges mapped in our own user namespace.
fn can_map_ranges() -> bool {
    let covered = |file: &str| {
        let last = u64::from(ID_BASE) + u64::from(MAX_SLOTS) * u64::from(ID_RANGE);
        std::fs::read_to_string(file).unwrap_or_default().lines().any(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) => {
                    inside <= u64::from(ID_BASE) && last <= inside + count
                }
                _ => false,
            }
        })
    };
    geteuid().is_root() && covered("/proc/self/uid_map") && covered("/proc/self/gid_map")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_containers_share_a_range_and_a_dropped_one_is_used_again() {
        let pool = IdPool { taken: Arc::default(), first: 0, ranges: true };
        let base = |ids: &Ids| match ids.map {
            IdMap::Range { base } => base,
            IdMap::Single { .. } => panic!("a range was expected"),
        };
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!(base(&b) - base(&a), ID_RANGE);
        let freed = base(&a);
        drop(a);
        assert_eq!(base(&pool.take().unwrap()), freed);
    }

    #[test]
    fn the_last_range_ends_below_two_to_the_thirty_one_and_there_is_none_after_it() {
        let pool = IdPool { taken: Arc::default(), first: MAX_SLOTS - 1, ranges: true };
        let held: Vec<_> = (0..MAX_SLOTS).map(|_| pool.take().unwrap()).collect();
        let bases: std::collections::BTreeSet<_> = held.iter().map(|ids| format!("{:?}", ids.map)).collect();
        assert_eq!(bases.len(), MAX_SLOTS as usize, "all different");
        assert!(matches!(held.first().unwrap().map, IdMap::Range { base } if base + ID_RANGE < 1 << 31));
        assert_eq!(pool.take().err(), Some(NoSlot));
    }
}
