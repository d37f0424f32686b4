//! A partition key path such as `/tenant/id` or `/"odd name"`, split into member names once.

use std::{iter::Peekable, str::Chars};

use crate::error::{Error, ErrorKind, Result};

/// A path as it was written, and the names of the members it leads through: at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyPath {
    text: String,
    first: String,
    rest: Vec<String>,
}

impl KeyPath {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let bad =
            |problem: &str| Error::new(ErrorKind::InvalidArgument, format!("partition key path {text:?} {problem}"));
        if text.chars().any(char::is_control) {
            return Err(bad("contains a control character"));
        }
        let mut chars = text.chars().peekable();
        let mut names = Vec::new();
        while let Some(c) = chars.next() {
            if c != '/' {
                return Err(bad(if names.is_empty() {
                    "does not start with /"
                } else {
                    "has no / behind a quoted name"
                }));
            }
            let name = match chars.next_if(|c| matches!(c, '"' | '\'')) {
                Some(quote) => quoted(&mut chars, quote).ok_or_else(|| bad("lacks a closing quote"))?,
                None => plain(&mut chars),
            };
            if name.is_empty() {
                return Err(bad("has an empty name"));
            }
            names.push(name);
        }
        let mut names = names.into_iter();
        let first = names.next().ok_or_else(|| bad("is empty"))?;
        Ok(Self { text: text.to_owned(), first, rest: names.collect() })
    }

    /// `/id`: every item has it.
    pub(super) fn id() -> Self {
        Self { text: "/id".to_owned(), first: "id".to_owned(), rest: Vec::new() }
    }

    /// The path as it was written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the top-level member.
    pub(super) fn first(&self) -> &str {
        &self.first
    }

    /// The names below.
    pub(super) fn rest(&self) -> &[String] {
        &self.rest
    }

    /// Whether both lead to the same member, however they are written.
    pub(super) fn is_same_member(&self, other: &Self) -> bool {
        self.first == other.first && self.rest == other.rest
    }
}

fn plain(chars: &mut Peekable<Chars<'_>>) -> String {
    std::iter::from_fn(|| chars.next_if(|c| *c != '/')).collect()
}

/// The name up to the closing quote, in which a backslash takes the next quote or backslash literally.
fn quoted(chars: &mut Peekable<Chars<'_>>, quote: char) -> Option<String> {
    let mut name = String::new();
    loop {
        match chars.next()? {
            c if c == quote => return Some(name),
            '\\' => name.push(chars.next_if(|c| *c == quote || *c == '\\').unwrap_or('\\')),
            c => name.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_names() {
        for (text, names) in [
            ("/pk", vec!["pk"]),
            ("/a/b/c", vec!["a", "b", "c"]),
            ("/\"a b\"", vec!["a b"]),
            ("/\"a/b\"/c", vec!["a/b", "c"]),
            ("/'it\"s'/x", vec!["it\"s", "x"]),
            (r#"/"say \"hi\" \\ \n""#, vec![r#"say "hi" \ \n"#]),
            ("/größe", vec!["größe"]),
            ("/order-id", vec!["order-id"]),
        ] {
            let path = KeyPath::parse(text).unwrap();
            let found: Vec<&str> =
                std::iter::once(path.first()).chain(path.rest().iter().map(String::as_str)).collect();
            assert_eq!(found, names);
            assert_eq!(path.as_str(), text);
        }
        assert_eq!(KeyPath::parse("/id").unwrap(), KeyPath::id());
    }

    #[test]
    fn a_path_that_leads_nowhere_is_refused() {
        for (text, problem) in [
            ("", "is empty"),
            ("pk", "does not start with /"),
            ("/", "has an empty name"),
            ("//a", "has an empty name"),
            ("/a/", "has an empty name"),
            ("/\"\"", "has an empty name"),
            ("/\"a", "lacks a closing quote"),
            ("/\"a\"b", "has no / behind a quoted name"),
            ("/a\nb", "contains a control character"),
        ] {
            let error = KeyPath::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.message(), format!("partition key path {text:?} {problem}"));
        }
    }
}
