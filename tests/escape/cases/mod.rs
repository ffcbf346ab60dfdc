//! The cases: what is played, and how many processes it takes.

mod attacks_a_neighbour;
mod attacks_the_supervisor;
mod background_child;
mod bystander;
mod double_fork;
mod double_fork_without_environment;
mod exit_withheld;
mod fork_storm;
mod kills_its_leader;
mod large_tree;
mod listening_daemon;
mod nohup_child;
mod not_dumpable;
mod orphan_without_environment;
mod own_session;
mod pid_reuse;
mod pipe_holder;
mod plain_child;
mod real_daemons;
mod renamed;
mod stopped;
mod term_ignored;
mod term_slow;
mod thread_leader_exited;
mod title_over_environment;
mod traced;
mod zombie_leader_below;

use crate::stage::Stage;
use crate::systems::{Claim, Host, System};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

pub struct Case {
    pub name: &'static str,
    /// The command that runs inside the fence.
    pub command: fn(&Stage, &dyn Host) -> Vec<String>,
    /// How many processes are witnessed before the fence ends.
    pub born: usize,
    /// Ending a process group does not end this: that is what makes it a case.
    pub escapes_a_process_group: bool,
    pub applies: fn(&dyn System) -> bool,
    /// Programs it is played with.
    pub needs: &'static [&'static str],
    /// What must hold for the case to have been played at all.
    pub before: fn(&Stage, &dyn Host) -> Result<(), String>,
    /// Signs of life that no witness holds: an error is one.
    pub dead: fn(&Stage) -> Result<(), String>,
    /// What must hold besides everyone's death.
    pub after: fn(&Stage, &mut dyn Host, &Claim) -> Result<(), String>,
}

impl Case {
    const PLAIN: Self = Self {
        name: "",
        command: |stage, _| stage.shell("$SIT"),
        born: 1,
        escapes_a_process_group: false,
        applies: |_| true,
        needs: &[],
        before: |_, _| Ok(()),
        dead: |_| Ok(()),
        after: |_, _, _| Ok(()),
    };
}

pub const ALL: [Case; 28] = [
    plain_child::CASE,
    background_child::CASE,
    nohup_child::CASE,
    own_session::CASE,
    double_fork::CASE,
    double_fork_without_environment::CASE,
    orphan_without_environment::CASE,
    title_over_environment::CASE,
    renamed::CASE,
    fork_storm::CASE,
    term_ignored::CASE,
    term_slow::CASE,
    stopped::CASE,
    traced::CASE,
    exit_withheld::CASE,
    thread_leader_exited::CASE,
    zombie_leader_below::CASE,
    large_tree::CASE,
    large_tree::HUGE_CASE,
    pid_reuse::CASE,
    pipe_holder::CASE,
    listening_daemon::CASE,
    not_dumpable::CASE,
    kills_its_leader::CASE,
    attacks_the_supervisor::CASE,
    attacks_a_neighbour::CASE,
    bystander::CASE,
    real_daemons::CASE,
];
