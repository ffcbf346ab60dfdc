//! Every limit at its edge, every field by its name.

use super::*;
use serde_json::{Value, json};

const ALL: Served =
    Served { repo: true, lfs: true, egress: true, approval: true, stdin_pipe: true, shared_service: true };

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
    assert_eq!(field(recipe(json!({"profiles": vec!["js-install"; MAX_PROFILES + 1]}))), "recipe.profiles");
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
fn a_log_keeps_every_letter_of_its_path() {
    let longest = "l/".repeat(MAX_LOG_PATH_BYTES / 2 - 1) + "ll";
    for path in ["run.log", ".hidden/a b", "\u{e9}t\u{e9}.log", "a_b", "a/b", &longest] {
        assert_eq!(log_name(path), Ok(path));
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
    let ten: Value = (0..10).map(|n| (format!("l{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
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
    for good in ["main", "v1.2.3", "feature/a-b", "refs/heads/x", "0123456789abcdef0123456789abcdef01234567"]
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
        (json!({"recipe": {"version": "1", "profiles": ["js-install"]}}), "recipe.profiles"),
        (json!({"recipe": {"version": "1", "enforcement": "report"}}), "recipe.enforcement"),
        (json!({"approval": approval}), "approval"),
    ] {
        let input = serde_json::from_value(merged(change.clone())).unwrap();
        let error = NONE.exec(&input).unwrap_err();
        assert_eq!((error.field.as_str(), ALL.exec(&input)), (at, Ok(())));
        assert!(error.message.contains("not supported in this version"));
    }
    let without_lfs = Served { lfs: false, ..ALL };
    let repo = json!({"owner": "o", "name": "n"});
    for (change, at) in [
        (json!({"recipe": {"version": "1", "repo": repo, "lfs": true}}), "recipe.lfs"),
        (json!({"recipe": {"version": "1", "repo": repo}, "lfs": true}), "lfs"),
    ] {
        let input = serde_json::from_value(merged(change)).unwrap();
        assert_eq!((field(without_lfs.exec(&input)).as_str(), ALL.exec(&input)), (at, Ok(())));
    }
    for (change, at) in
        [(json!({"stdin": "pipe"}), "stdin"), (json!({"workspaceMode": "shared_service"}), "workspaceMode")]
    {
        let input = serde_json::from_value(merged(change)).unwrap();
        assert_eq!((field(NONE.start(&input)).as_str(), ALL.start(&input)), (at, Ok(())));
    }
    let plain = json!({"recipe": {"version": "1", "lfs": false, "profiles": [], "enforcement": "enforce"}});
    assert_eq!(NONE.exec(&serde_json::from_value(merged(plain)).unwrap()), Ok(()));
}

#[test]
fn large_files_without_a_repository_are_nobodys() {
    for (change, at) in
        [(json!({"recipe": {"version": "1", "lfs": true}}), "recipe.lfs"), (json!({"lfs": true}), "lfs")]
    {
        assert_eq!(field(ALL.exec(&serde_json::from_value(merged(change)).unwrap())), at);
    }
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
    let input =
        |key: &str, bytes| DetachedInput { operation_key: key.into(), data: "d".repeat(bytes), eof: None };
    assert!(validate_input(&input("1", MAX_INPUT_BYTES)).is_ok());
    assert_eq!(field(validate_input(&input("1", MAX_INPUT_BYTES + 1))), "data");
    assert_eq!(field(validate_input(&input("", 1))), "operationKey");
}
