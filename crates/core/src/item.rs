//! Items: JSON objects with an `id`, an etag and a partition key.

use std::{fmt, ops::Deref, str::FromStr, sync::Arc};

use bytes::Bytes;
use ecow::EcoString;
use serde::{Serialize, Serializer, de::DeserializeOwned};

use crate::{Error, ErrorKind, Lsn, PartitionKey, ResourceId, Result, Timestamp, typed::parse_item};

/// The largest body of an item, in bytes, as in Azure Cosmos DB.
pub const MAX_ITEM_BYTES: usize = 2 * 1024 * 1024;

/// The longest id that is written, in bytes, as in Azure Cosmos DB.
pub const MAX_ID_BYTES: usize = 1023;

/// The longest name of a database or container, in characters.
const MAX_NAME_CHARS: usize = 255;

/// The id of an item, unique within its partition key. Cheap to clone.
// Ids of up to 15 bytes are kept in place: pages have a thousand ids, and a shared one costs an allocation, a counter that
// other threads write to, and a miss in the caches of the core.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(EcoString);

impl ItemId {
    /// Checks and takes an id for a new item.
    ///
    /// # Errors
    /// [`ErrorKind::BadId`] if it is empty, longer than 1,023 bytes or contains one of `/ \ #`. Other characters are
    /// allowed, as in Azure Cosmos DB: also `?` and control characters.
    pub fn new(id: impl AsRef<str>) -> Result<Self> {
        let id = id.as_ref();
        if is_plain(id) {
            return Ok(Self(id.into()));
        }
        let problem = if id.is_empty() {
            "is empty"
        } else if id.len() > MAX_ID_BYTES {
            "is longer than 1,023 bytes"
        } else if id.contains(['/', '\\', '#']) {
            "contains one of / \\ #"
        } else {
            return Ok(Self(id.into()));
        };
        Err(bad_id(id, problem))
    }

    /// Takes the id of an item that is stored already, whatever it is: Azure Cosmos DB has items whose ids
    /// [`ItemId::new`] refuses, such as `a/b`, and one of them must not make a page unreadable.
    pub fn stored(id: impl AsRef<str>) -> Self {
        Self(id.as_ref().into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks the name of a database or container: an id of at most 255 characters without `?` and control characters.
///
/// # Errors
/// [`ErrorKind::BadId`] otherwise.
pub fn check_name(name: &str) -> Result<()> {
    ItemId::new(name)?;
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(bad_id(name, "is longer than 255 characters"));
    }
    match name.chars().find(|char| *char == '?' || char.is_control()) {
        Some('?') => Err(bad_id(name, "contains ?")),
        Some(_) => Err(bad_id(name, "contains a control character")),
        None => Ok(()),
    }
}

fn bad_id(id: &str, problem: &str) -> Error {
    let shown: String = id.chars().take(64).collect();
    Error::new(ErrorKind::BadId, format!("id {shown:?} {problem}: choose another id"))
}

/// Whether an id is certainly a good one, found out in one pass: a page has a thousand of them.
fn is_plain(id: &str) -> bool {
    let good = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'/' | b'\\' | b'#');
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(good)
}

impl Deref for ItemId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl FromStr for ItemId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        Self::new(id)
    }
}

impl TryFrom<&str> for ItemId {
    type Error = Error;

    fn try_from(id: &str) -> Result<Self> {
        Self::new(id)
    }
}

impl TryFrom<String> for ItemId {
    type Error = Error;

    fn try_from(id: String) -> Result<Self> {
        Self::new(id)
    }
}

impl TryFrom<&String> for ItemId {
    type Error = Error;

    fn try_from(id: &String) -> Result<Self> {
        Self::new(id.as_str())
    }
}

impl From<&Self> for ItemId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl Serialize for ItemId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Escapes control characters and backslashes, so that an id can stand in a line of a terminal, a log or a ledger and no
/// two ids look the same. [`ItemId::as_str`] has the id as it is.
impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_escaped = |char: char| char.is_control() || char == '\\';
        if !self.0.contains(is_escaped) {
            return f.write_str(&self.0);
        }
        self.0.chars().try_for_each(|char| {
            if is_escaped(char) { write!(f, "{}", char.escape_default()) } else { write!(f, "{char}") }
        })
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The version of an item: changes with every write, never comes back. Includes its quotes, as in HTTP.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ETag(Arc<str>);

impl ETag {
    /// Checks and takes an etag.
    ///
    /// # Errors
    /// [`ErrorKind::BadETag`] unless it is printable ASCII between double quotes, at most 128 characters in all.
    pub fn new(etag: impl Into<Arc<str>>) -> Result<Self> {
        let etag = etag.into();
        let inner = etag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let good = inner.is_some_and(|inner| {
            !inner.is_empty() && etag.len() <= 128 && inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
        });
        if good {
            return Ok(Self(etag));
        }
        let shown: String = etag.chars().take(64).collect();
        Err(Error::new(ErrorKind::BadETag, format!("{shown:?} is not an etag: pass one that a read or write returned")))
    }

    /// Returns the etag as text, quotes included.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ETag {
    type Err = Error;

    fn from_str(etag: &str) -> Result<Self> {
        Self::new(etag)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What names one item: its partition key and its id.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemKey {
    /// The partition key, with as many parts as the container's definition has paths.
    pub partition_key: PartitionKey,
    /// The id within the partition key.
    pub id: ItemId,
}

impl ItemKey {
    /// Creates the key of the item `id` under `partition_key`.
    pub fn new(partition_key: impl Into<PartitionKey>, id: ItemId) -> Self {
        Self { partition_key: partition_key.into(), id }
    }
}

/// An item as stored: the body holds the user's members and the system's (`_rid`, `_etag`, `_ts`).
#[derive(Clone, PartialEq)]
pub struct Item {
    /// The id.
    pub id: ItemId,
    /// The version.
    pub etag: ETag,
    /// When this version was written.
    pub timestamp: Timestamp,
    /// The position of this version in the feed; zero where the store does not tell it (a listing of Azure Cosmos DB).
    pub lsn: Lsn,
    /// The resource id: stable from the item's creation to its deletion.
    pub rid: ResourceId,
    /// The JSON object.
    pub body: Bytes,
}

impl Item {
    /// Returns the body as a value of the caller's type, without system members; see [`parse_item`].
    ///
    /// # Errors
    /// [`ErrorKind::BadJson`] if the body does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        parse_body(&self.id, &self.body)
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({} {} lsn {}, {} bytes)", self.id, self.etag, self.lsn, self.body.len())
    }
}

pub(crate) fn parse_body<T: DeserializeOwned>(id: &ItemId, body: &[u8]) -> Result<T> {
    parse_item(body).map_err(|error| {
        let wanted = std::any::type_name::<T>();
        Error::new(ErrorKind::BadJson, format!("item {id} does not fit {wanted}")).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_an_id_are_escaped_where_it_is_shown() {
        for (id, shown) in [("a?b", "a?b"), ("é", "é"), ("a\n\u{1b}[2J", "a\\n\\u{1b}[2J")] {
            assert_eq!(ItemId::new(id).unwrap().to_string(), shown);
        }
        assert_eq!(ItemId::stored("a\\nb").to_string(), "a\\\\nb");
    }

    #[test]
    fn a_name_has_neither_question_marks_nor_control_characters() {
        assert!(check_name("a b.c").is_ok());
        for bad in ["", "a/b", "a?b", "a\nb", &"x".repeat(256)] {
            assert_eq!(check_name(bad).unwrap_err().kind(), ErrorKind::BadId, "{bad:?}");
        }
    }

    #[test]
    fn ids_of_1023_bytes_are_accepted_and_longer_ones_refused() {
        for id in ["x".repeat(1023), "€".repeat(341)] {
            assert!(ItemId::new(id).is_ok());
        }
        for id in ["x".repeat(1024), "€".repeat(342)] {
            assert_eq!(ItemId::new(id).unwrap_err().kind(), ErrorKind::BadId);
        }
    }

    #[test]
    fn the_id_of_a_stored_item_is_taken_as_it_is() {
        for id in ["a/b", "a\\b", "a#b", "", &"x".repeat(5000)] {
            assert_eq!(ItemId::stored(id).as_str(), id);
        }
    }

    #[test]
    fn ids_that_would_break_paths_are_refused() {
        for id in ["", "a/b", "a\\b", "a#b"] {
            assert_eq!(ItemId::new(id).unwrap_err().kind(), ErrorKind::BadId, "{id:?}");
        }
        for id in ["a b", "a%b", "..", "ü", "a+b", " ", "a?b", "a\nb", "\0"] {
            assert_eq!(ItemId::new(id).unwrap().as_str(), id);
        }
    }

    #[test]
    fn etags_are_quoted_printable_text() {
        assert_eq!(ETag::new("\"1-2f\"").unwrap().as_str(), "\"1-2f\"");
        for etag in ["", "\"", "\"\"", "1-2f", "\"a b\"", "\"a\"b\"", "*"] {
            assert_eq!(ETag::new(etag).unwrap_err().kind(), ErrorKind::BadETag, "{etag:?}");
        }
    }
}
