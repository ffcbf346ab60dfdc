//! A container's life over Docker's API, as workerd drives it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Mode, TestEngine, WAITING_INIT, alive, eventually, modes, processes_of};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const WITH_SESSION: &str = "workerd-0123456789abcdef-app-Sandbox-ff00";
const CANONICAL: &str = "workerd-app-Sandbox-ff00";

fn state(engine: &TestEngine, name: &str) -> Value {
    engine.call("GET", &format!("/containers/{name}/json"), "").json()["State"].clone()
}

#[test]
fn a_container_is_created_started_killed_and_removed() {
    for mode in modes() {
        let engine = TestEngine::start(mode);
        assert_eq!(engine.call("GET", "/containers/box/json", "").status, 404);
        engine.create("box", &["FOO=bar"]);
        assert_eq!(state(&engine, "box")["Status"], "created");
        assert_eq!(engine.call("POST", "/containers/box/start", "").status, 204);
        assert_eq!(engine.call("POST", "/containers/box/start", "").status, 304);
        let running = state(&engine, "box");
        assert_eq!((&running["Status"], &running["Running"]), (&"running".into(), &true.into()));
        let init = engine.init_pid("box");
        assert_eq!(running["Pid"], init);
        assert!(alive(init));
        assert_eq!(engine.call("DELETE", "/containers/box", "").status, 409, "it runs");
        assert_eq!(engine.call("POST", "/containers/box/kill?signal=SIGKILL", "").status, 204);
        let waited = engine.call("POST", "/containers/box/wait", "").json();
        assert_eq!(waited["StatusCode"], 137);
        assert!(!alive(init));
        assert_eq!(state(&engine, "box")["Status"], "exited");
        assert_eq!(engine.call("POST", "/containers/box/kill?signal=SIGKILL", "").status, 409);
        assert_eq!(engine.call("DELETE", "/containers/box", "").status, 204);
        assert_eq!(engine.call("GET", "/containers/box/json", "").status, 404);
        assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 404);
    }
}

#[test]
fn everything_in_a_container_is_dead_when_its_removal_is_answered() {
    for mode in modes() {
        let engine = TestEngine::start(mode);
        engine.boot("box");
        let script =
            "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 300 & wait' >/dev/null 2>&1 & done";
        assert_eq!(engine.sh("box", "root", script).code, 0);
        let init = engine.init_pid("box");
        eventually("they ignore TERM and have forked", || processes_of(init).len() >= 7);
        let processes = processes_of(init);
        assert!(processes.iter().all(|pid| alive(*pid)));
        assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 204);
        assert!(processes.iter().all(|pid| !alive(*pid)));
    }
}

#[test]
fn a_wait_is_held_until_the_end_and_tells_its_code() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    eventually("the trap is set", || engine.containers()[0]["log"] == "up\n");
    let mut waiting = UnixStream::connect(engine.directory.join("docker.sock")).unwrap();
    waiting.write_all(b"POST /containers/box/wait HTTP/1.1\r\nHost: d\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(waiting.read(&mut [0]).is_err(), "no answer while it runs");
    assert_eq!(engine.call("POST", "/containers/box/kill?signal=SIGTERM", "").status, 204);
    waiting.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(common::read_answer(waiting).json()["StatusCode"], 3);
}

#[test]
fn a_wait_whose_caller_left_is_given_up() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", engine.process.id())).unwrap().count();
    let before = open();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut stream = UnixStream::connect(engine.directory.join("docker.sock")).unwrap();
        stream
            .write_all(b"POST /containers/box/wait HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        waiting.push(stream);
    }
    eventually("all are held", || open() >= before + 40);
    drop(waiting);
    eventually("none is kept", || open() <= before);
    assert_eq!(state(&engine, "box")["Status"], "running");
}

#[test]
fn a_wait_for_the_removal_ends_with_it() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| engine.call("POST", "/containers/box/wait?condition=removed", ""));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 204);
        assert_eq!(waiting.join().unwrap().json()["StatusCode"], 137);
    });
    assert_eq!(engine.call("POST", "/containers/box/wait?condition=removed", "").status, 404);
}

#[test]
fn a_container_that_failed_is_not_started_again_by_itself() {
    let engine = TestEngine::start_with(modes()[0], "#!/bin/sh\nexit 7\n", &[]);
    engine.boot("box");
    assert_eq!(engine.call("POST", "/containers/box/wait", "").json()["StatusCode"], 7);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(state(&engine, "box")["Status"], "exited");
    let ends = engine.control("GET", "/v1/calls?since=0", "").json();
    let ends = ends["calls"].as_array().unwrap().iter().filter(|call| call["plane"] == "engine").count();
    assert_eq!(ends, 1);
}

#[test]
fn a_supervisor_that_cannot_run_is_a_failed_start_that_says_why() {
    let engine = TestEngine::start_with(modes()[0], "#!/no/such/shell\n", &[]);
    engine.create("box", &[]);
    let started = engine.call("POST", "/containers/box/start", "");
    assert_eq!(started.status, 500);
    assert!(started.text().contains("run PID 1"), "{}", started.text());
    assert_eq!(state(&engine, "box")["Status"], "created");
    assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 204);
}

#[test]
fn a_name_in_use_is_a_conflict_and_free_again_after_the_removal() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    let create = || engine.call("POST", "/containers/create?name=box", r#"{"Image":"i"}"#).status;
    assert_eq!(create(), 409);
    assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 204);
    assert_eq!(create(), 201);
}

#[test]
fn a_container_is_found_again_under_the_name_of_another_session() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot(WITH_SESSION);
    let init = engine.init_pid(CANONICAL);
    let other = "workerd-fedcba9876543210-app-Sandbox-ff00";
    let found = engine.call("GET", &format!("/containers/{other}/json"), "").json();
    assert_eq!((&found["State"]["Status"], &found["State"]["Pid"]), (&"running".into(), &init.into()));
    assert_eq!(found["Name"], format!("/{CANONICAL}"));
    let sidecar = engine.call("GET", &format!("/containers/{other}-proxy/json"), "").json();
    assert!(sidecar["NetworkSettings"]["Ports"]["39001/tcp"][0]["HostPort"].is_string());
    assert_eq!(engine.call("DELETE", &format!("/containers/{other}?force=true"), "").status, 204);
    assert!(!alive(init));
}

#[test]
fn containers_are_listed_by_label_but_never_by_the_session_that_started_them() {
    let engine = TestEngine::start(modes()[0]);
    let body = r#"{"Image":"i","Labels":{"kind":"task","dev.workerd.session":"s1"}}"#;
    assert_eq!(engine.call("POST", "/containers/create?name=box", body).status, 201);
    let list = |filter: &str| {
        let filter: String = form_urlencoded(filter);
        engine
            .call("GET", &format!("/containers/json?all=1&filters={filter}"), "")
            .json()
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(list(r#"{"label":["kind=task"]}"#), 1);
    assert_eq!(list(r#"{"label":["kind"]}"#), 1);
    assert_eq!(list(r#"{"label":["kind=other"]}"#), 0);
    assert_eq!(
        list(r#"{"label":["dev.workerd.session=s1"]}"#),
        0,
        "or a restart of wrangler would remove it"
    );
    assert_eq!(list(r#"{"name":["box"]}"#), 1);
    assert_eq!(list(r#"{"status":["running"]}"#), 0);
    assert_eq!(engine.call("GET", "/containers/json?filters=nonsense", "").status, 400);
}

fn form_urlencoded(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

#[test]
fn an_exec_has_its_streams_its_code_and_not_the_environment_of_pid_1() {
    for mode in modes() {
        let engine = TestEngine::start(mode);
        engine.create("box", &["RINGFENCE_BOOT_KEY=the-secret"]);
        assert_eq!(engine.call("POST", "/containers/box/start", "").status, 204);
        let done = engine.exec("box", "", &["sh", "-c", "cat; echo err >&2; env; exit 9"], b"typed\n");
        assert_eq!((done.code, done.stderr.as_str()), (9, "err\n"));
        assert!(done.stdout.starts_with("typed\n"), "{done:?}");
        assert!(!done.stdout.contains("the-secret"), "{done:?}");
        assert_eq!(engine.exec("box", "", &["no-such-program"], b"").code, 127);
        assert_eq!(engine.exec("box", "", &["/etc/passwd"], b"").code, 126);
        let big = engine.sh("box", "", "head -c 3000000 /dev/zero | tr '\\0' x");
        assert_eq!(big.stdout.len(), 3_000_000);
        assert_eq!(engine.sh("box", "", "kill -9 $$").code, 137);
    }
}

#[test]
fn a_detached_exec_runs_and_its_pid_is_the_one_it_has_inside() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    let create = r#"{"Cmd":["sh","-c","echo $$ > /tmp/pid; sleep 60"],"AttachStdin":false}"#;
    let id = engine.call("POST", "/containers/box/exec", create).json()["Id"].as_str().unwrap().to_owned();
    assert_eq!(engine.call("GET", &format!("/exec/{id}/json"), "").json()["Running"], false);
    assert_eq!(
        engine.call("POST", &format!("/exec/{id}/start"), r#"{"Detach":true,"Tty":false}"#).status,
        200
    );
    assert_eq!(
        engine.call("POST", &format!("/exec/{id}/start"), r#"{"Detach":true,"Tty":false}"#).status,
        409
    );
    let inspect = || engine.call("GET", &format!("/exec/{id}/json"), "").json();
    assert_eq!(inspect()["Running"], true);
    let pid = inspect()["Pid"].as_i64().unwrap();
    eventually("the command wrote its pid", || {
        engine.sh("box", "", "cat /tmp/pid").stdout.trim() == pid.to_string()
    });
    assert_eq!(engine.sh("box", "", &format!("kill -TERM {pid}")).code, 0);
    eventually("it ended", || inspect()["Running"] == false);
    assert_eq!(inspect()["ExitCode"], 143);
}

#[test]
fn a_terminal_exec_has_a_terminal_of_the_size_it_was_given() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    let create =
        r#"{"Cmd":["sh","-c","read line; tty; stty size; echo \"$line\""],"Tty":true,"AttachStdin":true}"#;
    let id = engine.call("POST", "/containers/box/exec", create).json()["Id"].as_str().unwrap().to_owned();
    let mut stream = UnixStream::connect(engine.directory.join("docker.sock")).unwrap();
    let body = r#"{"Detach":false,"Tty":true}"#;
    write!(stream, "POST /exec/{id}/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    eventually("it runs", || engine.call("GET", &format!("/exec/{id}/json"), "").json()["Running"] == true);
    assert_eq!(engine.call("POST", &format!("/exec/{id}/resize?h=31&w=97"), "").status, 200);
    assert_eq!(engine.call("POST", &format!("/exec/{id}/resize?h=x&w=97"), "").status, 400);
    stream.write_all(b"typed\n").unwrap();
    let answer = common::read_answer(stream);
    assert_eq!(answer.status, 101);
    let text = answer.text();
    assert!(
        text.contains("/dev/pts/") && text.contains("31 97") && text.matches("typed").count() == 2,
        "{text}"
    );
}

fn tar_of(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in entries {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[108..115].copy_from_slice(b"0000000");
        header[116..123].copy_from_slice(b"0000000");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        header[263..265].copy_from_slice(b"00");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(header);
        bytes.extend(content.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    bytes
}

#[test]
fn an_archive_is_unpacked_before_the_start_and_into_a_running_container_and_nowhere_else() {
    for mode in modes() {
        let engine = TestEngine::start(mode);
        engine.create("box", &[]);
        let put = |bytes: &[u8]| {
            let socket = engine.directory.join("docker.sock");
            common::http(&socket, "PUT", "/containers/box/archive?path=%2Fetc", bytes)
        };
        assert_eq!(put(&tar_of(&[("cloudflare/certs/ca.crt", "before")])).status, 200);
        assert_eq!(engine.call("POST", "/containers/box/start", "").status, 204);
        assert_eq!(engine.sh("box", "", "cat /etc/cloudflare/certs/ca.crt").stdout, "before");
        assert_eq!(put(&tar_of(&[("cloudflare/certs/ca.crt", "after")])).status, 200);
        assert_eq!(engine.sh("box", "", "cat /etc/cloudflare/certs/ca.crt").stdout, "after");
        assert_ne!(engine.sh("box", "", "echo x > /etc/cloudflare/certs/ca.crt").code, 0, "still read-only");
        assert_eq!(put(&tar_of(&[("../tmp/escaped", "x")])).status, 400);
        assert_ne!(engine.sh("box", "", "cat /tmp/escaped").code, 0);
        assert_eq!(put(&vec![0; (1 << 20) + 1]).status, 413);
    }
}

#[test]
fn bodies_and_archives_are_bounded() {
    const ARCHIVES: usize = 16;
    const BODY: usize = 1 << 20;
    let engine = TestEngine::start(modes()[0]);
    engine.create("box", &[]);
    let socket = engine.directory.join("docker.sock");
    let archive = tar_of(&[("a", "b")]);
    let put = || common::http(&socket, "PUT", "/containers/box/archive?path=/etc", &archive);
    for _ in 0..ARCHIVES {
        assert_eq!(put().status, 200);
    }
    let over = put();
    assert_eq!(over.status, 400);
    assert!(over.text().contains("too many archives"), "{}", over.text());
    let body = |bytes: usize| {
        let empty = r#"{"Image":""}"#.len();
        format!(r#"{{"Image":"{}"}}"#, "x".repeat(bytes - empty))
    };
    assert_eq!(engine.call("POST", "/containers/create?name=whole", &body(BODY)).status, 201);
    assert_eq!(engine.call("POST", "/containers/create?name=over", &body(BODY + 1)).status, 413);
    assert_eq!(engine.call("POST", "/containers/create?name=cut", "{").status, 400);
    assert_eq!(engine.call("POST", "/containers/create", "{}").status, 501, "no name: a snapshot's helper");
}

#[test]
fn what_is_not_served_says_so() {
    let engine = TestEngine::start(modes()[0]);
    engine.boot("box");
    for (method, path) in [
        ("GET", "/containers/box/archive?path=/"),
        ("POST", "/volumes/create"),
        ("GET", "/volumes/v"),
        ("DELETE", "/volumes/v"),
        ("POST", "/commit?container=box"),
        ("GET", "/images/x/json"),
    ] {
        let answer = engine.call(method, path, "");
        assert_eq!(answer.status, 501, "{method} {path}");
        assert!(answer.json()["message"].as_str().unwrap().contains("snapshots are not served"));
    }
    let answer = engine.call("POST", "/swarm/init", "");
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("/swarm/init"));
    assert_eq!(engine.call("GET", "/v1.47/containers/box/json", "").status, 200, "versions are taken");
    assert_eq!(
        engine.call("GET", "/volumes?filters=%7B%7D", "").json()["Volumes"].as_array().unwrap().len(),
        0
    );
    let bridge = engine.call("GET", "/networks/bridge", "").json();
    assert_eq!(bridge["IPAM"]["Config"][0]["Gateway"], "127.0.0.1");
}

/// A server on port 7117 that answers each request with its method and path, and appends them to a file.
const SERVING_INIT: &str = "#!/usr/bin/python3
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do(self):
        self.rfile.read(int(self.headers.get('content-length', 0)))
        with open('/tmp/seen', 'a') as f: f.write(self.command + ' ' + self.path + '\\n')
        b = (self.command + ' ' + self.path).encode() * (1000 if 'long' in self.path else 1)
        self.send_response(200); self.send_header('content-length', str(len(b))); self.end_headers(); self.wfile.write(b)
    do_GET = do_POST = do
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(('0.0.0.0', 7117), H).serve_forever()
";

fn tunnel(engine: &TestEngine, target: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(("127.0.0.1", engine.ingress("box"))).unwrap();
    write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nX-Dst-Addr: {target}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let status = std::str::from_utf8(&head).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (status, stream)
}

/// One request through a tunnel of its own. Status 0: cut.
fn request(engine: &TestEngine, method: &str, path: &str) -> common::Answer {
    let (status, mut stream) = tunnel(engine, "127.0.0.1:7117");
    assert_eq!(status, 200);
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    common::read_answer(stream)
}

fn serving(options: &[&str]) -> TestEngine {
    let engine = TestEngine::start_with(modes()[0], SERVING_INIT, options);
    engine.boot("box");
    eventually("it serves", || tunnel(&engine, "127.0.0.1:7117").0 == 200);
    engine
}

#[test]
fn a_tunnel_leads_to_the_containers_own_ports_and_nowhere_else() {
    let engine = serving(&[]);
    assert_eq!(request(&engine, "GET", "/hello").text(), "GET /hello");
    assert_eq!(tunnel(&engine, "127.0.0.1:7118").0, 400, "not listening");
    assert_eq!(tunnel(&engine, "10.255.0.1:7117").0, 200);
    assert_eq!(tunnel(&engine, "192.0.2.1:80").0, 403);
    assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 204);
    assert_eq!(tunnel(&engine, "127.0.0.1:7117").0, 400);
    let calls = engine.control("GET", "/v1/calls?since=0", "").json();
    assert!(
        calls["calls"].as_array().unwrap().iter().all(|call| call["plane"] != "ingress"),
        "bytes, not requests"
    );
    assert_eq!(engine.control("POST", "/v1/faults", "{}").status, 403);
}

#[test]
fn requests_are_recorded_in_order_and_faults_befall_the_ones_they_name() {
    let engine = serving(&["--faults"]);
    let inject = |action: &str, prefix: &str| {
        let rule = format!(
            r#"{{"match":{{"plane":"ingress","pathPrefix":"{prefix}"}},"action":{action},"times":1}}"#
        );
        let set = engine.control("POST", "/v1/faults", &rule);
        assert_eq!(set.status, 204, "{}", set.text());
    };
    let seen = || engine.sh("box", "", "cat /tmp/seen 2>/dev/null; rm -f /tmp/seen").stdout;
    assert_eq!(request(&engine, "POST", "/plain").text(), "POST /plain");
    assert_eq!(seen(), "POST /plain\n");

    inject(r#"{"kind":"drop-before"}"#, "/a");
    assert_eq!(request(&engine, "POST", "/a").status, 0);
    assert_eq!(seen(), "", "it did not arrive");
    inject(r#"{"kind":"drop-after"}"#, "/b");
    assert_eq!(request(&engine, "POST", "/b").status, 0);
    assert_eq!(seen(), "POST /b\n", "it arrived, and its answer was lost");
    inject(r#"{"kind":"double"}"#, "/c");
    assert_eq!(request(&engine, "POST", "/c").text(), "POST /c");
    assert_eq!(seen(), "POST /c\nPOST /c\n");
    inject(r#"{"kind":"answer","status":500,"body":"made up"}"#, "/d");
    let made_up = request(&engine, "POST", "/d");
    assert_eq!((made_up.status, made_up.text().as_str()), (500, "made up"));
    assert_eq!(seen(), "");
    inject(r#"{"kind":"delay","ms":300}"#, "/e");
    let begun = std::time::Instant::now();
    assert_eq!(request(&engine, "POST", "/e").text(), "POST /e");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    inject(r#"{"kind":"cut","bytes":100}"#, "/long");
    let cut = request(&engine, "GET", "/long");
    assert_eq!((cut.status, cut.body.len()), (200, 100));

    let calls = engine.control("GET", "/v1/calls?since=0", "").json();
    let ingress: Vec<_> =
        calls["calls"].as_array().unwrap().iter().filter(|c| c["plane"] == "ingress").collect();
    let paths: Vec<_> = ingress.iter().map(|call| call["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/plain", "/a", "/b", "/c", "/d", "/e", "/long"]);
    assert_eq!(ingress[1]["status"], Value::Null);
    assert_eq!(ingress[4]["status"], 500);
    assert!(ingress.iter().all(|call| call["container"] == "box"));
}

#[test]
fn faults_befall_docker_calls_too_under_the_canonical_name() {
    let engine = TestEngine::start_with(modes()[0], WAITING_INIT, &["--faults"]);
    engine.create(WITH_SESSION, &[]);
    let rule = format!(
        r#"{{"match":{{"plane":"docker","method":"POST","pathPrefix":"/containers/{CANONICAL}/start","container":"{CANONICAL}"}},"action":{{"kind":"drop-after"}}}}"#
    );
    assert_eq!(engine.control("POST", "/v1/faults", &rule).status, 204);
    assert_eq!(engine.call("POST", &format!("/containers/{WITH_SESSION}/start"), "").status, 0);
    assert_eq!(state(&engine, WITH_SESSION)["Status"], "running", "the effect was had");
    assert_eq!(engine.call("POST", &format!("/containers/{WITH_SESSION}/start"), "").status, 304);
}

#[test]
fn no_environment_value_is_told_by_inspect_or_by_the_control_socket() {
    let engine = TestEngine::start(modes()[0]);
    engine.create("box", &["RINGFENCE_BOOT_KEY=the-secret"]);
    assert_eq!(engine.call("POST", "/containers/box/start", "").status, 204);
    for text in [
        engine.call("GET", "/containers/box/json", "").text(),
        engine.call("GET", "/containers/json?all=1", "").text(),
        engine.control("GET", "/v1/containers", "").text(),
        engine.control("GET", "/v1/calls?since=0", "").text(),
        engine.log(),
    ] {
        assert!(!text.contains("the-secret"), "{text}");
    }
    assert!(engine.control("GET", "/v1/containers", "").text().contains("RINGFENCE_BOOT_KEY"));
}

#[test]
fn two_starts_at_once_make_one_container() {
    let engine = TestEngine::start(modes()[0]);
    engine.create("box", &[]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            (0..8).map(|_| scope.spawn(|| engine.call("POST", "/containers/box/start", "").status)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 304).count(), 7, "{statuses:?}");
}

#[test]
fn one_name_is_given_once_however_many_ask_at_once() {
    let engine = TestEngine::start(modes()[0]);
    let create = || engine.call("POST", "/containers/create?name=box", r#"{"Image":"i"}"#).status;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let creates: Vec<_> = (0..16).map(|_| scope.spawn(create)).collect();
        creates.into_iter().map(|create| create.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 15, "{statuses:?}");
}

#[test]
fn a_removal_during_the_start_leaves_nothing() {
    let engine = TestEngine::start(Mode::Unprivileged);
    for _ in 0..5 {
        engine.create("box", &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| engine.call("POST", "/containers/box/start", ""));
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(engine.call("DELETE", "/containers/box?force=true", "").status, 204);
        });
        assert_eq!(engine.call("DELETE", "/containers/box-proxy?force=true", "").status, 204);
        assert_eq!(engine.containers().len(), 0);
        eventually("no keeper is left", || children_of(engine.process.id()).is_empty());
    }
}

fn children_of(parent: u32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent_of =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        parent_of == Some(parent)
    })
    .collect()
}
