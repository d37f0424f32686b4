//! Paths of operations: JSON pointers such as `/tags/0` or `/a~1b`.

use std::fmt;

/// The names of the members, or indices of the items, that lead from the item to a place within it: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    text: String,
    names: Vec<String>,
}

impl Path {
    /// Parses a pointer, in which `~1` stands for `/` and `~0` for `~`, or returns an error message.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("does not start with /");
        };
        let names = rest.split('/').map(unescape).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), names })
    }

    /// Reads a partition key path: without pointer escapes, but with quotes around unusual names.
    pub(super) fn of_partition_key(text: &str) -> Self {
        let mut names = Vec::new();
        let mut rest = text;
        while let Some(name) = rest.strip_prefix('/') {
            let (name, behind) = match name.chars().next() {
                Some(quote @ ('"' | '\'')) => quoted(&name[1..], quote),
                _ => {
                    let end = name.find('/').unwrap_or(name.len());
                    (name[..end].to_owned(), &name[end..])
                }
            };
            names.push(name);
            rest = behind;
        }
        Self { text: text.to_owned(), names }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The way to the object or array around the place, and the place's name or index in it.
    pub(super) fn split_last(&self) -> (&[String], &str) {
        match self.names.split_last() {
            Some((last, way)) => (way, last),
            None => (&[], ""),
        }
    }

    /// Returns `true` if this is `other` or a place within it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        !other.names.is_empty() && self.names.starts_with(&other.names)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(name: &str) -> Result<String, &'static str> {
    if name.is_empty() {
        return Err("has an empty name");
    }
    let mut plain = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        plain.push(match (c, if c == '~' { chars.next() } else { None }) {
            ('~', Some('0')) => '~',
            ('~', Some('1')) => '/',
            ('~', _) => return Err("has a ~ that is not written as ~0"),
            (c, _) => c,
        });
    }
    Ok(plain)
}

/// The name up to the closing quote, in which a backslash takes the next quote or backslash literally, and what follows.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c == quote => break,
            '\\' if chars.as_str().starts_with([quote, '\\']) => name.extend(chars.next()),
            c => name.push(c),
        }
    }
    (name, chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_split_and_unescaped() {
        for (text, names) in [
            ("/a", vec!["a"]),
            ("/a/0/-", vec!["a", "0", "-"]),
            ("/a~1b/~0/~01", vec!["a/b", "~", "~1"]),
            ("/é \"", vec!["é \""]),
        ] {
            assert_eq!(Path::parse(text).unwrap().names(), names);
        }
        for text in ["", "a", "a/b", "/", "/a/", "//a", "/~", "/a~2", "/~é"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn partition_key_paths_have_quotes_instead() {
        for (text, names) in [
            ("/pk", vec!["pk"]),
            ("/a/b~1", vec!["a", "b~1"]),
            ("/\"a/b\"/c", vec!["a/b", "c"]),
            (r#"/'it\'s "\\'"#, vec![r#"it's "\"#]),
        ] {
            assert_eq!(Path::of_partition_key(text).names(), names);
        }
    }
}
