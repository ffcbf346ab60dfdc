//! `ringfence doctor`: what this machine lacks, and how to mend it. Changes nothing.

use crate::exit::Exit;
use crate::print;
use crate::stack::{Tools, find_checkout};
use ringfence_engine::FactState;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
#[command(after_help = "Exit 0 when nothing needed is missing, 1 when something is.")]
pub(crate) struct Arguments {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Good,
    /// Works without it, with less; the finding says what is lost.
    Weaker,
    Missing,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

pub(crate) fn main(arguments: &Arguments) -> anyhow::Result<Exit> {
    let findings = look();
    if arguments.json {
        print::json(&findings)?;
    } else {
        for finding in &findings {
            let mark = match finding.verdict {
                Verdict::Good => "ok",
                Verdict::Weaker => "weaker",
                Verdict::Missing => "MISSING",
            };
            print::lines(&format!("{mark:<9}{:<28}{}", finding.what, finding.found))?;
            if let Some(remedy) = &finding.remedy {
                print::lines(&format!("{:37}mend: {remedy}", ""))?;
            }
        }
    }
    let missing = findings.iter().any(|finding| finding.verdict == Verdict::Missing);
    Ok(if missing { Exit::Failed } else { Exit::Ok })
}

fn look() -> Vec<Finding> {
    let mut findings = Vec::new();
    let here = std::env::current_dir().unwrap_or_default();
    match find_checkout(&here) {
        None => findings.push(Finding {
            what: "checkout",
            verdict: Verdict::Weaker,
            found: format!(
                "{} is not in a Ringfence checkout: dev and demo will not run here",
                here.display()
            ),
            remedy: Some("cd into a clone of the repository".to_owned()),
        }),
        Some(root) => checkout(&root, &mut findings),
    }
    findings.push(supervisor());
    let state = std::env::temp_dir();
    findings.extend(ringfence_engine::facts(&state).into_iter().map(|fact| Finding {
        what: fact.name,
        verdict: match fact.state {
            FactState::Holds => Verdict::Good,
            FactState::Weaker => Verdict::Weaker,
            FactState::Missing => Verdict::Missing,
        },
        found: fact.found,
        remedy: (!fact.remedy.is_empty()).then_some(fact.remedy),
    }));
    findings
}

fn checkout(root: &Path, findings: &mut Vec<Finding>) {
    match Tools::of_checkout(root) {
        Err(error) => findings.push(Finding {
            what: "node and wrangler",
            verdict: Verdict::Missing,
            found: error.to_string(),
            remedy: Some("scripts/setup".to_owned()),
        }),
        Ok(tools) => {
            findings.push(version("node", Command::new(&tools.node).arg("--version")));
            findings.push(Finding {
                what: "wrangler",
                verdict: Verdict::Good,
                found: package_version(root, "wrangler"),
                remedy: None,
            });
            findings.push(Finding {
                what: "workerd",
                verdict: Verdict::Good,
                found: package_version(root, "workerd"),
                remedy: None,
            });
        }
    }
    let bundle = root.join("build/index.js");
    findings.push(if bundle.is_file() {
        Finding {
            what: "Worker bundle",
            verdict: Verdict::Good,
            found: bundle.display().to_string(),
            remedy: None,
        }
    } else {
        Finding {
            what: "Worker bundle",
            verdict: Verdict::Missing,
            found: format!("{} is not built", bundle.display()),
            remedy: Some("scripts/build-worker".to_owned()),
        }
    });
}

/// `ringfenced` beside this executable: PID 1 of every local container.
fn supervisor() -> Finding {
    let path: PathBuf = std::env::current_exe().unwrap_or_default().with_file_name("ringfenced");
    if path.is_file() {
        return Finding {
            what: "supervisor",
            verdict: Verdict::Good,
            found: path.display().to_string(),
            remedy: None,
        };
    }
    Finding {
        what: "supervisor",
        verdict: Verdict::Missing,
        found: format!("{} is not built", path.display()),
        remedy: Some("scripts/build-native".to_owned()),
    }
}

fn version(what: &'static str, command: &mut Command) -> Finding {
    match command.output() {
        Ok(out) if out.status.success() => Finding {
            what,
            verdict: Verdict::Good,
            found: String::from_utf8_lossy(&out.stdout).trim().to_owned(),
            remedy: None,
        },
        Ok(out) => Finding {
            what,
            verdict: Verdict::Missing,
            found: String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            remedy: Some("scripts/setup".to_owned()),
        },
        Err(error) => Finding {
            what,
            verdict: Verdict::Missing,
            found: error.to_string(),
            remedy: Some("scripts/setup".to_owned()),
        },
    }
}

fn package_version(root: &Path, package: &str) -> String {
    std::fs::read(root.join("node_modules").join(package).join("package.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
        .and_then(|json| Some(json.get("version")?.as_str()?.to_owned()))
        .unwrap_or_else(|| "of an unknown version".to_owned())
}
