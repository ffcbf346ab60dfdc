//! `ringfence` as a user runs it: the shipped executable, against a test's stack, as one of its consumers.

use crate::http::Endpoint;
use crate::stack::{Stack, shipped};
use serde_json::json;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// What one run said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Stack {
    /// `ringfence ARGUMENTS`, as the consumer `alpha`, not started yet.
    pub fn ringfence(&self, arguments: &[&str]) -> Command {
        let Endpoint::Tcp(address) = self.front() else { panic!("the HTTP face is on TCP") };
        let mut command = Command::new(shipped("ringfence").expect("it is built"));
        command
            .args(arguments)
            .env("RINGFENCE_URL", format!("http://{address}"))
            .env("RINGFENCE_TOKEN", self.token("alpha"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it to its end.
    pub async fn ringfence_said(&self, arguments: &[&str]) -> Said {
        said(self.ringfence(arguments).spawn().expect("it starts")).await
    }

    /// Likewise, as beside a running `ringfence dev`: with the file that says where the engine is.
    pub async fn ringfence_beside_the_engine(&self, arguments: &[&str]) -> Said {
        let Endpoint::Tcp(address) = self.front() else { panic!("the Workers answer on a port") };
        let here = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(here.path().join(".ringfence")).expect("it is ours");
        let file = json!({
            "url": format!("http://{address}"),
            "token": self.token("alpha"),
            "consumer": "alpha",
            "control": self.control().socket(),
        });
        std::fs::write(here.path().join(".ringfence/dev.json"), file.to_string()).expect("it is ours");
        let mut command = self.ringfence(arguments);
        said(command.current_dir(here.path()).spawn().expect("it starts")).await
    }
}

/// Waits for its end.
pub async fn said(child: Child) -> Said {
    let output = child.wait_with_output().await.expect("it ends");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}
