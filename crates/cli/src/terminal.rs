//! Text that somebody else wrote, made safe to show.
//!
//! The invariant: nothing that a sandbox, a service or a file says can steer the terminal it is shown on, or be taken for
//! a line of ours. Names of processes, hosts, paths and messages come from inside sandboxes; they are shown as what they
//! are. What prints goes through [`crate::print`], which comes through here; `clippy.toml` forbids the macros that would
//! go around it. Two things are printed as they came, because that is what they are asked for: a job's own output (`run`,
//! `logs`), and JSON, where serde escapes the control characters below U+0020 and a program reads the rest.

use std::borrow::Cow;
use std::fmt::Write as _;

/// One line: whatever would do something instead of being seen is written out, as `\n`, `\x1b` or `\u{202e}`.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ = match c {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if !acts(c) => out.write_char(c),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
    }
    Cow::Owned(out)
}

/// Several lines, each as [`safe`] has it. `margin` goes before every line but the first, so that none of them begins as
/// a line of ours does.
pub(crate) fn safe_lines(text: &str, margin: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(safe).collect();
    lines.join(&format!("\n{margin}"))
}

/// Control characters of both sets (ESC, BEL, CSI as one character, …); what turns the direction of writing, breaks a line
/// or is there without being seen.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_stays_as_it_is() {
        for text in ["", "sleep (7)", "naïve – 日本語 ✓ 👍", r"a\x1b"] {
            assert!(matches!(safe(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn every_control_character_and_every_override_is_written_out() {
        assert_eq!(safe("\x1b]0;owned\x07"), r"\x1b]0;owned\x07");
        assert_eq!(safe("a\r\nb\tc\0\x7f"), r"a\r\nb\tc\x00\x7f");
        assert_eq!(safe("\u{9b}2J\u{85}"), r"\u{9b}2J\u{85}");
        assert_eq!(
            safe("\u{202e}txt.exe\u{2066}\u{200b}\u{2028}"),
            r"\u{202e}txt.exe\u{2066}\u{200b}\u{2028}"
        );
        let all: String = (0..=0x0011_0000).filter_map(char::from_u32).filter(|c| c.is_control()).collect();
        assert!(!safe(&all).chars().any(char::is_control));
    }

    #[test]
    fn made_safe_twice_is_made_safe_once() {
        let once = safe("\x1b[2J\u{9d}\n").into_owned();
        assert_eq!(safe(&once), once);
    }

    #[test]
    fn a_line_inside_a_text_cannot_pass_for_one_of_ours() {
        let text = "git failed\nringfence: all is well\x1b[A\r";
        assert_eq!(safe_lines(text, "  "), "git failed\n  ringfence: all is well\\x1b[A\\r");
    }
}
