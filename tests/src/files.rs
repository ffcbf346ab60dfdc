//! What the parts under test wrote to disk.

use std::fs;
use std::path::{Path, PathBuf};

/// The regular files beneath `directory`, as far as they can be read.
pub fn beneath(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

/// Those of them that hold these bytes.
pub fn files_with(directory: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        fs::read(path).is_ok_and(|content| content.windows(bytes.len()).any(|window| window == bytes))
    };
    beneath(directory).into_iter().filter(holds).collect()
}
