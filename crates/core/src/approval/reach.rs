//! What one simple command really runs: the program behind `sudo`, `env`, `xargs`, `npx` and their like, and the
//! scripts it carries as text (`sh -c '…'`, `eval`, a here-document into a shell).

use super::rules::{is_option, takes_value};
use super::shell::{A_PIPE, Budget, RESERVED, Simple, Stdin, TooTangled};

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

const DOWNLOADERS: &[&str] = &["curl", "wget", "aria2c", "http", "https", "xh", "lynx"];

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
    /// One whose program comes from a pipe whatever its standard input is: `bash <(…)`.
    pub reads_pipe: bool,
    /// One whose program is the output of a command: `sh -c "$(…)"`.
    pub runs_output: bool,
    /// A program that brings what it runs or writes from elsewhere.
    pub downloads: bool,
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
        let from = source(program, rest);
        reach.reads_program |= from == Source::Stdin;
        if let Source::Word(word) = from {
            reach.reads_pipe |= rest.get(word).is_some_and(|word| word == A_PIPE);
            reach.runs_output |= command.outputs.contains(&(at + 1 + word));
        }
        reach.runs_output |= program == "eval" && !command.outputs.is_empty();
        reach.downloads |= DOWNLOADERS.contains(&program);
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
            if rest.iter().any(|word| is_command_option(word)) {
                command_script(rest).and_then(|at| rest.get(at)).cloned().into_iter().collect()
            } else {
                here_document(command)
            }
        }
        "source" | "." if rest.first().is_some_and(|word| is_stdin(word)) => here_document(command),
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

fn here_document(command: &Simple) -> Vec<String> {
    if let Stdin::Text(text) = &command.stdin { vec![text.clone()] } else { Vec::new() }
}

/// The index of the script after a shell's `-c`.
fn command_script(rest: &[String]) -> Option<usize> {
    let from = rest.iter().position(|word| is_command_option(word))? + 1;
    let after = rest.get(from..)?.iter().position(|word| !is_option(word))?;
    Some(from + after)
}

fn is_command_option(word: &str) -> bool {
    word == "--command" || (word.starts_with('-') && !word.starts_with("--") && word.contains('c'))
}

/// Where a program has its own program from, as far as its words say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Standard input.
    Stdin,
    /// A word that says it, or names its file: its index.
    Word(usize),
    /// It runs none, or says what it is.
    None,
}

fn source(program: &str, rest: &[String]) -> Source {
    let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let named =
        |list: &[&str]| list.iter().any(|name| name.trim_end_matches(|c: char| c.is_ascii_digit()) == bare);
    if named(SHELLS) {
        if rest.iter().any(|word| is_command_option(word)) {
            // Without one, what is appended to its words is its program: `xargs sh -c`.
            return command_script(rest).map_or(Source::Stdin, Source::Word);
        }
        // `-s` reads standard input whatever follows; `-o pipefail` has a value.
        if rest.iter().any(|word| word == "-s" || word == "-") {
            return Source::Stdin;
        }
        return script(rest, &["-o", "+o", "-O", "--rcfile", "--init-file"]);
    }
    if named(INTERPRETERS) {
        let is_program = |word: &String| PROGRAM_OPTIONS.contains(&word.as_str());
        if let Some(at) = rest.iter().position(is_program) {
            return Source::Word(at + 1);
        }
        let says = |word: &String| {
            PROGRAM_OPTIONS.iter().any(|option| word.starts_with(&format!("{option}=")))
                || matches!(word.as_str(), "--version" | "-V" | "-v" | "--help" | "-h")
        };
        if rest.iter().any(says) {
            return Source::None;
        }
        return script(rest, &["-W", "-X", "-I", "--import", "--require", "--loader"]);
    }
    let reads_stdin = match program {
        "source" | "." => return script(rest, &[]),
        "su" => !rest.iter().any(|word| word == "-c" || word.starts_with("--command")),
        "sudo" => rest.iter().any(|word| matches!(word.as_str(), "-i" | "-s" | "--login" | "--shell")),
        _ => false,
    };
    if reads_stdin { Source::Stdin } else { Source::None }
}

/// The first word that names a script, or standard input by any of its names, or when there is none.
fn script(rest: &[String], with_value: &[&str]) -> Source {
    let mut value = false;
    for (at, word) in rest.iter().enumerate() {
        if std::mem::take(&mut value) {
            continue;
        }
        match word.as_str() {
            word if is_stdin(word) => return Source::Stdin,
            option if with_value.contains(&option) => value = true,
            word if !is_option(word) => return Source::Word(at),
            _ => {}
        }
    }
    Source::Stdin
}

fn is_stdin(word: &str) -> bool {
    matches!(word, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}
