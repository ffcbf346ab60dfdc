//! Waiting for a condition, with a deadline: the only wait these tests know. A wait says what it waits for, so
//! that one that never came names itself.

use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub const DEADLINE: Duration = Duration::from_secs(20);
/// Between two looks at a condition that nobody announces.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks until `look` answers something.
pub async fn eventually<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        sleep(LOOK_EVERY).await;
    }
}

/// Looks until `holds` is true.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || std::future::ready(holds().then_some(()))).await;
}
