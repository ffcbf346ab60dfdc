//! How Docker writes signals and times.

use crate::calls::millis;
use rustix::process::Signal;
use std::time::SystemTime;

/// `SIGTERM`, `TERM` or `15`.
pub fn parse_signal(text: &str) -> Option<Signal> {
    const NAMES: [(&str, i32); 31] = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ILL", libc::SIGILL),
        ("TRAP", libc::SIGTRAP),
        ("ABRT", libc::SIGABRT),
        ("BUS", libc::SIGBUS),
        ("FPE", libc::SIGFPE),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("SEGV", libc::SIGSEGV),
        ("USR2", libc::SIGUSR2),
        ("PIPE", libc::SIGPIPE),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("STKFLT", 16),
        ("CHLD", libc::SIGCHLD),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("TTIN", libc::SIGTTIN),
        ("TTOU", libc::SIGTTOU),
        ("URG", libc::SIGURG),
        ("XCPU", libc::SIGXCPU),
        ("XFSZ", libc::SIGXFSZ),
        ("VTALRM", libc::SIGVTALRM),
        ("PROF", libc::SIGPROF),
        ("WINCH", libc::SIGWINCH),
        ("IO", libc::SIGIO),
        ("PWR", libc::SIGPWR),
        ("SYS", libc::SIGSYS),
    ];
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let number = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    Signal::from_named_raw(number.or_else(|| text.parse().ok())?)
}

/// `2026-11-30T16:00:00.123Z`, as Docker writes times.
pub fn rfc3339(time: SystemTime) -> String {
    const MILLIS_PER_DAY: u64 = 86_400_000;
    let ms = millis(time);
    let (days, of_day) = (ms / MILLIS_PER_DAY, ms % MILLIS_PER_DAY);
    let (year, month, day) = civil(days);
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Days since 1970-01-01 as a date (Hinnant's algorithm, years from March).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_docker_writes_them() {
        let at = |ms| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(1_709_164_799_999), "2024-02-28T23:59:59.999Z");
        assert_eq!(at(1_709_164_800_000), "2024-02-29T00:00:00.000Z");
        assert_eq!(at(1_796_054_400_123), "2026-11-30T16:00:00.123Z");
    }

    #[test]
    fn signals_have_three_spellings() {
        for text in ["SIGTERM", "TERM", "15"] {
            assert_eq!(parse_signal(text), Some(Signal::TERM));
        }
        assert_eq!(parse_signal("SIGNONE"), None);
    }
}
