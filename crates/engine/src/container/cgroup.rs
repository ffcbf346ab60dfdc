//! Bounds by control groups, where this machine lets the engine make them: processes and memory of a container.
//!
//! Invariant: every group made is removed when its container has ended, and at the next start where the engine
//! crashed; the names carry a mark of the state directory, so one engine never touches another's groups.

use crate::config::Bounds;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group is busy for a moment after its last process was reaped.
const REMOVE_TRIES: u32 = 40;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// Where groups can be made. `None` in a field: that bound does not hold by cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    parents: Vec<Parent>,
    mark: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    path: PathBuf,
    version: Version,
    pids: bool,
    memory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// One container's groups. Dropping it removes them.
#[derive(Debug, Default)]
pub struct Groups(Vec<PathBuf>);

impl Cgroups {
    /// Finds the hierarchies this process may make groups in. Changes nothing.
    pub fn detect(state_dir: &Path) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let parents = candidates(&own, &mounts).into_iter().filter_map(Parent::usable).collect();
        Self { parents, mark: mark(state_dir) }
    }

    /// Makes what the containers' groups lie in, and removes those that a crashed engine of this state directory left.
    pub fn prepare(&mut self) {
        self.parents.retain_mut(Parent::prepare);
        self.remove_stale();
    }

    /// Removes what [`Self::prepare`] made, where no other engine uses it.
    pub fn release(&self) {
        for parent in self.parents.iter().filter(|parent| parent.version == Version::Two) {
            let _ = fs::remove_dir(&parent.path);
        }
    }

    pub fn bounds_pids(&self) -> bool {
        self.parents.iter().any(|parent| parent.pids)
    }

    pub fn bounds_memory(&self) -> bool {
        self.parents.iter().any(|parent| parent.memory)
    }

    /// Makes the groups of a container and moves `pid` into them.
    pub fn make(&self, id: &str, pid: i32, bounds: &Bounds) -> io::Result<Groups> {
        let mut groups = Groups::default();
        for parent in &self.parents {
            let path = parent.path.join(format!("{}{id}", self.mark));
            fs::create_dir(&path)?;
            groups.0.push(path.clone());
            if parent.pids {
                fs::write(path.join("pids.max"), bounds.pids.to_string())?;
            }
            if parent.memory {
                let file = match parent.version {
                    Version::One => "memory.limit_in_bytes",
                    Version::Two => "memory.max",
                };
                fs::write(path.join(file), bounds.memory_bytes.to_string())?;
            }
            fs::write(path.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(groups)
    }

    fn remove_stale(&self) {
        for parent in &self.parents {
            let Ok(entries) = fs::read_dir(&parent.path) else { continue };
            for entry in entries.flatten() {
                if entry.file_name().to_string_lossy().starts_with(&self.mark) {
                    remove(&entry.path());
                }
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in &self.0 {
            remove(path);
        }
    }
}

fn remove(path: &Path) {
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(REMOVE_PAUSE),
            _ => return,
        }
    }
}

impl Parent {
    /// The parent, if groups that bound something can be made in it.
    fn usable(mut self) -> Option<Self> {
        if self.version == Version::Two {
            let top = self.path.parent()?.to_owned();
            self.read_controllers(&top.join("cgroup.controllers"));
        }
        let made_in = match self.version {
            Version::One => self.path.as_path(),
            Version::Two => self.path.parent()?,
        };
        let writable = rustix::fs::access(made_in, rustix::fs::Access::WRITE_OK).is_ok();
        (writable && (self.pids || self.memory)).then_some(self)
    }

    /// False: it cannot be used after all.
    fn prepare(&mut self) -> bool {
        if self.version == Version::One {
            return true;
        }
        let Some(top) = self.path.parent().map(Path::to_owned) else { return false };
        if fs::create_dir_all(&self.path).is_err() {
            return false;
        }
        // Those that the kernel or another manager refuses stay off; what is on is read back.
        for controller in ["+pids", "+memory"] {
            let _ = fs::write(top.join("cgroup.subtree_control"), controller);
            let _ = fs::write(self.path.join("cgroup.subtree_control"), controller);
        }
        self.read_controllers(&self.path.join("cgroup.subtree_control"));
        self.pids || self.memory
    }

    fn read_controllers(&mut self, file: &Path) {
        let on = fs::read_to_string(file).unwrap_or_default();
        let has = |name: &str| on.split_whitespace().any(|controller| controller == name);
        (self.pids, self.memory) = (has("pids"), has("memory"));
    }
}

/// A mark for the groups of one state directory.
fn mark(state_dir: &Path) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    state_dir.hash(&mut hasher);
    format!("ringfence-{:08x}-", hasher.finish() as u32)
}

/// Version 1: the engine's own group of each hierarchy. Version 2: a group at the top, since one with processes in it
/// (the engine's own) may not have bounded children.
fn candidates(own: &str, mounts: &str) -> Vec<Parent> {
    let mut found: Vec<Parent> = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        if hierarchy == "0" && controllers.is_empty() {
            if let Some(mount) = mount_of(mounts, "cgroup2", None) {
                found.push(Parent {
                    path: mount.join("ringfence"),
                    version: Version::Two,
                    pids: false,
                    memory: false,
                });
            }
        } else if has("pids") || has("memory") {
            let controller = if has("pids") { "pids" } else { "memory" };
            if let Some(mount) = mount_of(mounts, "cgroup", Some(controller)) {
                let path = mount.join(path.trim_start_matches('/'));
                found.push(Parent { path, version: Version::One, pids: has("pids"), memory: has("memory") });
            }
        }
    }
    found
}

fn mount_of(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (path, fs_type, options) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
        let has = option.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        (*fs_type == kind && has).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let own = "9:name=systemd:/\n8:pids:/a\n4:memory:/b/c\n1:cpu:/\n0::/\n";
        let mounts = "cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n\
                      cgroup /c/pids cgroup rw,pids 0 0\ncgroup2 /c/unified cgroup2 rw 0 0\n";
        let found = candidates(own, mounts);
        let paths: Vec<_> = found.iter().map(|parent| parent.path.display().to_string()).collect();
        assert_eq!(paths, ["/c/pids/a", "/c/memory/b/c", "/c/unified/ringfence"]);
    }

    #[test]
    fn nothing_is_found_where_nothing_is_mounted() {
        assert!(candidates("0::/user.slice\n", "proc /proc proc rw 0 0\n").is_empty());
        assert!(candidates("garbage", "").is_empty());
    }
}
