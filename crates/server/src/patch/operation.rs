//! One operation: read strictly, performed on a tree.

use std::fmt;

use changefeed_query::json::{self, Token, unescape_strict};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{error::PatchError, number, path::Path, tree::Node};

/// Members of an item that the server owns, and its name.
const UNTOUCHABLE: [&str; 6] = ["id", "_rid", "_self", "_etag", "_ts", "_attachments"];

/// An operation as it was sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    op: Kind,
    path: String,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
    from: Option<String>,
}

/// `null` is a value, too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Add,
    Set,
    Replace,
    Remove,
    Incr,
    Move,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Set => "set",
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::Incr => "incr",
            Self::Move => "move",
        })
    }
}

/// An operation that makes sense by itself.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Its place in the patch, for messages.
    index: usize,
    kind: Kind,
    path: Path,
    action: Action,
}

/// The action, with its JSON text.
#[derive(Clone, Debug)]
enum Action {
    Add(String),
    Set(String),
    Replace(String),
    Remove,
    Increment(String),
    Move(Path),
}

impl Operation {
    pub(super) fn new(index: usize, request: Request) -> Result<Self, PatchError> {
        let kind = request.op;
        let refuse = |message: String| PatchError::of(index, format!("{kind}: {message}"));
        let parse = |member: &str, path: &str| {
            let path = Path::parse(path).map_err(|problem| {
                refuse(format!("{member} {path:?} {problem}: write it as a JSON pointer such as /tags/0"))
            })?;
            match path.names().first() {
                Some(name) if UNTOUCHABLE.contains(&name.as_str()) => {
                    Err(refuse(format!("{member} {path} cannot be changed by a patch: leave {name} out")))
                }
                _ => Ok(path),
            }
        };
        let path = parse("path", &request.path)?;
        let value = || {
            let value = request.value.as_deref().ok_or_else(|| refuse("value is missing".to_owned()))?.get();
            check_readable(value).map_err(|error| refuse(format!("value: {error}")))?;
            Ok(value.to_owned())
        };
        let action = match kind {
            Kind::Add => Action::Add(value()?),
            Kind::Set => Action::Set(value()?),
            Kind::Replace => Action::Replace(value()?),
            Kind::Remove => Action::Remove,
            Kind::Incr => match value()? {
                number if number::sum(&number, "0").is_some() => Action::Increment(number),
                _ => return Err(refuse("value is not a number".to_owned())),
            },
            Kind::Move => {
                let from = request.from.as_deref().ok_or_else(|| refuse("from is missing".to_owned()))?;
                let from = parse("from", from)?;
                if path.is_within(&from) && path != from {
                    return Err(refuse(format!("path {path} lies within from {from}: move it elsewhere")));
                }
                Action::Move(from)
            }
        };
        Ok(Self { index, kind, path, action })
    }

    /// Refuses an operation that names a protected path or something within it. Changes from above are found when the patch
    /// is complete.
    pub(super) fn check_protected(&self, protected: &[Path]) -> Result<(), PatchError> {
        let from = if let Action::Move(from) = &self.action { Some(from) } else { None };
        for path in std::iter::once(&self.path).chain(from) {
            if protected.iter().any(|key| path.is_within(key)) {
                return Err(
                    self.refuse("it is the partition key: delete the item and create it under its new key".into())
                );
            }
        }
        Ok(())
    }

    pub(super) fn apply<'a>(&'a self, root: &mut Node<'a>) -> Result<(), PatchError> {
        self.perform(root).map_err(|message| self.refuse(message))
    }

    fn perform<'a>(&'a self, root: &mut Node<'a>) -> Result<(), String> {
        let (way, last) = self.path.split_last();
        match &self.action {
            Action::Add(value) => root.descend(way)?.add(last, node(value)?),
            Action::Set(value) => root.descend(way)?.set(last, node(value)?),
            Action::Replace(value) => {
                let target = root.descend(way)?.existing(last);
                *target.map_err(|message| message + ": use set to create it")? = node(value)?;
                Ok(())
            }
            Action::Remove => root.descend(way)?.remove(last).map(drop),
            Action::Increment(by) => increment(root.descend(way)?, last, by),
            Action::Move(from) if *from == self.path => root.descend(way)?.existing(last).map(drop),
            Action::Move(from) => {
                let (from_way, from_last) = from.split_last();
                let moved = root.descend(from_way).and_then(|parent| parent.remove(from_last));
                let moved = moved.map_err(|message| format!("from {from}: {message}"))?;
                root.descend(way)?.add(last, moved)
            }
        }
    }

    fn refuse(&self, message: String) -> PatchError {
        PatchError::of(self.index, format!("{} {}: {message}", self.kind, self.path))
    }
}

fn increment<'a>(parent: &mut Node<'a>, name: &str, by: &'a str) -> Result<(), String> {
    if matches!(parent, Node::Object(_)) && parent.existing(name).is_err() {
        return parent.set(name, Node::Scalar(by.into()));
    }
    match parent.existing(name)? {
        Node::Scalar(text) if number::is_number(text) => {
            *text = number::sum(text, by).ok_or("the sum is too large for a number")?.into();
            Ok(())
        }
        _ => Err("it is not a number: only a number can be incremented".to_owned()),
    }
}

/// Escapes such as a lone `\ud800` are valid JSON, but no string: an item that has one cannot be read by most parsers.
fn check_readable(value: &str) -> Result<(), &'static str> {
    json::tokens(json::check(value.as_bytes())?).try_for_each(|token| match token {
        Token::String(string) => unescape_strict(string).map(drop).ok_or("a string has an escape that is no character"),
        _ => Ok(()),
    })
}

fn node(value: &str) -> Result<Node<'_>, String> {
    Node::parse(value.as_bytes()).map_err(str::to_owned)
}
