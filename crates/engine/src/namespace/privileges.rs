//! What PID 1 and everything below it may not do, whoever it is.
//!
//! Three layers, applied between fork and exec and inherited from then on: the bounding set loses every capability
//! that the supervisor does not need; `no_new_privs`; and a system-call filter for what no namespace covers. The
//! filter exists above all for sockets: a network namespace holds IP and abstract unix sockets, but not `AF_VSOCK`,
//! which on a virtual machine reaches the hypervisor.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// What the supervisor needs in its own user namespace: to give jobs their uid, to end and to inspect them, to serve
/// files with their credentials, to take capabilities away, and to open low ports.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Address families that a container may open.
const SOCKET_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// System calls that fail with `EPERM` for everyone inside.
const REFUSED: [libc::c_long; 41] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Likewise, those that only one architecture has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: [libc::c_long; 2] = [libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: [libc::c_long; 0] = [];

/// x32 names the same calls with this bit set, under the same architecture mark.
const X32_BIT: libc::c_long = 0x4000_0000;

#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("the system-call filter could not be built: {0}")]
    Filter(#[from] seccompiler::BackendError),
    #[error("the system-call filter could not be applied: {0}")]
    Apply(#[from] seccompiler::Error),
    #[error("{0}: {1}")]
    Kernel(&'static str, Errno),
}

/// What every process of a container is held to, compiled. Done by the keeper once, before it forks.
pub struct Filters {
    refused: BpfProgram,
    ignored: BpfProgram,
}

pub fn filters() -> Result<Filters, PrivilegeError> {
    Ok(Filters { refused: refused()?, ignored: ignored()? })
}

/// Numbers of a call, also where x32 has one of its own.
fn numbers(call: libc::c_long) -> impl Iterator<Item = libc::c_long> {
    [call, call | X32_BIT].into_iter().take(variants())
}

/// A larger receive buffer than the container's own bound is asked for in vain, and no error: `rmem_max` is of the whole
/// machine where a network namespace has none, and what a socket keeps unread is what a cut request still delivers.
fn ignored() -> Result<BpfProgram, PrivilegeError> {
    let is = |index, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value as u32))
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for number in numbers(libc::SYS_setsockopt) {
        let buffer = vec![is(1, libc::SOL_SOCKET)?, is(2, libc::SO_RCVBUF)?];
        rules.insert(number, vec![SeccompRule::new(buffer)?]);
    }
    program(rules, SeccompAction::Errno(0))
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    matched: SeccompAction,
) -> Result<BpfProgram, PrivilegeError> {
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, matched, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

fn refused() -> Result<BpfProgram, PrivilegeError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED.into_iter().chain(REFUSED_HERE) {
        for number in numbers(call) {
            rules.insert(number, Vec::new());
        }
    }
    // A socket of any family that is not in the list: every condition of one rule must hold.
    let foreign = SOCKET_FAMILIES
        .iter()
        .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family as u64))
        .collect::<Result<Vec<_>, _>>()?;
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        for number in numbers(call) {
            rules.insert(number, vec![SeccompRule::new(foreign.clone())?]);
        }
    }
    program(rules, SeccompAction::Errno(libc::EPERM as u32))
}

const fn variants() -> usize {
    if cfg!(target_arch = "x86_64") { 2 } else { 1 }
}

/// Gives up, for this process and all it will start, everything that is not in `KEPT`.
pub fn drop_all(filters: &Filters) -> Result<(), PrivilegeError> {
    let unneeded = CapabilitySet::all().difference(KEPT);
    for capability in unneeded.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability this kernel does not know.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(PrivilegeError::Kernel("bounding set", errno)),
        }
    }
    rustix::thread::set_no_new_privs(true).map_err(|e| PrivilegeError::Kernel("no_new_privs", e))?;
    seccompiler::apply_filter(&filters.ignored)?;
    seccompiler::apply_filter(&filters.refused)?;
    Ok(())
}

/// Leaves this process with the kept capabilities alone, at once instead of at its next exec.
pub fn keep_only_needed() -> Result<(), PrivilegeError> {
    let sets = rustix::thread::capabilities(None).map_err(|e| PrivilegeError::Kernel("capabilities", e))?;
    let sets = rustix::thread::CapabilitySets {
        effective: sets.effective.intersection(KEPT),
        permitted: sets.permitted.intersection(KEPT),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).map_err(|e| PrivilegeError::Kernel("capabilities", e))
}

/// Bounds that hold without cgroups: the number of processes per uid of this user namespace, and no core files
/// (the host's core handler runs outside).
pub fn limit_resources(pids: u32) -> Result<(), PrivilegeError> {
    let exactly = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    rustix::process::setrlimit(Resource::Nproc, exactly(u64::from(pids)))
        .map_err(|e| PrivilegeError::Kernel("RLIMIT_NPROC", e))?;
    rustix::process::setrlimit(Resource::Core, exactly(0))
        .map_err(|e| PrivilegeError::Kernel("RLIMIT_CORE", e))
}
