//! Jobs kept apart: each has a Landlock domain of its own.
//!
//! All jobs of a sandbox share one uid, so the kernel would let any of them trace another, read its environment and
//! memory, and open its descriptors: one could withhold a neighbour's exit from its leader, or write into its output.
//! A process in a domain can do that only to processes of the same domain or below it, so a debugger still works
//! within a job. Nothing else is asked of the domain: it handles one right that no job has anyway (making block
//! devices), and files move between directories as before. Signals, sockets and files stay shared.

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError,
};
use std::io;

/// Moving files between directories must be handled to be allowed.
fn domain() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::MakeBlock | AccessFs::Refer)?
        .create()
}

/// Whether this kernel can: Landlock of ABI 2 (5.19) or later.
pub fn can_be_kept() -> bool {
    domain().is_ok()
}

/// Puts this process, and all it will start, into a new domain. Call it only where [`can_be_kept`] said so.
pub fn keep() -> io::Result<()> {
    let root = PathFd::new("/").map_err(io::Error::other)?;
    domain()
        .and_then(|domain| domain.add_rule(PathBeneath::new(root, AccessFs::Refer)))
        .and_then(RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    Ok(())
}
