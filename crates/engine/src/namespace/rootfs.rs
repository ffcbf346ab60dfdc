//! The root file system of a container, built in its own mount namespace and entered by `pivot_root`.
//!
//! Invariant: after [`enter`] nothing of the host is reachable but the system directories and what `--bind-ro`
//! named, all read-only, without set-uid and device files. Order: a small root in memory → read-only views of the
//! host → the generated `/etc` → devices → `/proc`, its knobs set and then hidden → writable directories → pivot →
//! the old root is detached → the new root becomes read-only.

use super::etc;
use super::protocol::{BootSpec, ID_RANGE, IdMap, RELAY_PORT};

use crate::sys::{self, mount_attr};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const _: () = assert!(etc::JOB_ID < ID_RANGE, "the job user must be mapped");

/// Where PID 1's program is inside.
pub const SUPERVISOR: &str = "/.ringfence/ringfenced";

/// System directories: bound where they are directories, linked where they are links.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Device files every program expects.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Files of `/proc` that tell about or act on the whole machine.
const MASKED_FILES: [&str; 23] = [
    "cmdline",
    "config.gz",
    "consoles",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "modules",
    "pagetypeinfo",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
];
/// Directories of `/proc` likewise.
const MASKED_DIRECTORIES: [&str; 4] = ["acpi", "scsi", "fs/nfsd", "driver"];
/// Directories of `/proc` that stay visible, read-only.
const READ_ONLY: [&str; 4] = ["sys", "bus", "fs", "irq"];

/// The root itself: directories, `/etc` and mount points.
const ROOT_BYTES: u64 = 32 << 20;

/// A step of the building that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct StepError {
    pub step: String,
    #[source]
    pub source: io::Error,
}

/// Names the step an error belongs to.
pub trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, StepError> {
        self.map_err(|error| StepError { step: step.into(), source: error.into() })
    }
}

/// What must be opened while the host's directories can still be searched as the host user: the mount point, and
/// the sources that may lie in a directory closed to others.
pub struct Sources {
    mount_point: OwnedFd,
    supervisor: OwnedFd,
    binds: Vec<(OwnedFd, String, bool)>,
}

impl Sources {
    /// In the new mount namespace (a bind must come from there), before the change to the container's ids.
    pub fn open(spec: &BootSpec) -> Result<Self, StepError> {
        let open = |path: &Path| {
            rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .step(format!("open {}", path.display()))
        };
        let binds = spec
            .bind_ro
            .iter()
            .map(|bind| {
                let directory = bind.source.is_dir();
                let target = bind.target.to_string_lossy().trim_start_matches('/').to_owned();
                Ok((open(&bind.source)?, target, directory))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { mount_point: open(&spec.mount_point)?, supervisor: open(&spec.supervisor)?, binds })
    }
}

/// Builds the root and enters it. The caller is root of its user namespace and PID 1 of its pid namespace.
pub fn enter(spec: &BootSpec, sources: &Sources) -> Result<(), StepError> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .step("make mounts private")?;
    let root = tmpfs(ROOT_BYTES, 0o755).step("make the root")?;
    attach(&root, &sources.mount_point).step("mount the root")?;
    rustix::process::fchdir(&root).step("enter the root")?;

    for name in SYSTEM {
        show_system_directory(name).step(format!("show /{name}"))?;
    }
    make_directory("etc")?;
    etc::populate(Path::new("/etc"), Path::new("etc"), &spec.hostname, spec.id_map, &spec.authority)
        .step("fill /etc")?;
    make_directory(".ringfence")?;
    show_file(&sources.supervisor, SUPERVISOR.trim_start_matches('/')).step("show the supervisor")?;
    devices(spec.id_map).step("make /dev")?;
    proc().step("make /proc")?;
    make_directory("sys")?;
    mount_writable("sys", 4096, 0o555, mount_attr::READ_ONLY).step("hide /sys")?;
    writable(spec)?;
    for (source, target, directory) in &sources.binds {
        bind(source, target, *directory).step(format!("bind /{target}"))?;
    }

    rustix::process::pivot_root(".", ".").step("pivot_root")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("detach the old root")?;
    rustix::process::chdir("/").step("enter the new root")?;
    sys::set_mount_attributes(
        &root,
        mount_attr::READ_ONLY | mount_attr::NO_SUID | mount_attr::NO_DEV,
        0,
        false,
    )
    .step("make the root read-only")
}

fn tmpfs(bytes: u64, mode: u32) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [
        ("source", "ringfence".to_owned()),
        ("size", bytes.to_string()),
        ("mode", format!("{mode:o}")),
        ("uid", "0".into()),
        ("gid", "0".into()),
    ] {
        rustix::mount::fsconfig_set_string(&context, key, value)?;
    }
    finish(&context)
}

fn finish(context: &OwnedFd) -> io::Result<OwnedFd> {
    rustix::mount::fsconfig_create(context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn attach(mount: &OwnedFd, on: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", on, "", flags)
}

fn attach_at(mount: &OwnedFd, path: &str) -> rustix::io::Result<()> {
    rustix::mount::move_mount(mount, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A view of the tree below `path`, submounts included (a user namespace may not show part of one).
fn view(from: impl AsFd, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(from, path, flags)
}

fn make_directory(path: &str) -> Result<(), StepError> {
    std::fs::create_dir_all(path).step(format!("make /{path}"))
}

fn show_system_directory(name: &str) -> io::Result<()> {
    let host = Path::new("/").join(name);
    let Ok(meta) = host.symlink_metadata() else { return Ok(()) };
    if meta.is_symlink() {
        return symlink(std::fs::read_link(&host)?, name);
    }
    std::fs::create_dir(name)?;
    let tree = view(CWD, &host.to_string_lossy())?;
    read_only(&tree)?;
    Ok(attach_at(&tree, name)?)
}

fn read_only(tree: &OwnedFd) -> rustix::io::Result<()> {
    let set = mount_attr::READ_ONLY | mount_attr::NO_SUID | mount_attr::NO_DEV;
    sys::set_mount_attributes(tree, set, 0, true)
}

fn show_file(source: &OwnedFd, target: &str) -> io::Result<()> {
    std::fs::write(target, [])?;
    let tree = view(source, "")?;
    read_only(&tree)?;
    Ok(attach_at(&tree, target)?)
}

fn bind(source: &OwnedFd, target: &str, directory: bool) -> io::Result<()> {
    if directory {
        std::fs::create_dir_all(target)?;
        let tree = view(source, "")?;
        read_only(&tree)?;
        return Ok(attach_at(&tree, target)?);
    }
    if let Some(parent) = Path::new(target).parent() {
        std::fs::create_dir_all(parent)?;
    }
    show_file(source, target)
}

fn devices(id_map: IdMap) -> io::Result<()> {
    const PTS_MODE: &str = "0620";
    const TTY_GROUP: &str = "5";
    std::fs::create_dir_all("dev/pts")?;
    for name in DEVICES {
        let target = format!("dev/{name}");
        std::fs::write(&target, [])?;
        attach_at(&view(CWD, &format!("/dev/{name}"))?, &target)?;
    }
    let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "ptmxmode", "0666")?;
    rustix::mount::fsconfig_set_string(&context, "mode", PTS_MODE)?;
    if let IdMap::Range { .. } = id_map {
        rustix::mount::fsconfig_set_string(&context, "gid", TTY_GROUP)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    // Device files must work here: this mount alone has no `NODEV`.
    let pts = rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )?;
    attach_at(&pts, "dev/pts")?;
    for (link, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, format!("dev/{link}"))?;
    }
    Ok(())
}

/// Knobs of the new namespaces, set while `/proc/sys` can still be written.
fn knobs() -> io::Result<()> {
    let port_start = (RELAY_PORT + 1).to_string();
    for (knob, value, needed) in [
        // A job that made a user namespace of its own would hold every capability in it.
        ("user/max_user_namespaces", "0", true),
        ("net/ipv4/ip_unprivileged_port_start", port_start.as_str(), false),
        // What a job's socket may keep unread grows no further by itself: it is what a cut request still delivers.
        ("net/ipv4/tcp_rmem", "4096 65536 65536", false),
        // Twice this is what the kernel takes it for: as much as above.
        ("net/core/rmem_max", "32768", false),
        // Nothing is lost within a machine: what paces its segments, as BBR does, only makes them late.
        ("net/ipv4/tcp_congestion_control", "reno", false),
    ] {
        match std::fs::write(format!("proc/sys/{knob}"), value) {
            Err(error) if needed => return Err(io::Error::new(error.kind(), format!("{knob}: {error}"))),
            _ => {}
        }
    }
    Ok(())
}

fn proc() -> io::Result<()> {
    std::fs::create_dir("proc")?;
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context).map_err(explain_proc)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount =
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(explain_proc)?;
    attach_at(&mount, "proc")?;
    knobs()?;
    for name in READ_ONLY {
        let path = format!("proc/{name}");
        if Path::new(&path).is_dir() {
            let tree = view(CWD, &path)?;
            sys::set_mount_attributes(&tree, mount_attr::READ_ONLY, 0, true)?;
            attach_at(&tree, &path)?;
        }
    }
    for name in MASKED_DIRECTORIES {
        let path = format!("proc/{name}");
        if Path::new(&path).is_dir() {
            mount_writable(&path, 4096, 0o555, mount_attr::READ_ONLY)?;
        }
    }
    for name in MASKED_FILES {
        let path = format!("proc/{name}");
        if Path::new(&path).exists() {
            attach_at(&view(CWD, "/dev/null")?, &path)?;
        }
    }
    Ok(())
}

fn explain_proc(errno: Errno) -> io::Error {
    if errno == Errno::PERM {
        return io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a new /proc is refused: parts of this machine's own /proc are hidden (the engine runs inside a container); \
             run it on the host, or with the container's /proc unmasked",
        );
    }
    errno.into()
}

fn mount_writable(path: &str, bytes: u64, mode: u32, extra: u64) -> io::Result<()> {
    let mount = tmpfs(bytes, mode)?;
    if extra != 0 {
        sys::set_mount_attributes(&mount, extra, 0, false)?;
    }
    Ok(attach_at(&mount, path)?)
}

fn writable(spec: &BootSpec) -> Result<(), StepError> {
    const SHARED: u32 = 0o1777;
    const OWNED: u32 = 0o755;
    let bounds = &spec.bounds;
    for (path, bytes, mode) in [
        ("workspace", bounds.workspace_bytes, OWNED),
        ("artifacts", bounds.artifacts_bytes, SHARED),
        ("tmp", bounds.scratch_bytes, SHARED),
        ("home", bounds.scratch_bytes, OWNED),
        ("var", bounds.scratch_bytes, OWNED),
        ("run", bounds.runtime_bytes, OWNED),
        ("dev/shm", bounds.runtime_bytes, SHARED),
    ] {
        make_directory(path)?;
        mount_writable(path, bytes, mode, 0).step(format!("mount /{path}"))?;
    }
    for path in ["var/lib", "var/log", "var/cache", "var/tmp", "run/lock"] {
        make_directory(path)?;
    }
    for (path, mode) in [("var/tmp", SHARED), ("run/lock", SHARED)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).step(format!("open /{path}"))?;
    }
    symlink("/run", "var/run").step("link /var/run")?;
    if let IdMap::Range { .. } = spec.id_map {
        for path in ["workspace", "home"] {
            let (uid, gid) = (Uid::from_raw(etc::JOB_ID), Gid::from_raw(etc::JOB_ID));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::empty())
                .step(format!("give /{path}"))?;
        }
    }
    Ok(())
}
