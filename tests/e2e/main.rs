//! Runs the end-to-end tests: `cargo test -p ringfence-e2e`, a filter after `--`.
//!
//! Tests that leave a stack whole share one and keep apart by their sandboxes' keys; a test that kills or
//! configures one has its own; those that look at what leaves a sandbox share a second one, whose Worker finds stand-in
//! origins on loopback. The stack's owner is this process's main: it ends what was started when the last
//! test is over. A test's sandboxes are aborted when it is over, also when it panicked, so that their slots are
//! free for the next.

mod aborts;
mod admission;
mod approvals;
mod artifacts;
mod bad_input;
mod canary;
mod clients;
mod clones;
mod command_line;
mod configuration;
mod consumers;
mod credentials;
mod denials;
mod detached;
mod egress;
mod faults;
mod fences;
mod input;
mod inside;
mod keys;
mod lifetimes;
mod migrations;
mod panics;
mod reap;
mod registry;
mod restarts;
mod rounds;
mod tickets;
mod trail;
mod vanished;
mod world;

use libtest_mimic::{Arguments, Conclusion};

fn main() {
    run(Arguments::from_args()).exit();
}

fn run(mut arguments: Arguments) -> Conclusion {
    let world = world::Worlds::new();
    // What takes longest begins first.
    let cases = [
        rounds::tests(),
        reap::tests(),
        admission::tests(),
        lifetimes::tests(),
        fences::tests(),
        detached::tests(),
        tickets::tests(),
        consumers::tests(),
        bad_input::tests(),
        command_line::tests(),
        configuration::tests(),
        restarts::tests(),
        aborts::tests(),
        approvals::tests(),
        artifacts::tests(),
        input::tests(),
        inside::tests(),
        keys::tests(),
        migrations::tests(),
        registry::tests(),
        faults::tests(),
        panics::tests(),
        canary::tests(),
        clones::tests(),
        clients::tests(),
        credentials::tests(),
        denials::tests(),
        egress::tests(),
        trail::tests(),
        vanished::tests(),
    ];
    let trials: Vec<_> = cases.into_iter().flatten().map(|case| world.trial(case)).collect();
    // A test's thread waits until the world has room for it.
    arguments.test_threads.get_or_insert(trials.len());
    let conclusion = libtest_mimic::run(&arguments, trials);
    world.tell_slowest();
    world.end();
    conclusion
}
