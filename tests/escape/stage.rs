//! Where a case is played: a directory every uid reaches, with the player, the witness and room for more.

use crate::harness;
use crate::part::PLAY;
use crate::witness::Witness;
use std::path::{Path, PathBuf};

pub struct Stage {
    directory: tempfile::TempDir,
    pub witness: Witness,
    pub player: PathBuf,
}

impl Stage {
    pub fn new() -> Self {
        let directory = harness::open_directory();
        // The test's own file may lie where the job user cannot reach.
        let player = directory.path().join("player");
        std::fs::copy(std::env::current_exe().unwrap(), &player).unwrap();
        rustix::fs::chmod(directory.path(), rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
        Self { witness: Witness::create(directory.path()), player, directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The command that plays a part.
    pub fn command(&self, part: &str, arguments: &[&str]) -> Vec<String> {
        let own = [&self.player.display().to_string(), PLAY, part, &self.path().display().to_string()];
        own.into_iter().chain(arguments.iter().copied()).map(str::to_owned).collect()
    }

    /// A shell script in which `$SIT` is a process that stays.
    pub fn shell(&self, script: &str) -> Vec<String> {
        let sit = self.command("sit", &[]).join(" ");
        vec!["/bin/bash".to_owned(), "-c".to_owned(), script.replace("$SIT", &sit)]
    }
}
