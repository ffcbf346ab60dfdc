//! Where the container's requests on their way out are led: to the `Egress` entrypoint, with this boot's secret.
//!
//! Invariant: it is set before a container starts, and again by every incarnation of the object that finds one running,
//! since the runtime may have forgotten it. Until it is set nothing leaves the container; so a fence that has a grant
//! waits for it, lest its command be refused what it was granted.

use std::rc::Rc;

use ringfence_wire::internal::EgressProps;
use ringfence_wire::refusal::Refusal;
use worker::console_error;

use super::store::head::Head;
use super::{Object, refusals};
use crate::container::ContainerError;

impl Object {
    /// On every wake that finds the container running.
    pub fn take_up_container(self: &Rc<Self>) {
        let Some(container) = self.container.clone().filter(|container| container.running()) else { return };
        let object = Rc::clone(self);
        let inactivity_ms = self.times().inactivity_ms;
        self.later(async move {
            // A failure leaves egress closed, until a fence that needs it tries again.
            if let Err(refusal) = object.intercepted().await {
                console_error!("{}", refusal.message);
            }
            if let Err(error) = container.set_inactivity_timeout(inactivity_ms).await {
                console_error!("{error}");
            }
        });
    }

    /// Before a container of this boot starts.
    pub async fn intercept(&self, head: &Head) -> Result<(), ContainerError> {
        let (Some(container), Some(props)) = (self.container.clone(), egress_props(head)) else {
            return Err(ContainerError {
                call: "intercept",
                detail: "no container was ever begun".to_owned(),
            });
        };
        let generation = head.generation;
        let setting =
            self.interceptions.join(generation, || async move { container.intercept(&props).await });
        setting.await?;
        self.intercepted.set(Some(generation));
        Ok(())
    }

    /// For a container that runs: set by this incarnation, now if it was not before.
    pub async fn intercepted(&self) -> Result<(), Refusal> {
        let head = self.known_head()?;
        if self.intercepted.get() == Some(head.generation) {
            return Ok(());
        }
        self.intercept(&head).await.map_err(|error| {
            refusals::unavailable("egress", format!("the sandbox's way out could not be set up: {error}"))
        })
    }
}

/// What the interceptor of this boot is told; the secret is new for each.
fn egress_props(head: &Head) -> Option<EgressProps> {
    Some(EgressProps {
        consumer: head.consumer.clone(),
        key: head.key.clone(),
        generation: head.generation,
        secret: head.egress_secret.clone()?,
    })
}
