//! The Worker's only clock and its only way to wait. Times are arguments everywhere else.
//!
//! Every call to an object or a container runs [`within`] a deadline: a callee that died must not leave its
//! caller hanging.

use std::future::Future;
use std::time::Duration;

use futures::future::{Either, select};
use worker::{Date, Delay};

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    Date::now().as_millis()
}

pub async fn sleep_ms(ms: u64) {
    Delay::from(Duration::from_millis(ms)).await;
}

/// The time was up. Nothing is known of the work that was waited for; it may still be going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {ms} ms")]
pub struct DeadlinePassed {
    pub ms: u64,
}

pub async fn within<T>(ms: u64, work: impl Future<Output = T>) -> Result<T, DeadlinePassed> {
    let work = std::pin::pin!(work);
    let timer = std::pin::pin!(sleep_ms(ms));
    match select(work, timer).await {
        Either::Left((value, _)) => Ok(value),
        Either::Right(((), _)) => Err(DeadlinePassed { ms }),
    }
}
