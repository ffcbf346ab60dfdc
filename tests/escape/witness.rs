//! Who lives, on the kernel's word: each process holds a record lock on the byte numbered by its pid.
//!
//! A record lock belongs to one process, is not inherited over fork, survives exec, and ends with the process,
//! whatever pid namespace it lives in. So the test needs no list of the system under test to know who is alive.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub struct Witness {
    locks: PathBuf,
    births: PathBuf,
}

impl Witness {
    pub fn create(directory: &Path) -> Self {
        let witness = Self { locks: directory.join("locks"), births: directory.join("births") };
        for path in [&witness.locks, &witness.births] {
            File::create(path).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
        }
        witness
    }

    pub fn at(directory: &Path) -> Self {
        Self { locks: directory.join("locks"), births: directory.join("births") }
    }

    /// Called by a process of the case: from now on its life is seen.
    pub fn bear(&self) {
        let file = File::options().read(true).write(true).open(&self.locks).expect("the witness file opens");
        let own = rustix::process::getpid().as_raw_pid();
        lock(&file, libc::F_SETLK, i64::from(own), 1).expect("nobody else holds this pid's byte");
        // Closing any descriptor of the file would end the lock, and so would exec closing it.
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("a descriptor flag");
        std::mem::forget(file);
        let mut births = File::options().append(true).open(&self.births).expect("the births file opens");
        births.write_all(b".").expect("a birth is written");
    }

    pub fn born(&self) -> usize {
        let mut births = Vec::new();
        File::open(&self.births).unwrap().read_to_end(&mut births).unwrap();
        births.len()
    }

    pub fn wait_until_born(&self, count: usize) -> Result<(), String> {
        let began = Instant::now();
        while self.born() < count {
            if began.elapsed() > Duration::from_secs(120) {
                return Err(format!(
                    "{} of {count} processes were born: the case could not be played",
                    self.born()
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until no more than so many live: the others have ended of themselves.
    pub fn wait_until_only(&self, count: usize) -> Result<(), String> {
        let began = Instant::now();
        while self.alive().len() > count {
            if began.elapsed() > Duration::from_secs(30) {
                return Err("the command did not exit".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The pids, in their own namespace, of all that live.
    pub fn alive(&self) -> BTreeSet<i64> {
        let file = File::options().read(true).write(true).open(&self.locks).unwrap();
        let mut alive = BTreeSet::new();
        let mut from = 0;
        while let Some((start, length)) = lock(&file, libc::F_GETLK, from, 0).unwrap() {
            alive.extend(start..start + length);
            from = start + length;
        }
        alive
    }
}

/// Takes a lock (`F_SETLK`), or finds the first one that is in the way (`F_GETLK`).
fn lock(file: &File, command: libc::c_int, start: i64, length: i64) -> Result<Option<(i64, i64)>, Error> {
    // SAFETY: `flock` is plain data; the kernel reads and writes this one through a descriptor that is open.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        (lock.l_start, lock.l_len) = (start, length);
        if libc::fcntl(file.as_raw_fd(), command, &raw mut lock) == -1 {
            return Err(Error::last_os_error());
        }
        let found = command == libc::F_GETLK && lock.l_type != libc::F_UNLCK as libc::c_short;
        Ok(found.then_some((lock.l_start, lock.l_len)))
    }
}
