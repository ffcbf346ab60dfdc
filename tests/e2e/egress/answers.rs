//! An admitted request's answer reaches its client as the origin gave it.

use super::reading;
use crate::world::{World, tests};
use ringfence_e2e::facade::{done, fresh_word};
use std::sync::Arc;

tests! {
    with origins:
        an_answer_of_any_kind_arrives_as_the_origin_gave_it;
}

async fn an_answer_of_any_kind_arrives_as_the_origin_gave_it(world: Arc<World>) {
    let (sandbox, word) = (world.sandbox().await, fresh_word());
    let length = format!("HEAD pages.test /{word}/asked 0\n").len();
    let head = format!("200 0 Content-Length: {length}");
    let asks = [
        ("-I", "asked", head.as_str()),
        ("", "status-204", "204 0 "),
        ("", "status-304", "304 0 "),
        ("", "status-404", "404 10 status-404"),
        ("", "status-503", "503 10 status-503"),
        // The client takes it encoded, and undoes it itself.
        ("--compressed", "gzip", "200 29 squeezed"),
        // The client did not say that it takes any encoding, and gets none.
        ("", "gzip", "200 9 squeezed"),
        ("-r 2-4", "part", "206 3 234"),
        ("", "long-0", "200 0 "),
        ("", "long-chunked-0", "200 0 "),
        ("", "long-chunked-5", "200 5 xxxxx"),
    ];
    let command: String = asks
        .iter()
        .map(|(options, path, _)| {
            let url = format!("https://pages.test/{word}/{path}");
            let told = match *options {
                "-I" => "grep -i content-length /tmp/head",
                _ => "cat /tmp/body",
            };
            format!(
                "curl -s -m 10 {options} -D /tmp/head -o /tmp/body -w '%{{http_code}} %{{size_download}} ' {url} \
                 || echo FAILED; {told} | tr -d '\\r\\n'; echo; : >/tmp/body; "
            )
        })
        .collect();
    let exec = done(sandbox.exec_input(reading(&["pages.test"], &command)).await);
    let lines: Vec<&str> = exec.receipt.tail.lines().collect();
    assert_eq!(lines, asks.map(|(.., answer)| answer));
}
