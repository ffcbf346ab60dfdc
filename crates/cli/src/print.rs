//! What people read: lines, columns, ages, evidence in words. `--json` output is the contract's own types instead.
//!
//! Everything that is printed goes through here, and through [`crate::terminal`] on its way.

use crate::terminal::{safe, safe_lines};
use ringfence_wire::contract::{DetachedStatus, GoneReason};
use ringfence_wire::evidence::Evidence;
use serde::Serialize;
use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

/// One JSON document on standard output. It is for programs: what serde leaves as it is stays as it is.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string_pretty(value)?)?)
}

/// The same on one line.
pub(crate) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(value)?)?)
}

/// One line on standard output, whatever is in the text.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{}", safe(&text.to_string()))
}

/// A text of several lines of ours on standard output. What others wrote must be [`safe`] in it already, or could add a
/// line.
pub(crate) fn lines(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", safe_lines(text.trim_end_matches('\n'), ""))
}

/// On standard error, with our name before it. Nobody could be told that it cannot be written.
pub(crate) fn note(text: impl Display) {
    warn(format_args!("ringfence: {text}"));
}

/// The same under another name.
pub(crate) fn warn(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", safe_lines(&text.to_string(), "  "));
}

/// What is under way, on standard error; a terminal sees it dimmed.
pub(crate) fn progress(text: &str) {
    let text = safe_lines(text, "  ");
    let _ = if io::stderr().is_terminal() {
        writeln!(io::stderr(), "\x1b[2m{text}\x1b[0m")
    } else {
        writeln!(io::stderr(), "{text}")
    };
}

/// An error with its causes, each told once: some errors say their cause themselves.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            // Writing to a String cannot fail.
            let _ = write!(told, ": {text}");
        }
        cause = error.source();
    }
    told
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Columns as wide as their widest cell; the last one is not padded. A cell is one line, whatever is in it.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = header.map(|cell| cell.chars().count());
    let rows: Vec<[_; N]> = rows.iter().map(|row| row.each_ref().map(|cell| safe(cell))).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{cell:<width$}  ");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(header);
    for row in &rows {
        line(row.each_ref().map(AsRef::as_ref));
    }
    out
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `850ms`, `12.3s`, `4m05s`, `2h10m`, `3d4h`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..=59 => format!("{}.{}s", seconds, ms % 1_000 / 100),
        60..=3_599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

pub(crate) fn age(since_ms: u64) -> String {
    duration(now_ms().saturating_sub(since_ms))
}

pub(crate) fn status(status: &DetachedStatus) -> String {
    match status {
        DetachedStatus::Running => "running".to_owned(),
        DetachedStatus::Exited { exit_code: Some(code), .. } => format!("exited {code}"),
        DetachedStatus::Exited { signal: Some(signal), .. } => format!("died of signal {signal}"),
        DetachedStatus::Exited { .. } => "exited".to_owned(),
        DetachedStatus::Gone { reason, is_final, .. } => {
            format!("gone: {}{}", reason_name(*reason), if *is_final { "" } else { " (not final)" })
        }
    }
}

/// The reason as it stands on the wire.
fn reason_name(reason: GoneReason) -> &'static str {
    match reason {
        GoneReason::NeverStarted => "never-started",
        GoneReason::Stopped => "stopped",
        GoneReason::Aborted => "aborted",
        GoneReason::Checkpointed => "checkpointed",
        GoneReason::ContainerStopped => "container-stopped",
        GoneReason::Expired => "expired",
        GoneReason::FenceKilled => "fence-killed",
        GoneReason::NotTracked => "not-tracked",
        GoneReason::Unreachable => "unreachable",
    }
}

/// One line for a sweep.
pub(crate) fn evidence(evidence: &Evidence) -> String {
    let mut text = format!(
        "{} killed, {} left, {} in {}",
        evidence.killed_count,
        evidence.survivors.len(),
        if evidence.complete { "complete" } else { "NOT complete" },
        duration(evidence.elapsed_ms)
    );
    if let Some(why) = &evidence.unfinished {
        // Writing to a String cannot fail.
        let _ = write!(text, " ({why})");
    }
    let named = |list: &[ringfence_wire::evidence::SeenProcess]| {
        list.iter().map(|p| format!("{}({})", p.name, p.identity.pid)).collect::<Vec<_>>().join(" ")
    };
    if !evidence.survivors.is_empty() {
        let _ = write!(text, "; left alive: {}", named(&evidence.survivors));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_told_in_at_most_two_units() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (59_999, "59.9s"),
            (60_000, "1m00s"),
            (3_600_000, "1h00m"),
            (90_000_000, "1d1h"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let rows = [["a".to_owned(), "long cell".to_owned()], ["bbbb".to_owned(), String::new()]];
        assert_eq!(table(["X", "Y"], &rows), "X     Y\na     long cell\nbbbb\n");
    }

    #[test]
    fn a_cell_can_neither_steer_the_terminal_nor_begin_a_line() {
        let rows = [["\x1b[2Ja\nb".to_owned(), "\u{9b}1A\u{202e}".to_owned()]];
        assert_eq!(table(["X", "Y"], &rows), "X            Y\n\\x1b[2Ja\\nb  \\u{9b}1A\\u{202e}\n");
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("no answer: {0}")]
        struct Outer(#[source] io::Error);
        let error = anyhow::Error::from(Outer(io::Error::other("refused"))).context("asking");
        assert_eq!(causes(error.as_ref()), "asking: no answer: refused");
    }

    #[test]
    fn json_holds_no_raw_control_character_below_the_space() {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "name": "\x1b[2J\n\u{0}" })).unwrap();
        assert!(text.contains(r"\u001b[2J\n\u0000"), "{text}");
    }
}
