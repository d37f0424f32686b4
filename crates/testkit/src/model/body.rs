//! Bodies of items: what is checked when they come in, and what the store adds.

use changefeed_core::{
    Bytes, ETag, Error, ErrorKind, ItemId, Lsn, MAX_ITEM_BYTES, PartitionKey, PartitionKeyDefinition, ResourceId,
    Result, Timestamp,
};
use serde_json::{Map, Value};

use super::Bug;

/// What the store owns; clients send it back, and it is discarded.
const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_lsn", "_attachments"];

/// A body that came in and was found good.
#[derive(Clone, Debug)]
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
    pub(super) fn stored(&self, etag: &ETag, rid: &ResourceId, timestamp: Timestamp, bug: Option<Bug>) -> Bytes {
        let mut members = self.members.clone();
        members.retain(|name, _| match bug {
            Some(Bug::TrustsSystemMembers) => true,
            Some(Bug::TakesAllUnderscoreMembersForItsOwn) => !name.starts_with('_'),
            _ => !SYSTEM.contains(&name.as_str()),
        });
        let own =
            [("_etag", etag.as_str().into()), ("_rid", rid.to_string().into()), ("_ts", timestamp.as_secs().into())];
        for (name, value) in own {
            members.entry(name).or_insert(value);
        }
        Bytes::from(Value::Object(members).to_string())
    }

    /// Adds what an older body had more.
    pub(super) fn merge(&mut self, old: &Bytes) {
        let old: Map<String, Value> = serde_json::from_slice(old).expect("invariant: stored bodies are objects");
        for (name, value) in old {
            self.members.entry(name).or_insert(value);
        }
    }
}

/// The same body with its position.
pub(super) fn with_lsn(body: &Bytes, lsn: Lsn) -> Bytes {
    let mut members: Map<String, Value> = serde_json::from_slice(body).expect("invariant: stored bodies are objects");
    members.insert("_lsn".to_owned(), lsn.get().into());
    Bytes::from(Value::Object(members).to_string())
}
