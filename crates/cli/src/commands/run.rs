//! `ringfence run`: one command in a sandbox of its own: boot, run, stream, tear down.
//!
//! The invariant: however this ends (the command's end, an error, the timeout, Ctrl-C), the sandbox is aborted
//! within the grace, and one that could not be seen gone is named. Silence would be the worst outcome.

use super::denials::Refused;
use super::logs::{self, How};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;
use crate::stack::interrupt::Interrupt;
use anyhow::Context;
use ringfence_client::{ScopedSandbox, TeardownHandle, TeardownReport, teardown_pair};
use ringfence_core::recipe::{MAX_LIFETIME_MS, MIN_LIFETIME_MS};
use ringfence_wire::contract::{DetachedStatus, ExecInput, ReceiptEnd, Recipe, StartDetachedInput};
use ringfence_wire::ids::{Cursor, IdempotencyKey};
use std::io::Write;
use std::time::Duration;

/// Ringfence itself failed; the command's own code is not known. As `docker run` and `env` have it.
const OWN_FAILURE: u8 = 125;
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// What the sandbox may live beyond the command's own time: boot before it, teardown after it.
const MARGIN_MS: u64 = 60_000;
/// What is left of a sandbox's longest life.
const MAX_TIMEOUT_MS: u64 = MAX_LIFETIME_MS - MARGIN_MS;
const TAIL_BYTES: u64 = 65_536;

#[derive(clap::Args)]
#[command(after_help = "\
Several words are quoted and joined, so that they arrive as they were typed; one word is taken as shell text.
Ends with the command's own exit code, 128 + N if signal N ended it, 124 when the timeout did, 125 when ringfence
itself failed, 130 after Ctrl-C. RINGFENCE_TEARDOWN_GRACE (seconds, default 5) bounds the teardown.

Examples:
  ringfence run --timeout 60s -- make test
  ringfence run --timeout 10s -- 'ps ax | wc -l'
  ringfence run --timeout 5m --fenced -- ./integration.sh")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// When the command is ended, such as 90s, 10m, 2h; at most 5h59m
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    timeout: Duration,
    /// Run it under a fence as execUnderGrant does; its output then comes at the end, the last 64 KiB of it
    #[arg(long)]
    fenced: bool,
    /// The sandbox's key; default: a new one, which standard error names
    #[arg(long, value_parser = super::key)]
    key: Option<String>,
    /// Print what happened as JSON (with --fenced: the whole outcome)
    #[arg(long)]
    json: bool,
    /// Begins at the first word that is no flag, or after `--`; everything from there on is its own
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let (handle, mut runner) = teardown_pair(grace());
    let outcome = tokio::select! {
        outcome = run(&arguments, &handle) => Some(outcome),
        () = interrupt.wait() => None,
    };
    // The cause first: that a sandbox was not seen gone may follow from it.
    let exit = match outcome {
        None => Exit::Interrupted,
        Some(Ok(exit)) => exit,
        Some(Err(error)) => {
            print::note(print::causes(error.as_ref()));
            match Exit::of(&error) {
                Exit::Usage => Exit::Usage,
                _ => Exit::Command(OWN_FAILURE),
            }
        }
    };
    say(&runner.finish().await);
    Ok(exit)
}

async fn run(arguments: &Arguments, handle: &TeardownHandle) -> anyhow::Result<Exit> {
    let client = arguments.connect.client().await?;
    let recipe = recipe();
    let key = match &arguments.key {
        Some(key) => key.clone(),
        None => {
            let key = format!("run-{}", random_hex()?);
            print::note(format_args!("the sandbox's key is {key}"));
            key
        }
    };
    let lifetime = arguments.timeout.saturating_add(Duration::from_millis(MARGIN_MS));
    let sandbox = ScopedSandbox::open(&client, key, &recipe, lifetime, handle).await?;
    let command = shell_text(&arguments.command);
    let before = match &arguments.key {
        Some(_) => Refused::so_far(&arguments.connect, &sandbox).await,
        None => Refused::default(),
    };
    let exit = if arguments.fenced {
        fenced(&sandbox, arguments, recipe, command).await?
    } else {
        streamed(&sandbox, arguments, recipe, command).await?
    };
    match Refused::so_far(&arguments.connect, &sandbox).await.since(before) {
        0 => {}
        refused => print::note(refusals(refused, sandbox.key().as_str())),
    }
    sandbox.close().await.context("the command ended, the teardown did not")?;
    Ok(exit)
}

async fn streamed(
    sandbox: &ScopedSandbox,
    arguments: &Arguments,
    recipe: Recipe,
    command: String,
) -> anyhow::Result<Exit> {
    let input = StartDetachedInput {
        recipe,
        command,
        idempotency_key: IdempotencyKey(format!("run-{}", random_hex()?)),
        log_path: "run.log".to_owned(),
        approval: None,
        stdin: None,
        workspace_mode: None,
    };
    let started = sandbox.start_detached(&input).await?;
    let id = started.process.id;
    let how = if arguments.json { How::Json } else { How::Streams };
    let copy = logs::copy_output(sandbox, &id, Cursor(0), true, how);
    match tokio::time::timeout(arguments.timeout, copy).await {
        Ok(result) => result?,
        Err(_) => {
            let done = sandbox.stop(&id).await?;
            print::note(format_args!("timed out after {}", print::duration(millis(arguments.timeout))));
            if let Some(evidence) = done.evidence {
                print::note(print::evidence(&evidence));
            }
            return Ok(Exit::Command(124));
        }
    }
    let status = sandbox.status(&id).await?;
    if arguments.json {
        print::json_line(&serde_json::json!({ "status": status }))?;
    }
    Ok(match status {
        DetachedStatus::Exited { exit_code: Some(code), .. } => {
            Exit::Command(u8::try_from(code).unwrap_or(1))
        }
        DetachedStatus::Exited { signal: Some(signal), .. } => Exit::Command(from_signal(signal)),
        other => anyhow::bail!("the output ended but the process is {}", print::status(&other)),
    })
}

async fn fenced(
    sandbox: &ScopedSandbox,
    arguments: &Arguments,
    recipe: Recipe,
    command: String,
) -> anyhow::Result<Exit> {
    let input = ExecInput {
        recipe,
        command,
        idempotency_key: IdempotencyKey(format!("run-{}", random_hex()?)),
        log_path: "run.log".to_owned(),
        timeout_ms: Some(millis(arguments.timeout)),
        tail_bytes: Some(TAIL_BYTES),
        lfs: None,
        approval: None,
        on_unknown: None,
    };
    let done = sandbox.exec(&input).await?;
    if arguments.json {
        print::json(&done)?;
    } else {
        if done.receipt.truncated {
            print::note(format_args!("only the last {TAIL_BYTES} bytes of output follow"));
        }
        if done.receipt.output_cut == Some(true) {
            print::note(
                "the output was cut: a process of another command held it open, and may have written to it",
            );
        }
        // The command's own output, byte for byte.
        std::io::stdout().write_all(done.receipt.tail.as_bytes())?;
        std::io::stdout().flush()?;
        if let Some(evidence) = done.teardown.evidence.as_ref().filter(|_| done.killed > 0) {
            print::note(format_args!("the command left processes: {}", print::evidence(evidence)));
        }
    }
    let receipt = done.receipt;
    Ok(match (receipt.end, receipt.exit_code, receipt.signal) {
        (ReceiptEnd::Exited, Some(code), _) => Exit::Command(u8::try_from(code).unwrap_or(1)),
        (ReceiptEnd::TimedOut, ..) => Exit::Command(124),
        (_, _, Some(signal)) => Exit::Command(from_signal(signal)),
        (end, ..) => anyhow::bail!("the command's end was {end:?}"),
    })
}

fn refusals(count: u64, key: &str) -> String {
    let requests = if count == 1 { "request" } else { "requests" };
    format!("{count} {requests} refused: see `ringfence denials {key}`")
}

fn say(report: &TeardownReport) {
    for key in &report.unproven {
        print::note(format_args!("sandbox {key} was aborted, but its container was not seen gone"));
    }
    for orphan in &report.orphaned {
        let (key, why) = (&orphan.key, print::causes(&orphan.why));
        print::note(format_args!("OrphanedSandbox {key}: {why}; try `ringfence abort {key}`"));
    }
}

/// Nonsense is a warning and the default, never a failure: a teardown must not hang on its own setting.
fn grace() -> Duration {
    let Ok(text) = std::env::var("RINGFENCE_TEARDOWN_GRACE") else { return DEFAULT_GRACE };
    match text.trim().parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(grace) => grace,
        None => {
            print::note(format_args!("RINGFENCE_TEARDOWN_GRACE={text} is not a number of seconds; using 5"));
            DEFAULT_GRACE
        }
    }
}

fn recipe() -> Recipe {
    Recipe {
        version: "run".to_owned(),
        repo: None,
        lfs: None,
        profiles: None,
        targets: None,
        enforcement: None,
    }
}

fn from_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(OWN_FAILURE)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn random_hex() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("random bytes: {error}"))?;
    Ok(hex::encode(bytes))
}

/// One word is shell text; several are quoted, so that the shell gives them back unchanged.
pub(crate) fn shell_text(words: &[String]) -> String {
    match words {
        [text] => text.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// At most what a sandbox may live.
pub(crate) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = parse_duration(text)?;
    if !(MIN_LIFETIME_MS..=MAX_LIFETIME_MS).contains(&millis(lifetime)) {
        let [least, most] = [MIN_LIFETIME_MS, MAX_LIFETIME_MS].map(print::duration);
        return Err(format!("a sandbox lives {least} to {most}"));
    }
    Ok(lifetime)
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    if millis(timeout) > MAX_TIMEOUT_MS {
        let [most, life] = [MAX_TIMEOUT_MS, MAX_LIFETIME_MS].map(print::duration);
        return Err(format!("at most {most}, since no sandbox lives longer than {life}"));
    }
    Ok(timeout)
}

/// `90s`, `10m`, `2h`, `500ms`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time: give one like 90s, 10m or 2h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let ms = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    ms.filter(|ms| *ms > 0).map(Duration::from_millis).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_words_reach_the_command_as_they_were_typed() {
        let words: Vec<String> = ["printf", "%s|", "a b", "it's", "", "$HOME", "*"].map(str::to_owned).into();
        let out = std::process::Command::new("sh").arg("-c").arg(shell_text(&words)).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), "a b|it's||$HOME|*|");
    }

    #[test]
    fn what_was_refused_is_one_line_that_says_where_to_look() {
        assert_eq!(refusals(1, "k"), "1 request refused: see `ringfence denials k`");
        assert_eq!(refusals(2, "k"), "2 requests refused: see `ringfence denials k`");
    }

    #[test]
    fn one_word_is_shell_text() {
        assert_eq!(shell_text(&["echo $((1+1)) | cat".to_owned()]), "echo $((1+1)) | cat");
    }

    #[test]
    fn a_time_has_a_unit_or_is_seconds() {
        for (text, ms) in [("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("5", 5_000), ("500ms", 500)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)));
        }
        for bad in ["", "0s", "-1s", "1d", "s", "1.5s", "99999999999999999999s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
