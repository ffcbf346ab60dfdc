//! What one simple command really runs: the program behind `sudo`, `env`, `xargs`, `npx` and their like, and the
//! scripts it carries as text (`sh -c '…'`, `eval`, a here-document into a shell).

use super::rules::{is_option, takes_value};
use super::shell::{Budget, RESERVED, Simple, Stdin, TooTangled};

/// Programs that run the command in their words, and how many words of their own may come before it.
const WRAPPERS: &[(&str, &[usize])] = &[
    ("sudo", &[0]),
    ("doas", &[0]),
    ("env", &[0]),
    ("xargs", &[0]),
    ("parallel", &[0]),
    ("command", &[0]),
    ("builtin", &[0]),
    ("exec", &[0]),
    ("nohup", &[0]),
    ("time", &[0]),
    ("nice", &[0]),
    ("ionice", &[0]),
    ("setsid", &[0]),
    ("stdbuf", &[0]),
    ("unbuffer", &[0]),
    ("setpriv", &[0]),
    ("unshare", &[0]),
    ("nsenter", &[0]),
    ("strace", &[0]),
    ("fakeroot", &[0]),
    ("proot", &[0]),
    ("xvfb-run", &[0]),
    ("dbus-run-session", &[0]),
    ("systemd-run", &[0]),
    ("watch", &[0]),
    ("runuser", &[0]),
    ("busybox", &[0]),
    ("toybox", &[0]),
    ("timeout", &[1]),
    ("gtimeout", &[1]),
    ("chroot", &[1]),
    ("flock", &[1]),
    ("taskset", &[1]),
    ("chrt", &[1]),
    ("npx", &[0]),
    ("bunx", &[0]),
    ("pnpx", &[0]),
    ("uvx", &[0]),
    ("corepack", &[0]),
    ("cross-env", &[0]),
    ("dotenv", &[0]),
    ("npm", &[1]),
    ("pnpm", &[0, 1]),
    ("yarn", &[0, 1]),
    ("bun", &[0, 1]),
    ("uv", &[1]),
    ("poetry", &[1]),
    ("pipx", &[1]),
    ("bundle", &[1]),
    ("doppler", &[1]),
    ("op", &[1]),
    ("mise", &[1]),
    ("asdf", &[1]),
    ("direnv", &[2]),
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"];

/// Without a script these read a program from standard input.
const INTERPRETERS: &[&str] = &[
    "python",
    "python2",
    "python3",
    "pypy3",
    "node",
    "nodejs",
    "deno",
    "bun",
    "ruby",
    "irb",
    "perl",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "Rscript",
    "R",
    "julia",
    "ghci",
    "guile",
    "osascript",
    "pwsh",
];

/// Options after which an interpreter has its program.
const PROGRAM_OPTIONS: &[&str] =
    &["-c", "-e", "-E", "-m", "-r", "-p", "-pe", "-ne", "--eval", "--print", "--command", "-Command"];

/// What a simple command comes to.
#[derive(Debug, Default)]
pub struct Reach {
    /// (program, index of the first word after it), for every reading of the words.
    pub programs: Vec<(String, usize)>,
    pub scripts: Vec<String>,
    /// A shell or an interpreter whose program would come from standard input.
    pub reads_program: bool,
}

pub fn reach(command: &Simple, budget: &mut Budget) -> Result<Reach, TooTangled> {
    let words = &command.words;
    let mut reach = Reach::default();
    let mut seen = vec![false; words.len()];
    let mut next = vec![first_program(words)];
    while let Some(at) = next.pop() {
        let (Some(word), Some(visited)) = (words.get(at), seen.get_mut(at)) else { continue };
        if std::mem::replace(visited, true) {
            continue;
        }
        let program = program_name(word);
        let rest = words.get(at + 1..).unwrap_or_default();
        budget.spend(1 + rest.len())?;
        reach.scripts.extend(scripts(program, rest, command));
        reach.reads_program |= reads_program(program, rest);
        let wrapped = WRAPPERS.iter().find(|(name, _)| *name == program).map(|(_, own)| *own);
        // An interpreter's script may be a program we know: `node node_modules/.bin/wrangler deploy`.
        let wrapped = wrapped.or(INTERPRETERS.contains(&program).then_some(&[0]));
        if let Some(own) = wrapped {
            next.extend(candidates(rest, own).into_iter().map(|offset| at + 1 + offset));
        }
        if program == "find" || program == "fd" {
            let runs = |word: &String| {
                matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X")
            };
            next.extend(rest.iter().enumerate().filter(|(_, word)| runs(word)).map(|(n, _)| at + 2 + n));
        }
        reach.programs.push((program.to_owned(), at + 1));
    }
    Ok(reach)
}

/// The index of the first word that is neither reserved nor an assignment.
fn first_program(words: &[String]) -> usize {
    words
        .iter()
        .position(|word| !RESERVED.contains(&word.as_str()) && !is_assignment(word))
        .unwrap_or(words.len())
}

/// `/usr/bin/git` → `git`, `wrangler@4` → `wrangler`, `wrangler.js` → `wrangler`.
fn program_name(word: &str) -> &str {
    let base = word.rsplit('/').next().unwrap_or(word);
    let base = match base.split_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        _ => base,
    };
    let script = [".js", ".mjs", ".cjs", ".py", ".exe", ".cmd"].iter().find_map(|end| base.strip_suffix(end));
    script.unwrap_or(base)
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The places at which a wrapper's command may begin. A word after an option may be the option's value, so the
/// count of the wrapper's own words is a range, and every place within it is tried.
fn candidates(rest: &[String], own: &[usize]) -> Vec<usize> {
    let most = own.iter().copied().max().unwrap_or_default();
    let (mut least_before, mut most_before) = (0, 0);
    let mut after_option = false;
    let mut found = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        if least_before > most {
            break;
        }
        if is_option(word) {
            after_option = takes_value(word);
            continue;
        }
        if is_assignment(word) {
            continue;
        }
        if own.iter().any(|count| (least_before..=most_before).contains(count)) {
            found.push(at);
        }
        most_before += 1;
        least_before += usize::from(!after_option);
        after_option = false;
    }
    found
}

/// The texts this program would run as shell scripts.
fn scripts(program: &str, rest: &[String], command: &Simple) -> Vec<String> {
    match program {
        // `-c` may stand in a cluster (`-lc`) and before other options.
        _ if SHELLS.contains(&program) => {
            let mut scripts = Vec::new();
            if rest.iter().any(|word| is_command_option(word)) {
                let from = rest.iter().position(|word| is_command_option(word)).unwrap_or_default() + 1;
                let script = rest.get(from..).and_then(|after| after.iter().find(|word| !is_option(word)));
                scripts.extend(script.cloned());
            } else if let Stdin::Text(text) = &command.stdin {
                scripts.push(text.clone());
            }
            scripts
        }
        "eval" | "watch" | "parallel" => vec![rest.join(" ")],
        "trap" => rest.first().cloned().into_iter().collect(),
        "alias" => rest.iter().filter_map(|word| Some(word.split_once('=')?.1.to_owned())).collect(),
        "env" | "su" | "runuser" | "script" => {
            let named = ["-c", "-S", "--command", "--split-string"];
            let value = |(at, word): (usize, &String)| match word.split_once('=') {
                Some((name, value)) if named.contains(&name) => Some(value.to_owned()),
                _ if named.contains(&word.as_str()) => rest.get(at + 1).cloned(),
                _ => None,
            };
            rest.iter().enumerate().filter_map(value).collect()
        }
        _ => Vec::new(),
    }
}

fn is_command_option(word: &str) -> bool {
    word == "--command" || (word.starts_with('-') && !word.starts_with("--") && word.contains('c'))
}

/// Would this program read its own program from standard input? Only a script named in its words prevents it.
fn reads_program(program: &str, rest: &[String]) -> bool {
    let program = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let named = |list: &[&str]| {
        list.iter().any(|name| name.trim_end_matches(|c: char| c.is_ascii_digit()) == program)
    };
    if named(SHELLS) {
        if rest.iter().any(|word| is_command_option(word)) {
            return false;
        }
        // `-s` reads standard input whatever follows; `-o pipefail` has a value.
        let dashed = rest.iter().any(|word| word == "-s" || word == "-");
        return dashed || !has_script(rest, &["-o", "+o", "-O", "--rcfile", "--init-file"]);
    }
    if named(INTERPRETERS) {
        let given = rest.iter().any(|word| {
            PROGRAM_OPTIONS.iter().any(|option| word == option || word.starts_with(&format!("{option}=")))
                || matches!(word.as_str(), "--version" | "-V" | "-v" | "--help" | "-h")
        });
        return !given && !has_script(rest, &["-W", "-X", "-I", "--import", "--require", "--loader"]);
    }
    match program {
        "su" => !rest.iter().any(|word| word == "-c" || word.starts_with("--command")),
        "sudo" => rest.iter().any(|word| matches!(word.as_str(), "-i" | "-s" | "--login" | "--shell")),
        _ => false,
    }
}

/// Is there a word that names a script? `-` names standard input.
fn has_script(rest: &[String], with_value: &[&str]) -> bool {
    let mut value = false;
    for word in rest {
        if std::mem::take(&mut value) {
            continue;
        }
        match word.as_str() {
            "-" => return false,
            option if with_value.contains(&option) => value = true,
            word if !is_option(word) => return true,
            _ => {}
        }
    }
    false
}
