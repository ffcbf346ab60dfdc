//! The `/etc` of a container: generated where it names users, hosts and resolvers, copied file by file from a fixed
//! list where programs need it to run at all. Nothing that is not in the list, and nothing that is not
//! world-readable on the host, is ever copied.

use super::protocol::{CONTAINER_ADDRESS, IdMap};
use super::trust;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The user that jobs run as where ids are mapped as a range.
pub const JOB_ID: u32 = 1000;
pub const JOB_NAME: &str = "sandbox";
/// Everyone's: it is the one home directory there is.
const HOME: &str = "/home";

/// Copied when they exist. Directories whole, but never deeper than [`MAX_DEPTH`].
const COPIED: [&str; 26] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates.conf",
    "debian_version",
    "ethertypes",
    "fonts",
    "gai.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "login.defs",
    "magic",
    "mime.types",
    "networks",
    "os-release",
    "profile",
    "profile.d",
    "protocols",
    "rpc",
    "services",
    "shells",
    "terminfo",
    "timezone",
    "xattr.conf",
];

/// TLS roots and OpenSSL's settings; never `private`.
const COPIED_TRUST: [&str; 6] = [
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "pki/ca-trust/extracted",
];

/// No directory of the list is deeper on any distribution looked at.
const MAX_DEPTH: usize = 4;
/// No file of the list is larger; one that is, is left out.
const MAX_FILE_BYTES: u64 = 4 << 20;

const WORLD_READABLE: u32 = 0o004;

/// Fills `target` (an empty directory) from `host`, which is `/etc`.
pub fn populate(
    host: &Path,
    target: &Path,
    hostname: &str,
    id_map: IdMap,
    authority: &str,
) -> io::Result<()> {
    for (name, text) in generated(hostname, id_map) {
        write(&target.join(name), text.as_bytes())?;
    }
    for name in COPIED.iter().chain(&COPIED_TRUST) {
        copy(&host.join(name), &target.join(name), MAX_DEPTH)?;
    }
    trust::install(target, authority)?;
    symlink("/proc/self/mounts", target.join("mtab"))
}

fn generated(hostname: &str, id_map: IdMap) -> Vec<(&'static str, String)> {
    let (mut users, mut groups) =
        (format!("root:x:0:0:root:{HOME}:/bin/sh\n"), "root:x:0:\ntty:x:5:\n".to_owned());
    if let IdMap::Range { .. } = id_map {
        users += &format!("{JOB_NAME}:x:{JOB_ID}:{JOB_ID}:{JOB_NAME}:{HOME}:/bin/sh\n");
        groups += &format!("{JOB_NAME}:x:{JOB_ID}:\n");
    }
    users += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
    groups += "nogroup:x:65534:\n";
    vec![
        ("passwd", users),
        ("group", groups),
        ("hostname", format!("{hostname}\n")),
        ("hosts", format!("127.0.0.1 localhost\n::1 localhost ip6-localhost\n{CONTAINER_ADDRESS} {hostname}\n")),
        // One try: the responder inside always answers at once, and there is no other.
        ("resolv.conf", format!("nameserver {CONTAINER_ADDRESS}\noptions timeout:2 attempts:1\n")),
        ("host.conf", "multi on\n".into()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n".into()),
    ]
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    const MODE: u32 = 0o644;
    std::fs::write(path, bytes)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(MODE))
}

/// Copies a file, a link, or a directory of them. What is missing, unreadable or private is left out.
fn copy(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    let Ok(meta) = from.symlink_metadata() else { return Ok(()) };
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if meta.is_symlink() {
        return copy_link(from, to);
    }
    if meta.permissions().mode() & WORLD_READABLE == 0 {
        return Ok(());
    }
    if meta.is_file() {
        if meta.len() > MAX_FILE_BYTES {
            return Ok(());
        }
        return match std::fs::read(from) {
            Ok(bytes) => write(to, &bytes),
            Err(_) => Ok(()),
        };
    }
    if meta.is_dir() && depth > 0 {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(from)?.flatten() {
            copy(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
        }
    }
    Ok(())
}

/// A link stays a link where its target exists inside too (below `/usr`, or beside it); else its content is copied,
/// by the same rules as any file's.
fn copy_link(from: &Path, to: &Path) -> io::Result<()> {
    let target = std::fs::read_link(from)?;
    let resolved: PathBuf = from.parent().unwrap_or(Path::new("/")).join(&target);
    let Ok(real) = resolved.canonicalize() else { return Ok(()) };
    let beside = target.components().count() == 1;
    if beside || real.starts_with("/usr") {
        return match symlink(&target, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
    }
    if real.starts_with("/etc") { copy(&real, to, 0) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ringfence-etc-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("host")).unwrap();
            std::fs::create_dir_all(path.join("inside")).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn nothing_private_and_nothing_unlisted_is_copied() {
        let scratch = Scratch::new("private");
        let (host, inside) = (scratch.0.join("host"), scratch.0.join("inside"));
        std::fs::create_dir_all(host.join("ssl/private")).unwrap();
        std::fs::create_dir_all(host.join("ssl/certs")).unwrap();
        for (name, mode) in [
            ("shadow", 0o600),
            ("services", 0o600),
            ("protocols", 0o644),
            ("ssl/private/key", 0o644),
            ("passwd", 0o644),
        ] {
            std::fs::write(host.join(name), format!("host {name}")).unwrap();
            std::fs::set_permissions(host.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        populate(&host, &inside, "box", IdMap::Range { base: 1 }, "").unwrap();
        assert!(!inside.join("shadow").exists());
        assert!(!inside.join("services").exists());
        assert!(!inside.join("ssl/private").exists());
        assert_eq!(std::fs::read_to_string(inside.join("protocols")).unwrap(), "host protocols");
        let passwd = std::fs::read_to_string(inside.join("passwd")).unwrap();
        assert!(passwd.contains("sandbox:x:1000:1000") && !passwd.contains("host passwd"));
    }

    #[test]
    fn with_one_id_there_is_no_job_user() {
        let scratch = Scratch::new("single");
        let inside = scratch.0.join("inside");
        populate(&scratch.0.join("host"), &inside, "box", IdMap::Single { uid: 5, gid: 5 }, "").unwrap();
        assert!(!std::fs::read_to_string(inside.join("passwd")).unwrap().contains("sandbox:"));
    }
}
