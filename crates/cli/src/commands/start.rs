//! `ringfence start`: a detached process that outlives this command. The caller names it, so that a repetition finds it.

use super::run::{parse_lifetime, shell_text};
use crate::connect::Connect;
use crate::exit::{Exit, Usage};
use crate::print;
use ringfence_core::recipe::{FieldError, validate_start};
use ringfence_wire::contract::{AdmissionWish, EnsureOptions, Recipe, StartDetachedInput};
use ringfence_wire::ids::IdempotencyKey;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "\
Boots the sandbox if it must. Prints the process's own id, which `logs`, `stop` and the contract know it by. The same ID
with the same command, log and recipe finds the process that it started, and starts none; with others it is refused.
Several words of a command are quoted and joined, so that they arrive as they were typed; one word is taken as shell text.
It holds no grant. A sandbox that was built from another recipe is built anew, or the start is refused while a
process lives in it: give --recipe as that one's version.

Exit 0 when it runs or ran, 1 when the service refused, 2 for wrong usage.

Examples:
  ringfence start my-key server -- ./server --port 8080
  ringfence start --log web.log --lifetime 2h my-key web -- 'cd site && exec ./serve'
  ringfence logs -f my-key")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// The name of its log on disk [default: ID.log]
    #[arg(long, value_name = "PATH")]
    log: Option<String>,
    /// The recipe's version
    #[arg(long, value_name = "VERSION", default_value = "run")]
    recipe: String,
    /// The sandbox lives at least so long from now, such as 90s, 10m, 2h; without it a new one lives 30m
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    lifetime: Option<Duration>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// The sandbox
    #[arg(value_name = "KEY", value_parser = super::key)]
    key: String,
    /// Your name for this start (its idempotency key)
    #[arg(value_name = "ID")]
    id: String,
    /// Comes after `--`
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let input = input(&arguments)?;
    let sandbox = arguments.connect.client().await?.sandbox(arguments.key.as_str());
    if let Some(lifetime) = arguments.lifetime {
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let options = EnsureOptions { lifetime_ms: Some(lifetime_ms), ..EnsureOptions::default() };
        sandbox.ensure(&input.recipe, AdmissionWish::default(), &options).await?;
    }
    let done = sandbox.start_detached(&input).await?;
    if arguments.json {
        print::json(&done)?;
    } else {
        print::line(&done.process.id)?;
        if done.deduped {
            let ago = print::age(done.process.started_at);
            print::note(format_args!("{} was started {ago} ago; nothing was started now", arguments.id));
        }
    }
    Ok(Exit::Ok)
}

/// What the service would refuse for its form is wrong usage, and is named as it was typed.
fn input(arguments: &Arguments) -> Result<StartDetachedInput, Usage> {
    let input = StartDetachedInput {
        recipe: Recipe {
            version: arguments.recipe.clone(),
            repo: None,
            lfs: None,
            profiles: None,
            targets: None,
            enforcement: None,
        },
        command: shell_text(&arguments.command),
        idempotency_key: IdempotencyKey(arguments.id.clone()),
        log_path: arguments.log.clone().unwrap_or_else(|| log_of(&arguments.id)),
        approval: None,
        stdin: None,
        workspace_mode: None,
    };
    match validate_start(&input) {
        Ok(()) => Ok(input),
        Err(FieldError { field, message }) => Err(Usage(format!("{}: {message}", typed(&field)))),
    }
}

fn typed(field: &str) -> &str {
    match field {
        "recipe.version" => "--recipe",
        "logPath" => "--log",
        "idempotencyKey" => "ID",
        "command" => "COMMAND",
        other => other,
    }
}

/// An ID may hold what no file's name should.
fn log_of(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    format!("{}.log", id.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        start: Arguments,
    }

    fn parsed(words: &[&str]) -> Result<Arguments, clap::Error> {
        Line::try_parse_from([&["start"], words].concat()).map(|line| line.start)
    }

    fn asked(words: &[&str]) -> Result<StartDetachedInput, String> {
        input(&parsed(words).unwrap()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn it_asks_for_what_was_typed() {
        let whole =
            asked(&["--log", "a/b.log", "--recipe", "7", "k", "web", "--", "sh", "-c", "a b"]).unwrap();
        assert_eq!(
            (whole.command.as_str(), whole.log_path.as_str(), whole.recipe.version.as_str()),
            ("sh -c 'a b'", "a/b.log", "7")
        );
        let short = asked(&["k", "../x y", "--", "a | b"]).unwrap();
        assert_eq!((short.command.as_str(), short.log_path.as_str()), ("a | b", ".._x_y.log"));
        assert_eq!(short.idempotency_key.as_str(), "../x y");
    }

    #[test]
    fn what_the_service_would_refuse_for_its_form_is_named_as_it_was_typed() {
        for (words, named) in [
            (&["--log", "../x", "k", "id", "--", "true"][..], "--log: "),
            (&["--recipe", "", "k", "id", "--", "true"], "--recipe: "),
            (&["k", "", "--", "true"], "ID: "),
            (&["k", "id", "--", ""], "COMMAND: "),
        ] {
            let told = asked(words).unwrap_err();
            assert!(told.starts_with(named), "{words:?}: {told}");
        }
    }

    #[test]
    fn a_command_without_two_dashes_a_missing_id_and_an_endless_life_are_wrong_usage() {
        for words in [
            &["k", "id", "true"][..],
            &["k", "--", "true"],
            &["k", "id"],
            &["--nope", "k", "id", "--", "true"],
            &["--lifetime", "7h", "k", "id", "--", "true"],
        ] {
            assert_eq!(parsed(words).err().map(|error| error.exit_code()), Some(2), "{words:?}");
        }
        assert!(parsed(&["--lifetime", "6h", "k", "id", "--", "true"]).is_ok());
    }

    #[tokio::test]
    async fn it_ends_well_when_the_service_started_it_or_had_it_and_not_when_it_refused() {
        const DONE: &str = r#"{"ok":true,"process":{"id":"p","startedAt":1},"deduped":true}"#;
        const NO: &str = r#"{"ok":false,"kind":"sandbox-unavailable","message":"no"}"#;
        const PATH: &str = "/v1/sandboxes/good/detached";
        let url = fake::url(&[(PATH, DONE), ("/v1/sandboxes/bad/detached", NO)]).await;
        let start = async |key: &str| {
            main(parsed(&["--url", &url, "--token", "t", "--json", key, "id", "--", "true"]).unwrap()).await
        };
        assert_eq!(start("good").await.unwrap(), Exit::Ok);
        let error = start("bad").await.unwrap_err();
        assert_eq!((Exit::of(&error), error.to_string().as_str()), (Exit::Failed, "sandbox-unavailable: no"));
    }
}
