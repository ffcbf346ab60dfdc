//! The clone of a recipe's repository: the command that makes it, what tells one checkout from another, and what a
//! caller is told when it failed.
//!
//! Invariant: nothing of the recipe stands in the command's text; it travels in the environment. After the command
//! neither a remote nor a stored credential is left, and what is told of a failure carries none.

use ringfence_wire::contract::Repo;
use std::collections::BTreeMap;

/// How long a clone may take.
pub const CLONE_TIMEOUT_MS: u64 = 10 * 60 * 1000;
/// How much of git's output is kept to tell of a failure.
pub const CLONE_TAIL_BYTES: u64 = 8 * 1024;
const MAX_LINES: usize = 8;
const MAX_LINE_CHARS: usize = 200;
const HIDDEN: &str = "(hidden)";

/// Clones into the working directory. A reference is a branch, a tag or a commit; a commit that no branch or tag leads
/// to is fetched by its id. Commits that only other branches lead to are let go with the remote.
pub const COMMAND: &str = r#"set -e
exec 2>&1
if [ -n "$REPO_REF" ]; then bare=--no-checkout; else bare=; fi
if [ -n "$REPO_LFS" ]; then git lfs version >/dev/null || { echo "git-lfs is not in the image"; exit 1; }; fi
git clone -q $bare --template= --origin origin -- "$REPO_URL" .
if [ -n "$REPO_REF" ]; then
  git checkout -q "$REPO_REF" -- 2>/dev/null || {
    git fetch -q origin "$REPO_REF"
    git checkout -q --detach FETCH_HEAD --
  }
fi
if [ -n "$REPO_LFS" ]; then
  git lfs install --local --skip-smudge --skip-repo >/dev/null
  git lfs pull origin
fi
for remote in $(git remote); do git remote remove "$remote"; done
git config --local --remove-section credential 2>/dev/null || :
for section in $(git config --local --name-only --get-regexp '^lfs\.http' | sed 's/\.[^.]*$//' | sort -u); do
  git config --local --remove-section "$section" || :
done
rm -rf .git/FETCH_HEAD .git/logs .git/credentials
rm -rf "$HOME/.git-credentials" "$HOME/.netrc" "$HOME/.config/git/credentials" "$HOME/.cache/git/credential"
"#;

/// What the command is told. Nobody is asked for a password, no configuration of the image's takes part, and git
/// speaks https alone.
pub fn environment(repo: &Repo, lfs: bool) -> BTreeMap<String, String> {
    let Repo { owner, name, reference } = repo;
    [
        ("REPO_URL", format!("https://github.com/{owner}/{name}.git")),
        ("REPO_REF", reference.clone().unwrap_or_default()),
        ("REPO_LFS", if lfs { "1".to_owned() } else { String::new() }),
        ("GIT_ALLOW_PROTOCOL", "https".to_owned()),
        ("GIT_ASKPASS", "/bin/false".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_LFS_SKIP_SMUDGE", "1".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
        ("LC_ALL", "C".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Which checkout this is: two of one name hold the same.
pub fn name_of(repo: &Repo, lfs: bool) -> String {
    let Repo { owner, name, reference } = repo;
    let reference = reference.as_deref().map(|reference| format!("@{reference}")).unwrap_or_default();
    format!("{owner}/{name}{reference}{}", if lfs { "+lfs" } else { "" })
}

/// git's last lines, for the caller: bounded, printable, without credentials.
pub fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let skipped = lines.len().saturating_sub(MAX_LINES);
    let told: Vec<String> = lines.into_iter().skip(skipped).map(clean).collect();
    if told.is_empty() { "it said nothing".to_owned() } else { told.join(" | ") }
}

fn clean(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    // A header that was printed whole: its value may be one word or two.
    let line = match ["authorization:", "cookie:", "x-api-key:"].iter().find_map(|name| {
        let at = lower.find(name)?;
        line.get(..at + name.len())
    }) {
        Some(before) => format!("{before} {HIDDEN}"),
        None => line.split(' ').map(clean_word).collect::<Vec<_>>().join(" "),
    };
    line.chars().filter(|c| !c.is_control()).take(MAX_LINE_CHARS).collect()
}

fn clean_word(word: &str) -> String {
    const TOKENS: [&str; 8] = ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_"];
    if let Some(at) = TOKENS.iter().filter_map(|token| word.find(token)).min() {
        return format!("{}{HIDDEN}", word.get(..at).unwrap_or_default());
    }
    // `scheme://user:password@host/…`: all between the slashes and the last `@` before the path.
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{host}{path}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(reference: Option<&str>) -> Repo {
        Repo { owner: "o".into(), name: "n".into(), reference: reference.map(str::to_owned) }
    }

    #[test]
    fn nothing_of_the_recipe_stands_in_the_command() {
        let environment = environment(&repo(Some("v1;id`id`$(id)'\"")), true);
        assert_eq!(environment["REPO_REF"], "v1;id`id`$(id)'\"");
        assert_eq!(environment["REPO_URL"], "https://github.com/o/n.git");
        assert!(
            environment.keys().all(|name| !name.starts_with("RINGFENCE_")),
            "the supervisor refuses those"
        );
    }

    #[test]
    fn two_checkouts_of_one_name_hold_the_same() {
        let names = [
            name_of(&repo(None), false),
            name_of(&repo(None), true),
            name_of(&repo(Some("a")), false),
            name_of(&repo(Some("b")), false),
        ];
        assert_eq!(names, ["o/n", "o/n+lfs", "o/n@a", "o/n@b"]);
    }

    #[test]
    fn what_is_told_of_a_failure_carries_no_credential() {
        let told = last_lines(
            "Cloning\nfatal: unable to access 'https://user:hunter2@github.com/o/n.git/': 403\n\
             remote: token ghp_hunter2 is bad\n> Authorization: Basic aHVudGVyMg==\nsee https://a:b@c@d.test/x\n",
        );
        assert!(!told.contains("hunter2") && !told.contains("aHVudGVy") && !told.contains("a:b@c"), "{told}");
        assert!(told.contains("'https://github.com/o/n.git/': 403"), "{told}");
        assert!(told.contains("https://d.test/x"), "{told}");
    }

    #[test]
    fn only_the_last_lines_are_told_and_each_is_bounded() {
        let many: String = (0..20).map(|n| format!("line {n}\n")).collect();
        let told = last_lines(&many);
        assert!(told.starts_with("line 12 | ") && told.ends_with("line 19"), "{told}");
        assert_eq!(last_lines(&"é".repeat(1_000)).chars().count(), MAX_LINE_CHARS);
        assert_eq!(last_lines("\n \n"), "it said nothing");
        assert_eq!(last_lines("a\x1b[31mb"), "a[31mb");
    }
}
