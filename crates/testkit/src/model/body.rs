//! Bodies of items: what is checked when they come in, and what the store adds.

use changefeed_core::{
    Bytes, ETag, Error, ErrorKind, ItemId, Lsn, MAX_ITEM_BYTES, PartitionKey, PartitionKeyDefinition, ResourceId,
    Result, Timestamp,
};
use serde_json::{Map, Value};

/// What the store owns; clients send it back, and it is discarded.
const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_lsn", "_attachments"];

/// A body that came in and was found good.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) id: ItemId,
    pub(super) key: PartitionKey,
    pub(super) ttl: Option<i64>,
    members: Map<String, Value>,
}

impl Parsed {
    pub(super) fn new(body: &Bytes, definition: &PartitionKeyDefinition, max_bytes: usize) -> Result<Self> {
        if body.len() > max_bytes {
            let message = format!("the item has {} bytes, the limit is {MAX_ITEM_BYTES}", body.len());
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let text = std::str::from_utf8(body)
            .map_err(|error| Error::new(ErrorKind::NotUtf8, "the item is not valid UTF-8").with_source(error))?;
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorKind::BadJson, "the item is not valid JSON").with_source(error))?;
        let Value::Object(members) = value else {
            return Err(Error::new(ErrorKind::NotAnObject, "the item is not a JSON object"));
        };
        let Some(Value::String(id)) = members.get("id") else {
            return Err(Error::new(ErrorKind::MissingId, "the item has no member id that is a string"));
        };
        let id = ItemId::new(id.as_str())?;
        let ttl = members.get("ttl").and_then(Value::as_i64);
        Ok(Self { id, key: definition.extract(body)?, ttl, members })
    }

    /// The body to store.
    pub(super) fn stored(&self, etag: &ETag, rid: &ResourceId, timestamp: Timestamp, trusting: bool) -> Bytes {
        let mut members = self.members.clone();
        if trusting {
            members.entry("_etag").or_insert_with(|| etag.as_str().into());
            members.entry("_rid").or_insert_with(|| rid.to_string().into());
            members.entry("_ts").or_insert_with(|| timestamp.as_secs().into());
        } else {
            members.retain(|name, _| !SYSTEM.contains(&name.as_str()));
            members.insert("_etag".to_owned(), etag.as_str().into());
            members.insert("_rid".to_owned(), rid.to_string().into());
            members.insert("_ts".to_owned(), timestamp.as_secs().into());
        }
        Bytes::from(Value::Object(members).to_string())
    }
}

/// The same body with its position.
pub(super) fn with_lsn(body: &Bytes, lsn: Lsn) -> Bytes {
    let mut members: Map<String, Value> = serde_json::from_slice(body).expect("invariant: stored bodies are objects");
    members.insert("_lsn".to_owned(), lsn.get().into());
    Bytes::from(Value::Object(members).to_string())
}
