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

pub const SERVED: Served =
    Served { repo: true, lfs: true, egress: true, approval: true, stdin_pipe: true, shared_service: false };

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
/// name the same log; no other two do.
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

/// A `logPath` that was checked, as the supervisor takes it.
pub fn relative_log_path(path: &str) -> String {
    log_name(path).unwrap_or(path).to_owned()
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
            if input.recipe.repo.is_none() {
                return fault("lfs", "needs recipe.repo: large files are a repository's");
            }
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
        compose(recipe, lfs, None)?;
        self.needs(self.egress || profiles.is_empty(), "recipe.profiles")?;
        self.needs(self.egress || targets.is_empty(), "recipe.targets")?;
        let enforced = recipe.enforcement.unwrap_or_default() == Enforcement::Enforce;
        self.needs(self.egress || enforced, "recipe.enforcement")
    }

    fn needs(&self, met: bool, field: &str) -> Result<(), FieldError> {
        if met { Ok(()) } else { fault(field, "not supported in this version; leave it out") }
    }
}

pub fn validate_repo(repo: &Repo) -> Result<(), FieldError> {
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
mod tests;
