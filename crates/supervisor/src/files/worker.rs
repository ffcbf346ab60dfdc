//! The worker's own life: give up every privilege, resolve beneath the root, move the bytes.
//!
//! Order of a put: an unnamed file in the target's directory → the content → size and digest compared → a name →
//! renamed into place. Whatever fails before the last step leaves nothing behind, and the old file untouched.

use super::listing::{Found, find};
use super::{NAME, Orders, Said, Task};
use crate::privileges;
use ringfence_wire::supervisor::ErrorCode;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// Nothing of the path leads out of the root, whatever it is made of.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
const CHUNK_BYTES: usize = 64 * 1024;

pub fn main() -> ExitCode {
    let mut output = std::io::stdout().lock();
    if let Err(refused) = work(&mut output) {
        say(&mut output, &Said::Refused { code: refused.code, message: refused.message });
    }
    ExitCode::SUCCESS
}

struct No {
    code: ErrorCode,
    message: String,
}

fn no<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, No> {
    Err(No { code, message: message.into() })
}

impl From<std::io::Error> for No {
    fn from(error: std::io::Error) -> Self {
        Self { code: ErrorCode::Internal, message: error.to_string() }
    }
}

impl From<Errno> for No {
    fn from(error: Errno) -> Self {
        let code = match error {
            Errno::NOENT | Errno::NOTDIR => ErrorCode::NoSuchFile,
            Errno::ACCESS
            | Errno::PERM
            | Errno::LOOP
            | Errno::XDEV
            | Errno::ISDIR
            | Errno::NXIO
            | Errno::ROFS => ErrorCode::PathRefused,
            _ => ErrorCode::Internal,
        };
        let message = match error {
            Errno::NOENT => "there is no such file".to_owned(),
            Errno::NOTDIR => "a part of the path before its last is no directory".to_owned(),
            Errno::ACCESS | Errno::PERM => "a job has no right to this file".to_owned(),
            Errno::LOOP | Errno::XDEV => {
                "the path leads out of where files may be, or into a loop".to_owned()
            }
            Errno::ISDIR => "it is a directory".to_owned(),
            Errno::NXIO => "it is no regular file".to_owned(),
            Errno::ROFS => "it lies where nothing may be written".to_owned(),
            Errno::NOSPC | Errno::DQUOT => "there is no space left for it".to_owned(),
            error => error.to_string(),
        };
        Self { code, message }
    }
}

fn say(output: &mut impl Write, said: &Said) {
    if let Ok(mut line) = serde_json::to_vec(said) {
        line.push(b'\n');
        let _ = output.write_all(&line).and_then(|()| output.flush());
    }
}

fn work(output: &mut impl Write) -> Result<(), No> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let orders: Orders = serde_json::from_str(&line)
        .map_err(|error| No { code: ErrorCode::Internal, message: format!("{NAME}: {error}") })?;
    rustix::process::setsid()?;
    privileges::act_as(orders.become_user)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Set again: a change of uid clears it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let root =
        rustix::fs::open(&orders.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match orders.task {
        Task::Get { limit } => get(&root, &orders.path, limit, output),
        Task::Page { at, limit } => page(&root, &orders.path, at, limit, output),
        Task::List { except, limit } => {
            let Found { files, more } = find(&root, &except, limit)?;
            say(output, &Said::Listed { files, more });
            Ok(())
        }
        Task::Put { bytes, sha256, temporary } => {
            put(&root, &orders.path, &Content { bytes, sha256 }, &temporary, &mut input)?;
            say(output, &Said::Written);
            Ok(())
        }
    }
}

/// A regular file beneath the root, and how long it is.
fn open(root: &OwnedFd, path: &Path) -> Result<(File, u64), No> {
    // Not blocking: opening a pipe without a writer, or a device, must not hold the worker.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(root, path, flags, Mode::empty(), BENEATH)?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return no(ErrorCode::PathRefused, "not a regular file");
    }
    Ok((File::from(file), u64::try_from(found.st_size).unwrap_or_default()))
}

fn get(root: &OwnedFd, path: &Path, limit: u64, output: &mut impl Write) -> Result<(), No> {
    let (mut file, bytes) = open(root, path)?;
    if bytes > limit {
        return no(ErrorCode::TooLarge, format!("the file has {bytes} bytes, more than {limit}"));
    }
    let mut digest = Sha256::new();
    copy(&mut (&mut file).take(bytes), |chunk| {
        digest.update(chunk);
        Ok(())
    })?;
    file.rewind()?;
    say(output, &Said::Reading { bytes, sha256: hex::encode(digest.finalize()) });
    copy(&mut file.take(bytes), |chunk| output.write_all(chunk))?;
    output.flush()?;
    Ok(())
}

fn page(root: &OwnedFd, path: &Path, at: u64, limit: u64, output: &mut impl Write) -> Result<(), No> {
    let (mut file, end) = open(root, path)?;
    let bytes = end.saturating_sub(at).min(limit);
    file.seek(SeekFrom::Start(at))?;
    say(output, &Said::Paging { bytes, end });
    copy(&mut file.take(bytes), |chunk| output.write_all(chunk))?;
    output.flush()?;
    Ok(())
}

struct Content {
    bytes: u64,
    sha256: String,
}

fn put(
    root: &OwnedFd,
    path: &Path,
    content: &Content,
    temporary: &str,
    input: &mut impl Read,
) -> Result<(), No> {
    let Some(name) = path.file_name() else { return no(ErrorCode::PathRefused, "no file is named") };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match path.parent().filter(|parent| *parent != Path::new("")) {
        None => rustix::fs::openat(root, ".", OFlags::RDONLY | flags, Mode::empty())?,
        Some(parent) => rustix::fs::openat2(root, parent, OFlags::RDONLY | flags, Mode::empty(), BENEATH)?,
    };
    refuse_directory(&directory, name)?;
    let mut file = Unplaced::create(&directory, temporary)?;
    let mut digest = Sha256::new();
    let mut received = 0;
    copy(&mut input.take(content.bytes.saturating_add(1)), |chunk| {
        received += chunk.len() as u64;
        digest.update(chunk);
        file.file.write_all(chunk)
    })?;
    if received != content.bytes || hex::encode(digest.finalize()) != content.sha256 {
        let message = format!("{received} of {} bytes arrived, or others than were sent", content.bytes);
        return no(ErrorCode::Incomplete, message);
    }
    file.place(name)
}

/// A rename onto a directory fails by itself only where it is not empty in the same way everywhere.
fn refuse_directory(directory: &OwnedFd, name: &OsStr) -> Result<(), No> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            no(ErrorCode::PathRefused, "the target is a directory")
        }
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A file that is not in place yet; without a name for as long as the file system can.
struct Unplaced<'a> {
    directory: &'a OwnedFd,
    temporary: &'a str,
    file: File,
    named: bool,
}

impl<'a> Unplaced<'a> {
    const MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);

    fn create(directory: &'a OwnedFd, temporary: &'a str) -> Result<Self, No> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let unnamed = rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, Self::MODE);
        let (file, named) = match unnamed {
            Ok(file) => (file, false),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (rustix::fs::openat(directory, temporary, flags, Self::MODE)?, true)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { directory, temporary, file: File::from(file), named })
    }

    fn place(mut self, name: &OsStr) -> Result<(), No> {
        if !self.named {
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let follow = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(rustix::fs::CWD, open, self.directory, self.temporary, follow)?;
            self.named = true;
        }
        rustix::fs::renameat(self.directory, self.temporary, self.directory, name)?;
        self.named = false;
        Ok(())
    }
}

impl Drop for Unplaced<'_> {
    fn drop(&mut self) {
        if self.named {
            let _ = rustix::fs::unlinkat(self.directory, self.temporary, AtFlags::empty());
        }
    }
}

fn copy(from: &mut impl Read, mut to: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut chunk = vec![0u8; CHUNK_BYTES];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => to(chunk.get(..length).unwrap_or_default())?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
