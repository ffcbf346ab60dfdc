//! The canary: what a look from inside a sandbox proves of the fence around it, and what a deployment may say of itself.
//!
//! Invariant: only what was seen to be refused counts as refused. An HTTPS host that no rule names is refused when the
//! client was answered 403 *and* the sandbox's own record of denials grew by that request; a plain TCP port is
//! unreachable when the look was made and not a byte came back. Whatever kept the look from being made is
//! inconclusive, and inconclusive is no pass. A build is verified by a pass of its own, until a failure.

use crate::egress::HostPattern;
use ringfence_wire::contract::{CanaryCheck, CanaryReport, CanaryVerdict, DenialEvent};
use ringfence_wire::internal::CanaryTurn as Turn;
use serde::{Deserialize, Serialize};
use url::Host;

/// The consumer whose sandbox the canary is. No configuration may list it.
pub const CONSUMER: &str = "_canary";
/// Its one sandbox.
pub const KEY: &str = "canary";
/// What it is granted, so that the hosts it looks at are refused by the rules and not for want of a grant.
pub const PROFILE: &str = "github-api-read";
/// The path it asks for. Constant, so that the record of denials does not grow with every look.
pub const PATH: &str = "/ringfence-canary";
/// How long its command may take.
pub const COMMAND_TIMEOUT_MS: u64 = 45_000;
/// A look that is not over by then was lost, and another may begin.
pub const LEASE_MS: u64 = 180_000;
/// An inconclusive look is not repeated by itself before that.
pub const RETRY_MS: u64 = 60_000;

const HTTPS: &str = "https";
const TCP: &str = "tcp";
const HTTPS_SECONDS: u64 = 20;
const TCP_SECONDS: u64 = 10;

/// What no look from here can see, wherever it runs.
const UNSEEN: &[&str] = &[
    "DNS in production: whether a look-up made in a sandbox reaches a resolver of the platform's, and with it whoever \
     answers for the name, cannot be seen from here",
    "protocols other than TCP (UDP, ICMP) and IPv6: they are not tried",
];

/// Where the canary looks, from the variable `CANARY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A host that no profile names.
    pub https: String,
    /// A host, or an address, whose port speaks neither HTTP nor TLS and answers whoever connects.
    pub tcp: (String, u16),
    /// Look by itself once for every new build.
    pub automatic: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { https: "example.com".to_owned(), tcp: ("github.com".to_owned(), 22), automatic: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsFault {
    #[error(
        "CANARY is not a JSON object like {{\"https\":\"example.com\",\"tcp\":\"github.com:22\",\"automatic\":true}}: \
         {0}"
    )]
    Malformed(String),
    #[error("CANARY.https is {0:?}; it is a host's name, like example.com")]
    Https(String),
    #[error("CANARY.tcp is {0:?}; it is a host and a port, like github.com:22")]
    Tcp(String),
}

impl Settings {
    /// What is left out keeps its default.
    pub fn parse(json: Option<&str>) -> Result<Self, SettingsFault> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Told {
            https: Option<String>,
            tcp: Option<String>,
            automatic: Option<bool>,
        }
        let mut settings = Self::default();
        let Some(json) = json else { return Ok(settings) };
        let told: Told =
            serde_json::from_str(json).map_err(|fault| SettingsFault::Malformed(fault.to_string()))?;
        if let Some(host) = told.https {
            settings.https = name(&host).ok_or(SettingsFault::Https(host))?;
        }
        if let Some(place) = told.tcp {
            settings.tcp = place_of(&place).ok_or(SettingsFault::Tcp(place))?;
        }
        settings.automatic = told.automatic.unwrap_or(settings.automatic);
        Ok(settings)
    }

    fn tcp_text(&self) -> String {
        let (host, port) = &self.tcp;
        format!("{host}:{port}")
    }

    /// The command that looks. It holds validated names only, and says one line per look.
    pub fn command(&self) -> String {
        let (https, tcp) = (&self.https, self.tcp_text());
        format!(
            "said=$(mktemp) || exit 1\n\
             code=$(curl -sS -o /dev/null -w '%{{http_code}}' --max-time {HTTPS_SECONDS} https://{https}{PATH} 2>\"$said\")\n\
             echo \"{HTTPS} $? $code $(head -n 1 \"$said\")\"\n\
             curl -sS -o \"$said\" --max-time {TCP_SECONDS} telnet://{tcp} </dev/null 2>/dev/null\n\
             echo \"{TCP} $? $(wc -c <\"$said\")\"\n\
             rm -f \"$said\"\n"
        )
    }

    /// How often the record of denials says that our look at the HTTPS host was refused by the rules.
    pub fn refusals(&self, denials: &[DenialEvent]) -> u64 {
        let ours = |d: &&DenialEvent| d.host == self.https && d.path == PATH && d.reason == "host";
        denials.iter().filter(ours).map(|denial| denial.count).sum()
    }

    /// What the command's output proves. `refused`: how many more refusals were recorded than before it ran.
    pub fn judge(&self, output: &str, refused: u64) -> Vec<CanaryCheck> {
        let line = |what: &str| output.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
        vec![
            CanaryCheck::of(HTTPS, format!("https://{}{PATH}", self.https), https(line(HTTPS), refused)),
            CanaryCheck::of(TCP, self.tcp_text(), tcp(line(TCP))),
        ]
    }
}

/// Verdict and its reason.
type Seen = (CanaryVerdict, String);

trait Of {
    fn of(what: &str, target: String, seen: Seen) -> Self;
}

impl Of for CanaryCheck {
    fn of(what: &str, target: String, (verdict, detail): Seen) -> Self {
        Self { what: what.to_owned(), target, verdict, detail }
    }
}

/// curl's own codes that say how far it came.
mod curl {
    pub const DONE: u32 = 0;
    pub const NO_NAME: u32 = 6;
    pub const REFUSED: u32 = 7;
    pub const TIMED_OUT: u32 = 28;
    pub const NOTHING_CAME: u32 = 52;
    pub const RESET: u32 = 56;
}

fn https(line: Option<&str>, refused: u64) -> Seen {
    let Some((exit, code, said)) = line.and_then(three) else { return not_looked() };
    match (exit, code) {
        (curl::DONE, "403") if refused > 0 => {
            (CanaryVerdict::Passed, "refused, and the refusal is on record".to_owned())
        }
        (curl::DONE, code) => {
            (CanaryVerdict::Failed, format!("answered {code}, and by no refusal that is on record"))
        }
        _ => (CanaryVerdict::Inconclusive, format!("nobody answered (curl {exit}: {said})")),
    }
}

fn tcp(line: Option<&str>) -> Seen {
    let Some((exit, bytes, _)) = line.and_then(three) else { return not_looked() };
    let Ok(bytes) = bytes.parse::<u64>() else { return not_looked() };
    match exit {
        _ if bytes > 0 => (CanaryVerdict::Failed, format!("reached: {bytes} bytes came back")),
        curl::DONE | curl::REFUSED | curl::TIMED_OUT | curl::NOTHING_CAME | curl::RESET => {
            (CanaryVerdict::Passed, "unreachable: not a byte came back".to_owned())
        }
        curl::NO_NAME => (CanaryVerdict::Inconclusive, "its name could not be looked up".to_owned()),
        _ => (CanaryVerdict::Inconclusive, format!("the look failed (curl {exit})")),
    }
}

fn not_looked() -> Seen {
    (CanaryVerdict::Inconclusive, "the look was not made: is curl in the image?".to_owned())
}

/// `EXIT WORD REST`
fn three(line: &str) -> Option<(u32, &str, &str)> {
    let (exit, rest) = line.split_once(' ')?;
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((exit.parse().ok()?, word, rest))
}

/// One whole look. Without checks, `instead` says what kept it from being made.
pub fn report(
    build: &str,
    at: u64,
    duration_ms: u64,
    checks: Vec<CanaryCheck>,
    instead: Option<String>,
) -> CanaryReport {
    let any = |verdict| checks.iter().any(|check| check.verdict == verdict);
    let verdict = if any(CanaryVerdict::Failed) {
        CanaryVerdict::Failed
    } else if checks.is_empty() || instead.is_some() || any(CanaryVerdict::Inconclusive) {
        CanaryVerdict::Inconclusive
    } else {
        CanaryVerdict::Passed
    };
    CanaryReport {
        build: build.to_owned(),
        at,
        duration_ms,
        verdict,
        checks,
        detail: instead,
        unseen: UNSEEN.iter().map(|text| (*text).to_owned()).collect(),
    }
}

/// What a deployment knows of its running build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    pub build: String,
    /// A look passed, and none failed since.
    pub verified: bool,
    /// A look is under way since.
    pub began_at: Option<u64>,
    pub last: Option<CanaryReport>,
}

/// Who asks for a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A person, or a script of theirs.
    Somebody,
    /// The deployment itself.
    Itself,
}

impl Standing {
    /// What is known of another build says nothing of this one.
    pub fn of(self, build: &str) -> Self {
        if self.build == build { self } else { Self { build: build.to_owned(), ..Self::default() } }
    }

    pub fn begin(&mut self, asker: Asker, now: u64) -> Turn {
        if self.began_at.is_some_and(|began| now < began.saturating_add(LEASE_MS)) {
            return Turn::UnderWay;
        }
        let rests = self.verified
            || self.last.as_ref().is_some_and(|last| match last.verdict {
                // Somebody must see to it first.
                CanaryVerdict::Failed => true,
                CanaryVerdict::Passed | CanaryVerdict::Inconclusive => now < last.at.saturating_add(RETRY_MS),
            });
        if asker == Asker::Itself && rests {
            return Turn::Rest;
        }
        self.began_at = Some(now);
        Turn::Look
    }

    pub fn end(&mut self, report: CanaryReport) {
        if report.build != self.build {
            return;
        }
        self.began_at = None;
        self.verified = match report.verdict {
            CanaryVerdict::Passed => true,
            CanaryVerdict::Failed => false,
            CanaryVerdict::Inconclusive => self.verified,
        };
        self.last = Some(report);
    }
}

fn name(text: &str) -> Option<String> {
    let pattern = HostPattern::parse(text).ok()?;
    (!pattern.as_str().starts_with('*')).then(|| pattern.as_str().to_owned())
}

fn place_of(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    match Host::parse(host) {
        Ok(Host::Ipv4(address)) => Some((address.to_string(), port)),
        _ => Some((name(host)?, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(output: &str, refused: u64) -> [CanaryVerdict; 2] {
        let checks = Settings::default().judge(output, refused);
        [checks[0].verdict, checks[1].verdict]
    }

    fn made(verdict: CanaryVerdict, at: u64) -> CanaryReport {
        let check = CanaryCheck { what: "https".into(), target: "t".into(), verdict, detail: "d".into() };
        report("b", at, 1, vec![check], None)
    }

    use CanaryVerdict::{Failed, Inconclusive, Passed};

    #[test]
    fn a_recorded_refusal_and_a_silent_port_are_a_pass() {
        for silent in ["0 0", "7 0", "28 0", "52 0", "56 0"] {
            assert_eq!(verdicts(&format!("https 0 403 \ntcp {silent}\n"), 1), [Passed, Passed], "{silent}");
        }
    }

    #[test]
    fn a_403_of_somebody_elses_is_a_failure() {
        assert_eq!(verdicts("https 0 403 \ntcp 7 0\n", 0), [Failed, Passed]);
        assert_eq!(verdicts("https 0 200 \ntcp 7 0\n", 0), [Failed, Passed]);
        // Recorded, and answered all the same: the position forwards.
        assert_eq!(verdicts("https 0 200 \ntcp 7 0\n", 1), [Failed, Passed]);
    }

    #[test]
    fn a_port_that_answers_is_a_failure_however_the_look_ended() {
        assert_eq!(verdicts("https 0 403 \ntcp 0 21\n", 1), [Passed, Failed]);
        assert_eq!(verdicts("https 0 403 \ntcp 28 1\n", 1), [Passed, Failed]);
    }

    #[test]
    fn what_was_not_looked_at_is_inconclusive() {
        assert_eq!(verdicts("", 1), [Inconclusive, Inconclusive]);
        assert_eq!(verdicts("https 127  sh: curl: not found\ntcp 127 0\n", 0), [Inconclusive, Inconclusive]);
        assert_eq!(verdicts("https 6 000 no host\ntcp 6 0\n", 0), [Inconclusive, Inconclusive]);
        assert_eq!(verdicts("https 35 000 tls\ntcp x\n", 0), [Inconclusive, Inconclusive]);
    }

    #[test]
    fn one_failure_fails_the_whole_and_one_doubt_leaves_it_open() {
        let settings = Settings::default();
        let whole = |output: &str, refused| report("b", 0, 0, settings.judge(output, refused), None).verdict;
        assert_eq!(whole("https 0 403 \ntcp 7 0\n", 1), Passed);
        assert_eq!(whole("https 0 200 \ntcp 6 0\n", 0), Failed);
        assert_eq!(whole("https 0 403 \ntcp 6 0\n", 1), Inconclusive);
        assert_eq!(report("b", 0, 0, Vec::new(), Some("no slot".into())).verdict, Inconclusive);
        assert!(report("b", 0, 0, Vec::new(), None).unseen.iter().any(|text| text.contains("DNS")));
    }

    #[test]
    fn only_its_own_refusals_by_the_rules_count() {
        let event = |host: &str, path: &str, reason: &str| DenialEvent {
            host: host.into(),
            method: "GET".into(),
            path: path.into(),
            reason: reason.into(),
            count: 2,
        };
        let denials = [
            event("example.com", PATH, "host"),
            event("example.com", PATH, "no-grant"),
            event("example.com", "/", "host"),
            event("example.org", PATH, "host"),
        ];
        assert_eq!(Settings::default().refusals(&denials), 2);
    }

    #[test]
    fn a_build_is_verified_by_a_pass_of_its_own_until_a_failure() {
        let mut standing = Standing::default().of("b");
        standing.end(made(Inconclusive, 1));
        assert!(!standing.verified, "inconclusive is no pass");
        standing.end(made(Passed, 2));
        assert!(standing.verified);
        standing.end(made(Inconclusive, 3));
        assert!(standing.verified, "a doubt does not undo what was proven");
        standing.end(made(Failed, 4));
        assert!(!standing.verified);
        standing.end(made(Passed, 5));
        assert!(!standing.clone().of("c").verified, "another build is another");
        standing.end(report("c", 6, 1, Vec::new(), None));
        assert_eq!(standing.last.map(|last| last.at), Some(5), "a late word of another build is dropped");
    }

    #[test]
    fn it_looks_by_itself_once_and_again_after_a_doubt_and_not_after_a_failure() {
        let mut standing = Standing::default().of("b");
        assert_eq!(standing.begin(Asker::Itself, 0), Turn::Look);
        assert_eq!(standing.begin(Asker::Somebody, LEASE_MS - 1), Turn::UnderWay);
        assert_eq!(standing.begin(Asker::Itself, LEASE_MS), Turn::Look, "the first was lost");
        standing.end(made(Inconclusive, LEASE_MS));
        assert_eq!(standing.begin(Asker::Itself, LEASE_MS + RETRY_MS - 1), Turn::Rest);
        assert_eq!(standing.begin(Asker::Itself, LEASE_MS + RETRY_MS), Turn::Look);
        standing.end(made(Failed, LEASE_MS + RETRY_MS));
        assert_eq!(standing.begin(Asker::Itself, u64::MAX), Turn::Rest);
        assert_eq!(standing.begin(Asker::Somebody, 10 * LEASE_MS), Turn::Look);
        standing.end(made(Passed, 10 * LEASE_MS));
        assert_eq!(standing.begin(Asker::Itself, u64::MAX), Turn::Rest);
    }

    #[test]
    fn settings_are_names_and_a_port_and_nothing_a_shell_could_read() {
        let parse = |json: &str| Settings::parse(Some(json));
        assert_eq!(parse("{}"), Ok(Settings::default()));
        let own = parse(r#"{"https":"Example.ORG","tcp":"10.0.0.1:25","automatic":false}"#).unwrap();
        assert_eq!(
            (own.https.as_str(), &own.tcp, own.automatic),
            ("example.org", &("10.0.0.1".into(), 25), false)
        );
        for bad in [
            "[]",
            r#"{"htps":"a.b"}"#,
            r#"{"https":"https://a.b"}"#,
            r#"{"https":"*.a.b"}"#,
            r#"{"https":"a.b;id"}"#,
            r#"{"https":"$(id).a.b"}"#,
            r#"{"tcp":"a.b"}"#,
            r#"{"tcp":"a.b:0"}"#,
            r#"{"tcp":"a.b:65536"}"#,
            r#"{"tcp":"[::1]:22"}"#,
            r#"{"tcp":"a.b/c:22"}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_hosts_it_looks_at_are_named_by_no_profile() {
        use crate::egress::{profile, profile_names};
        let settings = Settings::default();
        for profile in profile_names().filter_map(profile) {
            for host in &profile.hosts {
                assert!(!host.host.admits(&settings.https), "{}", profile.name);
            }
        }
        assert!(profile(PROFILE).is_some_and(|own| own.target_rules.is_empty()));
    }
}
