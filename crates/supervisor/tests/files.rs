//! Files in and out: whole or not at all, beneath the roots or not at all, with a job's own rights.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod harness;

use harness::{BOOT_KEY, GROUNDS, Ground, Ringfenced};
use ringfence_wire::supervisor::{ErrorCode, FILE_SHA256_HEADER, FileReceipt, JobKind, MAX_FILE_BYTES};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn put(supervisor: &Ringfenced, path: &Path, bytes: &[u8], digest: &str) -> harness::Answer {
    let target = format!("/v1/files?path={}&sha256={digest}", path.display());
    supervisor.request("PUT", &target, Some(BOOT_KEY), bytes.to_vec())
}

fn get(supervisor: &Ringfenced, path: &Path) -> harness::Answer {
    supervisor.get(&format!("/v1/files?path={}", path.display()))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_put_is_read_back_whole_and_belongs_to_the_job_user() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let path = supervisor.workspace().join("data");
        for bytes in [b"".to_vec(), b"hello".to_vec(), vec![0xa5; 3_000_000]] {
            let receipt: FileReceipt = put(&supervisor, &path, &bytes, &sha256(&bytes)).json();
            assert_eq!((receipt.bytes, receipt.sha256), (bytes.len() as u64, sha256(&bytes)));
            let read = get(&supervisor, &path);
            assert_eq!((read.status, read.body == bytes), (200, true), "{ground:?}");
            assert_eq!(read.headers[FILE_SHA256_HEADER], sha256(&bytes).as_str());
        }
        let uid = std::fs::metadata(&path).unwrap().uid();
        assert_eq!(uid, if ground == Ground::OneUid { 0 } else { 1_000 }, "{ground:?}");
        assert_eq!(names(&supervisor.workspace()), ["data"]);
    }
}

#[test]
fn no_job_can_end_or_stop_the_moving_of_a_file() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let path = supervisor.workspace().join("data");
    let whole = vec![0xa5; 4_000_000];
    let attack = "for p in /proc/[0-9]*; do read -r -d '' name <$p/cmdline 2>/dev/null; \
                  if [ \"$name\" = 'ringfenced: files' ]; then echo seen; kill -$SIGNAL ${p#/proc/}; fi; done";
    for signal in ["KILL", "STOP"] {
        let attack = format!("SIGNAL={signal}; while :; do {attack}; done");
        supervisor.job(signal, JobKind::Detached, &attack);
        let seen = || supervisor.view(signal).output_end.0;
        let before = seen();
        harness::wait_for("the worker was attacked", || {
            assert_eq!(put(&supervisor, &path, &whole, &sha256(&whole)).status, 200, "{signal}");
            assert!(get(&supervisor, &path).body == whole, "{signal}");
            (seen() > before + 100).then_some(())
        });
        supervisor.stop(signal);
    }
}

#[test]
fn content_that_is_not_what_was_sent_is_not_put_in_place_and_leaves_nothing() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let path = supervisor.workspace().join("kept");
    assert_eq!(put(&supervisor, &path, b"old", &sha256(b"old")).status, 200);
    assert_eq!(put(&supervisor, &path, b"new", &sha256(b"nEw")).code(), ErrorCode::Incomplete);

    // A connection that breaks off in the middle: fewer bytes than were announced.
    let mut stream = TcpStream::connect(("127.0.0.1", supervisor.port)).unwrap();
    let digest = sha256(b"0123456789");
    let head = format!(
        "PUT /v1/files?path={}&sha256={digest} HTTP/1.1\r\nhost: x\r\nx-ringfence-boot-key: {BOOT_KEY}\r\ncontent-length: 10\r\n\r\n01234",
        path.display()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(names(&supervisor.workspace()), ["kept"]);
}

#[test]
fn a_directory_a_fifo_and_a_device_are_no_files() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    supervisor.run("make", "mkdir directory full && touch full/x && mkfifo fifo && ln -s /dev/zero zero");
    let workspace = supervisor.workspace();
    for name in ["directory", "full"] {
        assert_eq!(
            put(&supervisor, &workspace.join(name), b"x", &sha256(b"x")).code(),
            ErrorCode::PathRefused
        );
        assert!(workspace.join(name).is_dir());
    }
    for name in ["directory", "fifo", "zero"] {
        assert_eq!(get(&supervisor, &workspace.join(name)).code(), ErrorCode::PathRefused, "{name}");
    }
    assert_eq!(get(&supervisor, &workspace.join("absent")).code(), ErrorCode::NoSuchFile);
    assert_eq!(
        put(&supervisor, &workspace.join("absent/x"), b"x", &sha256(b"x")).code(),
        ErrorCode::NoSuchFile
    );
}

#[test]
fn no_path_and_no_link_leads_out_of_the_roots_and_links_within_are_followed() {
    for ground in GROUNDS {
        let supervisor = Ringfenced::start(ground);
        let workspace = supervisor.workspace();
        let secret = supervisor.directory.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        supervisor.run(
            "links",
            "ln -s ../secret up; ln -s /etc/passwd absolute; ln -s .. parent; ln -s /proc/self/root magic;
             mkdir real; echo inside > real/file; ln -s real/file within; ln -s real within-directory",
        );
        for name in ["up", "absolute", "parent/secret", "magic/etc/passwd"] {
            assert_eq!(
                get(&supervisor, &workspace.join(name)).code(),
                ErrorCode::PathRefused,
                "{ground:?} {name}"
            );
        }
        assert_eq!(
            put(&supervisor, &workspace.join("parent/x"), b"x", &sha256(b"x")).code(),
            ErrorCode::PathRefused
        );
        assert!(!supervisor.directory.path().join("x").exists());
        for name in ["within", "within-directory/file"] {
            assert_eq!(get(&supervisor, &workspace.join(name)).body, b"inside\n", "{ground:?} {name}");
        }
        // A link as target is replaced, not followed.
        assert_eq!(put(&supervisor, &workspace.join("up"), b"mine", &sha256(b"mine")).status, 200);
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
        for path in
            ["/etc/passwd", "/proc/self/environ", "relative", "/workspace/../etc/passwd", "/workspace", ""]
        {
            let answer = supervisor.get(&format!("/v1/files?path={path}"));
            assert!([400, 403].contains(&answer.status), "{path}");
        }
    }
}

#[test]
fn a_job_users_rights_are_the_limit() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let path = supervisor.workspace().join("roots-own");
    std::fs::write(&path, "secret").unwrap();
    rustix::fs::chmod(&path, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(get(&supervisor, &path).code(), ErrorCode::PathRefused);
    let closed = supervisor.workspace().join("closed");
    std::fs::create_dir(&closed).unwrap();
    rustix::fs::chmod(&closed, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    assert_eq!(put(&supervisor, &closed.join("x"), b"x", &sha256(b"x")).code(), ErrorCode::PathRefused);
    assert_eq!(names(&closed).len(), 0);
}

#[test]
fn a_file_at_the_cap_passes_and_one_byte_more_does_not() {
    let supervisor = Ringfenced::start(Ground::Namespace);
    let cap = usize::try_from(MAX_FILE_BYTES).unwrap();
    let path = supervisor.workspace().join("large");
    let whole = vec![1u8; cap];
    assert_eq!(put(&supervisor, &path, &whole, &sha256(&whole)).status, 200);
    assert_eq!(get(&supervisor, &path).body.len(), cap);
    let over = vec![1u8; cap + 1];
    assert_eq!(put(&supervisor, &path, &over, &sha256(&over)).code(), ErrorCode::TooLarge);
    std::fs::File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert_eq!(get(&supervisor, &path).code(), ErrorCode::TooLarge);
}
