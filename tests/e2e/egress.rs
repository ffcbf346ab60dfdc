//! The fence's grant, end to end: what leaves a sandbox is what reached an origin on loopback that stands in for the
//! internet. Nothing is taken from a record of Ringfence but where the record itself is looked at.

mod admission;
mod answers;
mod bodies;
mod crowd;
mod cuts;
mod order;
mod redirects;
mod refusals;
mod spoof;

use crate::world::{Case, World};
use ringfence_e2e::eventually::eventually;
use ringfence_e2e::facade::{Rpc, Sandbox, done, exec_input, fresh_key};
use ringfence_e2e::witness::Gate;
use ringfence_wire::contract::ExecDone;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

pub fn tests() -> Vec<Case> {
    [
        admission::tests(),
        answers::tests(),
        bodies::tests(),
        refusals::tests(),
        cuts::tests(),
        order::tests(),
        crowd::tests(),
        spoof::tests(),
        redirects::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const CLIENT: &str = include_str!("egress/client.py");
/// For a dialler to be let out, were it let out.
const WHILE_LONGER: Duration = Duration::from_millis(1_500);

/// An exec's input whose grant is: to read the pages of these hosts.
fn reading(targets: &[&str], command: &str) -> Value {
    let mut input = exec_input(&fresh_key(), command);
    input["recipe"]["profiles"] = json!(["browser-fetch"]);
    input["recipe"]["targets"] = json!(targets);
    input
}

fn client(world: &World, arguments: &str) -> String {
    world.stack.witness().show("client.py", CLIENT);
    format!("exec python3 /witness/client.py {arguments}")
}

/// An exec whose command waits until the test lets it end.
struct Fence {
    gate: Gate,
    /// Its caller loses the answer where a test kills the runtime.
    exec: JoinHandle<anyhow::Result<Rpc>>,
}

impl Fence {
    fn open(world: &World, sandbox: &Sandbox, mut input: Value) -> Self {
        let gate = world.stack.witness().gate();
        input["command"] = json!(gate.wait());
        let sandbox = sandbox.clone();
        let exec = tokio::spawn(async move { sandbox.try_call("execUnderGrant", &[input]).await });
        Self { gate, exec }
    }

    async fn close(self) -> ExecDone {
        self.gate.open();
        let answer = self.exec.await.expect("the call was not cancelled");
        done(answer.expect("an answer").outcome())
    }
}

async fn refused_for(sandbox: &Sandbox, host: &str, reason: &str) -> u64 {
    let denials = sandbox.denials().await;
    denials.iter().filter(|d| d.host == host && d.reason == reason).map(|d| d.count).sum()
}

async fn is_refused_for(sandbox: &Sandbox, host: &str, reason: &str) {
    let what = format!("{host} is refused for {reason}");
    eventually(&what, || async { (refused_for(sandbox, host, reason).await > 0).then_some(()) }).await;
}
