//! A call with its input, validated: what [`super::Facade`] runs. Nothing here reaches anything.

use ringfence_core::recipe;
use ringfence_wire::contract::{
    AdmissionMode, AdmissionWish, ArtifactQuery, DetachedInput, EnsureOptions, EventsQuery, ExecInput,
    OutputQuery, Recipe, StartDetachedInput,
};
use ringfence_wire::ids::{ProcessId, SandboxKey};
use ringfence_wire::refusal::Refusal;
use ringfence_wire::supervisor::MAX_ARTIFACT_PAGE_BYTES;

use super::arguments::{Arguments, field_error, rejected};
use super::method::Method;

/// `detachedOutput`'s limits, in bytes of output per page and milliseconds of waiting.
const MIN_PAGE_BYTES: u64 = 4;
const MAX_PAGE_BYTES: u64 = 64 * 1024;
const MAX_OUTPUT_WAIT_MS: u64 = 5_000;
/// Of one page of `events`.
const MAX_EVENTS: u64 = 1_000;

#[derive(Debug)]
pub enum Call {
    Ensure { key: SandboxKey, recipe: Recipe, mode: AdmissionMode, options: EnsureOptions },
    Exec { key: SandboxKey, input: Box<ExecInput> },
    StartDetached { key: SandboxKey, input: Box<StartDetachedInput> },
    Status { key: SandboxKey, id: ProcessId },
    Stop { key: SandboxKey, id: ProcessId },
    List { key: SandboxKey },
    Output { key: SandboxKey, id: ProcessId, query: OutputQuery },
    Input { key: SandboxKey, id: ProcessId, input: DetachedInput },
    ReadFile { key: SandboxKey, path: String },
    Artifacts { key: SandboxKey },
    Artifact { key: SandboxKey, path: String, query: ArtifactQuery },
    Checkpoint { key: SandboxKey, reason: String },
    Abort { key: SandboxKey },
    Denials { key: SandboxKey },
    Events { key: SandboxKey, query: EventsQuery },
    Enqueue { key: SandboxKey, recipe: Recipe },
    Attempt { key: SandboxKey, recipe: Recipe },
    Withdraw { key: SandboxKey },
    Pools,
    Registry { labels: Vec<(String, String)> },
    CanaryLook,
    CanaryReport,
}

impl Call {
    pub fn parse(method: Method, arguments: &mut Arguments) -> Result<Self, Refusal> {
        match method {
            Method::PoolStatus => return Ok(Self::Pools),
            Method::CanaryLook => return Ok(Self::CanaryLook),
            Method::CanaryReport => return Ok(Self::CanaryReport),
            Method::Sandboxes => return Ok(Self::Registry { labels: labels(arguments)? }),
            _ => {}
        }
        let key = arguments.key()?;
        Ok(match method {
            Method::EnsureSandbox => {
                let recipe = arguments.required("recipe")?;
                let mode = arguments.optional::<AdmissionWish>("admission")?.unwrap_or_default().mode;
                let options = arguments.optional("options")?.unwrap_or_default();
                recipe::validate_ensure(&recipe, &options).map_err(field_error)?;
                Self::Ensure { key, recipe, mode, options }
            }
            Method::ExecUnderGrant => {
                let input = arguments.required("input")?;
                recipe::validate_exec(&input).map_err(field_error)?;
                Self::Exec { key, input: Box::new(input) }
            }
            Method::StartDetached => {
                let input = arguments.required("input")?;
                recipe::validate_start(&input).map_err(field_error)?;
                Self::StartDetached { key, input: Box::new(input) }
            }
            Method::DetachedStatus => Self::Status { key, id: arguments.process_id()? },
            Method::StopDetached => Self::Stop { key, id: arguments.process_id()? },
            Method::DetachedList => Self::List { key },
            Method::DetachedOutput => {
                let id = arguments.process_id()?;
                let query = OutputQuery {
                    cursor: arguments.optional("cursor")?,
                    limit: arguments.optional("limit")?,
                    wait_ms: arguments.optional("waitMs")?,
                };
                within("limit", query.limit, MIN_PAGE_BYTES, MAX_PAGE_BYTES)?;
                within("waitMs", query.wait_ms, 0, MAX_OUTPUT_WAIT_MS)?;
                Self::Output { key, id, query }
            }
            Method::DetachedInput => {
                let id = arguments.process_id()?;
                let input = arguments.required("input")?;
                recipe::validate_input(&input).map_err(field_error)?;
                Self::Input { key, id, input }
            }
            Method::ReadFile => {
                let path: String = arguments.required("path")?;
                recipe::validate_read_path(&path).map_err(field_error)?;
                Self::ReadFile { key, path }
            }
            Method::Artifact => {
                let path: String = arguments.required("path")?;
                // An artifact is named relative to the artifact path, like a log.
                let name = recipe::log_name(&path).map_err(|fault| rejected("path", fault.message))?;
                let query = ArtifactQuery {
                    cursor: arguments.optional("cursor")?,
                    limit: arguments.optional("limit")?,
                    process_id: arguments.optional_process_id()?,
                    source: arguments.optional("source")?,
                };
                within("limit", query.limit, MIN_PAGE_BYTES, MAX_ARTIFACT_PAGE_BYTES)?;
                Self::Artifact { key, path: name.to_owned(), query }
            }
            Method::Artifacts => Self::Artifacts { key },
            Method::Checkpoint => {
                let reason: String = arguments.required("reason")?;
                recipe::validate_reason(&reason).map_err(field_error)?;
                Self::Checkpoint { key, reason }
            }
            Method::Abort => Self::Abort { key },
            Method::Denials => Self::Denials { key },
            Method::Events => {
                let query = EventsQuery {
                    cursor: arguments.optional("cursor")?,
                    limit: arguments.optional("limit")?,
                };
                within("limit", query.limit, 1, MAX_EVENTS)?;
                Self::Events { key, query }
            }
            Method::AdmissionEnqueue => Self::Enqueue { key, recipe: admission_recipe(arguments)? },
            Method::AdmissionAttempt => Self::Attempt { key, recipe: admission_recipe(arguments)? },
            Method::AdmissionRelease => Self::Withdraw { key },
            Method::PoolStatus => Self::Pools,
            Method::Sandboxes => Self::Registry { labels: Vec::new() },
            Method::CanaryLook => Self::CanaryLook,
            Method::CanaryReport => Self::CanaryReport,
        })
    }
}

/// The recipe decides the pool, so the gate must see the one that the later calls will bring.
fn admission_recipe(arguments: &mut Arguments) -> Result<Recipe, Refusal> {
    let recipe = arguments.required("recipe")?;
    recipe::validate_recipe(&recipe).map_err(field_error)?;
    Ok(recipe)
}

/// Each `name=value`.
fn labels(arguments: &mut Arguments) -> Result<Vec<(String, String)>, Refusal> {
    let texts = arguments.optional::<Vec<String>>("label")?.unwrap_or_default();
    if texts.len() > recipe::MAX_LABELS {
        return Err(rejected("label", format!("at most {} labels", recipe::MAX_LABELS)));
    }
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(rejected("label", "is not of the form name=value")),
    };
    texts.iter().map(pair).collect()
}

fn within(field: &str, value: Option<u64>, least: u64, most: u64) -> Result<(), Refusal> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(rejected(field, format!("must lie between {least} and {most}, is {value}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn arguments(fields: Value) -> Arguments {
        let mut arguments = Arguments::default();
        arguments.extend(fields.as_object().unwrap().clone());
        arguments
    }

    fn fault(method: Method, fields: Value) -> Option<String> {
        Call::parse(method, &mut arguments(fields)).err().map(|refusal| refusal.field.unwrap())
    }

    #[test]
    fn the_key_is_looked_at_before_anything_else() {
        assert_eq!(fault(Method::Abort, json!({})).as_deref(), Some("key"));
        assert_eq!(fault(Method::Abort, json!({"key": 5})).as_deref(), Some("key"));
        assert_eq!(fault(Method::ExecUnderGrant, json!({"key": "a/b", "input": 1})).as_deref(), Some("key"));
    }

    #[test]
    fn a_page_of_output_has_limits_at_both_ends() {
        let limit =
            |limit: u64| fault(Method::DetachedOutput, json!({"key": "k", "processId": ID, "limit": limit}));
        assert_eq!(limit(MIN_PAGE_BYTES), None);
        assert_eq!(limit(MAX_PAGE_BYTES), None);
        assert_eq!(limit(MIN_PAGE_BYTES - 1).as_deref(), Some("limit"));
        assert_eq!(limit(MAX_PAGE_BYTES + 1).as_deref(), Some("limit"));
        let wait =
            |ms: u64| fault(Method::DetachedOutput, json!({"key": "k", "processId": ID, "waitMs": ms}));
        assert_eq!(wait(MAX_OUTPUT_WAIT_MS), None);
        assert_eq!(wait(MAX_OUTPUT_WAIT_MS + 1).as_deref(), Some("waitMs"));
    }

    #[test]
    fn a_page_of_events_has_limits_at_both_ends_and_a_cursor_that_is_a_number() {
        let limit = |limit: u64| fault(Method::Events, json!({"key": "k", "limit": limit}));
        assert_eq!((limit(1), limit(MAX_EVENTS)), (None, None));
        assert_eq!(limit(0).as_deref(), Some("limit"));
        assert_eq!(limit(MAX_EVENTS + 1).as_deref(), Some("limit"));
        assert_eq!(fault(Method::Events, json!({"key": "k", "cursor": "x"})).as_deref(), Some("cursor"));
    }

    #[test]
    fn a_label_filter_is_a_name_and_a_value() {
        let parse = |texts: &[&str]| Call::parse(Method::Sandboxes, &mut arguments(json!({"label": texts})));
        let Ok(Call::Registry { labels }) = parse(&["run=a=b", "team=x"]) else {
            panic!("labels with = in a value are good")
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(labels, [pair("run", "a=b"), pair("team", "x")]);
        assert!(parse(&["run"]).is_err());
        assert!(parse(&["=x"]).is_err());
        assert!(parse(&["n=v"; recipe::MAX_LABELS]).is_ok());
        assert!(parse(&["n=v"; recipe::MAX_LABELS + 1]).is_err());
    }

    #[test]
    fn an_artifact_is_read_beneath_the_artifact_path_only() {
        let parse =
            |path: &str| Call::parse(Method::Artifact, &mut arguments(json!({"key": "k", "path": path})));
        for good in ["logs/run.log", "/artifacts/logs/run.log"] {
            let Ok(Call::Artifact { path, .. }) = parse(good) else { panic!("{good} is good") };
            assert_eq!(path, "logs/run.log");
        }
        assert!(parse("../etc/passwd").is_err());
        assert!(parse("/etc/passwd").is_err());
    }
}
