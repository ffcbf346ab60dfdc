//! What can be put to the test. Another supervisor takes part by another implementation of [`System`] and [`Host`].

use crate::harness::{Ground, Ringfenced};
use crate::stage::Stage;
use ringfence_wire::supervisor::{JobKind, JobState, JobView, StartJob, TeardownReport, start_env};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A way to run commands and to end them.
pub trait System: Send + Sync {
    fn name(&self) -> &'static str;
    /// Whether an escape is a failure of this run, or an entry in its table.
    fn promises(&self) -> bool;
    fn shares_its_pid_namespace(&self) -> bool;
    fn host(&self, stage: &Stage) -> Box<dyn Host>;
}

/// One fresh instance, with one fence.
pub trait Host {
    /// Starts the neighbour that the fence's end must spare.
    fn spared(&mut self, argv: &[String]);
    /// Starts the command that runs inside the fence.
    fn start(&mut self, argv: &[String]);
    /// Ends the fence: everything `start` led to, and nothing else.
    fn end_fence(&mut self) -> Claim;
    /// The supervising process, as a job sees it, and the port it listens on.
    fn supervisor(&self) -> Option<(i32, u16)>;
    /// A second command, after the fence ended; whether it ran.
    fn still_works(&mut self) -> bool;
}

/// What a system says about the end it made. `None` where it says nothing.
#[derive(Debug, Default)]
pub struct Claim {
    pub complete: Option<bool>,
    pub killed: Option<u64>,
    /// The command's own end: exit code, signal.
    pub command: Option<(Option<i32>, Option<i32>)>,
    /// It ended before the fence did.
    pub by_itself: Option<bool>,
    pub elapsed: Duration,
}

pub fn all() -> Vec<Arc<dyn System>> {
    vec![
        Arc::new(Supervised { name: "namespace", ground: Ground::Namespace }),
        Arc::new(Supervised { name: "one uid", ground: Ground::OneUid }),
        Arc::new(Supervised { name: "session", ground: Ground::Session }),
        Arc::new(ProcessGroup),
    ]
}

struct Supervised {
    name: &'static str,
    ground: Ground,
}

impl System for Supervised {
    fn name(&self) -> &'static str {
        self.name
    }

    fn promises(&self) -> bool {
        true
    }

    fn shares_its_pid_namespace(&self) -> bool {
        self.ground == Ground::Session
    }

    fn host(&self, _: &Stage) -> Box<dyn Host> {
        let supervisor = Ringfenced::start_with(self.ground, &[(start_env::MAX_JOBS, "8")]);
        let seen_from_inside = if self.ground == Ground::Session { supervisor.pid } else { 1 };
        Box::new(SupervisedHost { supervisor, seen_from_inside })
    }
}

struct SupervisedHost {
    supervisor: Ringfenced,
    seen_from_inside: i32,
}

impl SupervisedHost {
    fn job(&self, id: &str, kind: JobKind, argv: &[String]) -> StartJob {
        let mut start = self.supervisor.start_request(id, kind, "");
        (start.spec.command, start.spec.argv) = (None, Some(argv.to_vec()));
        start
    }
}

impl Host for SupervisedHost {
    fn spared(&mut self, argv: &[String]) {
        self.supervisor.started(&self.job("spared", JobKind::Detached, argv));
    }

    fn start(&mut self, argv: &[String]) {
        self.supervisor.started(&self.job("fenced", JobKind::Fenced, argv));
    }

    fn end_fence(&mut self) -> Claim {
        let began = std::time::Instant::now();
        let report: TeardownReport = self.supervisor.teardown(&["spared"]);
        let elapsed = began.elapsed();
        let view: JobView = self.supervisor.view("fenced");
        Claim {
            complete: Some(report.evidence.complete && report.evidence.survivors.is_empty()),
            killed: Some(report.evidence.killed_count),
            by_itself: view
                .end
                .as_ref()
                .map(|end| matches!(end.state, JobState::Completed | JobState::Failed)),
            command: view.end.map(|end| (end.exit_code, end.signal)),
            elapsed,
        }
    }

    fn supervisor(&self) -> Option<(i32, u16)> {
        Some((self.seen_from_inside, self.supervisor.port))
    }

    fn still_works(&mut self) -> bool {
        self.supervisor.run("afterwards", "true").end.is_some_and(|end| end.exit_code == Some(0))
    }
}

/// What most process runners do: a process group, TERM, a moment, KILL. It promises nothing here; it is the measure
/// that shows which cases need more. It runs in a pid namespace of its own, so that what escapes it does not outlive
/// the test.
struct ProcessGroup;

impl System for ProcessGroup {
    fn name(&self) -> &'static str {
        "process group"
    }

    fn promises(&self) -> bool {
        false
    }

    fn shares_its_pid_namespace(&self) -> bool {
        false
    }

    fn host(&self, stage: &Stage) -> Box<dyn Host> {
        let mut child = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"])
            .args(stage.command("group-supervisor", &[]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Box::new(ProcessGroupHost { child, answers })
    }
}

struct ProcessGroupHost {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl ProcessGroupHost {
    fn ask(&mut self, task: &str, argv: &[String]) {
        let line = serde_json::to_string(&(task, argv)).unwrap();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.answers.read_line(&mut String::new()).unwrap();
    }
}

impl Host for ProcessGroupHost {
    fn spared(&mut self, argv: &[String]) {
        self.ask("spared", argv);
    }

    fn start(&mut self, argv: &[String]) {
        self.ask("start", argv);
    }

    fn end_fence(&mut self) -> Claim {
        let began = std::time::Instant::now();
        self.ask("end", &[]);
        Claim { elapsed: began.elapsed(), ..Claim::default() }
    }

    fn supervisor(&self) -> Option<(i32, u16)> {
        None
    }

    fn still_works(&mut self) -> bool {
        true
    }
}

impl Drop for ProcessGroupHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
