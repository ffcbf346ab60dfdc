//! Real clients inside a fence, against stand-ins that speak the real protocols: what a profile is for works, and a
//! write to the very same hosts does not leave. A client that this machine lacks fails its test by name.

use crate::world::{World, tests};
use ringfence_e2e::facade::{Sandbox, approval_of, done, exec_input, fresh_key, fresh_word};
use ringfence_e2e::mirror::{Mirror, PACKAGE, PACKAGE_TEXT, README};
use ringfence_wire::contract::ExecDone;
use serde_json::{Value, json};
use std::sync::Arc;

tests! {
    mirrored:
        curl_reads_what_a_profile_grants_and_writes_nothing_there,
        git_clones_and_fetches_the_recipes_repository_and_pushes_nothing,
        git_reads_no_other_repository_than_the_recipes,
        git_reads_any_public_repository_under_its_profile_and_pushes_nothing,
        npm_installs_a_package_and_publishes_none,
        cargo_fetches_a_crate_and_publishes_none,
        pip_installs_a_package_and_python_requests_posts_nowhere;
}

/// Runs a command under a recipe, with a person's word for it: some of what is tried here is on the approval floor, and
/// the fence is to refuse it all the same.
async fn run(sandbox: &Sandbox, recipe: &Value, command: &str) -> ExecDone {
    let mut input = exec_input(&fresh_key(), command);
    for (name, value) in recipe.as_object().expect("a recipe's fields") {
        input["recipe"][name] = value.clone();
    }
    input["approval"] = approval_of(command);
    input["tailBytes"] = json!(16_384);
    done(sandbox.exec_input(input).await)
}

/// That it ended well, and what it said.
#[track_caller]
fn said(exec: &ExecDone) -> &str {
    assert_eq!(exec.receipt.exit_code, Some(0), "{}", exec.receipt.tail);
    &exec.receipt.tail
}

/// That the client is there: a test that cannot run is no test that passed.
async fn needs(sandbox: &Sandbox, client: &str) {
    let look = format!("{PATH}command -v {client}");
    let exec = done(sandbox.exec(&look).await);
    assert_eq!(exec.receipt.exit_code, Some(0), "{client} is not in the sandbox: install it on this machine");
}

/// Where cargo is, beside what every sandbox has.
const PATH: &str = "export PATH=$PATH:/toolchain/bin; ";

async fn refusals(sandbox: &Sandbox, host: &str) -> Vec<String> {
    let denials = sandbox.denials().await.into_iter().filter(|denial| denial.host == host);
    denials.map(|denial| format!("{} {} {}", denial.method, denial.path, denial.reason)).collect()
}

async fn curl_reads_what_a_profile_grants_and_writes_nothing_there(world: Arc<World>) {
    let (mirror, sandbox, word) = (Mirror::of_this_process(), world.sandbox().await, fresh_word());
    needs(&sandbox, "curl").await;
    let recipe = json!({ "profiles": ["js-install"] });
    let at = "https://registry.npmjs.org";
    let exec = run(
        &sandbox,
        &recipe,
        &format!(
            "curl -sS {at}/{PACKAGE}; echo; curl -sS -w ' %{{http_code}}\\n' -X PUT -d x {at}/{word}; \
             curl -sS -w ' %{{http_code}}\\n' -T /etc/passwd {at}/{word}"
        ),
    )
    .await;
    let lines: Vec<&str> = said(&exec).lines().collect();
    assert!(lines[0].contains("\"dist-tags\""), "{lines:?}");
    assert_eq!(lines[1..], ["denied 403", "denied 403"]);
    assert_eq!(mirror.arrived("registry.npmjs.org", &word).len(), 0);
    assert_eq!(refusals(&sandbox, "registry.npmjs.org").await, [format!("PUT /{word} method")]);
}

async fn git_clones_and_fetches_the_recipes_repository_and_pushes_nothing(world: Arc<World>) {
    let (mirror, sandbox, branch) = (Mirror::of_this_process(), world.sandbox().await, fresh_word());
    needs(&sandbox, "git").await;
    let recipe = json!({ "repo": { "owner": "acme", "name": "widget" } });
    let exec = run(
        &sandbox,
        &recipe,
        &format!(
            "set -e; cd /tmp; git clone -q https://github.com/acme/widget.git w; cat w/README; cd w\n\
             git fetch -q https://github.com/acme/widget side; git -c user.name=a -c user.email=b commit -q --allow-empty -m x\n\
             if git push -q origin HEAD:refs/heads/{branch} 2>push; then echo pushed; else cat push; fi\n\
             curl -sS -w ' %{{http_code}}\\n' -X POST -d 0000 https://github.com/acme/widget.git/git-receive-pack"
        ),
    )
    .await;
    let lines: Vec<&str> = said(&exec).lines().collect();
    assert_eq!(lines[0], README.trim_end());
    assert!(lines.iter().any(|line| line.contains("returned error: 403")), "the push is refused: {lines:?}");
    assert_eq!(lines.last().copied(), Some("denied 403"));
    assert!(!mirror.repository("acme/widget.git").join("refs/heads").join(&branch).exists());
    assert_eq!(mirror.arrived("github.com", "receive-pack").len(), 0, "not even its discovery left");
    let refused = refusals(&sandbox, "github.com").await;
    for wanted in ["GET /acme/widget.git/info/refs query", "POST /acme/widget.git/git-receive-pack sink"] {
        assert!(refused.iter().any(|refusal| refusal == wanted), "{wanted}: {refused:?}");
    }
    let posted = mirror.met("github.com", "/acme/widget.git/git-upload-pack").await;
    assert_eq!(posted.header("git-protocol"), Some("version=2"), "git's own header went along");
}

async fn git_reads_no_other_repository_than_the_recipes(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    let recipe = json!({ "repo": { "owner": "acme", "name": "widget" } });
    let command = "for at in acme/untold acme/widget.git/../untold Acme/widget-2; do \
                   git ls-remote https://github.com/$at.git HEAD >/dev/null 2>&1 && echo \"read $at\"; done; true";
    let exec = run(&sandbox, &recipe, command).await;
    assert_eq!(said(&exec), "");
    assert_eq!(mirror.arrived("github.com", "untold").len(), 0);
    assert_eq!(mirror.arrived("github.com", "widget-2").len(), 0);
}

async fn git_reads_any_public_repository_under_its_profile_and_pushes_nothing(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    let recipe = json!({ "profiles": ["public-repo-read"] });
    let command = "cd /tmp; git clone -q --depth 1 https://github.com/acme/other o && cat o/README; \
                   cd o && git push -q origin HEAD:refs/heads/x 2>/dev/null && echo pushed; true";
    let exec = run(&sandbox, &recipe, command).await;
    assert_eq!(said(&exec), "another's\n");
    assert!(!mirror.repository("acme/other.git").join("refs/heads/x").exists());
}

async fn npm_installs_a_package_and_publishes_none(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    needs(&sandbox, "npm").await;
    let recipe = json!({ "profiles": ["js-install"] });
    let mine = format!("mine-{}", fresh_word());
    let command = format!(
        "set -e; mkdir /tmp/n; cd /tmp/n; printf '{{\"name\":\"{mine}\",\"version\":\"1.0.0\"}}' > package.json\n\
         npm install --no-fund --no-update-notifier --loglevel=error {PACKAGE} >log 2>&1 || {{ cat log; exit 1; }}\n\
         node -e \"console.log(require('{PACKAGE}'))\"\n\
         npm config set //registry.npmjs.org/:_authToken=of-the-container\n\
         if npm publish --loglevel=error >log 2>&1; then echo published; else grep -o 403 log | head -n 1; fi"
    );
    let exec = run(&sandbox, &recipe, &command).await;
    assert_eq!(said(&exec), format!("{PACKAGE_TEXT}\n403\n"));
    // It asks first which versions there are; that is a read.
    let written = mirror.arrived("registry.npmjs.org", &mine).into_iter().filter(|one| one.method != "GET");
    assert_eq!(written.count(), 0, "no write of it left");
    let archive = mirror.met("registry.npmjs.org", ".tgz").await;
    assert_eq!(archive.header("authorization"), None);
}

async fn cargo_fetches_a_crate_and_publishes_none(world: Arc<World>) {
    let (mirror, sandbox) = (Mirror::of_this_process(), world.sandbox().await);
    needs(&sandbox, "cargo").await;
    let recipe = json!({ "profiles": ["rust-install"] });
    let mine = format!("mine-{}", fresh_word());
    let command = format!(
        "set -e; {PATH}export CARGO_HOME=/tmp/cargo; mkdir -p /tmp/c/src; cd /tmp/c\n\
         printf '[package]\\nname = \"{mine}\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\nlicense = \"MIT\"\\ndescription = \"x\"\\n[dependencies]\\n{PACKAGE} = \"1\"\\n' > Cargo.toml\n\
         echo > src/lib.rs; cargo fetch >log 2>&1 || {{ cat log; exit 1; }}\n\
         grep -ho '{PACKAGE_TEXT}' $CARGO_HOME/registry/src/*/{PACKAGE}-1.0.0/src/lib.rs\n\
         if cargo publish --no-verify --allow-dirty --token of-the-container >log 2>&1; then echo published; else grep -o 403 log | head -n 1; fi"
    );
    let exec = run(&sandbox, &recipe, &command).await;
    assert_eq!(said(&exec), format!("{PACKAGE_TEXT}\n403\n"));
    assert_eq!(mirror.arrived("crates.io", "new").len(), 0);
    let refused = refusals(&sandbox, "crates.io").await;
    assert!(refused.iter().any(|refusal| refusal == "PUT /api/v1/crates/new sink"), "{refused:?}");
}

async fn pip_installs_a_package_and_python_requests_posts_nowhere(world: Arc<World>) {
    let (mirror, sandbox, word) = (Mirror::of_this_process(), world.sandbox().await, fresh_word());
    needs(&sandbox, "python3").await;
    // No profile is Python's own: its registry is read like any pages.
    let recipe = json!({ "profiles": ["browser-fetch"], "targets": ["pypi.org", "files.pythonhosted.org"] });
    let command = format!(
        "python3 -m pip --version >/dev/null || {{ echo 'pip is not in the sandbox: install python3-pip'; exit 1; }}\n\
         python3 -m pip install -q --no-cache-dir --disable-pip-version-check --target /tmp/p {PACKAGE} || exit 1\n\
         PYTHONPATH=/tmp/p python3 - <<'END'\n\
         import {PACKAGE}\n\
         try:\n    import requests\nexcept ImportError:\n    from pip._vendor import requests  # the same library, as pip brings it\n\
         print({PACKAGE}.TEXT)\n\
         print(requests.get('https://pypi.org/simple/{PACKAGE}/').status_code)\n\
         for at in ('https://pypi.org/legacy/', 'https://upload.pypi.org/legacy/', 'https://files.pythonhosted.org/{word}'):\n    \
             answer = requests.post(at, data={{'x': '{word}'}})\n    print(answer.status_code, answer.text)\n\
         END"
    );
    let exec = run(&sandbox, &recipe, &command).await;
    let expected = format!("{PACKAGE_TEXT}\n200\n403 denied\n403 denied\n403 denied\n");
    assert_eq!(said(&exec), expected);
    assert_eq!(mirror.arrived("pypi.org", "legacy").len() + mirror.arrived("upload.pypi.org", "").len(), 0);
    assert_eq!(mirror.arrived("files.pythonhosted.org", &word).len(), 0);
}
