//! What a process inside a container can do to, and learn of, the machine outside: nothing. Each test runs as the job
//! user and as the container's root, under an engine with and without privileges.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Mode, TestEngine, alive, modes};
use std::io::Read;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

fn users(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Root => &["sandbox", "root"],
        Mode::Unprivileged => &["root"],
    }
}

/// Boots one container per mode and runs the check as each user in it.
fn everywhere(check: impl Fn(&TestEngine, &str)) {
    for mode in modes() {
        let engine = TestEngine::start(mode);
        engine.boot("box");
        for user in users(mode) {
            check(&engine, user);
        }
    }
}

fn refused(engine: &TestEngine, user: &str, script: &str) {
    let done = engine.sh("box", user, script);
    assert_ne!(done.code, 0, "{:?}, {user}: `{script}` was possible: {done:?}", engine.mode);
    assert_ne!(done.code, 127, "{:?}, {user}: `{script}` could not be tried: {done:?}", engine.mode);
}

#[test]
fn the_host_cannot_be_changed_from_inside() {
    let core_pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    everywhere(|engine, user| {
        for script in [
            "echo '|/bin/true' > /proc/sys/kernel/core_pattern",
            "echo 1 > /proc/sys/kernel/panic",
            "echo h > /proc/sysrq-trigger && grep -q . /proc/sysrq-trigger",
            "mknod /tmp/device b 8 0",
            "mknod /tmp/null c 1 3",
            "mount -t tmpfs none /workspace",
            "mount -o remount,rw /",
            "umount /proc/sys",
            "umount /sys",
            "unshare --mount true",
            "unshare --user true",
            "unshare --user --map-root-user --net true",
            "nsenter --target 1 --net true",
            "nsenter --net=/proc/self/ns/net true",
            "chroot / true",
            "hostname other",
            "date --set 2001-01-01",
            "touch /usr/bin/added",
            "touch /added",
            "touch /etc/added",
            "touch /.ringfence/ringfenced",
            "dmesg",
            "swapoff -a && false || swapoff /dev/vda",
            "echo 0 > /proc/1/oom_score_adj; echo 15000 > /proc/sys/user/max_user_namespaces",
        ] {
            refused(engine, user, script);
        }
    });
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), core_pattern);
}

#[test]
fn nothing_of_the_host_can_be_read_but_the_system_directories() {
    let home = std::env::home_dir().unwrap();
    let secret = format!("host-secret-{}", std::process::id());
    let host_file = std::env::temp_dir().join(&secret);
    std::fs::write(&host_file, &secret).unwrap();
    everywhere(|engine, user| {
        for script in [
            format!("ls {}", home.display()),
            "ls /root".to_owned(),
            format!("cat {}", host_file.display()),
            format!("ls {}", engine.directory.display()),
            "cat /etc/shadow".to_owned(),
            "ls /etc/ssl/private".to_owned(),
            "test -s /proc/kcore".to_owned(),
            "grep . /proc/keys".to_owned(),
            "grep . /proc/timer_list".to_owned(),
            "grep . /proc/kallsyms".to_owned(),
            "grep . /proc/cmdline".to_owned(),
            "grep . /proc/iomem".to_owned(),
            "grep . /proc/modules".to_owned(),
            "grep . /proc/interrupts".to_owned(),
            "zgrep . /proc/config.gz".to_owned(),
            "ls /dev/vda".to_owned(),
            "ls /dev/sda".to_owned(),
            "ls /dev/kmsg".to_owned(),
            "ls /dev/kvm".to_owned(),
            "ls /run/dbus".to_owned(),
            "ls /var/run/docker.sock".to_owned(),
            "ls /sys/kernel".to_owned(),
            "ls /sys/fs/cgroup".to_owned(),
        ] {
            refused(engine, user, &script);
        }
        let top = engine.sh("box", user, "ls -A / | tr '\\n' ' '").stdout;
        for name in top.split_whitespace() {
            let known = [
                ".ringfence",
                "artifacts",
                "bin",
                "dev",
                "etc",
                "home",
                "lib",
                "lib32",
                "lib64",
                "libx32",
                "proc",
                "run",
                "sbin",
                "sys",
                "tmp",
                "usr",
                "var",
                "workspace",
            ];
            assert!(known.contains(&name), "/{name} is visible");
        }
        assert_eq!(engine.sh("box", user, "ls -A /home /sys | grep -v :").stdout.trim(), "");
    });
    std::fs::remove_file(host_file).unwrap();
}

#[test]
fn processes_outside_are_neither_seen_nor_signalled_nor_traced() {
    everywhere(|engine, user| {
        // By the pid the host knows: inside that number is nobody's.
        let outside = i32::try_from(engine.process.id()).unwrap();
        assert!(alive(outside));
        let seen = engine.sh("box", user, "ls /proc | grep -c '^[0-9]'").stdout;
        assert!(seen.trim().parse::<u32>().unwrap() < 10, "{seen}");
        refused(engine, user, &format!("test -e /proc/{outside} && kill -0 {outside}"));
        refused(engine, user, "grep -l '[_]_container-init' /proc/[0-9]*/cmdline");
        assert_eq!(engine.sh("box", user, "readlink /proc/1/exe; tr '\\0' ' ' < /proc/1/cmdline").code, 0);
        assert!(alive(outside), "the engine lives on");
    });
}

#[test]
fn no_capability_is_kept_that_the_supervisor_does_not_need() {
    everywhere(|engine, user| {
        let status = engine.sh("box", user, "cat /proc/self/status").stdout;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        const SYS_MODULE: u64 = 1 << 16;
        const NET_ADMIN: u64 = 1 << 12;
        const NET_RAW: u64 = 1 << 13;
        const SYS_ADMIN: u64 = 1 << 21;
        const MKNOD: u64 = 1 << 27;
        const BPF: u64 = 1 << 39;
        for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapInh:", "CapAmb:"] {
            assert_eq!(
                field(set) & (SYS_MODULE | NET_ADMIN | NET_RAW | SYS_ADMIN | MKNOD | BPF),
                0,
                "{user} {set}"
            );
        }
        if user == "sandbox" {
            assert_eq!(field("CapEff:") | field("CapPrm:"), 0);
        }
        assert_eq!(field("NoNewPrivs:"), 1);
        assert_eq!(field("Seccomp:"), 2);
    });
}

#[test]
fn container_ids_are_not_the_hosts() {
    if !modes().contains(&Mode::Root) {
        return;
    }
    let engine = TestEngine::start(Mode::Root);
    engine.boot("box");
    engine.boot("other");
    let uid_of = |name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", engine.init_pid(name))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    assert!(uid_of("box") >= 65_536, "root inside is nobody outside");
    assert_ne!(uid_of("box"), uid_of("other"), "two containers share no id");
    assert_eq!(engine.sh("box", "root", "id -u").stdout.trim(), "0");
    assert_eq!(engine.sh("box", "sandbox", "id -un").stdout.trim(), "sandbox");
}

const PYTHON_CONNECT: &str = "python3 - <<'EOF'\nimport socket, sys\n";

fn python(engine: &TestEngine, user: &str, body: &str) -> common::ExecOutput {
    engine.sh("box", user, &format!("{PYTHON_CONNECT}{body}\nEOF"))
}

#[test]
fn host_loopback_and_host_abstract_sockets_are_another_world() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    let name = format!("ringfence-test-{}", std::process::id());
    let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    unix.set_nonblocking(true).unwrap();
    // Both answer from outside.
    std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    tcp.accept().unwrap();
    std::os::unix::net::UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    unix.accept().unwrap();
    let port = tcp.local_addr().unwrap().port();
    everywhere(|engine, user| {
        let done = python(engine, user, &format!("socket.create_connection(('127.0.0.1', {port}), 5)"));
        assert!(done.stderr.contains("Connection refused"), "{done:?}");
        let script = format!("s = socket.socket(socket.AF_UNIX)\ns.connect('\\0{name}')");
        let done = python(engine, user, &script);
        assert!(done.stderr.contains("Connection refused"), "{done:?}");
    });
    assert!(tcp.accept().is_err() && unix.accept().is_err(), "nobody came");
}

#[test]
fn every_way_out_is_refused_at_once_and_recorded() {
    everywhere(|engine, user| {
        let begun = Instant::now();
        for target in ["192.0.2.1:80", "192.0.2.1:443", "192.0.2.1:22", "169.254.169.254:80", "10.0.0.1:5432"]
        {
            let (host, port) = target.split_once(':').unwrap();
            let body = format!(
                "try:\n  s = socket.create_connection(('{host}', {port}), 5)\n  s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n  \
                 d = s.recv(1)\nexcept OSError as e:\n  print(e); sys.exit(0)\nprint(repr(d)); sys.exit(0 if d == b'' else 1)"
            );
            let done = python(engine, user, &body);
            assert_eq!(done.code, 0, "{target}: {done:?}");
            let recorded = engine.denials("box");
            assert!(
                recorded.iter().any(|d| d["host"] == host
                    && d["port"] == port.parse::<u16>().unwrap()
                    && d["source"] == "engine"),
                "{target}: {recorded:?}"
            );
        }
        // What has no connection fails by itself.
        for body in [
            "s = socket.socket(socket.AF_INET6); s.settimeout(5); s.connect(('2001:db8::1', 80))",
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b'x', ('192.0.2.1', 123)); s.recv(1)",
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b'x', ('255.255.255.255', 67)); s.recv(1)",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
            "socket.socket(38, socket.SOCK_SEQPACKET)",
        ] {
            let done = python(engine, user, body);
            assert_ne!(done.code, 0, "{body}: {done:?}");
            assert!(done.stderr.contains("Error"), "{body}: {done:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "refusals are quick: {:?}", begun.elapsed());
    });
}

#[test]
fn names_resolve_to_addresses_that_lead_nowhere_and_no_query_is_forwarded() {
    everywhere(|engine, user| {
        let begun = Instant::now();
        let done = engine.sh("box", user, "getent hosts example.test");
        assert!(done.stdout.starts_with("198.18."), "{done:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "getent asks for IPv6 first and is answered at once"
        );
        let again = engine.sh("box", user, "getent hosts EXAMPLE.test; getent hosts another.test");
        assert_eq!(again.stdout.split_whitespace().next(), done.stdout.split_whitespace().next());
        // A query of another type, with data in its name, to any resolver at all: answered here, and remembered.
        let body = "q = b'\\x00\\x07\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00' + b'\\x06c2VjcmV0' [0:1] + b'c2vjcm' + b'\\x04exfl\\x04test\\x00\\x00\\x10\\x00\\x01'\n\
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.sendto(q, ('192.0.2.53', 53)); d = s.recv(512); print(d[7])\n\
            t = socket.create_connection(('192.0.2.53', 53), 5); t.sendall(len(q).to_bytes(2, 'big') + q); print(t.recv(2) != b'')";
        let done = python(engine, user, body);
        assert_eq!(done.stdout, "0\nTrue\n", "{done:?}");
        let recorded = engine.denials("box");
        assert!(
            recorded.iter().any(|d| d["host"] == "c2vjcm.exfl.test" && d["attempt"] == "lookup"),
            "{recorded:?}"
        );
        assert!(
            recorded.iter().any(|d| d["host"] == "example.test" && d["reason"] == "looked-up"),
            "no connection followed it: {recorded:?}"
        );
    });
}

#[test]
fn servers_inside_are_reached_inside_by_loopback_and_by_the_containers_own_name() {
    everywhere(|engine, user| {
        let body = "import threading\n\
            l = socket.socket(); l.bind(('0.0.0.0', 0)); l.listen(8); p = l.getsockname()[1]\n\
            def serve():\n  while True:\n    c, _ = l.accept(); c.sendall(b'hello'); c.close()\n\
            threading.Thread(target=serve, daemon=True).start()\n\
            for h in ('127.0.0.1', 'localhost', socket.gethostname()):\n  print(socket.create_connection((h, p), 5).recv(9).decode())";
        let done = python(engine, user, body);
        assert_eq!(done.stdout, "hello\nhello\nhello\n", "{done:?}");
        // Low ports are a job's to use, but for the relay's own.
        assert_eq!(python(engine, user, "socket.socket().bind(('0.0.0.0', 80))").code, 0);
        assert_ne!(python(engine, user, "socket.socket().bind(('127.0.0.1', 1))").code, 0);
    });
}

#[test]
fn the_bound_on_processes_holds_and_the_container_lives_on() {
    const BOUND: usize = 64;
    for mode in modes() {
        let engine = TestEngine::start_with(mode, common::WAITING_INIT, &["--pids", "64"]);
        engine.boot("box");
        let user = users(mode)[0];
        let body = "import os, time\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0:\n      time.sleep(30); os._exit(0)\n    n += 1\nexcept OSError as e:\n  print(n, e)\nos.kill(-1, 9)";
        let done = python(&engine, user, body);
        let forked: usize = done.stdout.split_whitespace().next().unwrap().parse().unwrap();
        assert!((BOUND / 2..BOUND).contains(&forked), "{mode:?}: {done:?}");
        assert_eq!(engine.sh("box", user, "echo on").stdout, "on\n");
    }
}

#[test]
fn the_bound_on_the_workspace_holds_at_its_edge() {
    const BOUND: usize = 1 << 20;
    for mode in modes() {
        let engine = TestEngine::start_with(mode, common::WAITING_INIT, &["--workspace", &BOUND.to_string()]);
        engine.boot("box");
        let user = users(mode)[0];
        let write = |bytes: usize| {
            engine.sh(
                "box",
                user,
                &format!(
                    "rm -f /workspace/x; head -c {bytes} /dev/zero > /workspace/x; stat -c %s /workspace/x"
                ),
            )
        };
        assert_eq!(write(BOUND).stdout.trim(), BOUND.to_string(), "{mode:?}");
        let over = write(BOUND + 4096);
        assert_eq!(over.stdout.trim(), BOUND.to_string(), "{mode:?}");
        assert!(over.stderr.contains("No space left"), "{over:?}");
    }
}

#[test]
fn the_bound_on_memory_holds_and_the_container_lives_on() {
    if !modes().contains(&Mode::Root) {
        return;
    }
    const BOUND: usize = 256 << 20;
    let engine = TestEngine::start_with(Mode::Root, common::WAITING_INIT, &["--memory", &BOUND.to_string()]);
    engine.boot("box");
    let take = |bytes: usize| python(&engine, "sandbox", &format!("b = bytearray({bytes}); print(len(b))"));
    assert_eq!(take(BOUND / 2).code, 0);
    let over = take(BOUND * 2);
    assert_eq!(over.code, 137, "{over:?}");
    assert_eq!(engine.sh("box", "sandbox", "echo on").stdout, "on\n");
}

#[test]
fn the_directories_a_job_needs_are_writable_and_its_own() {
    everywhere(|engine, user| {
        for directory in ["/workspace", "/artifacts", "/tmp", "/dev/shm", "/var/tmp"] {
            let done = engine.sh(
                "box",
                user,
                &format!("echo x > {directory}/by-{user} && rm {directory}/by-{user}"),
            );
            assert_eq!(done.code, 0, "{directory}: {done:?}");
        }
        let done = engine.sh("box", user, "echo a > /dev/null && head -c 4 /dev/urandom | wc -c && ls /dev/fd/0 && perl -e 'print 1' && awk 'BEGIN{print 2}'");
        assert_eq!(done.code, 0, "{done:?}");
    });
}

#[test]
fn a_bound_host_directory_is_seen_and_read_only() {
    for mode in modes() {
        let shown = common::fresh_directory();
        std::fs::write(shown.join("file"), "shown").unwrap();
        let bind = format!("{}:/opt/shown", shown.display());
        let engine = TestEngine::start_with(mode, common::WAITING_INIT, &["--bind-ro", &bind]);
        engine.boot("box");
        for user in users(mode) {
            assert_eq!(engine.sh("box", user, "cat /opt/shown/file").stdout, "shown");
            refused(&engine, user, "echo x > /opt/shown/file");
            refused(&engine, user, "touch /opt/shown/new");
        }
        let mut text = String::new();
        std::fs::File::open(shown.join("file")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "shown");
        std::fs::remove_dir_all(shown).unwrap();
    }
}
