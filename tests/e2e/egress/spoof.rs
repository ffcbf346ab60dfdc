//! Requests written to be read as something they are not, byte for byte, through the whole chain: engine, runtime,
//! entrypoint, object. Whatever a request says, what left is what was decided on.

use super::reading;
use crate::world::{World, tests};
use ringfence_e2e::facade::{done, fresh_word};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

tests! {
    with origins:
        every_request_that_poses_as_another_is_decided_as_what_it_is;
}

const CLIENT: &str = include_str!("raw.py");

/// What becomes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Its origin, `pages.test`, sees this target (after the test's own word), and the client an answer.
    Leaves(&'static str),
    /// The object refuses it for this reason; the client sees a bare 403.
    Denied(&'static str),
    /// Nothing leaves: the engine or the runtime does not take it for a request, or the object refuses it.
    Stays,
}
use Expect::{Denied, Leaves, Stays};

struct Case {
    name: &'static str,
    /// The name of the TLS handshake; `None`: none is sent, and the address is dialled.
    sni: Option<&'static str>,
    /// With `WORD` for the test's own word, `\n` for a line's end.
    text: &'static str,
    expect: Expect,
}

const fn case(name: &'static str, sni: Option<&'static str>, text: &'static str, expect: Expect) -> Case {
    Case { name, sni, text, expect }
}

const PAGES: Option<&str> = Some("pages.test");

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("plain", PAGES, "GET /WORD/plain HTTP/1.1\nHost: pages.test\n\n", Leaves("/plain")),
    // Host, SNI, authority.
    case("host-spoof", PAGES, "GET /WORD/host-spoof HTTP/1.1\nHost: unlisted.test\n\n", Denied("host")),
    case("sni-spoof", Some("unlisted.test"), "GET /WORD/sni-spoof HTTP/1.1\nHost: pages.test\n\n", Leaves("/sni-spoof")),
    case("sni-less", None, "GET /WORD/sni-less HTTP/1.1\nHost: pages.test\n\n", Leaves("/sni-less")),
    case("sni-less-unlisted", None, "GET /WORD/sni-less-unlisted HTTP/1.1\nHost: unlisted.test\n\n", Denied("host")),
    case("no-host", PAGES, "GET /WORD/no-host HTTP/1.1\n\n", Stays),
    case("empty-host", PAGES, "GET /WORD/empty-host HTTP/1.1\nHost:\n\n", Stays),
    case("two-hosts", PAGES, "GET /WORD/two-hosts HTTP/1.1\nHost: pages.test\nHost: unlisted.test\n\n", Stays),
    case("two-hosts-turned", PAGES, "GET /WORD/two-hosts-turned HTTP/1.1\nHost: unlisted.test\nHost: pages.test\n\n", Stays),
    case("host-list", PAGES, "GET /WORD/host-list HTTP/1.1\nHost: pages.test, unlisted.test\n\n", Stays),
    case("mixed-case", PAGES, "GET /WORD/mixed-case HTTP/1.1\nHost: PaGeS.TeSt\n\n", Leaves("/mixed-case")),
    case("trailing-dot", PAGES, "GET /WORD/trailing-dot HTTP/1.1\nHost: pages.test.\n\n", Leaves("/trailing-dot")),
    case("two-dots", PAGES, "GET /WORD/two-dots HTTP/1.1\nHost: pages.test..\n\n", Denied("host")),
    case("default-port", PAGES, "GET /WORD/default-port HTTP/1.1\nHost: pages.test:443\n\n", Leaves("/default-port")),
    case("other-port", PAGES, "GET /WORD/other-port HTTP/1.1\nHost: pages.test:8443\n\n", Denied("port")),
    case("port-80", PAGES, "GET /WORD/port-80 HTTP/1.1\nHost: pages.test:80\n\n", Denied("port")),
    case("port-zero", PAGES, "GET /WORD/port-zero HTTP/1.1\nHost: pages.test:0\n\n", Denied("port")),
    case("port-huge", PAGES, "GET /WORD/port-huge HTTP/1.1\nHost: pages.test:65979\n\n", Stays),
    case("user-info", PAGES, "GET /WORD/user-info HTTP/1.1\nHost: pages.test@unlisted.test\n\n", Stays),
    case("user-info-turned", PAGES, "GET /WORD/user-info-turned HTTP/1.1\nHost: unlisted.test@pages.test\n\n", Stays),
    case("host-with-path", PAGES, "GET /WORD/host-with-path HTTP/1.1\nHost: pages.test/x\n\n", Leaves("/host-with-path")),
    case("host-with-fragment", PAGES, "GET /WORD/host-with-fragment HTTP/1.1\nHost: unlisted.test#pages.test\n\n", Stays),
    case("host-with-query", PAGES, "GET /WORD/host-with-query HTTP/1.1\nHost: unlisted.test?pages.test\n\n", Stays),
    case("host-with-backslash", PAGES, "GET /WORD/host-with-backslash HTTP/1.1\nHost: unlisted.test\\pages.test\n\n", Stays),
    case("host-with-space", PAGES, "GET /WORD/host-with-space HTTP/1.1\nHost: pages.test unlisted.test\n\n", Stays),
    case("encoded-host", PAGES, "GET /WORD/encoded-host HTTP/1.1\nHost: %70ages.test\n\n", Leaves("/encoded-host")),
    case("suffix", PAGES, "GET /WORD/suffix HTTP/1.1\nHost: pages.test.unlisted.test\n\n", Denied("host")),
    case("prefix", PAGES, "GET /WORD/prefix HTTP/1.1\nHost: xpages.test\n\n", Denied("host")),
    case("sub-domain", PAGES, "GET /WORD/sub-domain HTTP/1.1\nHost: a.pages.test\n\n", Denied("host")),
    case("loopback", PAGES, "GET /WORD/loopback HTTP/1.1\nHost: 127.0.0.1\n\n", Denied("address")),
    case("decimal-address", PAGES, "GET /WORD/decimal-address HTTP/1.1\nHost: 2130706433\n\n", Denied("address")),
    case("hex-address", PAGES, "GET /WORD/hex-address HTTP/1.1\nHost: 0x7f.1\n\n", Denied("address")),
    case("metadata", PAGES, "GET /WORD/metadata HTTP/1.1\nHost: 169.254.169.254\n\n", Denied("address")),
    case("v6-own", PAGES, "GET /WORD/v6-own HTTP/1.1\nHost: [::1]\n\n", Denied("address")),
    case("v6-mapped", PAGES, "GET /WORD/v6-mapped HTTP/1.1\nHost: [::ffff:169.254.169.254]\n\n", Denied("address")),
    case("v6-port", PAGES, "GET /WORD/v6-port HTTP/1.1\nHost: [::1]:443\n\n", Denied("address")),
    case("idn-look-alike", PAGES, "GET /WORD/idn-look-alike HTTP/1.1\nHost: p\u{430}ges.test\n\n", Denied("host")),
    case("idn-punycode", PAGES, "GET /WORD/idn-punycode HTTP/1.1\nHost: xn--pges-53d.test\n\n", Denied("host")),
    // The request line.
    case("absolute-off-list", PAGES, "GET https://unlisted.test/WORD/absolute-off-list HTTP/1.1\nHost: pages.test\n\n", Stays),
    case("absolute-own", PAGES, "GET https://pages.test/WORD/absolute-own HTTP/1.1\nHost: pages.test\n\n", Leaves("/absolute-own")),
    case("absolute-downgrade", PAGES, "GET http://pages.test/WORD/absolute-downgrade HTTP/1.1\nHost: pages.test\n\n", Stays),
    case("absolute-user-info", PAGES, "GET https://pages.test@unlisted.test/WORD/absolute-user-info HTTP/1.1\nHost: pages.test\n\n", Stays),
    case("scheme-relative", PAGES, "GET //unlisted.test/WORD/scheme-relative HTTP/1.1\nHost: pages.test\n\n", Stays),
    case("asterisk", PAGES, "OPTIONS * HTTP/1.1\nHost: pages.test\nX: WORD\n\n", Stays),
    case("connect", PAGES, "CONNECT pages.test:443 HTTP/1.1\nHost: pages.test\nX: WORD\n\n", Stays),
    case("trace", PAGES, "TRACE /WORD/trace HTTP/1.1\nHost: pages.test\n\n", Denied("method")),
    case("post", PAGES, "POST /WORD/post HTTP/1.1\nHost: pages.test\nContent-Length: 1\n\nx", Denied("method")),
    case("lower-case-method", PAGES, "get /WORD/lower-case-method HTTP/1.1\nHost: pages.test\n\n", Stays),
    case("own-method", PAGES, "FETCH /WORD/own-method HTTP/1.1\nHost: pages.test\n\n", Stays),
    case("method-override", PAGES, "GET /WORD/method-override HTTP/1.1\nHost: pages.test\nX-HTTP-Method-Override: DELETE\n\n", Leaves("/method-override")),
    case("http-0.9", PAGES, "GET /WORD/http-0.9\n", Stays),
    case("http-1.0", PAGES, "GET /WORD/http-1.0 HTTP/1.0\nHost: unlisted.test\n\n", Denied("host")),
    case("http-2", PAGES, "PRI * HTTP/2.0\n\nSM\n\n", Stays),
    case("http-9.9", PAGES, "GET /WORD/http-9.9 HTTP/9.9\nHost: unlisted.test\n\n", Stays),
    // Paths.
    case("dot-parent", PAGES, "GET /WORD/x/../dot-parent HTTP/1.1\nHost: pages.test\n\n", Leaves("/dot-parent")),
    case("encoded-dots", PAGES, "GET /WORD/x/%2e%2e/encoded-dots HTTP/1.1\nHost: pages.test\n\n", Leaves("/encoded-dots")),
    case("encoded-slash-dots", PAGES, "GET /WORD/x/..%2fencoded-slash-dots HTTP/1.1\nHost: pages.test\n\n", Denied("path-ambiguous")),
    case("twice-encoded", PAGES, "GET /WORD/x/%252e%252e/twice-encoded HTTP/1.1\nHost: pages.test\n\n", Denied("path-ambiguous")),
    case("backslash", PAGES, "GET /WORD/x\\..\\backslash HTTP/1.1\nHost: pages.test\n\n", Leaves("/backslash")),
    case("encoded-backslash", PAGES, "GET /WORD/x%5c..%5cencoded-backslash HTTP/1.1\nHost: pages.test\n\n", Denied("path-ambiguous")),
    case("nul", PAGES, "GET /WORD/x%00nul HTTP/1.1\nHost: pages.test\n\n", Denied("path-ambiguous")),
    case("encoded-slash", PAGES, "GET /WORD%2fencoded-slash HTTP/1.1\nHost: pages.test\n\n", Leaves("%2fencoded-slash")),
    case("rule-dots", Some("github.com"), "GET /o/WORD/info/../../../rule-dots HTTP/1.1\nHost: github.com\n\n", Denied("path")),
    case("rule-encoded-slash", Some("github.com"), "GET /o/WORD/info%2frefs?service=git-upload-pack HTTP/1.1\nHost: github.com\nX: rule-encoded-slash\n\n", Denied("path")),
    case("rule-push", Some("github.com"), "GET /o/WORD/info/refs?service=git-receive-pack HTTP/1.1\nHost: github.com\n\n", Denied("query")),
    case("rule-two-services", Some("github.com"), "GET /o/WORD/info/refs?service=git-upload-pack&service=git-receive-pack HTTP/1.1\nHost: github.com\n\n", Denied("query")),
    case("fragment", PAGES, "GET /WORD/fragment#@unlisted.test/ HTTP/1.1\nHost: pages.test\n\n", Leaves("/fragment")),
    // Framing: what follows in the same bytes must not become a request that nobody decided.
    case("cl-te", PAGES, "GET /WORD/cl-te HTTP/1.1\nHost: pages.test\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n\nGET /WORD/smuggled HTTP/1.1\nHost: unlisted.test\n\n", Stays),
    case("te-cl", PAGES, "GET /WORD/te-cl HTTP/1.1\nHost: pages.test\nTransfer-Encoding: chunked\nContent-Length: 4\n\n5c\nGET /WORD/smuggled HTTP/1.1\nHost: unlisted.test\n\n", Stays),
    case("two-lengths", PAGES, "POST /WORD/two-lengths HTTP/1.1\nHost: pages.test\nContent-Length: 0\nContent-Length: 40\n\nGET /WORD/smuggled HTTP/1.1\nHost: unlisted.test\n\n", Stays),
    case("signed-length", PAGES, "POST /WORD/signed-length HTTP/1.1\nHost: pages.test\nContent-Length: +1\n\nx", Stays),
    case("te-twice", PAGES, "POST /WORD/te-twice HTTP/1.1\nHost: pages.test\nTransfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n", Stays),
    case("te-unknown", PAGES, "POST /WORD/te-unknown HTTP/1.1\nHost: pages.test\nTransfer-Encoding: xchunked\n\n0\n\n", Stays),
    case("te-space", PAGES, "POST /WORD/te-space HTTP/1.1\nHost: pages.test\nTransfer-Encoding : chunked\n\n0\n\n", Stays),
    case("obs-fold", PAGES, "GET /WORD/obs-fold HTTP/1.1\nHost: pages.test\nX: a\n Host: unlisted.test\n\n", Stays),
    case("folded-host", PAGES, "GET /WORD/folded-host HTTP/1.1\nHost:\n unlisted.test\n\n", Stays),
    case("pipelined", PAGES, "GET /WORD/pipelined HTTP/1.1\nHost: pages.test\n\nGET /WORD/pipelined-second HTTP/1.1\nHost: unlisted.test\n\n", Leaves("/pipelined")),
    // Changes of protocol.
    case("websocket", PAGES, "GET /WORD/websocket HTTP/1.1\nHost: pages.test\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n", Denied("upgrade")),
    case("h2c", PAGES, "GET /WORD/h2c HTTP/1.1\nHost: pages.test\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\n\n", Denied("upgrade")),
];

#[derive(Serialize)]
struct Sent {
    name: &'static str,
    sni: Option<&'static str>,
    text: String,
}

async fn every_request_that_poses_as_another_is_decided_as_what_it_is(world: Arc<World>) {
    let (sandbox, word, origins) = (world.sandbox().await, fresh_word(), world.stack.origins());
    let mut sent: Vec<Sent> = CASES
        .iter()
        .map(|case| Sent { name: case.name, sni: case.sni, text: case.text.replace("WORD", &word) })
        .collect();
    // Too long for a table: a head beyond any bound, by one header and by many.
    let one = format!("GET /{word}/long-header HTTP/1.1\nHost: pages.test\nX: {}\n\n", "x".repeat(300_000));
    let many: String = (0..20_000).map(|n| format!("X-{n}: x\n")).collect();
    let many = format!("GET /{word}/many-headers HTTP/1.1\nHost: pages.test\n{many}\n");
    let line = format!("GET /{word}/{} HTTP/1.1\nHost: pages.test\n\n", "x".repeat(300_000));
    for (name, text) in [("long-header", one), ("many-headers", many), ("long-line", line)] {
        sent.push(Sent { name, sni: PAGES, text });
    }
    let witness = world.stack.witness();
    witness.show("raw.py", CLIENT);
    witness.show(&format!("{word}.json"), &serde_json::to_string(&sent).expect("it serialises"));
    let mut input = reading(&["pages.test"], &format!("exec python3 /witness/raw.py /witness/{word}.json"));
    input["recipe"]["profiles"] = json!(["browser-fetch", "public-repo-read"]);
    input["tailBytes"] = json!(32 * 1024);
    let exec = done(sandbox.exec_input(input).await);
    let told: BTreeMap<&str, &str> =
        exec.receipt.tail.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(told.len(), sent.len(), "{}", exec.receipt.tail);

    let denials = sandbox.denials().await;
    let mut wrong = Vec::new();
    for case in CASES {
        let said = told[case.name];
        let left: Vec<String> = origins
            .seen(&word)
            .into_iter()
            .map(|seen| seen.target)
            .filter(|t| t.ends_with(case.name))
            .collect();
        let refused: Vec<&str> =
            denials.iter().filter(|d| d.path.ends_with(case.name)).map(|d| d.reason.as_str()).collect();
        let as_due = match case.expect {
            Leaves(target) => said.starts_with("200") && left == [format!("/{word}{target}")],
            Denied(reason) if case.name.starts_with("rule-") => {
                said == "403" && left.is_empty() && denials.iter().any(|d| d.reason == reason)
            }
            Denied(reason) => said == "403" && left.is_empty() && refused == [reason],
            Stays => !said.starts_with("2") && left.is_empty(),
        };
        if !as_due {
            wrong.push(format!(
                "{}: {:?} was due; {said}, left {left:?}, {refused:?}",
                case.name, case.expect
            ));
        }
    }
    for name in ["long-header", "many-headers", "long-line"] {
        if told[name].starts_with('2') {
            wrong.push(format!("{name}: {}", told[name]));
        }
    }
    // Above all: nothing that reached an origin is anything but a granted request.
    for seen in origins.seen(&word) {
        if seen.host != "pages.test" || seen.method != "GET" || seen.target.contains("smuggled") {
            wrong.push(format!("left: {seen:?}"));
        }
        let stripped = ["upgrade", "x-http-method-override", "x", "connection"];
        if let Some(name) = stripped
            .iter()
            .find(|name| seen.header(name).is_some_and(|value| !value.eq_ignore_ascii_case("keep-alive")))
        {
            wrong.push(format!("left with {name}: {seen:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
