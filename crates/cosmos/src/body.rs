//! Bodies of items: checked before they are sent, since the SDK wants their id and partition key; and the members that
//! the service adds.

use bytes::{Bytes, BytesMut};
use changefeed_core::{
    ETag, Error, ErrorKind, Item, ItemId, Lsn, MAX_ITEM_BYTES, PartitionKey, PartitionKeyDefinition, ResourceId,
    Result, Timestamp,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How deep JSON may nest in Azure Cosmos DB.
const MAX_DEPTH: usize = 128;

/// A body that can be sent.
pub(crate) struct Checked<'a> {
    pub(crate) id: ItemId,
    pub(crate) partition_key: PartitionKey,
    pub(crate) json: &'a RawValue,
}

/// Checks a body.
///
/// # Errors
/// The kind that names what is wrong with it.
pub(crate) fn check<'a>(body: &'a Bytes, definition: &PartitionKeyDefinition) -> Result<Checked<'a>> {
    #[derive(Deserialize)]
    struct Id {
        id: Option<Box<RawValue>>,
    }
    if body.len() > MAX_ITEM_BYTES {
        let message = format!("the item has {} bytes, but {MAX_ITEM_BYTES} is the most", body.len());
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        Error::new(ErrorKind::NotUtf8, "the item is not valid UTF-8: encode it as such").with_source(error)
    })?;
    if depth(text) > MAX_DEPTH {
        return Err(Error::new(ErrorKind::BadJson, format!("the item nests deeper than {MAX_DEPTH} levels")));
    }
    let bad_json = |error| Error::new(ErrorKind::BadJson, "the item is not valid JSON").with_source(error);
    let json: &RawValue = serde_json::from_str(text).map_err(bad_json)?;
    if !json.get().starts_with('{') {
        return Err(Error::new(ErrorKind::NotAnObject, "the item is JSON but not an object: wrap it in {}"));
    }
    let missing = |what: &str| Error::new(ErrorKind::MissingId, format!("the item {what}"));
    let id = serde_json::from_str::<Id>(text).map_err(bad_json)?.id;
    let id = id.ok_or_else(|| missing("has no id: give it a member \"id\""))?;
    let id: String = serde_json::from_str(id.get()).map_err(|_| missing("'s id is not a string: make it one"))?;
    Ok(Checked { id: ItemId::new(id)?, partition_key: definition.extract(body)?, json })
}

/// How deep the JSON nests, if it is JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The members of a stored item that the service writes.
#[derive(Deserialize)]
pub(crate) struct Stored {
    pub(crate) id: String,
    #[serde(rename = "_rid")]
    rid: String,
    #[serde(rename = "_etag")]
    etag: String,
    #[serde(rename = "_ts")]
    ts: u64,
}

impl Stored {
    /// Reads them out of an item.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if one is missing.
    pub(crate) fn of(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body).map_err(|error| {
            let message = "the service returned an item without id, _rid, _etag or _ts";
            Error::new(ErrorKind::Corrupt, message).with_source(error)
        })
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::from_secs(self.ts)
    }
}

/// The item that a body shows.
pub(crate) fn item(body: Bytes, lsn: Lsn) -> Result<Item> {
    let stored = Stored::of(&body)?;
    Ok(Item {
        timestamp: stored.timestamp(),
        id: ItemId::stored(stored.id),
        etag: ETag::new(stored.etag)?,
        rid: rid(&stored.rid)?,
        lsn,
        body,
    })
}

/// Reads a resource id.
pub(crate) fn rid(text: &str) -> Result<ResourceId> {
    ResourceId::try_parse(text)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{text:?} is not a resource id of Azure Cosmos DB")))
}

/// The JSON object with one more member at its end.
pub(crate) fn with_lsn(object: Vec<u8>, lsn: Lsn) -> Bytes {
    let Some(inner) = object.strip_suffix(b"}") else { return object.into() };
    let mut body = BytesMut::from(inner);
    let comma = if inner.ends_with(b"{") { "" } else { "," };
    body.extend_from_slice(format!("{comma}\"_lsn\":{lsn}}}").as_bytes());
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(body: &str) -> ErrorKind {
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        check(&Bytes::copy_from_slice(body.as_bytes()), &definition).err().map(|error| error.kind()).unwrap()
    }

    #[test]
    fn a_body_that_cannot_be_sent_is_refused_with_the_kind_that_names_it() {
        assert_eq!(kind("[1]"), ErrorKind::NotAnObject);
        assert_eq!(kind("{"), ErrorKind::BadJson);
        assert_eq!(kind(r#"{"pk":"a"}"#), ErrorKind::MissingId);
        assert_eq!(kind(r#"{"id":7,"pk":"a"}"#), ErrorKind::MissingId);
        assert_eq!(kind(r#"{"id":"a/b","pk":"a"}"#), ErrorKind::BadId);
        assert_eq!(kind(r#"{"id":"a","pk":["a"]}"#), ErrorKind::WrongPartitionKey);
        assert_eq!(kind(&format!(r#"{{"id":"a","d":{}{}}}"#, "[".repeat(200), "]".repeat(200))), ErrorKind::BadJson);
    }

    #[test]
    fn brackets_in_texts_are_no_depth() {
        assert_eq!(depth(r#"{"a":"[[[[\"[[","b":[[1]]}"#), 3);
    }

    #[test]
    fn a_position_is_added_at_the_end() {
        assert_eq!(with_lsn(b"{\"a\":1}".to_vec(), Lsn::new(7)), "{\"a\":1,\"_lsn\":7}");
        assert_eq!(with_lsn(b"{}".to_vec(), Lsn::new(7)), "{\"_lsn\":7}");
    }
}
