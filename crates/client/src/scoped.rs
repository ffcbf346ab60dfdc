//! A sandbox that ends with its scope, however the scope ends.
//!
//! Order of effects: [`ScopedSandbox::open`] makes the sandbox with a lifetime the caller must name. Closing it
//! sends an abort and waits for the answer. Dropping it (an early return, a cancelled future) cannot wait, so
//! it hands the sandbox to the [`TeardownRunner`], which the caller owns: [`TeardownRunner::finish`] aborts all
//! that were handed over, concurrently, within one grace, and names every sandbox it could not prove gone.
//! Should the caller never await the runner, the sandbox's own lifetime still ends it on the other side.

use crate::calls::{Client, Sandbox};
use crate::error::CallError;
use futures::future::join_all;
use ringfence_wire::contract::{AbortDone, AdmissionWish, EnsureOptions, Ensured, Recipe};
use ringfence_wire::ids::SandboxKey;
use std::ops::Deref;
use std::time::Duration;
use tokio::sync::mpsc;

/// Where dropped scopes send what is left to end. Clones feed the same runner.
#[derive(Clone)]
pub struct TeardownHandle {
    sender: mpsc::UnboundedSender<Sandbox>,
}

/// Ends what dropped scopes left. Owned by whoever called [`teardown_pair`]; it runs only while awaited.
pub struct TeardownRunner {
    receiver: mpsc::UnboundedReceiver<Sandbox>,
    grace: Duration,
}

/// A sandbox whose end was not seen within the grace. Its own lifetime is all that is left to end it.
#[derive(Debug)]
pub struct OrphanedSandbox {
    pub key: SandboxKey,
    pub why: CallError,
}

/// What [`TeardownRunner::finish`] did.
#[derive(Debug, Default)]
pub struct TeardownReport {
    /// Containers seen gone.
    pub ended: Vec<SandboxKey>,
    /// Answered, but the container's end was not seen: the object goes on trying.
    pub unproven: Vec<SandboxKey>,
    pub orphaned: Vec<OrphanedSandbox>,
}

/// One runner and the handle that feeds it. `grace` bounds [`TeardownRunner::finish`] as a whole.
pub fn teardown_pair(grace: Duration) -> (TeardownHandle, TeardownRunner) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (TeardownHandle { sender }, TeardownRunner { receiver, grace })
}

impl TeardownRunner {
    /// Aborts everything handed over so far, all at once. Safe to call again.
    pub async fn finish(&mut self) -> TeardownReport {
        let mut pending = Vec::new();
        while let Ok(sandbox) = self.receiver.try_recv() {
            pending.push(sandbox);
        }
        let grace = self.grace;
        let ends = join_all(pending.iter().map(async |sandbox| {
            match tokio::time::timeout(grace, sandbox.abort()).await {
                Ok(result) => result,
                Err(_) => Err(CallError::TimedOut { call: "abort", after: grace }),
            }
        }))
        .await;
        let mut report = TeardownReport::default();
        for (sandbox, end) in pending.into_iter().zip(ends) {
            let key = sandbox.key().clone();
            match end {
                Ok(done) if done.container_gone => report.ended.push(key),
                Ok(_) => report.unproven.push(key),
                Err(why) => report.orphaned.push(OrphanedSandbox { key, why }),
            }
        }
        report
    }
}

/// A sandbox that is aborted when it is closed or dropped. Dereferences to [`Sandbox`].
pub struct ScopedSandbox {
    scope: Scope,
    ensured: Ensured,
}

impl ScopedSandbox {
    /// Makes the sandbox with `lifetime` as its deadline. A drop while this is awaited is covered too.
    pub async fn open(
        client: &Client,
        key: impl Into<SandboxKey>,
        recipe: &Recipe,
        lifetime: Duration,
        handle: &TeardownHandle,
    ) -> Result<Self, CallError> {
        let mut scope = Scope { sandbox: client.sandbox(key), handle: handle.clone(), armed: true };
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let options = EnsureOptions { lifetime_ms: Some(lifetime_ms), ..EnsureOptions::default() };
        match scope.sandbox.ensure(recipe, AdmissionWish::default(), &options).await {
            Ok(ensured) => Ok(Self { scope, ensured }),
            Err(error) => {
                // A refusal made nothing, and what it refused to touch may be another caller's.
                scope.armed = error.effect_unknown();
                Err(error)
            }
        }
    }

    pub fn ensured(&self) -> Ensured {
        self.ensured
    }

    /// Aborts and waits for the answer. If this future is dropped half-way, or the container was not seen gone,
    /// the runner takes over.
    pub async fn close(mut self) -> Result<AbortDone, CallError> {
        let done = self.scope.sandbox.abort().await?;
        self.scope.armed = !done.container_gone;
        Ok(done)
    }
}

impl Deref for ScopedSandbox {
    type Target = Sandbox;
    fn deref(&self) -> &Sandbox {
        &self.scope.sandbox
    }
}

/// Hands its sandbox to the runner when it is dropped armed.
struct Scope {
    sandbox: Sandbox,
    handle: TeardownHandle,
    armed: bool,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.armed {
            // A dropped runner is the caller's choice; the sandbox's own lifetime then ends it.
            let _ = self.handle.sender.send(self.sandbox.clone());
        }
    }
}
