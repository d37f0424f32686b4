//! Lines on stderr, and colours where they are welcome.

use std::{
    env,
    io::{self, IsTerminal, Write as _},
};

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

/// Writes a line to stderr. A closed one must not end the demo: its result is the ledger.
pub(crate) fn line(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Whether a stream is a terminal that can be drawn on.
pub(crate) fn is_capable(stream: &impl IsTerminal) -> bool {
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
