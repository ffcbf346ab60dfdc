//! The way out of a container: what reaches the Worker's egress port, under which name, and what never does. The port
//! is a stand-in that answers as workerd does and writes down what it was asked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{ExecOutput, TestEngine, modes};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One tunnel: the head of its `CONNECT`, and of the request in it.
#[derive(Clone, Debug)]
struct Tunnel {
    connect: String,
    request: String,
}

impl Tunnel {
    fn header(&self, name: &str) -> Option<&str> {
        self.connect.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn target(&self) -> &str {
        self.connect.split(' ').nth(1).unwrap()
    }
}

struct Worker {
    port: u16,
    tunnels: Arc<Mutex<Vec<Tunnel>>>,
}

impl Worker {
    /// Takes every connection (200), or none (202).
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let tunnels: Arc<Mutex<Vec<Tunnel>>> = Arc::default();
        let seen = tunnels.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = seen.clone();
                std::thread::spawn(move || serve(stream.unwrap(), status, &seen));
            }
        });
        Self { port, tunnels }
    }

    fn take(&self) -> Vec<Tunnel> {
        std::mem::take(&mut *self.tunnels.lock().unwrap())
    }
}

fn serve(mut stream: TcpStream, status: u16, seen: &Mutex<Vec<Tunnel>>) {
    let connect = head(&mut stream);
    write!(stream, "HTTP/1.1 {status} Word\r\n\r\n").unwrap();
    if status != 200 {
        seen.lock().unwrap().push(Tunnel { connect, request: String::new() });
        return;
    }
    let request = head(&mut stream);
    let length =
        request.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
    stream.read_exact(&mut vec![0; length]).unwrap();
    let line = request.lines().next().unwrap_or_default().to_owned();
    seen.lock().unwrap().push(Tunnel { connect, request });
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{line}",
        line.len()
    );
}

fn head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn put_egress(engine: &TestEngine, body: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", engine.ingress("box"))).unwrap();
    write!(
        stream,
        "PUT /egress HTTP/1.1\r\nHost: s\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    assert_eq!(common::read_answer(stream).status, 200);
}

fn put_as_a_worker(engine: &TestEngine, body: &str) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", engine.ingress("box"))).unwrap();
    let head = "PUT /egress HTTP/1.1\r\nHost: s\r\nCF-Worker: example.com\r\nConnection: close\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    common::read_answer(stream).status
}

fn authority(engine: &TestEngine, name: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", engine.ingress(name))).unwrap();
    stream.write_all(b"GET /ca HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n").unwrap();
    common::read_answer(stream).text()
}

fn everywhere(status: u16, check: impl Fn(&TestEngine, &Worker)) {
    for mode in modes() {
        let (engine, worker) = (TestEngine::start(mode), Worker::start(status));
        engine.boot("box");
        put_egress(&engine, &format!(r#"{{"port":{},"internet":{{"enabled":false}}}}"#, worker.port));
        check(&engine, &worker);
    }
}

fn curl(engine: &TestEngine, arguments: &str) -> ExecOutput {
    engine.sh("box", "", &format!("curl -sS -m 10 {arguments}"))
}

#[test]
fn http_on_any_port_reaches_the_worker_under_the_name_it_asks_for() {
    everywhere(200, |engine, worker| {
        for (url, host, port) in [
            ("http://example.test/a", "example.test", 80),
            ("http://example.test:8080/a", "example.test", 8080),
            ("http://192.0.2.1/a", "192.0.2.1", 80),
            ("http://192.0.2.1:9999/a", "192.0.2.1", 9999),
            ("-H 'Host: Other.test' http://example.test/a", "other.test", 80),
            ("--http1.0 -H 'Host:' http://example.test/a", "example.test", 80),
        ] {
            let done = curl(engine, url);
            assert!(done.stdout.starts_with("GET /a HTTP/1."), "{url}: {done:?}");
            let tunnels = worker.take();
            let [tunnel] = tunnels.as_slice() else { panic!("{url}: {tunnels:?}") };
            assert_eq!(tunnel.header("X-Hostname"), Some(host), "{url}");
            assert_eq!(tunnel.header("X-Tls-Sni"), None);
            assert!(tunnel.target().ends_with(&format!(":{port}")), "{tunnel:?}");
        }
        let done = curl(engine, "-d sent http://example.test/b");
        assert_eq!(done.stdout, "POST /b HTTP/1.1", "{done:?}");
        assert_eq!(engine.denials("box").len(), 0);
    });
}

#[test]
fn https_is_opened_with_a_certificate_that_common_programs_trust_inside() {
    everywhere(200, |engine, worker| {
        for (url, name, port) in [
            ("https://example.test/a", "example.test", 443),
            ("https://Example.test:8443/a", "example.test", 8443),
            // Without a name in the handshake: the certificate is for the address.
            ("https://192.0.2.1/a", "192.0.2.1", 443),
        ] {
            let done = curl(engine, url);
            assert_eq!(done.stdout, "GET /a HTTP/1.1", "{url}: {done:?}");
            let tunnels = worker.take();
            let [tunnel] = tunnels.as_slice() else { panic!("{url}: {tunnels:?}") };
            assert_eq!(tunnel.header("X-Tls-Sni"), Some(name));
            assert_eq!(tunnel.header("X-Hostname"), None);
            assert!(tunnel.target().ends_with(&format!(":{port}")), "{tunnel:?}");
            assert!(tunnel.request.starts_with("GET /a HTTP/1.1\r\n"), "in the clear: {tunnel:?}");
        }
        let python = "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://py.test/p\").read().decode())'";
        assert_eq!(engine.sh("box", "", python).stdout, "GET /p HTTP/1.1\n");
        assert_eq!(worker.take()[0].header("X-Tls-Sni"), Some("py.test"));
        let git = engine.sh("box", "", "git ls-remote https://git.test/r.git");
        assert!(worker.take()[0].request.starts_with("GET /r.git/info/refs"), "{git:?}");
        let distrusting = curl(engine, "--cacert /etc/passwd https://example.test/a");
        assert_ne!(distrusting.code, 0, "{distrusting:?}");
    });
}

#[test]
fn an_authority_belongs_to_one_container_and_outlives_its_sidecar() {
    let engine = TestEngine::start(modes()[0]);
    let worker = Worker::start(200);
    engine.boot("box");
    engine.boot("other");
    let ca = authority(&engine, "box");
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_ne!(ca, authority(&engine, "other"));
    let at_platform_path =
        engine.sh("box", "", "cat /etc/cloudflare/certs/cloudflare-containers-ca.crt").stdout;
    assert_eq!(at_platform_path, ca);
    assert!(engine.sh("box", "", "cat /etc/ssl/certs/ca-certificates.crt").stdout.ends_with(&ca));
    // workerd makes the sidecar anew and moves its port while the container runs on.
    assert_eq!(engine.call("DELETE", "/containers/box-proxy?force=true", "").status, 204);
    let sidecar = r#"{"Image":"proxy","ExposedPorts":{"39001/tcp":{}}}"#;
    assert_eq!(engine.call("POST", "/containers/create?name=box-proxy", sidecar).status, 201);
    assert_eq!(engine.call("POST", "/containers/box-proxy/start", "").status, 204);
    assert_eq!(authority(&engine, "box"), ca);
    put_egress(&engine, &format!(r#"{{"port":{}}}"#, worker.port));
    assert_eq!(curl(&engine, "https://example.test/a").stdout, "GET /a HTTP/1.1");
}

#[test]
fn what_the_worker_does_not_take_is_reset_and_recorded() {
    everywhere(202, |engine, worker| {
        for (url, host) in [
            ("http://a.test/", "a.test"),
            ("https://b.test/", "b.test"),
            ("http://192.0.2.1:81/", "192.0.2.1"),
        ] {
            let done = curl(engine, url);
            assert!([35, 56].contains(&done.code), "{url}: {done:?}");
            assert_eq!(worker.take().len(), 1);
            let denials = engine.denials("box");
            assert!(
                denials.iter().any(|d| d["host"] == host && d["reason"] == "not-intercepted"),
                "{denials:?}"
            );
        }
    });
}

#[test]
fn a_request_of_a_workers_own_moves_no_way_out() {
    everywhere(200, |engine, worker| {
        assert_eq!(put_as_a_worker(engine, r#"{"port":1}"#), 403);
        assert_eq!(curl(engine, "http://example.test/a").stdout, "GET /a HTTP/1.1");
        assert_eq!(worker.take().len(), 1);
    });
}

#[test]
fn without_a_worker_nothing_leaves() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    assert!([7, 56].contains(&curl(&engine, "http://a.test/").code));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    put_egress(&engine, &format!(r#"{{"port":{port}}}"#));
    assert_eq!(curl(&engine, "http://b.test/").code, 56, "workerd is gone: its port is closed");
    let reasons: Vec<_> =
        engine.denials("box").iter().map(|d| d["reason"].as_str().unwrap().to_owned()).collect();
    assert!(
        reasons.contains(&"no-egress".to_owned()) && reasons.contains(&"worker-unreachable".to_owned()),
        "{reasons:?}"
    );
}

#[test]
fn what_is_neither_http_nor_tls_is_refused_without_asking_the_worker() {
    everywhere(200, |engine, worker| {
        let begun = Instant::now();
        for (port, sent, reason) in [
            (5432, "\\x00\\x00\\x00\\x08\\x04\\xd2\\x16\\x2f", "not-http"),
            (80, "SSH-2.0-x\\r\\n", "not-http"),
            (443, "\\x00\\x01\\x02", "not-http"),
            (8080, "GET /\\r\\n", "not-http"),
            (8081, "CONNECT a.test:1 HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n", "not-http"),
            (8082, "GET / HTTP/1.1\\r\\nHost: a\\r\\nHost: b\\r\\n\\r\\n", "not-http"),
            (8083, "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n", "not-http"),
            (444, "\\x16\\x03\\x01\\x00\\x05hello", "tls-failed"),
            // Its server would speak first.
            (22, "", "not-http"),
            (9000, "", "silent"),
        ] {
            let script = format!(
                "python3 -c \"
import socket
try:
  s = socket.create_connection(('192.0.2.1', {port}), 9); s.sendall(b'{sent}'); print('got', s.recv(9))
except ConnectionError as e: print('refused')\""
            );
            let done = engine.sh("box", "", &script);
            assert!(done.stdout == "refused\n" || done.stdout == "got b''\n", "{port}: {done:?}");
            let denials = engine.denials("box");
            assert!(
                denials.iter().any(|d| d["port"] == port && d["reason"] == reason),
                "{port}: {denials:?}"
            );
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!(worker.take().len(), 0, "the Worker was never asked");
    });
}
