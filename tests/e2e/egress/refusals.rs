//! What is refused inside a fence, what the container is told of it (nothing), and what is recorded.

use super::{reading, refused_for};
use crate::world::{World, tests};
use ringfence_e2e::facade::{done, fresh_word};
use serde_json::json;
use std::sync::Arc;

tests! {
    with origins:
        what_a_grant_does_not_name_is_a_bare_403_and_recorded_with_its_reason,
        a_redirect_is_followed_when_its_next_hop_is_granted_and_refused_when_it_is_not,
        report_forwards_what_enforce_refuses_and_says_so,
        what_is_not_http_is_refused_inside_a_fence_too;
}

async fn what_a_grant_does_not_name_is_a_bare_403_and_recorded_with_its_reason(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let asks = [
        ("-X GET https://pages.test/PATH", 200, "", ""),
        ("http://pages.test/PATH", 403, "pages.test", "not-https"),
        ("https://unlisted.test/PATH?token=s3cret", 403, "unlisted.test", "host"),
        ("-X POST -d x https://pages.test/PATH", 403, "pages.test", "method"),
        ("-X DELETE https://pages.test/PATH", 403, "pages.test", "method"),
        ("https://pages.test:8443/PATH", 403, "pages.test", "port"),
        ("https://192.0.2.1/PATH", 403, "192.0.2.1", "address"),
        ("https://gist.github.com/PATH", 403, "gist.github.com", "sink"),
        ("--path-as-is https://pages.test/x/%252e%252e/PATH", 403, "pages.test", "path-ambiguous"),
    ];
    let command: String = asks
        .iter()
        .map(|(ask, ..)| {
            let ask = ask.replace("PATH", &word);
            format!("curl -s -m 10 -o /tmp/body -w '%{{http_code}} ' {ask}; cat /tmp/body; echo; ")
        })
        .collect();
    let exec = done(sandbox.exec_input(reading(&["pages.test"], &command)).await);

    let lines: Vec<&str> = exec.receipt.tail.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], format!("200 GET pages.test /{word} 0"), "{lines:?}");
    assert_eq!(lines[1..], ["403 denied"; 8], "the container is told nothing but that");
    let denials = sandbox.denials().await;
    for (ask, _, host, reason) in &asks[1..] {
        let found = denials.iter().find(|d| d.host == *host && d.reason == *reason);
        let found = found.unwrap_or_else(|| panic!("{ask}: no {host} for {reason} in {denials:?}"));
        assert!(found.path.ends_with(&word), "{found:?} has no query string");
    }
    assert!(denials.is_sorted_by_key(|d| std::cmp::Reverse(d.count)), "{denials:?}");
    let left = world.stack.origins().seen(&word);
    assert_eq!(left.len(), 1, "only what was admitted left: {left:?}");
}

async fn a_redirect_is_followed_when_its_next_hop_is_granted_and_refused_when_it_is_not(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let command = format!(
        "curl -s -w ' %{{http_code}} %{{num_redirects}}\\n' 'https://pages.test/{word}/to-302?https://other.test/{word}/landed'; \
         curl -s -w ' %{{http_code}}\\n' 'https://pages.test/{word}/to-302?https://unlisted.test/{word}/off'"
    );
    let exec = done(sandbox.exec_input(reading(&["pages.test", "other.test"], &command)).await);
    let lines: Vec<&str> = exec.receipt.tail.lines().collect();
    let landed = format!("GET other.test /{word}/landed 0");
    assert_eq!(lines, [&*landed, " 200 0", "denied 403"], "followed on the way, unseen by the container");
    assert_eq!(refused_for(&sandbox, "unlisted.test", "host").await, 1);
    let hosts: Vec<String> = world.stack.origins().seen(&word).into_iter().map(|seen| seen.host).collect();
    assert_eq!(hosts, ["pages.test", "other.test", "pages.test"]);
}

async fn report_forwards_what_enforce_refuses_and_says_so(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let ask = |host: &str| format!("curl -s -w '%{{http_code}}\\n' -o /dev/null https://{host}/{word}; ");
    let command = ask("pages.test") + &ask("unlisted.test") + &ask("gist.github.com");
    // A server of the machine's own: the relay tells it by the request's Host.
    let here = |host: &str| {
        format!("curl -s -w '%{{http_code}}\\n' -o /dev/null -H 'Host: {host}:1' http://x.test/; ")
    };
    let command = command + &here("127.0.0.1") + &here("localhost");
    let mut input = reading(&["pages.test"], &command);
    input["recipe"]["enforcement"] = json!("report");
    let exec = done(sandbox.exec_input(input).await);
    assert_eq!(
        exec.receipt.tail, "200\n200\n403\n403\n403\n",
        "a sink or an address stays one in every position"
    );
    let denials = sandbox.denials().await;
    let told: Vec<_> = denials.iter().map(|d| (d.host.as_str(), d.reason.as_str())).collect();
    assert_eq!(
        told,
        [
            ("127.0.0.1", "address"),
            ("gist.github.com", "sink"),
            ("localhost", "address"),
            ("unlisted.test", "would-deny: host")
        ]
    );
    let hosts: Vec<String> = world.stack.origins().seen(&word).into_iter().map(|seen| seen.host).collect();
    assert_eq!(hosts, ["pages.test", "unlisted.test"]);
}

async fn what_is_not_http_is_refused_inside_a_fence_too(world: Arc<World>) {
    let sandbox = world.sandbox().await;
    // A server of the host's own, on every address it has: nobody may reach it.
    let listener = std::net::TcpListener::bind("0.0.0.0:0").expect("a free port");
    listener.set_nonblocking(true).expect("it can be looked at without waiting");
    let port = listener.local_addr().expect("it is bound").port();
    let command = format!(
        "python3 - <<'EOF'\n\
         import socket\n\
         for host, port in ('127.0.0.1', {port}), ('192.0.2.1', {port}), ('pages.test', 5432), ('pages.test', 22):\n\
         \x20 try:\n\
         \x20   with socket.create_connection((host, port), 10) as s:\n\
         \x20     s.sendall(b'\\0\\1\\2\\3 not a request\\r\\n')\n\
         \x20     print('said', s.recv(10))\n\
         \x20 except ConnectionError: print('refused')\n\
         EOF"
    );
    let exec = done(sandbox.exec_input(reading(&["pages.test"], &command)).await);
    assert_eq!(exec.receipt.tail, "refused\n".repeat(4));
    assert!(listener.accept().is_err(), "nobody came");
    assert_eq!(sandbox.denials().await, [], "the Worker was never asked");
}
