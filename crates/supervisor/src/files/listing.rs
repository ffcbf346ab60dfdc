//! The regular files beneath a directory, found without following a link.

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is deeper is not looked at.
const MAX_DEPTH: usize = 32;
/// Names together: a list stays one line of moderate length.
const MAX_NAMES_BYTES: usize = 512 * 1024;

#[derive(Default)]
pub struct Found {
    /// Paths relative to the root and sizes, in order of path.
    pub files: Vec<(String, u64)>,
    /// There is more than that: past a bound, not readable, or without a name in UTF-8.
    pub more: bool,
}

/// At most `limit` files; nothing beneath `except`.
pub fn find(root: &OwnedFd, except: &Path, limit: usize) -> rustix::io::Result<Found> {
    let mut found = Found::default();
    let mut names = 0;
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let path = if directory == Path::new("") { Path::new(".") } else { &directory };
        let Ok(entries) = open(root, path).and_then(|fd| Dir::read_from(&fd).map(|entries| (fd, entries)))
        else {
            found.more = true;
            continue;
        };
        let (fd, entries) = entries;
        for entry in entries {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || directory.join(name) == except {
                continue;
            }
            let path = directory.join(name);
            let Ok(stat) = rustix::fs::statat(&fd, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            else {
                // It went meanwhile.
                continue;
            };
            match (FileType::from_raw_mode(stat.st_mode), path.to_str()) {
                (FileType::Directory, Some(_)) if path.components().count() < MAX_DEPTH => {
                    directories.push(path)
                }
                (FileType::Directory, _) | (FileType::RegularFile, None) => found.more = true,
                (FileType::RegularFile, Some(text)) => {
                    names += text.len();
                    if found.files.len() >= limit || names > MAX_NAMES_BYTES {
                        found.more = true;
                        return Ok(sorted(found));
                    }
                    found.files.push((text.to_owned(), u64::try_from(stat.st_size).unwrap_or_default()));
                }
                _ => {}
            }
        }
    }
    Ok(sorted(found))
}

fn sorted(mut found: Found) -> Found {
    found.files.sort();
    found
}

fn open(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_regular_and_beneath_and_bounded() {
        let root = std::env::temp_dir().join(format!("ringfence-listing-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join(".logs")).unwrap();
        for (path, text) in [("a/b/two", "22"), ("one", "1"), (".logs/hidden", "x"), ("a/.logs", "seen")] {
            std::fs::write(root.join(path), text).unwrap();
        }
        std::os::unix::fs::symlink("/etc", root.join("a/out")).unwrap();
        let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let all = find(&fd, Path::new(".logs"), 3).unwrap();
        let expected = [("a/.logs".to_owned(), 4), ("a/b/two".to_owned(), 2), ("one".to_owned(), 1)];
        assert_eq!((all.files.as_slice(), all.more), (expected.as_slice(), false));
        let some = find(&fd, Path::new(".logs"), 2).unwrap();
        assert_eq!((some.files.len(), some.more), (2, true));
        std::fs::write(root.join(OsStr::from_bytes(b"no\xfftext")), "").unwrap();
        assert!(find(&fd, Path::new(".logs"), 3).unwrap().more);
        std::fs::remove_dir_all(root).unwrap();
    }
}
