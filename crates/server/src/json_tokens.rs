//! JSON text in pieces, and numbers as text. Numbers stay as they were written: `serde_json` rounds integers beyond 64 bits and may miss the
//! nearest double by one bit.

use std::{borrow::Cow, fmt::Write as _};

use serde::de::{Error as _, IgnoredAny};

/// How deep arrays and objects may nest: as deep as `serde_json` reads them.
pub(crate) const MAX_DEPTH: usize = 127;

/// One piece. Commas and colons are left out: in valid text they tell nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    OpenArray,
    CloseArray,
    OpenObject,
    CloseObject,
    /// A string or a member name, with quotes and escapes.
    String(&'a str),
    /// A number, `true`, `false` or `null`.
    Literal(&'a str),
}

/// The pieces of one value, in order.
#[derive(Clone)]
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    /// Checks that the text is one JSON value, not nested too deep, before giving out any piece of it.
    pub(crate) fn of(text: &'a [u8]) -> serde_json::Result<Self> {
        let text =
            std::str::from_utf8(text).map_err(|error| serde_json::Error::custom(format!("not UTF-8: {error}")))?;
        serde_json::from_str::<IgnoredAny>(text)?;
        let tokens = Self { text, at: 0 };
        // Most texts do not even open as many arrays and objects.
        let opening = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
        if opening > MAX_DEPTH && tokens.depth() > MAX_DEPTH {
            return Err(serde_json::Error::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(tokens)
    }

    /// How deep arrays and objects nest.
    fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        for token in self.clone() {
            match token {
                Token::OpenArray | Token::OpenObject => depth += 1,
                Token::CloseArray | Token::CloseObject => depth = depth.saturating_sub(1),
                Token::String(_) | Token::Literal(_) => {}
            }
            deepest = deepest.max(depth);
        }
        deepest
    }

    /// Takes the bytes up to the first for which `ends` holds.
    fn take_until(&mut self, ends: impl FnMut(u8) -> bool) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let taken = rest.bytes().position(ends).unwrap_or(rest.len());
        self.at += taken;
        rest.get(..taken).unwrap_or_default()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.take_until(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'));
        let token = match self.text.as_bytes().get(self.at)? {
            b'[' => Token::OpenArray,
            b']' => Token::CloseArray,
            b'{' => Token::OpenObject,
            b'}' => Token::CloseObject,
            b'"' => {
                // Ends after the second quote that no backslash precedes.
                let (mut quotes, mut is_escaped) = (0, false);
                return Some(Token::String(self.take_until(|byte| {
                    let is_over = quotes == 2;
                    quotes += usize::from(byte == b'"' && !is_escaped);
                    is_escaped = byte == b'\\' && !is_escaped;
                    is_over
                })));
            }
            _ => {
                let ends = |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b']' | b'}');
                return Some(Token::Literal(self.take_until(ends)));
            }
        };
        self.at += 1;
        Some(token)
    }
}

/// What a string token says, without quotes and escapes.
pub(crate) fn unescape(string: &str) -> serde_json::Result<Cow<'_, str>> {
    match string.strip_prefix('"').and_then(|string| string.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Ok(plain.into()),
        _ => serde_json::from_str(string).map(Cow::Owned),
    }
}

/// Appends a finite double. One that is integral and that a 64-bit integer can hold is written as that integer: clients
/// store `2` as a double and expect to read `2` into an integer.
pub(crate) fn write_double(number: f64, out: &mut String) {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    let written = if number.fract() != 0.0 {
        write!(out, "{number:?}")
    } else if (-TWO_TO_63..TWO_TO_63).contains(&number) {
        write!(out, "{}", number as i64)
    } else if (TWO_TO_63..2.0 * TWO_TO_63).contains(&number) {
        write!(out, "{}", number as u64)
    } else {
        write!(out, "{number:?}")
    };
    written.expect("invariant: a string can always be appended to");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text_itself() {
        let tokens = Tokens::of(br#" {"a\"\\" : [1.50e+3, true ,null,"b:,]"] , "":{}} "#).unwrap();
        assert_eq!(
            tokens.collect::<Vec<_>>(),
            [
                Token::OpenObject,
                Token::String(r#""a\"\\""#),
                Token::OpenArray,
                Token::Literal("1.50e+3"),
                Token::Literal("true"),
                Token::Literal("null"),
                Token::String(r#""b:,]""#),
                Token::CloseArray,
                Token::String(r#""""#),
                Token::OpenObject,
                Token::CloseObject,
                Token::CloseObject,
            ]
        );
        assert_eq!(Tokens::of(b"-0").unwrap().collect::<Vec<_>>(), [Token::Literal("-0")]);
    }

    #[test]
    fn only_whole_valid_text_has_pieces() {
        for text in
            [&b""[..], b"{", b"[1,]", b"1 2", b"nul", b"{\"a\"}", b"01", b"\"\n\"", b"\"\xff\"", b"\xef\xbb\xbf1"]
        {
            assert!(Tokens::of(text).is_err(), "{}", text.escape_ascii());
        }
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Tokens::of(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(Tokens::of(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(MAX_DEPTH)).is_ok());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r#""plain é""#).unwrap(), "plain é");
        assert_eq!(unescape(r#""\u00e9\n\"""#).unwrap(), "é\n\"");
        assert!(unescape(r#""\ud800""#).is_err());
    }

    #[test]
    fn a_double_is_as_short_as_it_can_be_and_reads_back() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (2.0, "2"),
            (-7.0, "-7"),
            (0.1, "0.1"),
            (1e15, "1000000000000000"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (-9_223_372_036_854_775_808.0, "-9223372036854775808"),
            (9_223_372_036_854_775_808.0, "9223372036854775808"),
            (18_446_744_073_709_549_568.0, "18446744073709549568"),
            (18_446_744_073_709_551_616.0, "1.8446744073709552e19"),
            (1e300, "1e300"),
            (-1e300, "-1e300"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (1.5e-7, "1.5e-7"),
        ] {
            let mut out = String::new();
            write_double(number, &mut out);
            assert_eq!(out, text);
            assert_eq!(out.parse::<f64>().unwrap(), number, "{text}");
        }
    }
}
