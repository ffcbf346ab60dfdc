//! Redirects, each hop decided anew: what is followed, what is refused and for which reason, and what the next origin
//! is asked.

use super::reading;
use crate::world::{World, tests};
use ringfence_e2e::facade::{done, fresh_word};
use serde_json::json;
use std::sync::Arc;

tests! {
    with origins:
        every_hop_of_a_redirect_is_decided_anew;
}

/// `to` may hold `WORD`, the test's own word. `lands`: what the last origin is asked, or why it is refused.
struct Case {
    ask: &'static str,
    to: &'static str,
    lands: Result<&'static str, &'static str>,
}

const fn case(ask: &'static str, to: &'static str, lands: Result<&'static str, &'static str>) -> Case {
    Case { ask, to, lands }
}

const GET: &str = "'https://pages.test/WORD/to-302?TO'";
/// With a body, from the one path that a rule lets it be sent to.
const POST: &str = "-X POST -d body -A 'do to-302?TO' https://github.com/o/WORD/git-upload-pack";

#[rustfmt::skip]
const CASES: &[Case] = &[
    case(GET, "https://other.test/WORD/landed", Ok("GET other.test /WORD/landed 0")),
    case(GET, "/WORD/rooted", Ok("GET pages.test /WORD/rooted 0")),
    case(GET, "relative", Ok("GET pages.test /WORD/relative 0")),
    case(GET, "../WORD/up", Ok("GET pages.test /WORD/up 0")),
    case(GET, "//other.test/WORD/no-scheme", Ok("GET other.test /WORD/no-scheme 0")),
    case(GET, "https://other.test/WORD/fragment%23part", Ok("GET other.test /WORD/fragment 0")),
    case(GET, "https://OTHER.test./WORD/folded", Ok("GET other.test /WORD/folded 0")),
    case("'https://pages.test/WORD/to-301?TO'", "landed-301", Ok("GET pages.test /WORD/landed-301 0")),
    case("'https://pages.test/WORD/to-303?TO'", "landed-303", Ok("GET pages.test /WORD/landed-303 0")),
    case("'https://pages.test/WORD/to-307?TO'", "landed-307", Ok("GET pages.test /WORD/landed-307 0")),
    case("'https://pages.test/WORD/to-308?TO'", "landed-308", Ok("GET pages.test /WORD/landed-308 0")),
    case("'https://pages.test/WORD/hops-5'", "", Ok("GET pages.test /WORD/hops-0 0")),
    case("'https://pages.test/WORD/hops-6'", "", Err("too-many-redirects")),
    case(GET, "https://unlisted.test/WORD/off", Err("host")),
    case(GET, "https://gist.github.com/WORD/off", Err("sink")),
    case(GET, "https://github.com/o/WORD/off", Err("path")),
    case(GET, "https://github.com/o/WORD/info/refs?service=git-receive-pack", Err("query")),
    case(GET, "http://pages.test/WORD/off", Err("not-https")),
    case(GET, "https://pages.test:8443/WORD/off", Err("port")),
    case(GET, "https://pages.test%40unlisted.test/WORD/off", Err("user-info")),
    case(GET, "https://127.0.0.1/WORD/off", Err("address")),
    case(GET, "https://[::1]/WORD/off", Err("address")),
    case(GET, "https://2130706433/WORD/off", Err("address")),
    case(GET, "", Err("bad-redirect")),
    case(GET, "https://[", Err("bad-redirect")),
    case(GET, "data:text/plain,x", Err("bad-redirect")),
    case(GET, "javascript:0", Err("bad-redirect")),
    case(GET, "file:///etc/passwd", Err("bad-redirect")),
    case("'https://pages.test/WORD/to-307'", "", Err("bad-redirect")),
    case("'https://pages.test/WORD/loop'", "", Err("redirect-loop")),
    case("'https://pages.test/WORD/ping'", "", Err("redirect-loop")),
    case(POST, "https://pages.test/WORD/posted", Ok("GET pages.test /WORD/posted 0")),
    case("-X POST -d body -A 'do to-307?TO' https://github.com/o/WORD/git-upload-pack", "https://github.com/p/WORD/git-upload-pack", Err("redirect-body")),
    case("-X POST -d body -A 'do to-308?TO' https://github.com/o/WORD/git-upload-pack", "https://github.com/p/WORD/git-upload-pack", Err("redirect-body")),
    case("-X POST -d body -A 'do to-302?TO' https://github.com/o/WORD/git-upload-pack", "https://github.com/p/WORD/git-upload-pack", Err("path")),
];

async fn every_hop_of_a_redirect_is_decided_anew(world: Arc<World>) {
    let origins = world.stack.origins();
    let mut wrong = Vec::new();
    // Each has a sandbox's denials to itself by its own word in the path.
    let sandbox = world.sandbox().await;
    let words: Vec<String> = CASES.iter().map(|_| fresh_word()).collect();
    let filled = |at: usize, text: &str| text.replace("WORD", &words[at]);
    let command: String = CASES
        .iter()
        .enumerate()
        .map(|(at, case)| {
            let ask = filled(at, &case.ask.replace("TO", &case.to.replace('#', "%23")));
            format!("curl -g -s -m 20 -o /tmp/{at} -w '%{{http_code}} ' {ask}; head -c 200 /tmp/{at}; echo; ")
        })
        .collect();
    let mut input = reading(&["pages.test", "other.test"], &command);
    input["recipe"]["profiles"] = json!(["browser-fetch", "public-repo-read"]);
    input["tailBytes"] = json!(32 * 1024);
    let exec = done(sandbox.exec_input(input).await);
    let lines: Vec<&str> = exec.receipt.tail.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), CASES.len(), "{lines:#?}");

    let denials = sandbox.denials().await;
    for (at, case) in CASES.iter().enumerate() {
        let due = match case.lands {
            Ok(lands) => format!("200 {}", filled(at, lands)),
            Err(_) => "403 denied".to_owned(),
        };
        if lines[at] != due {
            wrong.push(format!("{} {}: {due:?} was due, not {:?}", case.ask, case.to, lines[at]));
        }
        let reasons: Vec<&str> =
            denials.iter().filter(|d| d.path.contains(&words[at])).map(|d| d.reason.as_str()).collect();
        let expected: Vec<&str> = case.lands.err().into_iter().collect();
        if reasons != expected {
            wrong.push(format!("{} {}: recorded {reasons:?}, not {expected:?}", case.ask, case.to));
        }
        let seen = origins.seen(&words[at]);
        if let Some(seen) =
            seen.iter().find(|seen| seen.path().ends_with("/off") || seen.host.contains("gist"))
        {
            wrong.push(format!("{} {}: left as {seen:?}", case.ask, case.to));
        }
        if let Some(seen) = seen.iter().find(|seen| seen.method == "GET" && seen.received > 0) {
            wrong.push(format!("{} {}: a body went with {seen:?}", case.ask, case.to));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
