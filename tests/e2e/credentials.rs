//! Credentials: added by the Worker, to their own host alone, and told to nobody.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Sandbox, done, exec_input, fresh_key, fresh_word};
use ringfence_e2e::mirror::Mirror;
use ringfence_e2e::stack::Setup;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

tests! {
    own with_a_secret =>
        a_credential_goes_to_its_own_host_and_into_nothing_that_anyone_reads;
    own without_a_secret => an_unset_secret_fails_closed_and_is_a_denial;
    own with_a_malformed_secret => a_malformed_secret_fails_closed_and_is_a_denial;
}

const SECRET: &str = "cf-hunter2-not-to-be-seen-anywhere";

fn with(secret: Option<&str>) -> Setup {
    let mut setup = crate::world::mirrored();
    setup.secrets.extend(secret.map(|secret| ("CF_API_TOKEN".to_owned(), secret.to_owned())));
    setup
}

fn with_a_secret() -> Setup {
    with(Some(SECRET))
}

fn without_a_secret() -> Setup {
    with(None)
}

fn with_a_malformed_secret() -> Setup {
    with(Some("hunter2 with a blank"))
}

fn asking(command: &str) -> serde_json::Value {
    let mut input = exec_input(&fresh_key(), command);
    input["recipe"]["profiles"] = json!(["cf-api", "github-api-read"]);
    input
}

async fn a_credential_goes_to_its_own_host_and_into_nothing_that_anyone_reads(world: Arc<World>) {
    let (mirror, sandbox, word) = (Mirror::of_this_process(), world.sandbox().await, fresh_word());
    let own = "-H 'Authorization: Bearer of-the-container' -H 'Cookie: session=of-the-container' \
               -H 'X-Api-Key: of-the-container'";
    let command = format!(
        "curl -sS -i {own} https://api.cloudflare.com/client/v4/{word}; echo\n\
         curl -sS {own} https://api.github.com/repos/o/n/{word}; echo\n\
         curl -sS -L {own} https://api.cloudflare.com/client/v4/{word}/to/api.github.com/repos/o/n/{word}-led; echo\n\
         curl -sS {own} https://api.cloudflare.com/client/v4/{word}/to/pages.test/{word}-astray; echo\n\
         curl -sS -X POST {own} https://api.cloudflare.com/client/v4/{word}; echo\n\
         env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    );
    let mut input = asking(&command);
    input["tailBytes"] = json!(65_536);
    let exec = done(sandbox.exec_input(input).await);
    let tail = &exec.receipt.tail;
    assert!(tail.contains(&format!("/client/v4/{word}")) && tail.contains(&format!("{word}-led")), "{tail}");
    assert!(!tail.contains("of-the-origin"), "no cookie comes in: {tail}");

    let bearer = format!("Bearer {SECRET}");
    let own_host = mirror.arrived("api.cloudflare.com", &word);
    assert_eq!(
        own_host.len(),
        3,
        "two answers and two that led on, less the one that was refused: {own_host:?}"
    );
    assert!(own_host.iter().all(|arrived| arrived.header("authorization") == Some(&bearer)), "{own_host:?}");
    let others = mirror.arrived("api.github.com", &word);
    assert_eq!(others.len(), 2, "{others:?}");
    assert_eq!(mirror.arrived("pages.test", &word).len(), 0);
    for arrived in own_host.iter().chain(&others) {
        assert_eq!((arrived.header("cookie"), arrived.header("x-api-key")), (None, None), "{arrived:?}");
    }
    assert!(others.iter().all(|arrived| arrived.header("authorization").is_none()), "{others:?}");

    // Everything that the run told anyone, or wrote.
    let told = [
        serde_json::to_string(&exec).expect("it serialises"),
        serde_json::to_string(&sandbox.denials().await).expect("it serialises"),
        events(&sandbox).await,
        world.stack.ringfence_said(&["denials", "--json", &sandbox.key]).await.out,
        visible(&sandbox).await,
    ];
    for text in &told {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(told[2].contains("execUnderGrant"), "the audit trail is there: {}", told[2]);
    let mut looked_at = 0;
    for file in files(world.stack.run_directory()) {
        // Where the Worker is given it.
        if file.file_name().is_some_and(|name| name == ".dev.vars") {
            continue;
        }
        let bytes = std::fs::read(&file).unwrap_or_default();
        looked_at += usize::from(!bytes.is_empty());
        assert!(!bytes.windows(7).any(|seven| seven == b"hunter2"), "{}", file.display());
    }
    assert!(looked_at > 5, "logs, storage and configuration were looked at: {looked_at}");
}

async fn an_unset_secret_fails_closed_and_is_a_denial(world: Arc<World>) {
    fails_closed(world).await;
}

async fn a_malformed_secret_fails_closed_and_is_a_denial(world: Arc<World>) {
    fails_closed(world).await;
}

async fn fails_closed(world: Arc<World>) {
    let (mirror, sandbox, word) = (Mirror::of_this_process(), world.sandbox().await, fresh_word());
    let command = format!("curl -sS -w ' %{{http_code}}' https://api.cloudflare.com/client/v4/{word}");
    let exec = done(sandbox.exec_input(asking(&command)).await);
    assert_eq!(exec.receipt.tail, "denied 403");
    assert_eq!(mirror.arrived("api.cloudflare.com", &word).len(), 0, "nothing left without it");
    let denials = sandbox.denials().await;
    let denial = denials.iter().find(|denial| denial.path.ends_with(&word)).expect("its denial");
    assert_eq!((denial.reason.as_str(), denial.count), ("credential", 1));
    assert!(!format!("{denials:?}").contains("hunter2"));
}

/// The audit trail.
async fn events(sandbox: &Sandbox) -> String {
    let path = format!("/v1/sandboxes/{}/events", sandbox.key);
    sandbox.stack.http("GET", &path, Some(sandbox.stack.token("alpha")), "").await.text()
}

/// Every file that a job can write or read in its own places.
async fn visible(sandbox: &Sandbox) -> String {
    let command =
        "grep -rls hunter2 /workspace /artifacts /tmp /home /run /var /etc /witness 2>/dev/null; true";
    let mut input = exec_input(&fresh_key(), command);
    input["recipe"]["version"] = json!("e2e-1");
    done(sandbox.exec_input(input).await).receipt.tail
}

fn files(at: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(at) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .flat_map(|path| if path.is_dir() && !path.is_symlink() { files(&path) } else { vec![path] })
        .filter(|path| path.is_file())
        .collect()
}
