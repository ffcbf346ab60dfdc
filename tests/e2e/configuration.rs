//! A deployment whose variables are wrong serves nothing, and every call says which one and what to do about it.

use crate::world::{World, tests};
use ringfence_e2e::facade::refused;
use ringfence_e2e::stack::Setup;
use ringfence_wire::contract::Ensured;
use ringfence_wire::refusal::RefusalKind;
use serde_json::json;
use std::sync::Arc;

tests! {
    own a_release_with_origins =>
        a_released_worker_that_is_told_to_take_origins_on_loopback_for_the_internet_serves_nothing;
    own more_slots_than_there_may_be =>
        pools_over_the_ceiling_are_an_error_that_names_them_and_never_no_limit;
}

fn a_release_with_origins() -> Setup {
    let origins = json!(r#"{"pages.test":"http://127.0.0.1:9"}"#);
    Setup { vars: [("EGRESS_ORIGINS".to_owned(), origins)].into(), ..Setup::default() }
}

fn more_slots_than_there_may_be() -> Setup {
    Setup { vars: [("POOLS".to_owned(), json!(r#"{"lean":17}"#))].into(), ..Setup::default() }
}

async fn a_released_worker_that_is_told_to_take_origins_on_loopback_for_the_internet_serves_nothing(
    world: Arc<World>,
) {
    serves_nothing(&world, "EGRESS_ORIGINS is for test builds alone; remove the variable").await;
}

async fn pools_over_the_ceiling_are_an_error_that_names_them_and_never_no_limit(world: Arc<World>) {
    serves_nothing(&world, "POOLS").await;
}

async fn serves_nothing(world: &World, why: &str) {
    let sandbox = world.sandbox().await;
    let since = world.stack.control().now().await;
    let refusal = refused::<Ensured>(sandbox.ensure().await, RefusalKind::SandboxUnavailable);
    assert_eq!(refusal.reason.as_deref(), Some("configuration"));
    assert!(refusal.message.contains(why), "{refusal:?}");
    assert_eq!(sandbox.calls_since(since).await.count("docker POST /containers/create*"), 0, "nothing boots");
}
