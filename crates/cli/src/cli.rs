//! The command line: what there is to say, and which command says it.

use crate::commands::{
    abort, canary, demo, denials, dev, doctor, egress, engine, events, guard, logs, ps, reap, run, start,
    stop,
};
use crate::exit::Exit;
use crate::print;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

const AFTER: &str = "\
Commands that speak to a stack find it by --url and --token, by RINGFENCE_URL and RINGFENCE_TOKEN, or by the \
nearest .ringfence/dev.json, which `scripts/dev` writes while it runs.

Exit codes: 0 done · 1 failed, or something was found · 2 wrong usage · 130 interrupted, all torn down. \
`ringfence run` ends with its command's own code (128 + N for signal N, 125 when ringfence itself failed).

Examples:
  ringfence dev --port 8787             serve until interrupted
  ringfence ps                          sandboxes and their processes
  ringfence logs -f my-key              follow the only process of a sandbox
  ringfence run --timeout 60s -- make   boot, run, stream, tear down
  ringfence start my-key web -- ./serve start a process that goes on; stop it with `ringfence stop my-key`
  ringfence doctor                      what this machine lacks, and how to mend it";

#[derive(Parser)]
#[command(name = "ringfence", version, about = "Sandboxes for Cloudflare Workers whose fence can be trusted", after_help = AFTER)]
#[command(propagate_version = true, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the substrate on this machine until interrupted
    Dev(dev::Arguments),
    /// Run the dispatcher's workflow against real parts and print its timeline
    Demo(demo::Arguments),
    /// List sandboxes and their detached processes
    Ps(ps::Arguments),
    /// Print a detached process's output
    Logs(logs::Arguments),
    /// Stop a detached process, with evidence
    Stop(stop::Arguments),
    /// Start a process that outlives this command
    Start(start::Arguments),
    /// Run one command in a sandbox of its own
    Run(run::Arguments),
    /// End sandboxes and everything in them
    Abort(abort::Arguments),
    /// Find what outlived its purpose, and with --kill end it
    Reap(reap::Arguments),
    /// Say which requests out of a sandbox were refused
    Denials(denials::Arguments),
    /// Print a sandbox's audit trail
    Events(events::Arguments),
    /// Have a sandbox look at its own fence from inside
    Canary(canary::Arguments),
    /// Ask what a recipe's egress would allow
    Egress(egress::Arguments),
    /// Serve containers to workerd in place of Docker
    Engine(engine::Arguments),
    /// Say what this machine lacks, and how to mend it
    Doctor(doctor::Arguments),
    #[command(hide = true)]
    Guard(guard::Arguments),
}

/// Parses, runs, and turns every outcome into an exit code.
pub fn main() -> ExitCode {
    let command = match parse(std::env::args_os()) {
        Ok(arguments) => arguments.command,
        Err(error) => error.exit(),
    };
    let result = match command {
        // Parent-death signals belong to threads: no runtime here, the main thread does the work.
        Command::Guard(arguments) => return guard::main(&arguments),
        Command::Engine(arguments) => return engine::main(arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Egress(arguments) => egress::main(&arguments),
        other => match tokio::runtime::Runtime::new() {
            Ok(runtime) => runtime.block_on(dispatch(other)),
            Err(error) => Err(error.into()),
        },
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            // Who reads us may have had enough; there is nobody to tell.
            if !print::is_broken_pipe(&error) {
                print::note(print::causes(error.as_ref()));
            }
            Exit::of(&error).into()
        }
    }
}

/// Of a command that runs another, it says where the other one's words begin.
fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let line: Vec<OsString> = line.into_iter().collect();
    Arguments::try_parse_from(&line).map_err(|mut error| {
        let example = match line.get(1).and_then(|word| word.to_str()) {
            Some("run") => Some("ringfence run --timeout 60s -- make test"),
            Some("start") => Some("ringfence start my-key server -- ./server"),
            _ => None,
        };
        if let Some(example) = example.filter(|_| error.kind() == ErrorKind::UnknownArgument) {
            let tip = format!("the command comes after `--`, as in: {example}");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        error
    })
}

async fn dispatch(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Dev(arguments) => dev::main(arguments).await,
        Command::Demo(arguments) => demo::main(arguments).await,
        Command::Ps(arguments) => ps::main(arguments).await,
        Command::Logs(arguments) => logs::main(arguments).await,
        Command::Stop(arguments) => stop::main(arguments).await,
        Command::Start(arguments) => start::main(arguments).await,
        Command::Run(arguments) => run::main(arguments).await,
        Command::Abort(arguments) => abort::main(arguments).await,
        Command::Reap(arguments) => reap::main(arguments).await,
        Command::Denials(arguments) => denials::main(arguments).await,
        Command::Events(arguments) => events::main(arguments).await,
        Command::Canary(arguments) => canary::main(arguments).await,
        Command::Guard(_) | Command::Engine(_) | Command::Doctor(_) | Command::Egress(_) => Ok(Exit::Usage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    fn refused(line: &str) -> clap::Error {
        parse(line.split(' ').map(OsString::from)).err().unwrap()
    }

    fn run(line: &str) -> Vec<String> {
        match parse(line.split(' ').map(OsString::from)).unwrap().command {
            Command::Run(arguments) => arguments.command,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn before_the_command_of_a_run_a_flag_that_is_none_is_refused() {
        for (line, flag) in [
            ("ringfence run --timeout 5s --keyy=x -- true", "--keyy"),
            ("ringfence run --keyy=x --timeout 5s true", "--keyy"),
            ("ringfence run --timeut 5s -- true", "--timeut"),
            ("ringfence run --timeut 5s true", "--timeut"),
            ("ringfence run --timeout 5s -x true", "-x"),
        ] {
            let error = refused(line);
            let told = error.to_string();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(told.contains(&format!("'{flag}'")), "{line}: {told}");
            assert!(told.contains("the command comes after `--`"), "{line}: {told}");
        }
    }

    #[test]
    fn from_the_first_word_on_or_after_two_dashes_everything_is_the_commands() {
        for (line, command) in [
            ("ringfence run --timeout 5s -- --keyy=x", &["--keyy=x"][..]),
            ("ringfence run --timeout 5s make -j4 --keyy=x", &["make", "-j4", "--keyy=x"]),
            ("ringfence run --timeout 5s -- sh -c x --json", &["sh", "-c", "x", "--json"]),
            ("ringfence run --fenced --timeout=5s -- a -- b", &["a", "--", "b"]),
        ] {
            assert_eq!(run(line), command, "{line}");
        }
    }

    #[test]
    fn a_key_that_is_none_is_wrong_usage_and_is_named() {
        for line in ["logs a/b", "stop a/b", "abort ok a/b", "denials a/b", "events a/b"] {
            let error = refused(&format!("ringfence {line}"));
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains("KEY"), "{error}");
        }
        for line in ["run --timeout 5s --key= -- true", "run --timeout 5s --key a/b -- true"] {
            let told = refused(&format!("ringfence {line}")).to_string();
            assert!(told.contains("--key") && told.contains("1 to 38 characters"), "{told}");
        }
    }

    #[test]
    fn a_time_over_what_a_sandbox_may_live_is_refused_by_its_flag_with_the_most() {
        let told = refused("ringfence run --timeout 99h -- true").to_string();
        assert!(told.contains("--timeout") && told.contains("5h59m"), "{told}");
        assert_eq!(run("ringfence run --timeout 359m -- true"), ["true"]);
    }
}
