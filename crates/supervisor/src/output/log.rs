//! A job's whole log on disk.
//!
//! Invariants: the file lies in a directory that jobs cannot list, under a name with a nonce; it grows to its
//! quota and no further, and then says so. A disk that refuses is a truncated log, never a failed job.

use crate::limits;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;

pub struct Log {
    /// What it was asked for under, letter by letter: it is found by this and nothing else.
    path: String,
    /// Within the log directory.
    file_name: String,
    file: Option<OwnedFd>,
    written: u64,
    left: u64,
    truncated: bool,
}

impl Log {
    /// Creates `PREFIX.NONCE.log` in the directory; the nonce is what a job would have to guess.
    pub fn create(directory: &OwnedFd, path: &str, nonce: [u8; 16], quota: u64) -> rustix::io::Result<Self> {
        let file_name = format!("{}.{}.log", file_prefix(path), hex::encode(nonce));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &file_name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            path: path.to_owned(),
            file_name,
            file: Some(file),
            written: 0,
            left: quota,
            truncated: false,
        })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// At most `limit` bytes from `at` on. The file is the supervisor's own, so it is read here.
    pub fn read(&self, directory: &OwnedFd, at: u64, limit: usize) -> rustix::io::Result<Vec<u8>> {
        let left = usize::try_from(self.written.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0u8; limit.min(left)];
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &self.file_name, flags, Mode::empty())?;
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&file, rest, at + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }

    pub fn append(&mut self, bytes: &[u8]) {
        let fits = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let mut rest = bytes.get(..fits).unwrap_or_default();
        self.truncated |= fits < bytes.len();
        while !rest.is_empty() {
            let written = self.file.as_ref().map(|file| rustix::io::write(file, rest));
            match written {
                Some(Ok(count)) if count > 0 => {
                    self.left = self.left.saturating_sub(count as u64);
                    self.written += count as u64;
                    rest = rest.get(count..).unwrap_or_default();
                }
                Some(Err(rustix::io::Errno::INTR)) => {}
                _ => {
                    self.truncated = true;
                    self.left = 0;
                    return;
                }
            }
        }
    }

    /// Nothing more will be written.
    pub fn closed(self) -> Self {
        Self { file: None, ..self }
    }

    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// A plain beginning for the file's name. Two paths may share it; the nonce tells the files apart.
fn file_prefix(path: &str) -> String {
    let plain = |(at, c): (usize, char)| match c {
        '.' if at == 0 => '_',
        '/' => '_',
        c if c.is_ascii_graphic() => c,
        _ => '_',
    };
    path.char_indices().map(plain).take(limits::MAX_LOG_FILE_PREFIX_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> (std::path::PathBuf, OwnedFd) {
        let path = std::env::temp_dir().join(format!("ringfence-log-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        (path, fd)
    }

    #[test]
    fn a_log_at_its_quota_is_whole_and_one_byte_more_truncates_it() {
        let (path, fd) = directory("quota");
        let mut log = Log::create(&fd, "build", [7; 16], 5).unwrap();
        log.append(b"abc");
        log.append(b"de");
        assert!(!log.is_truncated());
        log.append(b"f");
        assert!(log.is_truncated());
        let file = path.join(format!("build.{}.log", "07".repeat(16)));
        assert_eq!(std::fs::read(file).unwrap(), b"abcde");
        let log = log.closed();
        assert_eq!(log.read(&fd, 0, 100).unwrap(), b"abcde");
        assert_eq!(log.read(&fd, 3, 1).unwrap(), b"d");
        assert_eq!(log.read(&fd, 5, 100).unwrap(), b"");
        assert_eq!(log.read(&fd, 99, 100).unwrap(), b"");
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn whatever_the_path_the_file_lies_in_the_directory_itself() {
        let (path, fd) = directory("names");
        let longest = "l/".repeat(99) + "ll";
        let paths = ["ci/run.log", ".hidden/a b", "\u{e9}t\u{e9}.log", &longest];
        for (at, path) in (0u8..).zip(paths) {
            let log = Log::create(&fd, path, [at; 16], 5).unwrap();
            assert_eq!(log.path(), path);
            assert!(
                log.file_name.is_ascii() && !log.file_name.starts_with('.') && !log.file_name.contains('/')
            );
            assert!(log.file_name.len() <= 255);
        }
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), paths.len());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_disk_that_refuses_truncates_the_log() {
        let full = rustix::fs::open("/dev/full", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let (path, file_name) = (String::new(), String::new());
        let mut log = Log { path, file_name, file: Some(full), written: 0, left: 100, truncated: false };
        log.append(b"abc");
        assert!(log.is_truncated());
    }
}
