//! The only module with `unsafe`: the calls that rustix does not offer.
//!
//! Invariant: every wrapper here takes and returns owned, checked values, so that no caller needs `unsafe`.
//! `fork` is sound only in a process with one thread; the keeper is one.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{CStr, CString};
use std::mem;
use std::net::Ipv4Addr;
use tokio::io::unix::AsyncFd;

type Result<T> = std::result::Result<T, Errno>;

fn check(value: libc::c_int) -> Result<libc::c_int> {
    if value < 0 { Err(last_error()) } else { Ok(value) }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Bounds the segments that the other side of a connection may send. Before it connects.
pub fn set_segment_size(socket: impl AsFd, bytes: i32) -> Result<()> {
    let size = libc::socklen_t::try_from(mem::size_of_val(&bytes)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the option's value is an int, read from a live variable of that size.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const bytes).cast(),
            size,
        )
    })
    .map(drop)
}

/// Which side of a [`fork`] this is.
pub enum Fork {
    Parent(Pid),
    Child,
}

/// Duplicates this process. Only for a process with a single thread.
pub fn fork() -> Result<Fork> {
    // SAFETY: the keeper has one thread, so no lock can be held by a thread that does not exist in the child.
    let pid = check(unsafe { libc::fork() })?;
    Ok(Pid::from_raw(pid).map_or(Fork::Child, Fork::Parent))
}

/// Replaces this process image. Returns only on failure.
pub fn execve(path: &CStr, argv: &[CString], envp: &[CString]) -> Errno {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: both arrays end with a null pointer and hold pointers to strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    last_error()
}

/// Ends this process without running destructors or flushing buffers that belong to its parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` is always sound.
    unsafe { libc::_exit(code) }
}

/// Moves this thread into new namespaces. Only for a process with a single thread.
pub fn unshare(flags: rustix::thread::UnshareFlags) -> Result<()> {
    // SAFETY: no file descriptor table is unshared, so no borrowed descriptor can dangle.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Attributes of a mount that [`set_mount_attributes`] sets or clears.
pub mod mount_attr {
    pub const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
    pub const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
    pub const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;
}

/// `mount_setattr` on the mount that `mount` refers to, and on those below it when `recursive`.
pub fn set_mount_attributes(mount: impl AsFd, set: u64, clear: u64, recursive: bool) -> Result<()> {
    // SAFETY: an all-zero `mount_attr` is a valid value.
    let mut attr: libc::mount_attr = unsafe { mem::zeroed() };
    attr.attr_set = set;
    attr.attr_clr = clear;
    let mut flags = libc::AT_EMPTY_PATH;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the descriptor is open, the path is a C string, and the size is that of the struct passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw mut attr,
            mem::size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: an all-zero `ifreq` is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn ipv4_sockaddr(address: Ipv4Addr) -> libc::sockaddr {
    let inet = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: `sockaddr_in` and `sockaddr` have one size, and any bytes are a valid `sockaddr`.
    unsafe { mem::transmute(inet) }
}

/// Gives an interface an IPv4 address with a full mask. A label (`lo:0`) adds one instead of replacing the first.
pub fn set_interface_address(socket: impl AsFd, label: &str, address: Ipv4Addr) -> Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let mut request = interface_request(label);
    request.ifr_ifru.ifru_addr = ipv4_sockaddr(address);
    // SAFETY: the request is a valid `ifreq` that outlives the call.
    check(unsafe { libc::ioctl(fd, libc::SIOCSIFADDR as _, &raw mut request) })?;
    request.ifr_ifru.ifru_netmask = ipv4_sockaddr(Ipv4Addr::BROADCAST);
    // SAFETY: as above.
    check(unsafe { libc::ioctl(fd, libc::SIOCSIFNETMASK as _, &raw mut request) })?;
    Ok(())
}

/// Brings an interface up.
pub fn set_interface_up(socket: impl AsFd, name: &str) -> Result<()> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is a valid `ifreq` that outlives the call.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) })?;
    Ok(())
}

/// Routes every IPv4 address that has no other route to a device.
pub fn add_default_route(socket: impl AsFd, device: &CStr) -> Result<()> {
    // SAFETY: an all-zero `rtentry` is a valid value.
    let mut route: libc::rtentry = unsafe { mem::zeroed() };
    route.rt_dst = ipv4_sockaddr(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = ipv4_sockaddr(Ipv4Addr::UNSPECIFIED);
    route.rt_flags = libc::RTF_UP;
    route.rt_dev = device.as_ptr().cast_mut();
    // SAFETY: the route is valid, and the kernel only reads the device name.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCADDRT as _, &raw mut route) })?;
    Ok(())
}

/// Makes `terminal` the controlling terminal of this session leader.
pub fn set_controlling_terminal(terminal: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the descriptor is open; the argument asks not to steal the terminal.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY as _, 0) })?;
    Ok(())
}

/// Makes `new` another name of the descriptor `fd`; `new` survives an exec.
pub fn duplicate_onto(fd: BorrowedFd<'_>, new: i32) -> Result<()> {
    // SAFETY: only used for 0, 1 and 2 between fork and exec, where nothing else owns them.
    check(unsafe { libc::dup2(fd.as_raw_fd(), new) })?;
    Ok(())
}

/// Watches an owned descriptor's readiness.
pub fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `OwnedFd` gives one descriptor for as long as it lives, and `AsyncFd` keeps it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}
