//! Where the programs are that the stack starts. Nothing is searched for beyond the places named here.

use super::error::StackError;
use std::path::{Path, PathBuf};

/// The executables and the bundle of one checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// Node 22, from the checkout's `node_modules`.
    pub node: PathBuf,
    /// wrangler's program proper (`wrangler-dist/cli.js`): its `bin` file is a wrapper that would add one more
    /// node between the guard and wrangler.
    pub wrangler: PathBuf,
    /// The checkout's `node_modules/.bin`, for what wrangler itself looks up.
    pub bin: PathBuf,
}

impl Tools {
    /// The tools that `scripts/setup` put into `root/node_modules`.
    pub fn of_checkout(root: &Path) -> Result<Self, StackError> {
        let modules = root.join("node_modules");
        let found = Self {
            node: modules.join(".bin/node"),
            wrangler: modules.join("wrangler/wrangler-dist/cli.js"),
            bin: modules.join(".bin"),
        };
        for (what, path) in [("node", &found.node), ("wrangler", &found.wrangler)] {
            if !path.is_file() {
                return Err(StackError::Missing { what, path: path.clone() });
            }
        }
        Ok(found)
    }

    /// The directory of this node (`bin/node` is beneath it), to be shown to containers.
    pub fn node_directory(&self) -> Result<PathBuf, StackError> {
        let missing = || StackError::Missing { what: "node", path: self.node.clone() };
        let real = std::fs::canonicalize(&self.node).map_err(|_| missing())?;
        real.parent().and_then(Path::parent).map(Path::to_path_buf).ok_or_else(missing)
    }
}

/// The nearest directory at or above `from` that is a Ringfence checkout.
pub fn find_checkout(from: &Path) -> Option<PathBuf> {
    from.ancestors()
        .find(|directory| directory.join("wrangler.toml").is_file() && directory.join("crates/wire").is_dir())
        .map(Path::to_path_buf)
}
