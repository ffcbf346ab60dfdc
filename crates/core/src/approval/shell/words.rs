//! Words: what quotes, escapes and expansions make of characters, and the scripts found inside them.
//!
//! Invariant: nothing is expanded. A substitution is read as the script it is; any other expansion stays as written.

use super::{MAX_DEPTH, Reader, Statement, TooTangled, read};

impl Reader<'_> {
    /// One character of a word, or a quoted part of it.
    pub(super) fn text(&mut self, c: char, now: &mut Statement) -> Result<(), TooTangled> {
        match c {
            '\\' => match self.next()? {
                Some('\n') => {}
                Some(c) => {
                    now.quoted = true;
                    now.word.get_or_insert_default().push(c);
                }
                None => {}
            },
            '\'' => {
                now.quoted = true;
                let word = now.word.get_or_insert_default();
                while let Some(c) = self.next()? {
                    if c == '\'' {
                        break;
                    }
                    word.push(c);
                }
            }
            '"' => {
                now.quoted = true;
                let word = now.word.get_or_insert_default();
                self.double_quoted(word)?;
            }
            '`' => {
                now.word.get_or_insert_default();
                self.backquoted()?;
            }
            '$' => {
                let word = now.word.get_or_insert_default();
                match self.peek() {
                    Some('\'') => {
                        self.at += 1;
                        self.ansi_quoted(word)?;
                    }
                    Some('"') => {}
                    _ => self.dollar(word)?,
                }
            }
            c => now.word.get_or_insert_default().push(c),
        }
        Ok(())
    }

    pub(super) fn double_quoted(&mut self, word: &mut String) -> Result<(), TooTangled> {
        while let Some(c) = self.next()? {
            match c {
                '"' => break,
                '\\' => match self.next()? {
                    Some('\n') | None => {}
                    Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                    Some(c) => word.extend(['\\', c]),
                },
                '`' => self.backquoted()?,
                '$' => self.dollar(word)?,
                c => word.push(c),
            }
        }
        Ok(())
    }

    /// After a `$`: a substitution is read as the script it is, an expansion is kept as it stands.
    fn dollar(&mut self, word: &mut String) -> Result<(), TooTangled> {
        if self.eat('(') {
            self.substituted = true;
            return self.nested();
        }
        word.push('$');
        if !self.eat('{') {
            return Ok(());
        }
        word.push('{');
        let mut open = 1usize;
        while let Some(c) = self.next()? {
            match c {
                '`' => self.backquoted()?,
                '$' if self.eat('(') => self.nested()?,
                '\\' => {
                    let _ = self.next()?;
                }
                '{' => open += 1,
                '}' => open -= 1,
                _ => {}
            }
            word.push(c);
            if open == 0 {
                break;
            }
        }
        Ok(())
    }

    /// `$'…'`, with the escapes that can spell a word.
    fn ansi_quoted(&mut self, word: &mut String) -> Result<(), TooTangled> {
        while let Some(c) = self.next()? {
            match c {
                '\'' => break,
                '\\' => match self.next()? {
                    Some('x') => word.extend(self.number(16, 2)),
                    Some('u') => word.extend(self.number(16, 4)),
                    Some('U') => word.extend(self.number(16, 8)),
                    Some('0'..='7') => {
                        self.at -= 1;
                        word.extend(self.number(8, 3));
                    }
                    Some('n') => word.push('\n'),
                    Some('t') => word.push('\t'),
                    Some(c) => word.push(c),
                    None => {}
                },
                c => word.push(c),
            }
        }
        Ok(())
    }

    fn number(&mut self, radix: u32, digits: usize) -> Option<char> {
        let mut value = 0u32;
        for _ in 0..digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            self.at += 1;
            value = value.saturating_mul(radix).saturating_add(digit);
        }
        char::from_u32(value)
    }

    /// A script in parentheses: read by a reader of its own over the same characters.
    pub(super) fn nested(&mut self) -> Result<(), TooTangled> {
        if self.depth >= MAX_DEPTH {
            return Err(TooTangled);
        }
        let chars = std::mem::take(&mut self.chars);
        let mut inner = Reader::new(chars, self.at, self.depth + 1, self.budget, self.found);
        let read = inner.statements(Some(')'));
        (self.chars, self.at) = (inner.chars, inner.at);
        read
    }

    /// A script in backquotes: its text ends at the first backquote that is not escaped.
    fn backquoted(&mut self) -> Result<(), TooTangled> {
        self.substituted = true;
        let mut script = String::new();
        while let Some(c) = self.next()? {
            match c {
                '`' => break,
                '\\' => match self.next()? {
                    Some(c @ ('`' | '\\' | '$')) => script.push(c),
                    Some(c) => script.extend(['\\', c]),
                    None => {}
                },
                c => script.push(c),
            }
        }
        read(&script, self.depth + 1, self.budget, self.found)
    }
}
