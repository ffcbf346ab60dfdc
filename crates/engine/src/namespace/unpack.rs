//! Unpacks the archive that workerd puts into a container (the CA certificate) below a directory of it.
//!
//! Invariant: nothing outside that directory is written: every path is resolved beneath it by the kernel, links are
//! not followed, and only regular files and directories are made. The directory may be on a read-only mount: the
//! keeper writes through a private copy of the mount that is writable.

use crate::sys::{self, mount_attr};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Bytes of one archive.
pub const MAX_ARCHIVE_BYTES: usize = 1 << 20;

/// Unpacks below `directory`, an absolute path in the container.
pub fn unpack(directory: &str, archive: OwnedFd) -> io::Result<()> {
    let base = writable_view(directory)?;
    let mut archive = tar::Archive::new(File::from(archive));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            make_directories(&base, &path)?;
        } else if kind.is_file() {
            if let Some(parent) = path.parent() {
                make_directories(&base, parent)?;
            }
            let mut file = File::from(create(&base, &path)?);
            io::copy(&mut entry, &mut file)?;
        } else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: only files and directories are unpacked", path.display()),
            ));
        }
    }
    Ok(())
}

/// A detached copy of the mount that holds `directory`, with that directory as its root, writable.
fn writable_view(directory: &str) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let view = rustix::mount::open_tree(CWD, directory, flags)?;
    sys::set_mount_attributes(&view, 0, mount_attr::READ_ONLY, false)?;
    Ok(view)
}

fn make_directories(base: &OwnedFd, path: &Path) -> io::Result<()> {
    const DIRECTORY_MODE: u32 = 0o755;
    let mut current =
        rustix::fs::openat(base, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            _ => return Err(escaping(path)),
        };
        match rustix::fs::mkdirat(&current, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        current = rustix::fs::openat(&current, name, flags, Mode::empty())?;
    }
    Ok(())
}

fn create(base: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    const FILE_MODE: u32 = 0o644;
    if path.as_os_str().as_bytes().is_empty() {
        return Err(escaping(path));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(base, path, flags, Mode::from_raw_mode(FILE_MODE), resolve)?)
}

fn escaping(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: leaves its directory", path.display()))
}
