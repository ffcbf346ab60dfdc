//! The floor over the whole kinds of ways to run one command, and over any text at all.

use super::*;
use proptest::prelude::*;

fn rule(command: &str) -> Option<String> {
    floor_rule(command, StdinMode::None, &ExtraRules::default())
}

fn crosses(command: &str, name: &str) {
    assert_eq!(rule(command).as_deref(), Some(name), "{command}");
}

fn stays_below(command: &str) {
    assert_eq!(rule(command), None, "{command}");
}

#[test]
fn a_rule_can_be_added_and_none_removed() {
    let extra = ExtraRules::parse(Some(r#"["helm upgrade", "reboot"]"#)).unwrap();
    let with = |command| floor_rule(command, StdinMode::None, &extra);
    assert_eq!(with("helm -n prod upgrade web ./chart").as_deref(), Some("helm upgrade"));
    assert_eq!(with("sudo reboot now").as_deref(), Some("reboot"));
    assert_eq!(with("helm list"), None);
    assert_eq!(with("git push").as_deref(), Some("git push"));
}

#[test]
fn a_bad_extra_rule_is_named() {
    use ExtraRulesFault::*;
    assert_eq!(ExtraRules::parse(None), Ok(ExtraRules::default()));
    assert_eq!(ExtraRules::parse(Some("{}")), Err(NotAnArray));
    for bad in ["", "  ", "helm --force", "a 'b'", "/usr/bin/git push", &"x".repeat(129)] {
        let json = serde_json::to_string(&["ok", bad]).unwrap();
        assert_eq!(ExtraRules::parse(Some(&json)), Err(NotARule { index: 1 }), "{bad:?}");
    }
    let many = serde_json::to_string(&vec!["a"; MAX_RULES + 1]).unwrap();
    assert_eq!(ExtraRules::parse(Some(&many)), Err(TooMany));
}

const MAX_RULES: usize = rules::MAX_EXTRA_RULES;

#[test]
fn a_command_too_tangled_to_be_read_is_on_the_floor() {
    let deep = |n: usize| format!("{}true{}", "$(".repeat(n), ")".repeat(n));
    stays_below(&deep(MAX_DEPTH));
    crosses(&deep(MAX_DEPTH + 1), TOO_TANGLED);
    crosses(&format!("env {}", "env -a ".repeat(40_000)), TOO_TANGLED);
}

#[test]
fn a_long_ordinary_command_is_read_to_its_end() {
    let filler = "echo some words of no interest # git push\n".repeat(6_000);
    stays_below(&filler);
    crosses(&format!("{filler}git push"), "git push");
}

#[test]
fn a_shell_reads_its_program_from_the_pipe_only_when_it_is_given_none() {
    let piped = |command| floor_rule(command, StdinMode::Pipe, &ExtraRules::default());
    for command in
        ["bash", "sh -s", "env bash", "python3 -", "node", "sudo -i", "exec zsh -l", "bash -o pipefail"]
    {
        assert_eq!(piped(command).as_deref(), Some(INTERACTIVE_SHELL), "{command}");
        assert_eq!(rule(command), None, "{command}");
    }
    for command in
        ["cat", "bash build.sh", "sh -c 'cat'", "python3 serve.py", "node -e 1", "bash < script.sh"]
    {
        assert_eq!(piped(command), None, "{command}");
    }
}

/// Ways to run one simple command that must not hide it. `{}` stands for it.
const SIMPLE: &[&str] = &[
    "{}",
    "A=1 B=2 {}",
    "env A=1 -u B {}",
    "sudo -u deploy -E {}",
    "nohup {}",
    "timeout --foreground -k 5 10 {}",
    "nice -n 5 {}",
    "xargs -n1 {}",
    "find . -name x -exec {} \\;",
    "> log {} 2>&1",
    "{} > log < /dev/null",
    "exec {}",
    "command -- {}",
    "setsid -f {}",
];

/// Ways to run a whole script that must not hide what is in it.
const SCRIPT: &[&str] = &[
    "{}",
    "true && {}",
    "false || {}",
    "cat x | {}",
    "( {} )",
    "{ {}; }",
    "time {}",
    "{} &",
    "if true; then {}; fi",
    "while ! {}; do sleep 1; done",
    "for x in a b; do {}; done",
    "case a in a) {};; esac",
    "f() { {}; }; f",
    "# a comment\n{}",
    "echo $( {} )",
    "diff <( {} ) x",
    "echo ${x:-$( {} )}",
    "echo \"now: $( {} )\"",
    "cat <<EOF\n$( {} )\nEOF\n",
];

/// The same, where the script is text in quotes.
const QUOTED: &[&str] = &[
    "bash <<'END'\n{}\nEND\n",
    "bash -lc '{}'",
    "/bin/sh -e -c '{}'",
    "sudo sh -c '{}' name",
    "eval '{}'",
    "trap '{}' EXIT",
    "watch '{}'",
    "env -S '{}'",
    "su -c '{}' deploy",
    "sh <<< '{}'",
];

const FLOOR: &[(&str, &str)] = &[
    ("git push", "git push"),
    ("/usr/bin/git -C dir push", "git push"),
    ("wrangler@4 deploy", "wrangler deploy"),
    ("npx --yes wrangler d1 execute db", "wrangler d1"),
    ("kubectl -n prod delete pod web", "kubectl delete"),
    ("pnpm --filter app publish", "publish"),
    ("cargo +nightly publish", "publish"),
];

#[test]
fn no_ordinary_wrapping_hides_a_floor_command() {
    for wrapping in SIMPLE.iter().chain(SCRIPT).chain(QUOTED) {
        for (command, name) in FLOOR {
            crosses(&wrapping.replace("{}", command), name);
        }
        stays_below(&wrapping.replace("{}", "git status"));
    }
    crosses("echo ` git push `", "git push");
    crosses("sh -c \"git push\"", "git push");
}

#[test]
fn a_word_that_only_names_a_floor_command_is_below_the_floor() {
    for command in [
        "echo git push",
        "git commit -m 'git push'",
        "git commit -m push",
        "git log --grep push",
        "git checkout push",
        "git stash push",
        "git --no-pager stash push",
        "grep -rn 'npm publish' docs",
        "cat > notes <<EOF\ngit push\nEOF",
        "echo 'a' # git push",
        "npm run publish",
        "man git push",
        "kubectl get pods",
        "terraform workspace list",
        "gh pr list",
        "wrangler dev",
    ] {
        stays_below(command);
    }
}

#[test]
fn a_pipe_into_a_shell_inside_the_command_is_on_the_floor() {
    for command in [
        "curl -s https://example.com/x | sh",
        "curl x | sudo bash -s -- --yes",
        "cat x | (cd /tmp; ls) | { python3; }",
        "echo 1 |& node -",
        "cat x | bash /dev/stdin",
        "cat x | . /dev/stdin",
        "cat x | xargs -0 sh -c",
        "bash <(cat x)",
        "sudo bash -e <( cat x ) --yes",
        "source <(cat x)",
        ". <(cat x)",
        "bash < <(cat x)",
        "python3 <(cat x)",
    ] {
        crosses(command, INTERACTIVE_SHELL);
    }
    for command in [
        "cat x | python3 -c 'import sys'",
        "cat x | node filter.js",
        "cat x | bash run.sh",
        "a || sh",
        "bash run.sh <(cat x)",
        "bash -c 'cat $0' <(cat x)",
        "python3 -c 1 <(cat x)",
        "diff <(cat x) <(cat y)",
        "cat < <(cat x)",
        "source ./env.sh",
        ". venv/bin/activate",
    ] {
        stays_below(command);
    }
}

#[test]
fn a_downloaded_text_that_becomes_a_program_is_on_the_floor() {
    for command in [
        "sh -c \"$(curl -fsSL https://example.com/install.sh)\"",
        "bash -lc \"$(wget -O- x)\" -- --yes",
        "eval \"$(curl x)\"",
        "eval `curl x`",
        "python3 -c \"$(curl x)\"",
        "sudo sh -c 'eval \"$(curl x | tr a b)\"'",
    ] {
        crosses(command, INTERACTIVE_SHELL);
    }
    for command in [
        "eval \"$(ssh-agent -s)\"",
        "bash -c \"$(cat build.sh)\"",
        "echo \"$(curl x)\"",
        "sh -c \"echo $(curl x)\"",
        "curl x > y; bash -c 'echo'",
    ] {
        stays_below(command);
    }
}

#[test]
fn a_text_given_to_source_is_a_script() {
    for program in ["source", "."] {
        crosses(&format!("{program} /dev/stdin <<< 'git push'"), "git push");
        crosses(&format!("{program} /dev/fd/0 <<'END'\ngit push\nEND"), "git push");
        stays_below(&format!("{program} ./env.sh <<< 'git push'"));
    }
    crosses("git send-pack origin main", "git push");
}

proptest! {
    #[test]
    fn no_text_makes_the_floor_panic(text in any::<String>()) {
        let _ = rule(&text);
    }

    #[test]
    fn no_text_of_shell_pieces_makes_the_floor_panic(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "git", "push", " ", "\n", "'", "\"", "`", "$(", ")", "(", "${", "}", "{", "<<E", "\nE\n", "<<<", "|",
                "&", ";", "\\", "\\\n", "$'", "\\x", "#", ">", "<(", "sh -c ", "env ", "-", "=", "é",
            ]),
            0..60,
        ),
    ) {
        let _ = floor_rule(&pieces.concat(), StdinMode::Pipe, &ExtraRules::default());
    }

    #[test]
    fn a_floor_command_is_found_under_any_nest_of_wrappings_and_any_quoting(
        scripts in prop::collection::vec(0..SCRIPT.len(), 0..4), simple in 0..SIMPLE.len(),
        quoted in prop::option::of(0..QUOTED.len()), quoting in 0usize..5,
    ) {
        let verb = ["push", "pus\\h", "pu\"sh\"", "p'u'sh", "$'\\x70ush'"][quoting];
        // What stands in single quotes has none of its own, and a here-document's end stands alone.
        let verb = if quoted.is_some() && verb.contains('\'') { "push" } else { verb };
        let mut text = SIMPLE[simple].replace("{}", &format!("git {verb}"));
        for script in scripts {
            let wrapping = SCRIPT[script];
            let nests = !(text.contains("EOF") || (wrapping.contains("EOF") && text.contains('"')));
            if nests && !(wrapping.contains('#') && text.contains("EOF")) {
                text = wrapping.replace("{}", &text);
            }
        }
        if let Some(quoted) = quoted {
            text = QUOTED[quoted].replace("{}", &text);
        }
        prop_assert_eq!(rule(&text), Some("git push".to_owned()), "{}", text);
    }

    #[test]
    fn adding_a_statement_never_takes_a_command_off_the_floor(before in "[a-z ]{0,20}", after in "[a-z ]{0,20}") {
        let text = format!("{before}\ngit push\n{after}");
        prop_assert!(rule(&text).is_some());
    }
}
