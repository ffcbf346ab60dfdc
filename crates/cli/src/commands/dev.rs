//! `ringfence dev`: serves the substrate on this machine until it is interrupted or a part ends.
//!
//! Order of effects: start the stack → write `.ringfence/dev.json` (mode 0600) → say so → wait → remove the file
//! → stop the stack. The file is there exactly while the stack serves.

use crate::connect::{DEV_FILE, DevFile};
use crate::exit::Exit;
use crate::print;
use crate::stack::interrupt::Interrupt;
use crate::stack::{BindReadOnly, Stack, StackError, StackOptions, WorkerSource, find_checkout};
use anyhow::{Context, bail};
use serde_json::json;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) const CONSUMER: &str = "local";

#[derive(clap::Args)]
#[command(after_help = "\
Everything that was started ends with this command: Ctrl-C, SIGTERM, SIGHUP, and SIGKILL too.
Storage and logs stay in .ringfence/dev; --fresh begins with none.

Examples:
  ringfence dev
  ringfence dev --port 0 --json
  ringfence dev --dispatcher            the example consumer beside it, at URL/@dispatcher")]
pub(crate) struct Arguments {
    /// The port on 127.0.0.1; 0 picks a free one
    #[arg(long, default_value_t = 8787)]
    port: u16,
    /// Say that it is ready as one line of JSON
    #[arg(long)]
    json: bool,
    /// Run the example dispatcher beside the substrate
    #[arg(long)]
    dispatcher: bool,
    /// Forget the storage of earlier runs
    #[arg(long)]
    fresh: bool,
    /// Let faults be injected at the engine's control socket
    #[arg(long)]
    faults: bool,
    /// Show a host directory, read-only, to every sandbox; may be repeated
    #[arg(long, value_name = "SRC:DST")]
    bind_ro: Vec<BindReadOnly>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::listen()?;
    let root = checkout()?;
    let run = root.join(".ringfence/dev");
    let mut options = options(&root, run, arguments.fresh)?;
    options.port = arguments.port;
    options.faults = arguments.faults;
    options.bind_read_only.extend(arguments.bind_ro);
    if arguments.dispatcher {
        add_dispatcher(&mut options, &root)?;
    }
    let stack = match Stack::start_until(options, say, interrupt.wait()).await {
        Err(error @ StackError::Interrupted) => {
            say(&error.to_string());
            return Ok(Exit::Interrupted);
        }
        other => other?,
    };
    let served = serve(stack, &root, &mut interrupt, arguments.json, arguments.dispatcher).await;
    let _ = std::fs::remove_file(root.join(DEV_FILE));
    served
}

async fn serve(
    mut stack: Stack,
    root: &Path,
    interrupt: &mut Interrupt,
    json: bool,
    dispatcher: bool,
) -> anyhow::Result<Exit> {
    let file = DevFile {
        url: stack.url().to_owned(),
        token: stack.token(CONSUMER).unwrap_or_default().to_owned(),
        consumer: CONSUMER.to_owned(),
        control: Some(stack.control().socket().to_path_buf()),
    };
    write_dev_file(&root.join(DEV_FILE), &file)?;
    announce(&stack, &file, json, dispatcher)?;
    let exit = tokio::select! {
        () = interrupt.wait() => Exit::Interrupted,
        (name, end) = stack.part_ended() => {
            print::note(format_args!("{name} ended by itself ({end:?}); its log is {}", log_of(&stack, name).display()));
            Exit::Failed
        }
    };
    say("stopping");
    stack.stop().await?;
    say("stopped; nothing is left running");
    Ok(exit)
}

fn announce(stack: &Stack, file: &DevFile, json: bool, dispatcher: bool) -> anyhow::Result<()> {
    if json {
        return print::json_line(&json!({ "url": file.url, "consumer": file.consumer, "devFile": DEV_FILE }));
    }
    let url = stack.url();
    print::line(format_args!("ready: {url}   (consumer {}, token in {DEV_FILE})", file.consumer))?;
    print::line("try:")?;
    print::line(format_args!("  TOKEN=$(sed -n 's/.*\"token\": *\"\\([^\"]*\\)\".*/\\1/p' {DEV_FILE})"))?;
    print::lines(&format!(
        "  curl -sS {url}/v1/sandboxes/hello/exec -H \"authorization: Bearer $TOKEN\" \\\n    \
         -d '{{\"recipe\":{{\"version\":\"1\"}},\"command\":\"id; uname -a\",\"idempotencyKey\":\"hello-1\",\"logPath\":\"hello.log\"}}'"
    ))?;
    print::line("  target/native/ringfence ps")?;
    if dispatcher {
        print::line(format_args!("  curl -sS -X POST {}/run", stack.worker_url("dispatcher")))?;
    }
    for (name, path) in stack.logs() {
        print::line(format_args!("log of {name}: {}", path.display()))?;
    }
    Ok(print::line("Ctrl-C stops everything.")?)
}

fn log_of<'a>(stack: &'a Stack, name: &str) -> &'a Path {
    stack.logs().into_iter().find(|(of, _)| *of == name).map_or(stack.run_directory(), |(_, path)| path)
}

/// The options that `dev` and `demo` share: this checkout, this very executable.
pub(crate) fn options(root: &Path, run: PathBuf, fresh: bool) -> anyhow::Result<StackOptions> {
    if fresh {
        for part in ["storage", "engine", "registry", "logs"] {
            match std::fs::remove_dir_all(run.join(part)) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("removing {}", run.join(part).display()));
                }
            }
        }
    }
    let own = std::env::current_exe().context("this executable's own path")?;
    let options = StackOptions::new(root, run, own)?;
    let bundle = root.join("build/index.js");
    if !bundle.is_file() {
        bail!("the Worker is not built ({} is missing): run scripts/build-worker", bundle.display());
    }
    Ok(options)
}

/// The example consumer, and node for the server that its workflow starts.
pub(crate) fn add_dispatcher(options: &mut StackOptions, root: &Path) -> anyhow::Result<()> {
    options.consumers.push(WorkerSource::new(root.join("examples/dispatcher/wrangler.toml")));
    options.allow.insert("dispatcher".to_owned(), json!({ "faces": ["rpc"] }));
    options
        .bind_read_only
        .push(BindReadOnly { source: options.tools.node_directory()?, target: PathBuf::from("/opt/node") });
    Ok(())
}

pub(crate) fn checkout() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the working directory")?;
    find_checkout(&here).with_context(|| format!("{} is not in a Ringfence checkout", here.display()))
}

fn write_dev_file(path: &Path, file: &DevFile) -> anyhow::Result<()> {
    if let Some(home) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    }
    let _ = std::fs::remove_file(path);
    let out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    serde_json::to_writer_pretty(out, file).with_context(|| format!("writing {}", path.display()))
}

/// Progress goes to standard error; a terminal sees it dimmed.
pub(crate) fn say(text: &str) {
    print::progress(text);
}
