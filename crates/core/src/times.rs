//! How long things last that a deployment may want otherwise: the slot's lease, the platform's inactivity timeout, the
//! wait for a fence.
//!
//! Invariants: every value lies within its bounds; a container that nobody needs has stopped, and is looked at, before
//! its slot's lease ends; one that is needed is renewed several times within both. A bad configuration is a start-up
//! error that names the entry, never a default in its place.

use crate::admission::SLOT_LEASE_MS;

/// One configured time: its name, its least and most, and its default.
struct Bound {
    name: &'static str,
    least: u64,
    most: u64,
    default: u64,
}

const SLOT_LEASE: Bound =
    Bound { name: "slotLeaseMs", least: 20_000, most: 60 * 60 * 1_000, default: SLOT_LEASE_MS };
const INACTIVITY: Bound =
    Bound { name: "inactivityMs", least: 5_000, most: 50 * 60 * 1_000, default: 5 * 60 * 1_000 };
const EVICTION: Bound =
    Bound { name: "evictionMs", least: 11_000, most: 10 * 60 * 1_000, default: 3 * 60 * 1_000 };
const FENCE_WAIT: Bound = Bound { name: "fenceWaitMs", least: 1_000, most: 120_000, default: 60_000 };
const BOUNDS: [&Bound; 4] = [&SLOT_LEASE, &INACTIVITY, &EVICTION, &FENCE_WAIT];

/// While something needs a container it is looked at at least so often.
const RENEW_AT_LEAST_EVERY_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A slot that has not been renewed for so long is asked about.
    pub slot_lease_ms: u64,
    /// How long the platform keeps a container once its object has left memory.
    pub inactivity_ms: u64,
    /// How long after its last call the platform may keep an object in memory; the inactivity timeout counts from then.
    pub eviction_ms: u64,
    /// How long a call waits for a sandbox's fence.
    pub fence_wait_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimesFault {
    #[error("TIMES is not a JSON object of names and milliseconds, like {{\"slotLeaseMs\":600000}}")]
    NotAnObject,
    #[error("TIMES names {name:?}, which is no time; the times are {}", BOUNDS.map(|bound| bound.name).join(", "))]
    Unknown { name: String },
    #[error("TIMES.{name} is {value}; it is an integer of {least} to {most}")]
    OutOfBounds { name: &'static str, value: String, least: u64, most: u64 },
    #[error(
        "TIMES.slotLeaseMs is {lease}; it must be over inactivityMs + evictionMs, which are {idle} together"
    )]
    LeaseTooShort { lease: u64, idle: u64 },
}

impl Default for Times {
    fn default() -> Self {
        Self {
            slot_lease_ms: SLOT_LEASE.default,
            inactivity_ms: INACTIVITY.default,
            eviction_ms: EVICTION.default,
            fence_wait_ms: FENCE_WAIT.default,
        }
    }
}

impl Times {
    /// From the configured JSON object. A time it leaves out keeps its default.
    pub fn parse(json: Option<&str>) -> Result<Self, TimesFault> {
        let mut times = Self::default();
        let Some(json) = json else { return Ok(times) };
        let told: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json).map_err(|_| TimesFault::NotAnObject)?;
        for (name, value) in told {
            let (bound, place) = times.named(&name).ok_or(TimesFault::Unknown { name })?;
            let Bound { name, least, most, .. } = *bound;
            *place = value
                .as_u64()
                .filter(|ms| (least..=most).contains(ms))
                .ok_or_else(|| TimesFault::OutOfBounds { name, value: value.to_string(), least, most })?;
        }
        let (lease, idle) = (times.slot_lease_ms, times.renew_idle_ms());
        if lease > idle { Ok(times) } else { Err(TimesFault::LeaseTooShort { lease, idle }) }
    }

    fn named(&mut self, name: &str) -> Option<(&'static Bound, &mut u64)> {
        let places = [
            (&SLOT_LEASE, &mut self.slot_lease_ms),
            (&INACTIVITY, &mut self.inactivity_ms),
            (&EVICTION, &mut self.eviction_ms),
            (&FENCE_WAIT, &mut self.fence_wait_ms),
        ];
        places.into_iter().find(|(bound, _)| bound.name == name)
    }

    /// While a call or a declared process needs the container: the slot is renewed and the inactivity timeout set anew.
    pub fn renew_busy_ms(&self) -> u64 {
        RENEW_AT_LEAST_EVERY_MS.min(self.inactivity_ms / 5)
    }

    /// Otherwise the platform's inactivity timeout is let pass, and looked at afterwards: an alarm before it would itself
    /// keep the container.
    pub fn renew_idle_ms(&self) -> u64 {
        self.inactivity_ms + self.eviction_ms
    }
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;

    #[test]
    fn absent_or_empty_the_defaults_hold() {
        for json in [None, Some("{}")] {
            assert_eq!(Times::parse(json), Ok(Times::default()), "{json:?}");
        }
        let times = Times::default();
        assert_eq!((times.renew_busy_ms(), times.renew_idle_ms()), (60_000, 480_000));
        assert_eq!(times.fence_wait_ms, 60_000);
    }

    #[test]
    fn every_time_is_taken_at_both_of_its_ends_and_refused_beyond_them_by_its_name() {
        let with = |bound: &Bound, value: u64| {
            // What the others must be for this one to be at its end.
            let mut told = serde_json::Map::new();
            if bound.name == SLOT_LEASE.name {
                told.insert(INACTIVITY.name.into(), INACTIVITY.least.into());
                told.insert(EVICTION.name.into(), EVICTION.least.into());
            } else {
                told.insert(SLOT_LEASE.name.into(), SLOT_LEASE.most.into());
            }
            told.insert(bound.name.into(), value.into());
            Times::parse(Some(&serde_json::Value::Object(told).to_string()))
        };
        for bound in BOUNDS {
            for good in [bound.least, bound.most] {
                assert!(with(bound, good).is_ok(), "{} {good}", bound.name);
            }
            for bad in [bound.least - 1, bound.most + 1] {
                let fault = with(bound, bad).unwrap_err().to_string();
                assert!(fault.contains(bound.name) && fault.contains(&bad.to_string()), "{fault}");
            }
        }
    }

    #[test]
    fn every_bad_configuration_is_named() {
        let fault = |json: &str| Times::parse(Some(json)).unwrap_err().to_string();
        for json in ["", "[]", "6", "{", "null"] {
            assert_eq!(Times::parse(Some(json)), Err(TimesFault::NotAnObject), "{json:?}");
        }
        assert!(fault(r#"{"slotLease":600000}"#).contains("\"slotLease\""));
        for bad in ["\"60000\"", "1.5", "-1", "null"] {
            assert!(fault(&format!("{{\"fenceWaitMs\":{bad}}}")).contains("TIMES.fenceWaitMs"), "{bad}");
        }
    }

    #[test]
    fn a_lease_must_outlast_an_idle_container() {
        let parse = |lease: u64| {
            let json = format!(r#"{{"slotLeaseMs":{lease},"inactivityMs":15000,"evictionMs":15000}}"#);
            Times::parse(Some(&json))
        };
        assert_eq!(parse(30_000), Err(TimesFault::LeaseTooShort { lease: 30_000, idle: 30_000 }));
        assert!(parse(30_001).is_ok());
    }
}
