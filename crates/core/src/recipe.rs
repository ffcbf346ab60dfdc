//! Input validation: what a caller may ask for, before anything else looks at it.
//!
//! Invariant: an input that passes has every field within its named limit; one that does not is answered with
//! the dotted field at fault and the remedy. A known field whose value this version does not serve is refused,
//! never silently dropped: [`SERVED`] is the one list of those.

use crate::egress::compose;
use crate::key::parse_idempotency_key;
use ringfence_wire::contract::{
    DetachedInput, Enforcement, EnsureOptions, ExecInput, Recipe, Repo, StartDetachedInput, WorkspaceMode,
};
use ringfence_wire::supervisor::StdinMode;

pub const MAX_COMMAND_BYTES: usize = 256 * 1024;
pub const MAX_RECIPE_VERSION_CHARS: usize = 64;
pub const MAX_PROFILES: usize = 16;
pub const MAX_TARGETS: usize = 16;
pub const MAX_NAME_BYTES: usize = 64;
pub const MAX_HOST_BYTES: usize = 253;
pub const MAX_REPO_OWNER_BYTES: usize = 39;
pub const MAX_REPO_NAME_BYTES: usize = 100;
pub const MAX_REPO_REF_BYTES: usize = 200;
pub const MAX_LOG_PATH_BYTES: usize = 200;
pub const MAX_READ_PATH_BYTES: usize = 4096;
pub const MAX_REASON_BYTES: usize = 256;
pub const MAX_LABELS: usize = 10;
pub const MAX_LABEL_NAME_BYTES: usize = 16;
pub const MAX_LABEL_VALUE_BYTES: usize = 64;
pub const MAX_INPUT_BYTES: usize = 64 * 1024;
pub const DEFAULT_TIMEOUT_MS: u64 = 10 * 60 * 1000;
pub const MAX_TIMEOUT_MS: u64 = 6 * 60 * 60 * 1000;
pub const DEFAULT_TAIL_BYTES: u64 = 4 * 1024;
pub const MAX_TAIL_BYTES: u64 = ringfence_wire::supervisor::MAX_TAIL_BYTES;
pub const DEFAULT_LIFETIME_MS: u64 = 30 * 60 * 1000;
pub const MIN_LIFETIME_MS: u64 = 1000;
pub const MAX_LIFETIME_MS: u64 = 6 * 60 * 60 * 1000;
/// Where logs and results lie inside a sandbox.
pub const ARTIFACT_PATH: &str = "/artifacts";

/// Which field is at fault and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Dotted, as the caller wrote it: `recipe.repo.owner`.
    pub field: String,
    pub message: String,
}

fn fault<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, FieldError> {
    Err(FieldError { field: field.into(), message: message.into() })
}

/// What this version serves of what the contract knows. What is `false` here is refused by name.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub repo: bool,
    pub lfs: bool,
    /// `profiles`, `targets`, and the positions other than `enforce`.
    pub egress: bool,
    pub approval: bool,
    pub stdin_pipe: bool,
    pub shared_service: bool,
}

pub const SERVED: Served = Served {
    repo: false,
    lfs: false,
    egress: false,
    approval: false,
    stdin_pipe: false,
    shared_service: false,
};

pub fn validate_recipe(recipe: &Recipe) -> Result<(), FieldError> {
    SERVED.recipe(recipe)
}

pub fn validate_exec(input: &ExecInput) -> Result<(), FieldError> {
    SERVED.exec(input)
}

pub fn validate_start(input: &StartDetachedInput) -> Result<(), FieldError> {
    SERVED.start(input)
}

pub fn validate_ensure(recipe: &Recipe, options: &EnsureOptions) -> Result<(), FieldError> {
    SERVED.recipe(recipe)?;
    if let Some(lifetime) = options.lifetime_ms {
        within("options.lifetimeMs", lifetime, MIN_LIFETIME_MS, MAX_LIFETIME_MS)?;
    }
    let Some(labels) = &options.labels else { return Ok(()) };
    if labels.len() > MAX_LABELS {
        return fault("options.labels", format!("at most {MAX_LABELS} labels"));
    }
    for (name, value) in labels {
        let named =
            format!("options.labels.{}", name.escape_debug().take(MAX_NAME_BYTES).collect::<String>());
        if name.is_empty() || name.len() > MAX_LABEL_NAME_BYTES || name.contains('=') || has_control(name) {
            return fault(
                named,
                format!(
                    "a label's name is 1 to {MAX_LABEL_NAME_BYTES} bytes without `=` or control characters"
                ),
            );
        }
        if value.len() > MAX_LABEL_VALUE_BYTES || has_control(value) {
            return fault(
                named,
                format!(
                    "a label's value is at most {MAX_LABEL_VALUE_BYTES} bytes without control characters"
                ),
            );
        }
    }
    Ok(())
}

pub fn validate_input(input: &DetachedInput) -> Result<(), FieldError> {
    if let Err(error) = parse_idempotency_key(&input.operation_key) {
        return fault("operationKey", error.to_string());
    }
    if input.data.len() > MAX_INPUT_BYTES {
        return fault(
            "data",
            format!("at most {MAX_INPUT_BYTES} bytes in one write; send the rest in another"),
        );
    }
    Ok(())
}

/// `checkpoint(key, reason)`
pub fn validate_reason(reason: &str) -> Result<(), FieldError> {
    if reason.is_empty() || reason.len() > MAX_REASON_BYTES || has_control(reason) {
        return fault("reason", format!("1 to {MAX_REASON_BYTES} bytes without control characters"));
    }
    Ok(())
}

/// `readFile(key, path)`: the shape only; the supervisor decides what lies beneath its roots.
pub fn validate_read_path(path: &str) -> Result<(), FieldError> {
    if !path.starts_with('/') || path.contains('\0') || path.len() > MAX_READ_PATH_BYTES {
        return fault(
            "path",
            format!("an absolute path of at most {MAX_READ_PATH_BYTES} bytes, without NUL"),
        );
    }
    if path.split('/').any(|part| part == "..") {
        return fault("path", "`..` is not taken; write the path out");
    }
    Ok(())
}

/// The log's name relative to the artifact path, or why there is none. Both `run.log` and `/artifacts/run.log`
/// name the same log.
pub fn log_name(path: &str) -> Result<&str, FieldError> {
    const FIELD: &str = "logPath";
    let name = match path.strip_prefix(ARTIFACT_PATH).map(|rest| rest.strip_prefix('/')) {
        Some(Some(rest)) => rest,
        Some(None) | None if path.starts_with('/') => {
            return fault(FIELD, format!("a relative path, or one under {ARTIFACT_PATH}/"));
        }
        _ => path,
    };
    if name.is_empty() || name.len() > MAX_LOG_PATH_BYTES {
        return fault(FIELD, format!("1 to {MAX_LOG_PATH_BYTES} bytes, like `run.log`"));
    }
    if has_control(name) {
        return fault(FIELD, "no control characters");
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return fault(FIELD, "no empty, `.` or `..` part; write the path out");
    }
    Ok(name)
}

impl Served {
    pub fn recipe(&self, recipe: &Recipe) -> Result<(), FieldError> {
        let version = &recipe.version;
        if version.is_empty() || version.chars().count() > MAX_RECIPE_VERSION_CHARS || has_control(version) {
            return fault(
                "recipe.version",
                format!("1 to {MAX_RECIPE_VERSION_CHARS} characters, none a control character"),
            );
        }
        if let Some(repo) = &recipe.repo {
            validate_repo(repo)?;
            self.needs(self.repo, "recipe.repo")?;
        }
        if recipe.lfs == Some(true) {
            self.needs(self.lfs, "recipe.lfs")?;
        }
        self.egress(recipe)
    }

    pub fn exec(&self, input: &ExecInput) -> Result<(), FieldError> {
        self.recipe(&input.recipe)?;
        validate_command(&input.command)?;
        idempotency_key(input.idempotency_key.as_str())?;
        log_name(&input.log_path)?;
        if let Some(timeout) = input.timeout_ms {
            within("timeoutMs", timeout, 1, MAX_TIMEOUT_MS)?;
        }
        if let Some(tail) = input.tail_bytes {
            within("tailBytes", tail, 0, MAX_TAIL_BYTES)?;
        }
        if input.lfs == Some(true) {
            self.needs(self.lfs, "lfs")?;
        }
        self.needs(self.approval || input.approval.is_none(), "approval")
    }

    pub fn start(&self, input: &StartDetachedInput) -> Result<(), FieldError> {
        self.recipe(&input.recipe)?;
        validate_command(&input.command)?;
        idempotency_key(input.idempotency_key.as_str())?;
        log_name(&input.log_path)?;
        self.needs(self.approval || input.approval.is_none(), "approval")?;
        self.needs(self.stdin_pipe || input.stdin != Some(StdinMode::Pipe), "stdin")?;
        let shared = input.workspace_mode == Some(WorkspaceMode::SharedService);
        self.needs(self.shared_service || !shared, "workspaceMode")
    }

    fn egress(&self, recipe: &Recipe) -> Result<(), FieldError> {
        let profiles = recipe.profiles.as_deref().unwrap_or_default();
        names("recipe.profiles", profiles, MAX_PROFILES, MAX_NAME_BYTES)?;
        let targets = recipe.targets.as_deref().unwrap_or_default();
        names("recipe.targets", targets, MAX_TARGETS, MAX_HOST_BYTES)?;
        let lfs = recipe.lfs == Some(true);
        compose(recipe, lfs && recipe.repo.is_some(), None)?;
        self.needs(self.egress || profiles.is_empty(), "recipe.profiles")?;
        self.needs(self.egress || targets.is_empty(), "recipe.targets")?;
        let enforced = recipe.enforcement.unwrap_or_default() == Enforcement::Enforce;
        self.needs(self.egress || enforced, "recipe.enforcement")
    }

    fn needs(&self, met: bool, field: &str) -> Result<(), FieldError> {
        if met { Ok(()) } else { fault(field, "not supported in this version; leave it out") }
    }
}

fn validate_repo(repo: &Repo) -> Result<(), FieldError> {
    let owner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if !bounded(&repo.owner, MAX_REPO_OWNER_BYTES, owner) || repo.owner.starts_with('-') {
        return fault(
            "recipe.repo.owner",
            format!("1 to {MAX_REPO_OWNER_BYTES} characters of A-Z a-z 0-9 -, not starting with -"),
        );
    }
    let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let dots = matches!(repo.name.as_str(), "." | "..") || repo.name.ends_with(".git");
    if !bounded(&repo.name, MAX_REPO_NAME_BYTES, name) || dots {
        return fault(
            "recipe.repo.name",
            format!("1 to {MAX_REPO_NAME_BYTES} characters of A-Z a-z 0-9 . _ -, without a final .git"),
        );
    }
    match &repo.reference {
        Some(reference) if !is_ref(reference) => fault(
            "recipe.repo.ref",
            format!("a branch, tag or commit of 1 to {MAX_REPO_REF_BYTES} characters that git would take"),
        ),
        _ => Ok(()),
    }
}

/// The rules of `git check-ref-format` that a branch, a tag or a commit id all keep, in ASCII.
fn is_ref(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_graphic() && !matches!(b, b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\');
    bounded(text, MAX_REPO_REF_BYTES, good)
        && !text.contains("..")
        && !text.contains("@{")
        && text != "@"
        && !text.starts_with('-')
        && !text.ends_with('.')
        && text.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

fn validate_command(command: &str) -> Result<(), FieldError> {
    const FIELD: &str = "command";
    if command.trim().is_empty() {
        return fault(FIELD, "is empty; say what to run");
    }
    if command.contains('\0') {
        return fault(FIELD, "holds a NUL byte, which no shell can be given; remove it");
    }
    if command.len() > MAX_COMMAND_BYTES {
        return fault(FIELD, format!("is over {MAX_COMMAND_BYTES} bytes; put it in a file and run that"));
    }
    Ok(())
}

fn idempotency_key(key: &str) -> Result<(), FieldError> {
    match parse_idempotency_key(key) {
        Ok(_) => Ok(()),
        Err(error) => fault("idempotencyKey", error.to_string()),
    }
}

fn names(field: &str, list: &[String], max: usize, max_bytes: usize) -> Result<(), FieldError> {
    if list.len() > max {
        return fault(field, format!("at most {max} entries"));
    }
    for (at, name) in list.iter().enumerate() {
        if !bounded(name, max_bytes, |b| b.is_ascii_graphic()) {
            return fault(
                format!("{field}[{at}]"),
                format!("1 to {max_bytes} printable characters, no space"),
            );
        }
    }
    Ok(())
}

fn within(field: &str, value: u64, min: u64, max: u64) -> Result<(), FieldError> {
    if (min..=max).contains(&value) { Ok(()) } else { fault(field, format!("between {min} and {max}")) }
}

fn bounded(text: &str, max: usize, good: impl Fn(u8) -> bool) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(good)
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ALL: Served = Served {
        repo: true,
        lfs: true,
        egress: true,
        approval: true,
        stdin_pipe: true,
        shared_service: true,
    };

    fn exec(change: Value) -> Result<(), FieldError> {
        ALL.exec(&serde_json::from_value(merged(change)).unwrap())
    }

    fn merged(change: Value) -> Value {
        let mut input =
            json!({"recipe": {"version": "1"}, "command": "make", "idempotencyKey": "k", "logPath": "a.log"});
        for (name, value) in change.as_object().unwrap() {
            input[name] = value.clone();
        }
        input
    }

    fn recipe(change: Value) -> Result<(), FieldError> {
        let mut recipe = json!({"version": "1"});
        for (name, value) in change.as_object().unwrap() {
            recipe[name] = value.clone();
        }
        exec(json!({ "recipe": recipe }))
    }

    fn ensure(options: Value) -> Result<(), FieldError> {
        let recipe = serde_json::from_value(json!({"version": "1"})).unwrap();
        validate_ensure(&recipe, &serde_json::from_value(options).unwrap())
    }

    fn field(result: Result<(), FieldError>) -> String {
        result.expect_err("should be refused").field
    }

    #[test]
    fn every_limit_holds_at_its_edge() {
        assert_eq!(exec(json!({"command": "x".repeat(MAX_COMMAND_BYTES)})), Ok(()));
        assert_eq!(field(exec(json!({"command": "x".repeat(MAX_COMMAND_BYTES + 1)}))), "command");
        assert_eq!(exec(json!({"timeoutMs": MAX_TIMEOUT_MS})), Ok(()));
        assert_eq!(field(exec(json!({"timeoutMs": MAX_TIMEOUT_MS + 1}))), "timeoutMs");
        assert_eq!(field(exec(json!({"timeoutMs": 0}))), "timeoutMs");
        assert_eq!(exec(json!({"tailBytes": 65_536})), Ok(()));
        assert_eq!(field(exec(json!({"tailBytes": 65_537}))), "tailBytes");
        assert_eq!(exec(json!({"logPath": "l".repeat(MAX_LOG_PATH_BYTES)})), Ok(()));
        assert_eq!(field(exec(json!({"logPath": "l".repeat(MAX_LOG_PATH_BYTES + 1)}))), "logPath");
        assert_eq!(field(exec(json!({"idempotencyKey": "i".repeat(129)}))), "idempotencyKey");
        assert_eq!(recipe(json!({"version": "v".repeat(64)})), Ok(()));
        assert_eq!(field(recipe(json!({"version": "v".repeat(65)}))), "recipe.version");
        let targets = |n| recipe(json!({"profiles": ["browser-fetch"], "targets": vec!["a.test"; n]}));
        assert_eq!(targets(MAX_TARGETS), Ok(()));
        assert_eq!(field(targets(MAX_TARGETS + 1)), "recipe.targets");
        assert_eq!(
            field(recipe(json!({"profiles": vec!["js-install"; MAX_PROFILES + 1]}))),
            "recipe.profiles"
        );
        for lifetime in [MIN_LIFETIME_MS, DEFAULT_LIFETIME_MS, MAX_LIFETIME_MS] {
            assert_eq!(ensure(json!({ "lifetimeMs": lifetime })), Ok(()));
        }
        for lifetime in [0, MIN_LIFETIME_MS - 1, MAX_LIFETIME_MS + 1] {
            assert_eq!(field(ensure(json!({ "lifetimeMs": lifetime }))), "options.lifetimeMs");
        }
    }

    #[test]
    fn a_command_is_not_empty_and_holds_no_nul() {
        for bad in ["", "  \n", "a\0b"] {
            assert_eq!(field(exec(json!({ "command": bad }))), "command", "{bad:?}");
        }
    }

    #[test]
    fn a_log_path_stays_beneath_the_artifacts() {
        assert_eq!(log_name("run.log"), Ok("run.log"));
        assert_eq!(log_name("/artifacts/ci/run.log"), Ok("ci/run.log"));
        assert_eq!(log_name("artifacts.log"), Ok("artifacts.log"));
        for bad in [
            "",
            "/",
            "/artifacts",
            "/artifacts/",
            "/artifactsx",
            "/etc/passwd",
            "../a",
            "a/../b",
            "a//b",
            "./a",
            "a/",
            "a\nb",
            "/artifacts/../etc",
        ] {
            assert_eq!(log_name(bad).unwrap_err().field, "logPath", "{bad:?}");
        }
    }

    #[test]
    fn labels_are_few_short_and_printable() {
        let ten: Value =
            (0..10).map(|n| (format!("l{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(ensure(json!({ "labels": ten })), Ok(()));
        let eleven: Value =
            (0..11).map(|n| (format!("l{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(field(ensure(json!({ "labels": eleven }))), "options.labels");
        assert_eq!(ensure(json!({"labels": {"sixteen-bytes-ok": "v".repeat(64)}})), Ok(()));
        assert_eq!(field(ensure(json!({"labels": {"l": "v".repeat(65)}}))), "options.labels.l");
        for bad in ["", "seventeen-bytes-x", "a=b", "a\nb"] {
            let result = ensure(json!({"labels": {bad: "v"}}));
            assert!(field(result).starts_with("options.labels."), "{bad:?}");
        }
        assert_eq!(field(ensure(json!({"labels": {"l": "a\u{1b}b"}}))), "options.labels.l");
    }

    #[test]
    fn a_repository_is_an_owner_a_name_and_a_ref_that_git_would_take() {
        let repo = |owner: &str, name: &str, reference: &str| {
            recipe(json!({"repo": {"owner": owner, "name": name, "ref": reference}}))
        };
        for good in
            ["main", "v1.2.3", "feature/a-b", "refs/heads/x", "0123456789abcdef0123456789abcdef01234567"]
        {
            assert_eq!(repo("rust-lang", "cargo", good), Ok(()), "{good:?}");
        }
        for bad in
            ["", "-x", "--upload-pack=x", "a..b", "a b", "a~1", "@", "a@{1}", "/a", "a/", "a.lock", ".a", "é"]
        {
            assert_eq!(field(repo("o", "n", bad)), "recipe.repo.ref", "{bad:?}");
        }
        for bad in ["", "-o", "o/p", "o.p", &"o".repeat(40)] {
            assert_eq!(field(repo(bad, "n", "main")), "recipe.repo.owner", "{bad:?}");
        }
        for bad in ["", ".", "..", "n.git", "n/m", "n?m"] {
            assert_eq!(field(repo("o", bad, "main")), "recipe.repo.name", "{bad:?}");
        }
    }

    #[test]
    fn an_unknown_profile_and_a_target_that_is_no_host_are_named() {
        assert_eq!(field(recipe(json!({"profiles": ["js-install", "nope"]}))), "recipe.profiles[1]");
        let bad = json!({"profiles": ["browser-fetch"], "targets": ["a.test", "https://a.test"]});
        assert_eq!(field(recipe(bad)), "recipe.targets[1]");
        assert_eq!(field(recipe(json!({"targets": ["a.test"]}))), "recipe.targets");
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_name() {
        const NONE: Served = Served {
            repo: false,
            lfs: false,
            egress: false,
            approval: false,
            stdin_pipe: false,
            shared_service: false,
        };
        let approval =
            json!({"taskId": "t", "ordinal": 0, "commandSha256": "00", "approvedBy": "p", "approvedAt": 0});
        for (change, at) in [
            (json!({"recipe": {"version": "1", "repo": {"owner": "o", "name": "n"}}}), "recipe.repo"),
            (json!({"recipe": {"version": "1", "lfs": true}}), "recipe.lfs"),
            (json!({"recipe": {"version": "1", "profiles": ["js-install"]}}), "recipe.profiles"),
            (json!({"recipe": {"version": "1", "enforcement": "report"}}), "recipe.enforcement"),
            (json!({"lfs": true}), "lfs"),
            (json!({"approval": approval}), "approval"),
        ] {
            let input = serde_json::from_value(merged(change.clone())).unwrap();
            let error = NONE.exec(&input).unwrap_err();
            assert_eq!((error.field.as_str(), ALL.exec(&input)), (at, Ok(())));
            assert!(error.message.contains("not supported in this version"));
        }
        for (change, at) in [
            (json!({"stdin": "pipe"}), "stdin"),
            (json!({"workspaceMode": "shared_service"}), "workspaceMode"),
        ] {
            let input = serde_json::from_value(merged(change)).unwrap();
            assert_eq!((field(NONE.start(&input)).as_str(), ALL.start(&input)), (at, Ok(())));
        }
        let plain =
            json!({"recipe": {"version": "1", "lfs": false, "profiles": [], "enforcement": "enforce"}});
        assert_eq!(NONE.exec(&serde_json::from_value(merged(plain)).unwrap()), Ok(()));
    }

    #[test]
    fn the_small_inputs_have_their_limits_too() {
        assert!(validate_reason("before a deploy").is_ok());
        for bad in ["".to_owned(), "r".repeat(257), "a\nb".into()] {
            assert_eq!(field(validate_reason(&bad)), "reason");
        }
        assert!(validate_read_path("/workspace/a").is_ok());
        for bad in ["", "a", "/a\0", "/a/../b", &"/".repeat(MAX_READ_PATH_BYTES + 1)] {
            assert_eq!(field(validate_read_path(bad)), "path");
        }
        let input = |key: &str, bytes| DetachedInput {
            operation_key: key.into(),
            data: "d".repeat(bytes),
            eof: None,
        };
        assert!(validate_input(&input("1", MAX_INPUT_BYTES)).is_ok());
        assert_eq!(field(validate_input(&input("1", MAX_INPUT_BYTES + 1))), "data");
        assert_eq!(field(validate_input(&input("", 1))), "operationKey");
    }
}
