//! Query text to tokens. Keywords stay identifiers: only the parser knows where a word is one.

use crate::error::SqlError;

/// One token and where it starts in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Word(String),
    Parameter(String),
    Number(f64),
    Text(String),
    Sign(&'static str),
    End,
}

/// Longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 30] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "||", "??", "=", "<", ">", "+", "-", "*", "/", "%", "|", "&", "^", "~", "?",
    ":", "(", ")", "[", "]", "{", "}", ",", ".",
];

/// Splits `text`; the last token is always [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, SqlError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut found = Vec::new();
    loop {
        lexer.skip_blank()?;
        let start = lexer.at;
        let kind = lexer.next()?;
        let end = kind == Kind::End;
        found.push(Token { kind, start });
        if end {
            return Ok(found);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, SqlError> {
        Err(SqlError::at(self.text, at, message))
    }

    fn skip_blank(&mut self) -> Result<(), SqlError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
            let blank = rest.len() - trimmed.len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("--") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => self.at += end + 4,
                    None => return self.error(self.at, "this comment is not closed: add */"),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Kind, SqlError> {
        let Some(first) = self.peek() else { return Ok(Kind::End) };
        if is_word_start(first) {
            return Ok(Kind::Word(self.word()));
        }
        if first == '@' {
            let start = self.at;
            self.at += 1;
            let name = self.word();
            if name.is_empty() {
                return self.error(start, "@ must be followed by the name of a parameter, such as @id");
            }
            return Ok(Kind::Parameter(format!("@{name}")));
        }
        if first == '"' || first == '\'' {
            return self.string(first);
        }
        let second_is_digit = self.rest().as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        if first.is_ascii_digit() || (first == '.' && second_is_digit) {
            return self.number();
        }
        match SIGNS.iter().find(|sign| self.rest().starts_with(**sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(Kind::Sign(sign))
            }
            None => self.error(self.at, format!("unexpected character {first:?}")),
        }
    }

    fn word(&mut self) -> String {
        let rest = self.rest();
        let end = rest.find(|c: char| !is_word_start(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
        let word = rest[..end].to_owned();
        self.at += end;
        word
    }

    fn number(&mut self) -> Result<Kind, SqlError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            let digits: String = self.rest()[2..].chars().take_while(char::is_ascii_hexdigit).collect();
            self.at += 2 + digits.len();
            return match u64::from_str_radix(&digits, 16) {
                Ok(value) => Ok(Kind::Number(value as f64)),
                Err(_) => self.error(start, "0x must be followed by 1 to 16 hexadecimal digits"),
            };
        }
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut end = digits(start);
        if bytes.get(end) == Some(&b'.') {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent > end + 1 + sign {
                end = exponent;
            }
        }
        self.at = end;
        if self.peek().is_some_and(is_word_start) {
            return self.error(end, "a number must be separated from the word that follows it");
        }
        match self.text[start..end].parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Kind::Number(value)),
            _ => self.error(start, format!("{} is not a number that fits a double", &self.text[start..end])),
        }
    }

    fn string(&mut self, quote: char) -> Result<Kind, SqlError> {
        let start = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            let Some(c) = self.peek() else {
                return self.error(start, format!("this string is not closed: add {quote}"));
            };
            let here = self.at;
            self.at += c.len_utf8();
            if c == quote {
                return Ok(Kind::Text(value));
            }
            if c != '\\' {
                value.push(c);
                continue;
            }
            let escaped = self.peek();
            self.at += escaped.map_or(0, char::len_utf8);
            match escaped {
                Some('b') => value.push('\u{8}'),
                Some('f') => value.push('\u{c}'),
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some(c @ ('"' | '\'' | '\\' | '/')) => value.push(c),
                Some('u') => value.push(self.unicode(here)?),
                _ => {
                    return self
                        .error(here, "unknown escape in a string: use \\b \\f \\n \\r \\t \\\\ \\/ \\\" \\' \\uXXXX");
                }
            }
        }
    }

    /// The rest of `\uXXXX`, joined with a following low surrogate.
    fn unicode(&mut self, start: usize) -> Result<char, SqlError> {
        let first = self.hex4(start)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first)
                .map_or_else(|| self.error(start, "a low surrogate must follow a high one"), Ok);
        }
        if !self.rest().starts_with("\\u") {
            return self.error(start, "a high surrogate must be followed by a low one (\\uDC00 to \\uDFFF)");
        }
        self.at += 2;
        let second = self.hex4(start)?;
        let joined =
            second.checked_sub(0xdc00).filter(|low| *low < 0x400).map(|low| 0x10000 + ((first - 0xd800) << 10) + low);
        match joined.and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => self.error(start, "a high surrogate must be followed by a low one (\\uDC00 to \\uDFFF)"),
        }
    }

    fn hex4(&mut self, start: usize) -> Result<u32, SqlError> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(value) => {
                self.at += 4;
                Ok(value)
            }
            None => self.error(start, "\\u must be followed by four hexadecimal digits"),
        }
    }
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        tokens(text).unwrap().into_iter().map(|t| t.kind).collect()
    }

    #[test]
    fn numbers_strings_and_signs_are_told_apart() {
        let text = "c.a1<=.5e1 'it\\'s' \"\\u00e9\\ud83d\\ude00\" @p <> 0x1F -- note\n ?? /* x */ ?";
        let expected = vec![
            Kind::Word("c".into()),
            Kind::Sign("."),
            Kind::Word("a1".into()),
            Kind::Sign("<="),
            Kind::Number(5.0),
            Kind::Text("it's".into()),
            Kind::Text("é😀".into()),
            Kind::Parameter("@p".into()),
            Kind::Sign("<>"),
            Kind::Number(31.0),
            Kind::Sign("??"),
            Kind::Sign("?"),
            Kind::End,
        ];
        assert_eq!(kinds(text), expected);
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases = [
            ("a\n  'x", 2, 3, "not closed"),
            ("é # ", 1, 3, "unexpected character"),
            ("'\\q'", 1, 2, "unknown escape"),
            ("'\\ud800x'", 1, 2, "surrogate"),
            ("'\\ud800\\u0041'", 1, 2, "surrogate"),
            ("'\\udc00'", 1, 2, "surrogate"),
            ("1e999", 1, 1, "fits a double"),
            ("12ab", 1, 3, "separated"),
            ("@ x", 1, 1, "name of a parameter"),
            ("/* x", 1, 1, "comment"),
            ("0xZ", 1, 1, "hexadecimal"),
        ];
        for (text, line, column, part) in cases {
            let error = tokens(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}
