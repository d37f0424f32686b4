//! Partial updates of items: parses a `PATCH` request and applies it to a stored body.
//!
//! ```
//! use changefeed_server::patch::Patch;
//!
//! let patch = Patch::parse(br#"{"operations":[{"op":"incr","path":"/stock","value":-1}],"condition":"from c where c.stock > 0"}"#)?;
//! assert_eq!(patch.condition(), Some("from c where c.stock > 0"));
//! assert_eq!(patch.apply(br#"{"id":"1","pk":"a","stock":5}"#, &["/pk"])?, br#"{"id":"1","pk":"a","stock":4}"#);
//! # Ok::<(), changefeed_server::patch::PatchError>(())
//! ```
//!
//! | operation | member of an object | item of an array |
//! | --- | --- | --- |
//! | `add` | created or replaced | inserted before the index; at the length or at `-`, appended |
//! | `set` | created or replaced | replaced; at the length or at `-`, appended |
//! | `replace` | replaced, must exist | replaced, must exist |
//! | `remove` | removed, must exist | removed, must exist |
//! | `incr` | a number is added to it; created if missing | a number is added to it, must exist |
//! | `move` | `remove` at `from`, then `add` at `path` | likewise |
//!
//! Operations see the result of those before them; if one fails, none has happened. The object or array around the place a
//! path names has to exist. All other members keep their order and their text, numbers of any size included.

mod error;
mod number;
mod operation;
mod path;
#[cfg(test)]
mod tests;
mod tree;

use changefeed_query::json;
use serde::Deserialize;

pub use self::error::PatchError;
use self::{
    operation::{Operation, Request},
    path::Path,
    tree::Node,
};

/// A parsed patch: one to ten operations, and optionally a condition.
#[derive(Clone, Debug)]
pub struct Patch {
    operations: Vec<Operation>,
    condition: Option<String>,
}

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    operations: Vec<Request>,
    condition: Option<String>,
}

impl Patch {
    /// The most operations a patch may have.
    pub const MAX_OPERATIONS: usize = 10;

    /// Reads the body of a request: an object with `operations` and perhaps `condition`, or only the array of operations,
    /// as the SDK for JavaScript sends it.
    ///
    /// # Errors
    /// If the body is not such JSON, has no operation or more than ten, or an operation lacks something, has a bad path or
    /// names a member that no patch may change.
    pub fn parse(body: &[u8]) -> Result<Self, PatchError> {
        let is_array = body.trim_ascii_start().first() == Some(&b'[');
        let parsed = if is_array {
            serde_json::from_slice(body).map(|operations| Body { operations, condition: None })
        } else {
            serde_json::from_slice(body)
        };
        let Body { operations, condition } =
            parsed.map_err(|error| PatchError::new(format!("the body is not a patch: {error}")))?;
        if operations.is_empty() {
            return Err(PatchError::new("the patch has no operation: send at least one"));
        }
        if operations.len() > Self::MAX_OPERATIONS {
            return Err(PatchError::new(format!(
                "the patch has {} operations: send at most {} at once",
                operations.len(),
                Self::MAX_OPERATIONS
            )));
        }
        let operations = operations.into_iter().enumerate();
        let operations = operations.map(|(index, request)| Operation::new(index, request)).collect::<Result<_, _>>()?;
        Ok(Self { operations, condition })
    }

    /// The condition that the stored item has to fulfil, such as `from c where c.stock > 0`.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_deref()
    }

    /// Returns the body after all operations. `protected` are the partition key paths of the container, whose values must
    /// not change.
    ///
    /// # Errors
    /// If an operation cannot be performed on this body, or would change a protected path.
    pub fn apply<P: AsRef<str>>(&self, body: &[u8], protected: &[P]) -> Result<Vec<u8>, PatchError> {
        let mut root = Node::parse(body).map_err(|error| PatchError::new(format!("the item is not JSON: {error}")))?;
        if !matches!(root, Node::Object(_)) {
            return Err(PatchError::new("the item is not an object"));
        }
        let protected: Vec<Path> = protected.iter().map(|path| Path::of_partition_key(path.as_ref())).collect();
        let before: Vec<Option<String>> = protected.iter().map(|path| root.text_at(path)).collect();
        for operation in &self.operations {
            operation.check_protected(&protected)?;
            operation.apply(&mut root)?;
        }
        for (path, before) in protected.iter().zip(before) {
            if root.text_at(path) != before {
                return Err(PatchError::new(format!(
                    "the patch changes the partition key at {path}: delete the item and create it under its new key"
                )));
            }
        }
        root.to_text()
            .map(String::into_bytes)
            .ok_or_else(|| PatchError::new(format!("the item would be nested deeper than {} levels", json::MAX_DEPTH)))
    }
}
