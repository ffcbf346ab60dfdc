//! What this machine lets the engine do: which bounds hold, what is missing and how to mend it.

use crate::container::cgroup::Cgroups;
use crate::container::ids::IdPool;
use crate::namespace::protocol::RedirectTool;
use crate::sys;
use landlock::{AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::thread::UnshareFlags;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One fact about this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    pub name: &'static str,
    pub state: FactState,
    /// What was found, in words.
    pub found: String,
    /// What to do about it; empty where nothing is to be done.
    pub remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactState {
    /// It holds.
    Holds,
    /// It does not, and the engine runs all the same, with less.
    Weaker,
    /// Without it the engine refuses to start.
    Missing,
}

/// Why a user namespace cannot be had, and what to enable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no user namespace can be made on this machine ({found}), so a sandbox would not hold. {remedy}")]
pub struct NoUserNamespace {
    pub found: String,
    pub remedy: String,
}

/// Everything the engine depends on, on this machine.
pub fn facts(state_dir: &Path) -> Vec<Fact> {
    let cgroups = Cgroups::detect(state_dir);
    vec![
        user_namespace(),
        uid_range(state_dir),
        redirect(),
        jobs_apart(),
        pids(&cgroups),
        memory(&cgroups),
        workspace(),
    ]
}

fn fact(name: &'static str, state: FactState, found: impl Into<String>, remedy: impl Into<String>) -> Fact {
    Fact { name, state, found: found.into(), remedy: remedy.into() }
}

fn user_namespace() -> Fact {
    match check_user_namespace() {
        Ok(()) => fact("user namespaces", FactState::Holds, "can be made", ""),
        Err(error) => fact("user namespaces", FactState::Missing, error.found, error.remedy),
    }
}

/// Makes one, in a process of its own, and says why where that fails.
pub fn check_user_namespace() -> Result<(), NoUserNamespace> {
    // A probe process: this one has threads and must keep its namespaces.
    let probe = std::process::Command::new("/proc/self/exe").arg(PROBE_SUBCOMMAND).env_clear().output();
    let found = match probe {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(NoUserNamespace { found, remedy: user_namespace_remedy() })
}

/// The hidden subcommand of the probe.
pub const PROBE_SUBCOMMAND: &str = "__namespace-probe";

/// The probe: makes all the namespaces a container has and ends. One thread.
pub fn namespace_probe() -> std::process::ExitCode {
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    match sys::unshare(all) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(errno) => {
            eprintln!("unshare: {errno}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn user_namespace_remedy() -> String {
    let sysctl =
        |path: &str| std::fs::read_to_string(format!("/proc/sys/{path}")).map(|t| t.trim().to_owned());
    if sysctl("user/max_user_namespaces").is_ok_and(|value| value == "0") {
        return "Enable them: sysctl -w user.max_user_namespaces=15000".into();
    }
    if sysctl("kernel/unprivileged_userns_clone").is_ok_and(|value| value == "0") {
        return "Enable them for users: sysctl -w kernel.unprivileged_userns_clone=1".into();
    }
    if sysctl("kernel/apparmor_restrict_unprivileged_userns").is_ok_and(|value| value == "1") {
        return "AppArmor restricts them: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root"
            .into();
    }
    "The kernel needs CONFIG_USER_NS; inside a container, its runtime must allow unshare (seccomp and AppArmor)".into()
}

fn uid_range(state_dir: &Path) -> Fact {
    const NAME: &str = "a uid for jobs";
    if IdPool::new(state_dir).has_ranges() {
        return fact(NAME, FactState::Holds, "each container has 65,536 ids of its own", "");
    }
    let found = "one id: jobs share the supervisor's uid, and a lost job leader taints its sandbox";
    fact(NAME, FactState::Weaker, found, "Run the engine as root (outside any other user namespace)")
}

/// The domain a supervisor puts each job into needs Landlock with the right to move files (ABI 2).
fn jobs_apart() -> Fact {
    const NAME: &str = "jobs kept apart";
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)
        .and_then(Ruleset::create);
    match made {
        Ok(_) => fact(NAME, FactState::Holds, "by Landlock: no job traces another or opens its streams", ""),
        Err(error) => fact(
            NAME,
            FactState::Weaker,
            format!("jobs of one sandbox can trace each other: {error}"),
            "Use a kernel of 5.19 or later with Landlock enabled (CONFIG_SECURITY_LANDLOCK, and `landlock` in lsm=)",
        ),
    }
}

/// The tool that installs the redirect rules on this machine.
pub fn redirect_tool() -> Option<RedirectTool> {
    let find = |name: &str| {
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"]
            .iter()
            .map(|directory| PathBuf::from(directory).join(name))
            .find(|path| path.is_file())
    };
    find("nft").map(RedirectTool::Nft).or_else(|| find("iptables-restore").map(RedirectTool::IptablesRestore))
}

fn redirect() -> Fact {
    const NAME: &str = "egress interception";
    match redirect_tool() {
        Some(RedirectTool::Nft(path)) => fact(NAME, FactState::Holds, format!("by {}", path.display()), ""),
        Some(RedirectTool::IptablesRestore(path)) => {
            fact(NAME, FactState::Holds, format!("by {}", path.display()), "")
        }
        None => fact(
            NAME,
            FactState::Weaker,
            "neither nft nor iptables-restore: nothing can leave a sandbox, granted or not, and names do not resolve",
            "Install nftables (or iptables)",
        ),
    }
}

fn pids(cgroups: &Cgroups) -> Fact {
    const NAME: &str = "bound on processes";
    if cgroups.bounds_pids() {
        return fact(NAME, FactState::Holds, "per container, by cgroup and per uid by RLIMIT_NPROC", "");
    }
    let found = "per uid of a container, by RLIMIT_NPROC";
    fact(NAME, FactState::Holds, found, "")
}

fn memory(cgroups: &Cgroups) -> Fact {
    const NAME: &str = "bound on memory";
    if cgroups.bounds_memory() {
        return fact(NAME, FactState::Holds, "per container, by cgroup", "");
    }
    let found = "none: no memory controller that this process may use";
    fact(
        NAME,
        FactState::Weaker,
        found,
        "Run the engine as root on a machine with the memory controller enabled",
    )
}

fn workspace() -> Fact {
    fact(
        "bound on workspace size",
        FactState::Holds,
        "per directory, by the size of its memory file system",
        "",
    )
}
