//! JSON text as a sequence of tokens, for readers that need every value of it.

use super::scan::{blank, end_of};

/// One token. Commas and colons are left out: they carry no information in valid text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// `[`
    OpenArray,
    /// `]`
    CloseArray,
    /// `{`
    OpenObject,
    /// `}`
    CloseObject,
    /// A string or a member name, with quotes and escapes.
    String(&'a str),
    /// A number, `true`, `false` or `null`.
    Literal(&'a str),
}

/// Iterates over the tokens of a checked value.
pub fn tokens(text: &str) -> Tokens<'_> {
    Tokens { text, at: 0 }
}

/// See [`tokens`].
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.text.as_bytes();
        let mut start = blank(bytes, self.at);
        while matches!(bytes.get(start), Some(b',' | b':')) {
            start = blank(bytes, start + 1);
        }
        let (token, end) = match bytes.get(start)? {
            b'[' => (Token::OpenArray, start + 1),
            b']' => (Token::CloseArray, start + 1),
            b'{' => (Token::OpenObject, start + 1),
            b'}' => (Token::CloseObject, start + 1),
            first => {
                let end = end_of(bytes, start)?;
                let text = self.text.get(start..end)?;
                (if *first == b'"' { Token::String(text) } else { Token::Literal(text) }, end)
            }
        };
        self.at = end;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_slices_of_the_text() {
        assert_eq!(
            tokens(r#" {"a\"\\" : [1.50e+3, true ,null,"b:,]"] , "":{}} "#).collect::<Vec<_>>(),
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
        assert_eq!(tokens("-0").collect::<Vec<_>>(), [Token::Literal("-0")]);
    }
}
