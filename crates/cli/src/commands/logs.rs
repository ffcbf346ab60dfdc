//! `ringfence logs`: a detached process's output, stream by stream, page by page. A follower waits on the other
//! side for news (`waitMs`); it never polls in a loop. What the ring has lost is said, not skipped.

use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;
use anyhow::{Context, bail};
use base64::Engine as _;
use ringfence_client::Sandbox;
use ringfence_wire::contract::{ArtifactQuery, ListedProcess, OutputQuery};
use ringfence_wire::ids::{Cursor, ProcessId};
use ringfence_wire::supervisor::{FrameEncoding, MAX_WAIT_MS, OutputFrame, OutputPage, OutputStream};
use std::io::{self, Write};

#[derive(clap::Args)]
#[command(after_help = "\
Standard output and standard error go where they came from. With --follow it ends when the process has ended and
all was printed. A line on standard error says how many bytes were no longer held.

Examples:
  ringfence logs my-key                 the output of the only process so far
  ringfence logs -f my-key 4f1c         follow one, by a prefix of its id
  ringfence logs --tail 2000 my-key     the last 2,000 bytes
  ringfence logs --whole my-key         the log on disk: what is no longer held too, both streams in one
  ringfence logs --json my-key | jq .   one frame a line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Wait for more until the process ends
    #[arg(short, long)]
    follow: bool,
    /// Print one JSON frame a line
    #[arg(long)]
    json: bool,
    /// Begin so many bytes before the end
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
    /// Print the log on disk instead, from its beginning, both streams in order of arrival; it is there as
    /// long as the container
    #[arg(long, conflicts_with_all = ["follow", "json", "tail"])]
    whole: bool,
    /// The sandbox
    #[arg(value_name = "KEY", value_parser = super::key)]
    key: String,
    /// The process, or the beginning of its id; may be left out when there is only one
    process: Option<String>,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let sandbox = arguments.connect.client().await?.sandbox(arguments.key.as_str());
    let process = pick_process(&sandbox, arguments.process.as_deref()).await?;
    if arguments.whole {
        return match copy_log(&sandbox, &process).await {
            Err(error) if !print::is_broken_pipe(&error) => Err(error),
            _ => Ok(Exit::Ok),
        };
    }
    let begin = match arguments.tail {
        None => Cursor(0),
        Some(bytes) => {
            let look = OutputQuery { cursor: None, limit: Some(4), wait_ms: None };
            Cursor(sandbox.output(&process.id, look).await?.end.0.saturating_sub(bytes))
        }
    };
    let how = if arguments.json { How::Json } else { How::Streams };
    match copy_output(&sandbox, &process.id, begin, arguments.follow, how).await {
        Ok(()) => Ok(Exit::Ok),
        // The reader of our output has what it wanted.
        Err(error) if print::is_broken_pipe(&error) => Ok(Exit::Ok),
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy)]
pub(crate) enum How {
    Streams,
    Json,
}

/// Prints from `cursor` on: to the end so far, or with `follow` to the end of the process.
pub(crate) async fn copy_output(
    sandbox: &Sandbox,
    id: &ProcessId,
    mut cursor: Cursor,
    follow: bool,
    how: How,
) -> anyhow::Result<()> {
    let wait_ms = follow.then_some(MAX_WAIT_MS);
    loop {
        let page = sandbox.output(id, OutputQuery { cursor: Some(cursor), limit: None, wait_ms }).await?;
        print_page(&page, how)?;
        let caught_up = page.next == page.end;
        if page.eof || (caught_up && !follow) {
            return Ok(());
        }
        if page.next < cursor || (page.next == cursor && !caught_up) {
            bail!("the page at {} leads nowhere (next {}, end {})", cursor.0, page.next.0, page.end.0);
        }
        cursor = page.next;
    }
}

/// Prints the log on disk, to its end so far.
async fn copy_log(sandbox: &Sandbox, process: &ListedProcess) -> anyhow::Result<()> {
    let mut cursor = Cursor(0);
    loop {
        let process_id = Some(process.id.clone());
        let query = ArtifactQuery { cursor: Some(cursor), process_id, ..ArtifactQuery::default() };
        let page = sandbox.artifact(&process.log_path, query).await?;
        io::stdout().lock().write_all(&decoded(page.encoding, &page.content)?)?;
        if page.next == page.end || page.next <= cursor {
            if page.truncated == Some(true) {
                print::note("the log lacks what came after: it reached its quota, or the disk was full");
            }
            return Ok(io::stdout().lock().flush()?);
        }
        cursor = page.next;
    }
}

fn print_page(page: &OutputPage, how: How) -> anyhow::Result<()> {
    if page.dropped > 0 {
        match how {
            How::Streams => {
                print::note(format_args!("{} bytes were dropped before this point", page.dropped));
            }
            How::Json => print::json_line(&serde_json::json!({ "dropped": page.dropped }))?,
        }
    }
    for frame in &page.frames {
        match how {
            How::Json => {
                serde_json::to_writer(io::stdout().lock(), frame)?;
                writeln!(io::stdout())?;
            }
            How::Streams => match frame.stream {
                OutputStream::Stdout => io::stdout().lock().write_all(&bytes(frame)?)?,
                OutputStream::Stderr => io::stderr().lock().write_all(&bytes(frame)?)?,
            },
        }
    }
    io::stdout().lock().flush()?;
    Ok(())
}

fn bytes(frame: &OutputFrame) -> anyhow::Result<Vec<u8>> {
    decoded(frame.encoding, &frame.data)
}

fn decoded(encoding: FrameEncoding, data: &str) -> anyhow::Result<Vec<u8>> {
    match encoding {
        FrameEncoding::Utf8 => Ok(data.as_bytes().to_owned()),
        FrameEncoding::Base64 => {
            base64::engine::general_purpose::STANDARD.decode(data).context("what arrived is not base64")
        }
    }
}

/// The process whose id begins with `wanted`, or the only one.
pub(crate) async fn pick_process(sandbox: &Sandbox, wanted: Option<&str>) -> anyhow::Result<ListedProcess> {
    let mut listed = sandbox.detached().await?;
    if let Some(wanted) = wanted {
        listed.retain(|process| process.id.as_str().starts_with(wanted));
    }
    let key = sandbox.key();
    match (listed.len(), wanted) {
        (1, _) => listed.pop().context("one process"),
        (0, Some(wanted)) => bail!("sandbox {key} has no process whose id begins with {wanted}"),
        (0, None) if super::was_ever(sandbox).await => bail!("sandbox {key} has no detached process"),
        (0, None) => bail!("sandbox {key} has no detached process: {}", super::unknown(key)),
        (count, _) => {
            let ids: Vec<String> = listed.iter().map(|process| process.id.to_string()).collect();
            bail!("sandbox {key} has {count} such processes, say which: {}", ids.join(" "))
        }
    }
}
