//! What people read: columns, ages, evidence in words. `--json` output is the contract's own types instead.

use ringfence_wire::contract::{DetachedStatus, GoneReason};
use ringfence_wire::evidence::Evidence;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// One JSON document on standard output.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Columns as wide as their widest cell; the last one is not padded.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = header.map(|cell| cell.chars().count());
    for row in rows {
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
    for row in rows {
        line(row.each_ref().map(String::as_str));
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
}
