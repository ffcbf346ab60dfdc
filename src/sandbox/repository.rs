//! The clone of a recipe's repository: a fence of its own, under a grant for that repository alone.
//!
//! Invariant: a container holds the whole checkout of its recipe, without a remote and without a stored credential, or
//! it is not there: one whose clone failed, or was lost half-way, is destroyed before any other call has it.
//!
//! Order of effects: fence (open → clone → close → teardown → revoke) → the checkout is written down → the fence is
//! marked closed. The caller holds the lock from before the boot until after it.

use ringfence_core::checkout::{self, CLONE_TAIL_BYTES, CLONE_TIMEOUT_MS};
use ringfence_core::egress::repository_grant;
use ringfence_core::settle::{self, Sent, Settlement};
use ringfence_wire::contract::{GoneReason, Repo};
use ringfence_wire::ids::Nonce;
use ringfence_wire::refusal::Refusal;
use ringfence_wire::supervisor::{JobState, JobView};

use super::boot::{Checkout, Up};
use super::fence::{Fenced, FencedCommand};
use super::lock::Hold;
use super::settle::Unproven;
use super::{Object, new_id, random_hex, refusals};

impl Object {
    /// Clones into the container that was just built, or destroys it.
    pub async fn clone_repository(
        &self,
        epoch: u64,
        up: &Up,
        checkout: &Checkout,
        _hold: &Hold,
    ) -> Result<(), Refusal> {
        self.still(epoch)?;
        let Err(refusal) = self.audited("clone", None, self.clone_fenced(epoch, up, checkout)).await else {
            return Ok(());
        };
        self.still(epoch)?;
        self.end_container(GoneReason::ContainerStopped, "its repository could not be cloned").await?;
        self.still(epoch)?;
        self.give_up_slot()?;
        Err(refusal)
    }

    async fn clone_fenced(&self, epoch: u64, up: &Up, checkout: &Checkout) -> Result<(), Refusal> {
        let Checkout { repo, lfs } = checkout;
        let command = FencedCommand {
            id: new_id(),
            nonce: Nonce(random_hex()?),
            command: checkout::COMMAND.to_owned(),
            env: checkout::environment(repo, *lfs),
            timeout_ms: CLONE_TIMEOUT_MS,
            log_path: "clone.log".to_owned(),
            tail_bytes: CLONE_TAIL_BYTES,
        };
        let fenced = self.fenced(epoch, up, repository_grant(repo, *lfs), &command, |_| Ok(())).await;
        let Fenced { sent, ended, mut region, .. } = fenced.map_err(|unproven| unseen(repo, unproven))?;
        ended.map_err(|unproven| unseen(repo, unproven)).and_then(|job| succeeded(repo, &sent, &job))?;
        self.store.set_cloned()?;
        self.store.close_fence()?;
        region.closed = true;
        Ok(())
    }
}

fn succeeded(repo: &Repo, sent: &Sent, job: &JobView) -> Result<(), Refusal> {
    let Settlement::Ended(end) = settle::settle(sent, settle::Answer::Job(job)) else {
        return Err(failed(repo, "its end has no proof"));
    };
    match (end.state, end.exit_code) {
        (JobState::Completed, Some(0)) => Ok(()),
        (JobState::TimedOut, _) => Err(failed(repo, &format!("it took more than {CLONE_TIMEOUT_MS} ms"))),
        _ => {
            let output = job.tail.as_ref().map(|tail| tail.text.as_str()).unwrap_or_default();
            Err(failed(repo, &checkout::last_lines(output)))
        }
    }
}

fn unseen(repo: &Repo, unproven: Unproven) -> Refusal {
    match unproven {
        Unproven::NotRun(refusal) => refusal,
        Unproven::Unknown(detail) => failed(repo, &detail),
    }
}

fn failed(repo: &Repo, detail: &str) -> Refusal {
    let Repo { owner, name, .. } = repo;
    refusals::unavailable("clone-failed", format!("{owner}/{name} could not be cloned: {detail}"))
        .field("recipe.repo")
}
