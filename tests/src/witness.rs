//! The witness: pipes of the test's own, bound read-only into every sandbox, by which jobs say what they did and
//! wait for leave to go on. A read-only bind lets a pipe be written, and nothing else.
//!
//! What a job did is counted here, outside everything under test: its lines are never taken from a record of
//! Ringfence. A line of up to 4,096 bytes is one atomic write.

use crate::eventually::eventually;
use anyhow::Result;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Where a sandbox sees the witness's directory.
pub const INSIDE: &str = "/witness";
const PIPE: &str = "said";

pub struct Witness {
    directory: TempDir,
    said: Arc<Mutex<Vec<String>>>,
    gates: Mutex<Vec<File>>,
}

impl Witness {
    /// The pipe's reader thread ends with the process; it holds nothing but the pipe.
    pub fn open(probe: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("ringfence-witness-").tempdir()?;
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        let inside = directory.path().join("probe");
        std::fs::copy(probe, &inside)?;
        std::fs::set_permissions(inside, Permissions::from_mode(0o755))?;
        let pipe = make_pipe(directory.path(), PIPE)?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                heard.lock().expect("nobody panics while holding this").push(line);
            }
        });
        Ok(Self { directory, said, gates: Mutex::default() })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a file where every sandbox sees it, beneath [`INSIDE`].
    pub fn show(&self, name: &str, text: &str) {
        let written = self.directory.path().join(format!(".{name}-{}", crate::facade::fresh_word()));
        std::fs::write(&written, text).expect("the test owns its directory");
        // Whole or not at all, to a job that reads it meanwhile.
        std::fs::rename(written, self.directory.path().join(name)).expect("likewise");
    }

    /// Every line said so far, in order.
    pub fn lines(&self) -> Vec<String> {
        self.said.lock().expect("nobody panics while holding this").clone()
    }

    pub fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|l| *l == line).count()
    }

    /// Waits until `line` was said.
    pub async fn heard(&self, line: &str) {
        let what = format!("a job says {line:?}");
        eventually(&what, || std::future::ready((self.count(line) > 0).then_some(()))).await;
    }

    /// Waits for a line that begins so, and says the rest of it.
    pub async fn heard_after(&self, start: &str) -> String {
        let what = format!("a job says {start:?} and more");
        let look = || self.lines().iter().find_map(|line| line.strip_prefix(start).map(str::to_owned));
        eventually(&what, || std::future::ready(look())).await
    }

    /// A pipe that a job reads one line from and so waits at, until the test opens it.
    pub fn gate(&self) -> Gate {
        let mut gates = self.gates.lock().expect("nobody panics while holding this");
        let name = format!("gate-{}", gates.len());
        let pipe = make_pipe(self.directory.path(), &name).expect("the test owns its directory");
        // Kept open with the directory: a job that comes late to an opened gate must still find its line.
        gates.push(pipe.try_clone().expect("one more descriptor"));
        Gate { name, pipe }
    }
}

/// Shell text that tells the witness one line.
pub fn say(line: &str) -> String {
    format!("echo {line} > {INSIDE}/{PIPE}")
}

pub struct Gate {
    name: String,
    pipe: File,
}

impl Gate {
    /// Shell text that waits until the gate is opened.
    pub fn wait(&self) -> String {
        format!("read -r _ < {INSIDE}/{}", self.name)
    }

    /// Lets one waiter through.
    pub fn open(mut self) {
        self.pipe.write_all(b"go\n").expect("the pipe has room for one line");
    }
}

/// Opened for both directions, so that neither side ever waits for the other to open it.
fn make_pipe(directory: &Path, name: &str) -> Result<File> {
    let path = directory.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(OpenOptions::new().read(true).write(true).open(path)?)
}
