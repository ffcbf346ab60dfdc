//! A sandbox's lifetime: its deadline, and when its one alarm rings next.
//!
//! Invariants: every sandbox has a deadline; asking for more time never shortens it and never carries it past
//! [`MAX_LIFETIME_MS`] from its creation; a life that is over is not prolonged. Two alarms are at least
//! [`MIN_ALARM_INTERVAL_MS`] apart, so nothing that is due again and again becomes a wake loop.

use crate::recipe::{DEFAULT_LIFETIME_MS, MAX_LIFETIME_MS};

pub const MIN_ALARM_INTERVAL_MS: u64 = 1_000;

/// A life that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub created_at: u64,
    pub expires_at: u64,
}

/// The deadline has passed: this life is to be ended before another begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox has reached its deadline")]
pub struct Expired;

/// The life after a call that asks for `wanted_ms` from now, or for nothing in particular. `wanted_ms` has passed
/// validation; it is bounded here all the same.
pub fn prolonged(life: Option<Life>, wanted_ms: Option<u64>, now: u64) -> Result<Life, Expired> {
    let Some(life) = life else {
        let lasts = wanted_ms.unwrap_or(DEFAULT_LIFETIME_MS).min(MAX_LIFETIME_MS);
        return Ok(Life { created_at: now, expires_at: now.saturating_add(lasts) });
    };
    if life.expires_at <= now {
        return Err(Expired);
    }
    let wanted = wanted_ms.map_or(life.expires_at, |wanted| now.saturating_add(wanted));
    let latest = life.created_at.saturating_add(MAX_LIFETIME_MS);
    let expires_at = wanted.min(latest).max(life.expires_at);
    Ok(Life { expires_at, ..life })
}

/// When the alarm must ring for what is due, or `None` if nothing is. An alarm already set for no later will do.
pub fn next_alarm(due: impl IntoIterator<Item = u64>, last_alarm: u64) -> Option<u64> {
    let first = due.into_iter().min()?;
    Some(first.max(last_alarm.saturating_add(MIN_ALARM_INTERVAL_MS)))
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_first_life_lasts_what_was_asked_or_the_default() {
        let life = prolonged(None, None, 10).unwrap();
        assert_eq!(life, Life { created_at: 10, expires_at: 10 + DEFAULT_LIFETIME_MS });
        assert_eq!(prolonged(None, Some(5_000), 10).unwrap().expires_at, 5_010);
    }

    #[test]
    fn more_time_is_counted_from_now_and_never_past_the_maximum_from_creation() {
        let life = Life { created_at: 0, expires_at: 1_000 };
        assert_eq!(prolonged(Some(life), Some(5_000), 900).unwrap().expires_at, 5_900);
        let late = Life { created_at: 0, expires_at: MAX_LIFETIME_MS - 1 };
        let most = prolonged(Some(late), Some(MAX_LIFETIME_MS), MAX_LIFETIME_MS - 2).unwrap();
        assert_eq!(most.expires_at, MAX_LIFETIME_MS);
    }

    #[test]
    fn less_time_and_no_wish_shorten_nothing() {
        let life = Life { created_at: 0, expires_at: 60_000 };
        assert_eq!(prolonged(Some(life), Some(1_000), 0), Ok(life));
        assert_eq!(prolonged(Some(life), None, 0), Ok(life));
    }

    #[test]
    fn a_life_is_over_at_exactly_its_deadline() {
        let life = Life { created_at: 0, expires_at: 1_000 };
        assert_eq!(prolonged(Some(life), Some(5_000), 999).unwrap().expires_at, 5_999);
        assert_eq!(prolonged(Some(life), Some(5_000), 1_000), Err(Expired));
    }

    #[test]
    fn an_alarm_that_is_overdue_rings_no_sooner_than_the_interval() {
        assert_eq!(next_alarm([], 0), None);
        assert_eq!(next_alarm([9_000, 5_000], 1_000), Some(5_000));
        assert_eq!(next_alarm([1_500], 1_000), Some(2_000));
        assert_eq!(next_alarm([0], 1_000), Some(1_000 + MIN_ALARM_INTERVAL_MS));
    }

    proptest! {
        #[test]
        fn however_often_it_is_prolonged_a_life_ends_within_the_maximum_and_never_sooner_than_before(
            calls in prop::collection::vec((0u64..MAX_LIFETIME_MS / 2, prop::option::of(0..2 * MAX_LIFETIME_MS)), 1..20),
        ) {
            let (mut now, mut life) = (1_000, None::<Life>);
            for (later, wanted) in calls {
                now += later;
                match prolonged(life, wanted, now) {
                    Ok(next) => {
                        prop_assert!(next.expires_at <= next.created_at + MAX_LIFETIME_MS);
                        if let Some(life) = life {
                            prop_assert_eq!(next.created_at, life.created_at);
                            prop_assert!(next.expires_at >= life.expires_at);
                        }
                        life = Some(next);
                    }
                    Err(Expired) => prop_assert!(life.is_some_and(|life| life.expires_at <= now)),
                }
            }
        }
    }
}
