//! The floor's rules: which program with which verbs never runs without an attestation.
//!
//! Rules can be added by configuration ([`ExtraRules`]), never removed.

use super::shell::{Budget, TooTangled};

/// A command on the floor for what it is given, not for what it says: a shell or an interpreter that reads its
/// program from a pipe.
pub const INTERACTIVE_SHELL: &str = "interactive-shell";
/// A command that is too tangled to be read. Fails closed.
pub const TOO_TANGLED: &str = "too-tangled";

pub const MAX_EXTRA_RULES: usize = 64;
pub const MAX_EXTRA_RULE_BYTES: usize = 128;

struct Rule {
    name: &'static str,
    programs: &'static [&'static str],
    /// Each entry is one sequence of verbs; `*` stands for any one word.
    verbs: &'static [&'static [&'static str]],
}

const RULES: &[Rule] = &[
    Rule {
        name: "git push",
        programs: &["git"],
        verbs: &[&["push"], &["send-pack"], &["lfs", "push"], &["subtree", "push"]],
    },
    Rule {
        name: "wrangler deploy",
        programs: &["wrangler"],
        verbs: &[
            &["deploy"],
            &["publish"],
            &["pages", "deploy"],
            &["pages", "publish"],
            &["versions", "deploy"],
        ],
    },
    Rule { name: "wrangler secret", programs: &["wrangler"], verbs: &[&["secret"], &["*", "secret"]] },
    Rule { name: "wrangler d1", programs: &["wrangler"], verbs: &[&["d1"]] },
    Rule { name: "wrangler delete", programs: &["wrangler"], verbs: &[&["delete"]] },
    Rule { name: "terraform apply", programs: &["terraform", "tofu", "terragrunt"], verbs: &[&["apply"]] },
    Rule {
        name: "terraform destroy",
        programs: &["terraform", "tofu", "terragrunt"],
        verbs: &[&["destroy"]],
    },
    Rule { name: "kubectl apply", programs: &["kubectl"], verbs: &[&["apply"]] },
    Rule { name: "kubectl delete", programs: &["kubectl"], verbs: &[&["delete"]] },
    Rule {
        name: "publish",
        programs: &[
            "npm",
            "pnpm",
            "yarn",
            "bun",
            "lerna",
            "changeset",
            "cargo",
            "deno",
            "jsr",
            "vsce",
            "ovsx",
            "uv",
            "poetry",
            "hatch",
            "flit",
        ],
        verbs: &[
            &["publish"],
            &["npm", "publish"],
            &["workspace", "*", "publish"],
            &["workspace", "*", "npm", "publish"],
        ],
    },
    Rule { name: "publish", programs: &["twine"], verbs: &[&["upload"]] },
    Rule { name: "publish", programs: &["gem"], verbs: &[&["push"]] },
    Rule { name: "gh release", programs: &["gh"], verbs: &[&["release"]] },
];

/// The built-in rules' names, for documentation and for a listing.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    let mut seen = std::collections::BTreeSet::new();
    RULES.iter().map(|rule| rule.name).filter(move |name| seen.insert(*name))
}

/// More rules, from configuration. Each is a program and the verbs after it: `"helm upgrade"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraRules(Vec<Vec<String>>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtraRulesFault {
    #[error("FLOOR_RULES is not a JSON array of strings like [\"helm upgrade\"]")]
    NotAnArray,
    #[error("FLOOR_RULES holds more than {MAX_EXTRA_RULES} rules")]
    TooMany,
    #[error(
        "FLOOR_RULES[{index}] is not a rule: 1 to {MAX_EXTRA_RULE_BYTES} bytes, a program and its verbs, without quotes or options"
    )]
    NotARule { index: usize },
}

impl ExtraRules {
    /// From the configured JSON array; absent is no extra rule.
    pub fn parse(json: Option<&str>) -> Result<Self, ExtraRulesFault> {
        let Some(json) = json else { return Ok(Self::default()) };
        let texts: Vec<String> = serde_json::from_str(json).map_err(|_| ExtraRulesFault::NotAnArray)?;
        if texts.len() > MAX_EXTRA_RULES {
            return Err(ExtraRulesFault::TooMany);
        }
        let rule = |(index, text): (usize, &String)| {
            let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
            let good = |word: &String| {
                !word.starts_with('-')
                    && word.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\' | b'/'))
            };
            if words.is_empty() || text.len() > MAX_EXTRA_RULE_BYTES || !words.iter().all(good) {
                return Err(ExtraRulesFault::NotARule { index });
            }
            Ok(words)
        };
        texts.iter().enumerate().map(rule).collect::<Result<_, _>>().map(Self)
    }
}

/// The rule that a program with these words after it crosses.
pub fn crossed(
    program: &str,
    words: &[String],
    extra: &ExtraRules,
    budget: &mut Budget,
) -> Result<Option<String>, TooTangled> {
    for rule in RULES.iter().filter(|rule| rule.programs.contains(&program)) {
        for verbs in rule.verbs {
            if follows(words, verbs, budget)? {
                return Ok(Some(rule.name.to_owned()));
            }
        }
    }
    for rule in &extra.0 {
        let Some((first, verbs)) = rule.split_first() else { continue };
        let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
        if first == program && follows(words, &verbs, budget)? {
            return Ok(Some(rule.join(" ")));
        }
    }
    Ok(None)
}

/// Do the verbs come next, with nothing but options and their values between? A word after an option may be the
/// option's value or the verb: both readings are tried, since the wrong answer the other way costs more.
fn follows(words: &[String], verbs: &[&str], budget: &mut Budget) -> Result<bool, TooTangled> {
    // The lengths of prefixes of `verbs` that some reading of the words so far has matched, as bits.
    let mut matched: u32 = 1;
    let mut after_option = false;
    let done = 1u32 << verbs.len().min(31);
    for word in words {
        budget.spend(1)?;
        if matched & done != 0 {
            break;
        }
        if is_option(word) {
            after_option = takes_value(word);
            continue;
        }
        let mut next = if after_option { matched } else { 0 };
        for (at, verb) in verbs.iter().enumerate() {
            if matched & (1 << at) != 0 && (*verb == "*" || verb == word) {
                next |= 1 << (at + 1);
            }
        }
        (matched, after_option) = (next, false);
        if matched == 0 {
            return Ok(false);
        }
    }
    Ok(matched & done != 0)
}

/// `-x`, `--xy`, and cargo's `+nightly`.
pub fn is_option(word: &str) -> bool {
    word.starts_with('-') || word.starts_with('+')
}

/// Options that take no value in any program we know. For every other one the next word may be its value.
const FLAGS: &[&str] =
    &["--", "--no-pager", "--paginate", "--bare", "--no-replace-objects", "--yes", "--foreground"];

/// Could the next word be this option's value?
pub fn takes_value(option: &str) -> bool {
    option.starts_with('-') && !option.contains('=') && !FLAGS.contains(&option)
}
