//! The terminal: lines that stay, one status line that is redrawn below them, colours where they are welcome.

use std::{
    env,
    io::{self, IsTerminal, Write as _},
};

/// Back to the first column, and everything from there on erased.
const ERASE: &str = "\r\x1b[K";

/// The status must stay on one line, or it could not be erased: longer ones are cut by the terminal.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

/// Puts colours on text, or leaves it plain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Colours if `stream` is a terminal that can show them and `NO_COLOR` is not set.
    pub(crate) fn on(stream: &impl IsTerminal) -> Self {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { on: is_capable(stream) && !unwanted }
    }

    /// No colours.
    #[cfg(test)]
    pub(crate) fn off() -> Self {
        Self { on: false }
    }

    /// The text in a style.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if !self.on {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
            Style::Blue => 34,
            Style::Magenta => 35,
            Style::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The part of stderr below the cursor.
#[derive(Debug)]
pub(crate) struct Terminal {
    live: bool,
    drawn: bool,
}

impl Terminal {
    /// Draws a live status if stderr is a terminal.
    pub(crate) fn on_stderr() -> Self {
        Self { live: is_capable(&io::stderr()), drawn: false }
    }

    /// Whether a status can be redrawn; otherwise it is better given as a line from time to time.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// A line that stays.
    pub(crate) fn line(&mut self, text: &str) {
        let erase = if self.drawn { ERASE } else { "" };
        self.drawn = false;
        // A closed stderr must not end the demo: its result is the ledger.
        drop(writeln!(io::stderr(), "{erase}{text}"));
    }

    /// The status, in place of the last one.
    pub(crate) fn status(&mut self, text: &str) {
        if self.live {
            self.drawn = true;
            let mut stderr = io::stderr().lock();
            drop(write!(stderr, "{NO_WRAP}{ERASE}{text}{WRAP}").and_then(|()| stderr.flush()));
        }
    }

    /// Takes the status away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            drop(write!(io::stderr(), "{ERASE}"));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.clear();
    }
}

fn is_capable(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A number with a comma before each group of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Paint::off().paint(Style::Red, "ada"), "ada");
    }
}
