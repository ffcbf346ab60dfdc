//! What a round does and what goes wrong in it, all drawn from its seed before it begins.

use super::ORIGIN;
use ringfence_e2e::control::Action;
use ringfence_e2e::facade::{exec_input, start_input};
use ringfence_e2e::witness::say;
use ringfence_wire::contract::{ExecDone, StartDetachedDone};
use serde_json::{Value, json};

/// The work of one round.
const JOBS: usize = 3;
/// Between two calls to the origin of a process that calls it without end; no other work sleeps for so long.
pub const PAUSE: &str = "0.2";

/// What goes wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    StartNeverArrives,
    StartAnswerLost,
    StartTwice,
    StartLate,
    LookNeverArrives,
    LookAnswerLost,
    TeardownRefused,
    TeardownAnswerLost,
    TeardownLate,
    StopAnswerLost,
    HelloNeverArrives,
    CommandKilled,
    SupervisorKilled,
    RuntimeKilled,
    AbortMeanwhile,
}

impl Fault {
    pub const ALL: [Self; 15] = [
        Self::StartNeverArrives,
        Self::StartAnswerLost,
        Self::StartTwice,
        Self::StartLate,
        Self::LookNeverArrives,
        Self::LookAnswerLost,
        Self::TeardownRefused,
        Self::TeardownAnswerLost,
        Self::TeardownLate,
        Self::StopAnswerLost,
        Self::HelloNeverArrives,
        Self::CommandKilled,
        Self::SupervisorKilled,
        Self::RuntimeKilled,
        Self::AbortMeanwhile,
    ];

    /// The request it meets and what it does to it; none for the ones that are signals or calls.
    pub fn at_the_socket(self) -> Option<(&'static str, &'static str, Action)> {
        let refusal = Action::Answer { status: 500, body: "{}".to_owned() };
        Some(match self {
            Self::StartNeverArrives => ("POST", "/v1/jobs", Action::DropBefore),
            Self::StartAnswerLost => ("POST", "/v1/jobs", Action::DropAfter),
            Self::StartTwice => ("POST", "/v1/jobs", Action::Double),
            Self::StartLate => ("POST", "/v1/jobs", Action::Delay { ms: 300 }),
            Self::LookNeverArrives => ("GET", "/v1/jobs", Action::DropBefore),
            Self::LookAnswerLost => ("GET", "/v1/jobs", Action::DropAfter),
            Self::TeardownRefused => ("POST", "/v1/teardown", refusal),
            Self::TeardownAnswerLost => ("POST", "/v1/teardown", Action::DropAfter),
            Self::TeardownLate => ("POST", "/v1/teardown", Action::Delay { ms: 300 }),
            Self::StopAnswerLost => ("DELETE", "/v1/jobs", Action::DropAfter),
            Self::HelloNeverArrives => ("GET", "/v1/hello", Action::DropBefore),
            Self::CommandKilled | Self::SupervisorKilled | Self::RuntimeKilled | Self::AbortMeanwhile => {
                return None;
            }
        })
    }

    /// Whether it can end a process that was declared, or leave an exec's end unknown.
    pub fn ends_processes(self) -> bool {
        use Fault::{
            AbortMeanwhile, HelloNeverArrives, SupervisorKilled, TeardownAnswerLost, TeardownRefused,
        };
        matches!(
            self,
            AbortMeanwhile | SupervisorKilled | TeardownRefused | TeardownAnswerLost | HelloNeverArrives
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A fenced command that ends with this code.
    Exec(i32),
    /// A detached command that ends with this code.
    Short(i32),
    /// A detached command that goes on until it is ended.
    Long,
}

/// One piece of work and what its caller was told.
pub struct Job {
    pub work: Work,
    pub key: String,
    /// Names its processes and its lines.
    pub mark: String,
    pub begins: String,
    pub ends: String,
    command: String,
    pub told: Told,
    /// When it was first asked for, and when its caller was told; milliseconds since the epoch, as the origin's.
    pub asked_ms: u64,
    pub told_ms: u64,
}

#[derive(Debug)]
pub enum Told {
    Nothing,
    Started(StartDetachedDone),
    Ended(Box<ExecDone>),
    Unknown,
}

impl Job {
    fn draw(rng: &mut fastrand::Rng, seed: u64, n: usize) -> Self {
        let mark = format!("3600.{seed:010}{n}");
        let key = format!("round-{seed}-{n}");
        let (begins, ends) = (format!("begin-{seed}-{n}"), format!("end-{seed}-{n}"));
        let code = rng.i32(0..100);
        let work = match rng.u8(0..3) {
            0 => Work::Exec(code),
            1 => Work::Short(code),
            _ => Work::Long,
        };
        let pause = rng.u32(0..80);
        let (begin, end) = (say(&begins), say(&ends));
        let call = format!("curl -s -o /dev/null -m 10 https://{ORIGIN}/{key}/");
        let command = match work {
            // The last word before the exit: an end that was said is an end that came.
            Work::Exec(code) | Work::Short(code) => {
                format!("{begin}; {call}; sleep 0.{pause:03}; {end}; exit {code}")
            }
            Work::Long => {
                format!("{begin}; while :; do {call}; sleep {PAUSE}; done & exec sleep {mark}")
            }
        };
        Self { work, key, mark, begins, ends, command, told: Told::Nothing, asked_ms: 0, told_ms: 0 }
    }

    pub fn method(&self) -> &'static str {
        match self.work {
            Work::Exec(_) => "execUnderGrant",
            Work::Short(_) | Work::Long => "startDetached",
        }
    }

    /// Only a fenced command may ask for a grant.
    pub fn input(&self) -> Value {
        match self.work {
            Work::Exec(_) => {
                let mut input = exec_input(&self.key, &self.command);
                input["recipe"]["profiles"] = json!(["browser-fetch"]);
                input["recipe"]["targets"] = json!([ORIGIN]);
                input
            }
            Work::Short(_) | Work::Long => start_input(&self.key, &self.command),
        }
    }
}

/// One fault, and where in the work it falls.
#[derive(Clone, Copy)]
pub struct Planned {
    pub fault: Fault,
    pub times: u32,
    pub after_ms: u64,
}

/// Everything a round does, drawn before it begins.
pub fn plan(seed: u64) -> Vec<(Job, Option<Planned>)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..JOBS)
        .map(|n| {
            let job = Job::draw(&mut rng, seed, n);
            let fault = rng.choice(Fault::ALL);
            let (happens, times, after_ms) = (rng.u8(0..5) > 0, rng.u32(1..3), rng.u64(0..120));
            (job, fault.filter(|_| happens).map(|fault| Planned { fault, times, after_ms }))
        })
        .collect()
}
