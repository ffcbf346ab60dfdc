//! The pools: their names, their caps, and which one a sandbox takes.
//!
//! A bad configuration is a start-up error that names the entry. It never means "unmetered".

use ringfence_wire::contract::Recipe;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// All caps together.
pub const CEILING: u32 = 16;
/// Waiters of one pool.
pub const MAX_WAITERS: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pool {
    Lean,
    Browser,
    Agent,
    Task,
}

impl Pool {
    pub const ALL: [Self; 4] = [Self::Lean, Self::Browser, Self::Agent, Self::Task];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lean => "lean",
            Self::Browser => "browser",
            Self::Agent => "agent",
            Self::Task => "task",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pool| pool.as_str() == name)
    }

    pub fn default_cap(self) -> u32 {
        match self {
            Self::Lean => 6,
            Self::Browser => 3,
            Self::Agent => 3,
            Self::Task => 4,
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The cap of every pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools(BTreeMap<Pool, u32>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolsFault {
    #[error("POOLS is not a JSON object of pool names and caps, like {{\"lean\":6}}")]
    NotAnObject,
    #[error("POOLS names {name:?}, which is no pool; the pools are lean, browser, agent, task")]
    UnknownPool { name: String },
    #[error("POOLS.{pool} is {cap}; a cap is an integer of at least 1")]
    BadCap { pool: Pool, cap: String },
    #[error("POOLS adds up to {sum} with the defaults of pools it leaves out; the ceiling is {CEILING}")]
    OverCeiling { sum: u64 },
}

impl Default for Pools {
    fn default() -> Self {
        Self(Pool::ALL.into_iter().map(|pool| (pool, pool.default_cap())).collect())
    }
}

impl Pools {
    /// From the configured JSON object. A pool it leaves out keeps its default.
    pub fn parse(json: Option<&str>) -> Result<Self, PoolsFault> {
        let mut pools = Self::default();
        let Some(json) = json else { return Ok(pools) };
        let told: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json).map_err(|_| PoolsFault::NotAnObject)?;
        for (name, cap) in told {
            let pool = Pool::parse(&name).ok_or(PoolsFault::UnknownPool { name })?;
            let number = cap.as_u64().filter(|cap| *cap >= 1).and_then(|cap| u32::try_from(cap).ok());
            let number = number.ok_or_else(|| PoolsFault::BadCap { pool, cap: cap.to_string() })?;
            pools.0.insert(pool, number);
        }
        let sum = pools.0.values().copied().map(u64::from).sum();
        if sum > u64::from(CEILING) { Err(PoolsFault::OverCeiling { sum }) } else { Ok(pools) }
    }

    pub fn cap(&self, pool: Pool) -> u32 {
        self.0.get(&pool).copied().unwrap_or_else(|| pool.default_cap())
    }

    /// The pool of a sandbox: one that browses takes `browser`; any other takes the pool that its consumer's
    /// reviewed configuration names, or `lean`.
    pub fn pool_for(consumer: Option<Pool>, recipe: &Recipe) -> Pool {
        let browses = recipe.profiles.iter().flatten().any(|profile| profile == "browser-fetch");
        if browses { Pool::Browser } else { consumer.unwrap_or(Pool::Lean) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_or_empty_the_defaults_hold_and_fill_the_ceiling() {
        for json in [None, Some("{}")] {
            let pools = Pools::parse(json).unwrap();
            let caps = Pool::ALL.map(|pool| pools.cap(pool));
            assert_eq!(caps, [6, 3, 3, 4]);
            assert_eq!(caps.iter().sum::<u32>(), CEILING);
        }
    }

    #[test]
    fn a_pool_left_out_keeps_its_default() {
        let pools = Pools::parse(Some(r#"{"lean":1,"task":9}"#)).unwrap();
        assert_eq!(Pool::ALL.map(|pool| pools.cap(pool)), [1, 3, 3, 9]);
    }

    #[test]
    fn every_bad_configuration_is_named() {
        let fault = |json: &str| Pools::parse(Some(json)).unwrap_err().to_string();
        for json in ["", "[]", "6", "{", "null"] {
            assert_eq!(Pools::parse(Some(json)), Err(PoolsFault::NotAnObject), "{json:?}");
        }
        assert!(fault(r#"{"leen":6}"#).contains("leen"));
        for bad in ["0", "-1", "1.5", "\"6\"", "null", "4294967296"] {
            let json = format!("{{\"agent\":{bad}}}");
            assert!(fault(&json).contains("POOLS.agent"), "{bad}");
        }
        assert_eq!(Pools::parse(Some(r#"{"lean":7}"#)), Err(PoolsFault::OverCeiling { sum: 17 }));
        assert_eq!(
            Pools::parse(Some(r#"{"lean":4294967295,"task":4294967295}"#)),
            Err(PoolsFault::OverCeiling { sum: 2 * 4_294_967_295 + 6 })
        );
    }

    #[test]
    fn consumer_and_recipe_alone_decide_the_pool() {
        let recipe = |json| serde_json::from_str::<Recipe>(json).unwrap();
        let plain = recipe(r#"{"version":"1","pool":"task"}"#);
        assert_eq!(Pools::pool_for(None, &plain), Pool::Lean, "a pool in the payload changes nothing");
        assert_eq!(Pools::pool_for(Some(Pool::Agent), &plain), Pool::Agent);
        let browses = recipe(r#"{"version":"1","profiles":["js-install","browser-fetch"]}"#);
        assert_eq!(Pools::pool_for(Some(Pool::Agent), &browses), Pool::Browser);
    }
}
