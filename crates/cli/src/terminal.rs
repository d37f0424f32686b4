//! The width of the terminal, and text that fits it. Where there is no terminal a sentence stays one line, for `grep`.

use std::io::{self, IsTerminal as _};

use ratatui::crossterm::terminal;

/// By how much the rest of a line is indented that did not fit.
const INDENT: usize = 2;

/// How wide stdout is, if it is a terminal.
pub(crate) fn columns() -> Option<usize> {
    width(io::stdout().is_terminal())
}

/// How wide stderr is, if it is a terminal.
pub(crate) fn columns_of_stderr() -> Option<usize> {
    width(io::stderr().is_terminal())
}

fn width(is_terminal: bool) -> Option<usize> {
    // A terminal that does not tell its width says 0.
    let (columns, _) = is_terminal.then(|| terminal::size().ok()).flatten()?;
    (columns > 0).then_some(usize::from(columns))
}

/// The same text in lines of so many columns, broken between words. A word that is longer stays whole: it may be an id.
pub(crate) fn wrapped(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let mut lines = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_end().chars().count() <= columns {
            lines.push_str(line);
        } else {
            wrap_line(line, columns, &mut lines);
        }
    }
    lines
}

fn wrap_line(line: &str, columns: usize, to: &mut String) {
    let indent = line.chars().take_while(|char| *char == ' ').count();
    let (first, rest) = (" ".repeat(indent), " ".repeat(indent + INDENT));
    let mut broken = first.clone();
    for word in line.split_whitespace() {
        let is_empty = broken.trim_start().is_empty();
        if !is_empty && broken.chars().count() + 1 + word.chars().count() > columns {
            to.push_str(&broken);
            to.push('\n');
            broken = rest.clone();
        } else if !is_empty {
            broken.push(' ');
        }
        broken.push_str(word);
    }
    to.push_str(&broken);
    if line.ends_with('\n') {
        to.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_short_ones_stay() {
        let text = "lease 0: no host owns it, nothing waits: start a host\n  a  table\n\n    item o-1: an error of many words\n";
        let expected = "\
lease 0: no host owns it,
  nothing waits: start a
  host
  a  table

    item o-1: an error of
      many words
";
        assert_eq!(wrapped(text, Some(25)), expected);
        assert_eq!(wrapped(text, None), text);
        assert_eq!(wrapped(text, Some(80)), text);
        assert_eq!(wrapped("a-word-that-is-longer-than-a-line x", Some(9)), "a-word-that-is-longer-than-a-line\n  x");
    }
}
