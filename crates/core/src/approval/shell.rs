//! A reader of shell text that knows just enough to say which simple commands a script runs: quoting, line
//! continuations, comments, statements, pipes, groups, redirections, here-documents, and everything that is
//! itself a script (`$(…)`, backquotes, `<(…)`).
//!
//! Invariants: it expands nothing and runs nothing; it accepts every text, well-formed or not; its work is
//! bounded by a [`Budget`] and its depth by [`MAX_DEPTH`], and running out of either is an error, never a guess.

mod words;

/// How deep scripts within scripts are followed.
pub const MAX_DEPTH: usize = 16;
/// Steps one decision may take: the longest command, read four times.
pub const MAX_STEPS: usize = 1024 * 1024;

/// Words that may stand before a command without being one.
pub const RESERVED: &[&str] =
    &["if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "time", "coproc"];

/// What `<(…)` and `>(…)` stand for: one end of a pipe, by a name that a program opens.
pub const A_PIPE: &str = "/dev/fd/63";

/// The command is too tangled to be read. The caller fails closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooTangled;

/// Work left for one decision, shared by every script within it.
#[derive(Debug)]
pub struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

impl Budget {
    pub fn spend(&mut self, steps: usize) -> Result<(), TooTangled> {
        self.0 = self.0.checked_sub(steps).ok_or(TooTangled)?;
        Ok(())
    }
}

/// Where a simple command's standard input comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    #[default]
    Inherited,
    /// The command before it in a pipeline.
    Pipe,
    /// A file.
    File,
    /// A here-document or a here-string, quotes removed.
    Text(String),
}

/// One simple command: its words with the quotes removed, redirections taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    pub words: Vec<String>,
    /// The words, by index, that are the output of a `$(…)` and nothing else.
    pub outputs: Vec<usize>,
    pub stdin: Stdin,
}

/// Every simple command that `text` would run, those inside substitutions included, in no promised order.
pub fn simple_commands(text: &str, budget: &mut Budget) -> Result<Vec<Simple>, TooTangled> {
    let mut found = Vec::new();
    read(text, 0, budget, &mut found)?;
    Ok(found)
}

fn read(text: &str, depth: usize, budget: &mut Budget, found: &mut Vec<Simple>) -> Result<(), TooTangled> {
    if depth > MAX_DEPTH {
        return Err(TooTangled);
    }
    let chars = text.chars().collect();
    let mut reader = Reader::new(chars, 0, depth, budget, found);
    reader.statements(None)
}

/// A here-document announced on this line whose body begins on the next.
struct HereDocument {
    command: usize,
    delimiter: String,
    /// A quoted delimiter: nothing inside is expanded.
    literal: bool,
    strip_tabs: bool,
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    budget: &'a mut Budget,
    found: &'a mut Vec<Simple>,
    here: Vec<HereDocument>,
    /// The word being read holds a `$(…)`.
    substituted: bool,
    /// `case`s not yet closed by their `esac`: inside one, a lone `)` ends a pattern.
    cases: usize,
}

/// What the next finished word is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Argument,
    /// The file of a `<` (true) or of an output redirection (false).
    File(bool),
    HereString,
    HereDocument {
        strip_tabs: bool,
    },
}

/// The statement being read.
struct Statement {
    /// Index into `found`, once it has a word or a redirection.
    command: Option<usize>,
    piped: bool,
    word: Option<String>,
    quoted: bool,
    target: Target,
}

impl Statement {
    fn new(piped: bool) -> Self {
        Self { command: None, piped, word: None, quoted: false, target: Target::Argument }
    }
}

impl<'a> Reader<'a> {
    fn new(
        chars: Vec<char>,
        at: usize,
        depth: usize,
        budget: &'a mut Budget,
        found: &'a mut Vec<Simple>,
    ) -> Self {
        Self { chars, at, depth, budget, found, here: Vec::new(), substituted: false, cases: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Result<Option<char>, TooTangled> {
        self.budget.spend(1)?;
        let next = self.peek();
        self.at += usize::from(next.is_some());
        Ok(next)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let met = self.peek() == Some(wanted);
        self.at += usize::from(met);
        met
    }

    /// Reads statements to the end of the text or, inside a substitution, to its closing parenthesis.
    fn statements(&mut self, close: Option<char>) -> Result<(), TooTangled> {
        let mut now = Statement::new(false);
        let mut open = 0usize;
        while let Some(c) = self.next()? {
            match c {
                '\n' => {
                    self.end(&mut now, false);
                    self.bodies()?;
                }
                ' ' | '\t' | '\r' => self.word(&mut now),
                ';' => self.end(&mut now, false),
                '&' if self.peek() == Some('>') => self.word(&mut now),
                '&' => self.end(&mut now, false),
                '|' => {
                    let or = self.eat('|');
                    let _ = self.eat('&');
                    self.end(&mut now, !or);
                }
                '(' => {
                    open += 1;
                    // A group reads what its first command reads.
                    let piped = now.piped && now.command.is_none();
                    self.end(&mut now, piped);
                }
                ')' if open == 0 && close == Some(')') && !self.ends_pattern(&mut now) => break,
                ')' => {
                    open = open.saturating_sub(1);
                    self.end(&mut now, false);
                }
                '<' | '>' if self.peek() == Some('(') => {
                    self.at += 1;
                    now.word.get_or_insert_default().push_str(A_PIPE);
                    self.nested()?;
                }
                '<' | '>' => self.redirection(c, &mut now),
                '#' if now.word.is_none() => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        let _ = self.next()?;
                    }
                }
                _ => self.text(c, &mut now)?,
            }
        }
        self.end(&mut now, false);
        self.bodies()
    }

    /// Does a `)` here end a pattern of a `case`, and not the script it stands in?
    fn ends_pattern(&mut self, now: &mut Statement) -> bool {
        self.word(now);
        match self.first_word(now) {
            Some("case") => true,
            Some("esac") => self.cases > 1,
            _ => self.cases > 0,
        }
    }

    /// The first word of a statement that is not a reserved word before it.
    fn first_word(&self, now: &Statement) -> Option<&str> {
        let words = &self.found.get(now.command?)?.words;
        words.iter().map(String::as_str).find(|word| !RESERVED.contains(word))
    }

    fn redirection(&mut self, c: char, now: &mut Statement) {
        // `2>` has its number before it, unquoted.
        if now.word.as_deref().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit())) && !now.quoted {
            now.word = None;
        }
        self.word(now);
        now.target = match c {
            '<' if self.eat('<') => {
                if self.eat('<') {
                    Target::HereString
                } else {
                    Target::HereDocument { strip_tabs: self.eat('-') }
                }
            }
            '<' => {
                let _ = self.eat('>') || self.eat('&');
                Target::File(true)
            }
            _ => {
                let _ = self.eat('>') || self.eat('&') || self.eat('|');
                Target::File(false)
            }
        };
    }

    fn command(&mut self, now: &mut Statement) -> usize {
        *now.command.get_or_insert_with(|| {
            let stdin = if now.piped { Stdin::Pipe } else { Stdin::Inherited };
            self.found.push(Simple { stdin, ..Simple::default() });
            self.found.len() - 1
        })
    }

    /// Ends a word and gives it to what it is for.
    fn word(&mut self, now: &mut Statement) {
        let Some(word) = now.word.take() else { return };
        let quoted = std::mem::take(&mut now.quoted);
        let output = std::mem::take(&mut self.substituted) && word.trim().is_empty();
        let at = self.command(now);
        let target = std::mem::replace(&mut now.target, Target::Argument);
        let Some(command) = self.found.get_mut(at) else { return };
        match target {
            Target::Argument => {
                command.outputs.extend(output.then_some(command.words.len()));
                command.words.push(word);
            }
            Target::File(true) if word.starts_with(A_PIPE) => command.stdin = Stdin::Pipe,
            Target::File(true) => command.stdin = Stdin::File,
            Target::File(false) => {}
            Target::HereString => command.stdin = Stdin::Text(word),
            Target::HereDocument { strip_tabs } => {
                self.here.push(HereDocument { command: at, delimiter: word, literal: quoted, strip_tabs });
            }
        }
    }

    /// Ends a statement; `piped`: the next one reads what this one writes.
    fn end(&mut self, now: &mut Statement, piped: bool) {
        self.word(now);
        match self.first_word(now) {
            Some("case") => self.cases += 1,
            Some("esac") => self.cases = self.cases.saturating_sub(1),
            _ => {}
        }
        *now = Statement::new(piped);
    }

    /// The bodies of the here-documents announced on the line that just ended.
    fn bodies(&mut self) -> Result<(), TooTangled> {
        for here in std::mem::take(&mut self.here) {
            let mut body = String::new();
            while self.peek().is_some() {
                let mut line = String::new();
                while let Some(c) = self.next()? {
                    if c == '\n' {
                        break;
                    }
                    line.push(c);
                }
                let line = if here.strip_tabs { line.trim_start_matches('\t') } else { &line };
                if line == here.delimiter {
                    break;
                }
                body.push_str(line);
                body.push('\n');
            }
            if !here.literal {
                self.expanded(&body)?;
            }
            if let Some(command) = self.found.get_mut(here.command) {
                command.stdin = Stdin::Text(body);
            }
        }
        Ok(())
    }

    /// Finds the substitutions in text that is expanded but not split: an unquoted here-document.
    fn expanded(&mut self, body: &str) -> Result<(), TooTangled> {
        if self.depth >= MAX_DEPTH {
            return Err(TooTangled);
        }
        let escaped = body.replace('"', "\\\"");
        let chars = escaped.chars().collect();
        let mut inner = Reader::new(chars, 0, self.depth + 1, self.budget, self.found);
        inner.double_quoted(&mut String::new())
    }
}
