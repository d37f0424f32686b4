//! An item taken apart as far as a patch needs it: order kept, names and scalars in their own text.

use std::borrow::Cow;

use changefeed_query::json::{self, MAX_DEPTH, Token, unescape_strict};

use super::path::Path;

/// A value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    /// A string, number, boolean or null.
    Scalar(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member<'a> {
    /// With quotes and escapes.
    written: Cow<'a, str>,
    /// Without them, as in paths. None if no path can name it, because of an escape that is no character.
    name: Option<Cow<'a, str>>,
    value: Node<'a>,
}

impl<'a> Member<'a> {
    fn read(written: &'a str, value: Node<'a>) -> Self {
        Self { written: written.into(), name: unescape_strict(written), value }
    }

    fn create(name: &str, value: Node<'a>) -> serde_json::Result<Self> {
        Ok(Self { written: serde_json::to_string(name)?.into(), name: Some(name.to_owned().into()), value })
    }

    fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}

impl<'a> Node<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, &'static str> {
        // Arrays and objects that are not closed yet; of objects also the name that waits for its value.
        let mut open: Vec<(Self, Option<&'a str>)> = Vec::new();
        for token in json::tokens(json::check(text)?) {
            let complete = match token {
                Token::OpenArray => {
                    open.push((Self::Array(Vec::new()), None));
                    continue;
                }
                Token::OpenObject => {
                    open.push((Self::Object(Vec::new()), None));
                    continue;
                }
                Token::CloseArray | Token::CloseObject => match open.pop() {
                    Some((closed, _)) => closed,
                    None => break,
                },
                Token::String(string) => match open.last_mut() {
                    Some((Self::Object(_), name @ None)) => {
                        *name = Some(string);
                        continue;
                    }
                    _ => Self::Scalar(string.into()),
                },
                Token::Literal(literal) => Self::Scalar(literal.into()),
            };
            match open.last_mut() {
                Some((Self::Array(items), _)) => items.push(complete),
                Some((Self::Object(members), name)) => {
                    members.push(Member::read(name.take().unwrap_or_default(), complete));
                }
                _ => return Ok(complete),
            }
        }
        Err("a JSON value is missing")
    }

    /// The text, unless the nesting has become too deep.
    pub(super) fn to_text(&self) -> Option<String> {
        let mut out = String::new();
        self.write(&mut out, MAX_DEPTH).then_some(out)
    }

    /// Returns the text of the value at the path.
    pub(super) fn text_at(&self, path: &Path) -> Option<String> {
        let mut node = self;
        for name in path.names() {
            let Self::Object(members) = node else { return None };
            node = &members.iter().rev().find(|member| member.is_named(name))?.value;
        }
        node.to_text()
    }

    fn write(&self, out: &mut String, depth_left: usize) -> bool {
        let (opening, closing) = match self {
            Self::Scalar(text) => {
                out.push_str(text);
                return true;
            }
            Self::Array(_) => ('[', ']'),
            Self::Object(_) => ('{', '}'),
        };
        let Some(depth_left) = depth_left.checked_sub(1) else { return false };
        out.push(opening);
        let written = match self {
            Self::Scalar(_) => true,
            Self::Array(items) => items.iter().enumerate().all(|(index, item)| {
                out.push_str(if index > 0 { "," } else { "" });
                item.write(out, depth_left)
            }),
            Self::Object(members) => members.iter().enumerate().all(|(index, member)| {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&member.written);
                out.push(':');
                member.value.write(out, depth_left)
            }),
        };
        out.push(closing);
        written
    }

    /// Returns the object or array at the names, or an error message.
    pub(super) fn descend(&mut self, names: &[String]) -> Result<&mut Self, String> {
        let mut node = self;
        for name in names {
            node = node.existing(name).map_err(|message| message + ": create the parent of the path first")?;
        }
        Ok(node)
    }

    /// Returns the member of an object, or the element of an array.
    pub(super) fn existing(&mut self, name: &str) -> Result<&mut Self, String> {
        match self {
            Self::Object(members) => {
                // Where a name is repeated, the last one counts, as it does for most parsers.
                let member = members.iter_mut().rev().find(|member| member.is_named(name));
                member.map(|member| &mut member.value).ok_or_else(|| missing(name))
            }
            Self::Array(items) => {
                let at = index(name, items.len())?;
                items.get_mut(at).ok_or_else(|| beyond(name))
            }
            Self::Scalar(_) => Err(not_a_container(name)),
        }
    }

    /// Creates or replaces a member, inserts an item.
    pub(super) fn add(&mut self, name: &str, value: Self) -> Result<(), String> {
        match self {
            Self::Array(items) => {
                let at = index(name, items.len())?;
                if at > items.len() {
                    return Err(beyond(name));
                }
                items.insert(at, value);
                Ok(())
            }
            _ => self.set(name, value),
        }
    }

    /// Creates or replaces a member, replaces an item or appends one.
    pub(super) fn set(&mut self, name: &str, value: Self) -> Result<(), String> {
        match self {
            Self::Object(members) => {
                match members.iter_mut().rev().find(|member| member.is_named(name)) {
                    Some(member) => member.value = value,
                    None => members.push(Member::create(name, value).map_err(|error| error.to_string())?),
                }
                Ok(())
            }
            Self::Array(items) => {
                let length = items.len();
                let at = index(name, length)?;
                match items.get_mut(at) {
                    Some(item) => *item = value,
                    None if at == length => items.push(value),
                    None => return Err(beyond(name)),
                }
                Ok(())
            }
            Self::Scalar(_) => Err(not_a_container(name)),
        }
    }

    /// Takes out a member or an item.
    pub(super) fn remove(&mut self, name: &str) -> Result<Self, String> {
        match self {
            Self::Object(members) => {
                let at = members.iter().rposition(|member| member.is_named(name)).ok_or_else(|| missing(name))?;
                let removed = members.remove(at).value;
                // Earlier members of the same name must not become visible.
                members.retain(|member| !member.is_named(name));
                Ok(removed)
            }
            Self::Array(items) => {
                let at = index(name, items.len())?;
                if at < items.len() { Ok(items.remove(at)) } else { Err(beyond(name)) }
            }
            Self::Scalar(_) => Err(not_a_container(name)),
        }
    }
}

/// Parses the index of an element; `-` is the one after the last.
fn index(name: &str, length: usize) -> Result<usize, String> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    match name {
        "-" => Ok(length),
        _ if is_number => name.parse().map_err(|_| beyond(name)),
        _ => Err(format!("an array has no member {name:?}: give an index, or - for its end")),
    }
}

fn missing(name: &str) -> String {
    format!("there is no member {name:?}")
}

fn beyond(index: &str) -> String {
    format!("the array ends before {index}")
}

fn not_a_container(name: &str) -> String {
    format!("there can be no {name:?} in a string, number, boolean or null")
}
