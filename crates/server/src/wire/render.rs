//! Bodies of responses, assembled from stored items without parsing them.

use bytes::{BufMut, Bytes, BytesMut};
use changefeed_core::{Change, Item, Operation, PartitionKeyDefinition, PartitionKeyValue, ResourceId};
use serde_json::Value;

use crate::containers::previous_images::PreviousImages;

/// The text that [`complete`] adds around the link of the container and the id of the document.
const SELF: &[u8] = b",\"_self\":\"";
const DOCS: &[u8] = b"docs/";
const ATTACHMENTS: &[u8] = b"/\",\"_attachments\":\"attachments/\"}";

/// The length of the resource id of a document.
const RID_CHARS: usize = 24;

/// Adds the members that depend on the server: `_self` and `_attachments`.
pub(crate) fn complete(out: &mut BytesMut, stored: &[u8], container_link: &str, rid: Option<ResourceId>) {
    let (Some(open), Some(rid)) = (stored.strip_suffix(b"}"), rid) else {
        out.extend_from_slice(stored);
        return;
    };
    out.extend_from_slice(open);
    out.extend_from_slice(SELF);
    out.extend_from_slice(container_link.as_bytes());
    out.extend_from_slice(DOCS);
    rid.write_to(out);
    out.extend_from_slice(ATTACHMENTS);
}

/// Capacity for the text that [`complete`] adds.
const ADDED_BYTES: usize = 128;

/// An item as a point read shows it.
pub(crate) fn item(item: &Item, container_link: &str) -> Bytes {
    // The last brace of the body goes. Not a byte too much: bytes that fill their room are shared without another.
    let added = SELF.len() + container_link.len() + DOCS.len() + RID_CHARS + ATTACHMENTS.len() - 1;
    let mut out = BytesMut::with_capacity(item.body.len() + added);
    let room = out.capacity();
    complete(&mut out, &item.body, container_link, Some(item.rid));
    debug_assert_eq!(out.len(), room, "an item fills its room");
    out.freeze()
}

/// A list of documents under the name that the kind of resource has.
pub(crate) struct List {
    out: BytesMut,
    count: usize,
}

impl List {
    pub(crate) fn new(owner: &str, member: &str, capacity: usize) -> Self {
        let mut out = BytesMut::with_capacity(capacity + 128);
        out.extend_from_slice(b"{\"_rid\":\"");
        out.extend_from_slice(owner.as_bytes());
        out.extend_from_slice(b"\",\"");
        out.extend_from_slice(member.as_bytes());
        out.extend_from_slice(b"\":[");
        Self { out, count: 0 }
    }

    /// Returns the buffer for the next document.
    pub(crate) fn next(&mut self) -> &mut BytesMut {
        if self.count > 0 {
            self.out.put_u8(b',');
        }
        self.count += 1;
        &mut self.out
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn finish(mut self) -> Bytes {
        self.out.extend_from_slice(format!("],\"_count\":{}}}", self.count).as_bytes());
        self.out.freeze()
    }
}

/// The format of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireFormat {
    /// Items as they are.
    Flat,
    /// Each item as `current` beside `metadata`.
    Envelope,
}

/// A page of changes.
pub(crate) fn changes(
    changes: &[Change],
    format: WireFormat,
    images: PreviousImages,
    definition: &PartitionKeyDefinition,
    owner: &str,
    container_link: &str,
) -> Bytes {
    let length = |body: &Option<Bytes>| body.as_ref().map_or(0, Bytes::len);
    let bytes: usize =
        changes.iter().map(|change| length(&change.current) + length(&change.previous) + 3 * ADDED_BYTES).sum();
    let mut list = List::new(owner, "Documents", bytes);
    for change in changes {
        let out = list.next();
        match format {
            WireFormat::Flat => complete(out, change.current.as_deref().unwrap_or(b"{}"), container_link, change.rid),
            WireFormat::Envelope => envelope(out, change, images, definition, container_link),
        }
    }
    list.finish()
}

fn envelope(
    out: &mut BytesMut,
    change: &Change,
    images: PreviousImages,
    definition: &PartitionKeyDefinition,
    container_link: &str,
) {
    out.extend_from_slice(b"{\"current\":");
    match &change.current {
        Some(current) => complete(out, current, container_link, change.rid),
        None => out.extend_from_slice(b"{}"),
    }
    if let Some(previous) = change.previous.as_ref().filter(|_| images.include(change.operation)) {
        out.extend_from_slice(b",\"previous\":");
        complete(out, previous, container_link, change.rid);
    }
    let seconds = change.timestamp.as_secs();
    out.extend_from_slice(format!(",\"metadata\":{{\"lsn\":{},\"crts\":{seconds}", change.lsn).as_bytes());
    let operation = match change.operation {
        Operation::Write => None,
        Operation::Create => Some("create"),
        Operation::Replace => Some("replace"),
        Operation::Delete | Operation::Expire => Some("delete"),
    };
    if let Some(operation) = operation {
        let previous = change.previous_lsn.map_or(0, changefeed_core::Lsn::get);
        let expired = change.operation == Operation::Expire;
        let more = format!(
            ",\"operationType\":\"{operation}\",\"previousImageLSN\":{previous},\"timeToLiveExpired\":{expired}"
        );
        out.extend_from_slice(more.as_bytes());
    }
    if matches!(change.operation, Operation::Delete | Operation::Expire) {
        let id = Value::from(change.id.as_str());
        let key = change.previous.as_deref().map(|previous| key_members(definition, previous)).unwrap_or_default();
        out.extend_from_slice(format!(",\"id\":{id},\"partitionKey\":{{{key}}}").as_bytes());
    }
    out.extend_from_slice(b"}}");
}

/// The values of the partition key by path, as metadata of a delete shows them.
fn key_members(definition: &PartitionKeyDefinition, body: &[u8]) -> String {
    let Ok(key) = definition.extract(body) else { return String::new() };
    let member =
        |(path, value): (&str, &PartitionKeyValue)| format!("{}:{value}", Value::from(path.trim_start_matches('/')));
    let defined = definition.paths().zip(key.values()).filter(|(_, value)| **value != PartitionKeyValue::Undefined);
    defined.map(member).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use changefeed_core::{ItemId, Lsn, Timestamp};

    use super::*;

    const LINK: &str = "dbs/ADyiAA==/colls/ADyiAIABAAE=/";

    fn change(operation: Operation) -> Change {
        let body = |n: u32| Some(Bytes::from(format!(r#"{{"id":"1","pk":"a","n":{n}}}"#)));
        let deleted = matches!(operation, Operation::Delete | Operation::Expire);
        Change {
            id: ItemId::new("1").unwrap(),
            rid: ResourceId::document(1, 1, 1).ok(),
            lsn: Lsn::new(9),
            timestamp: Timestamp::from_secs(77),
            operation,
            current: if deleted { None } else { body(2) },
            previous: if matches!(operation, Operation::Write | Operation::Create) { None } else { body(1) },
            previous_lsn: if matches!(operation, Operation::Write | Operation::Create) {
                None
            } else {
                Some(Lsn::new(4))
            },
        }
    }

    fn rendered(operation: Operation, format: WireFormat) -> Value {
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        let body = changes(&[change(operation)], format, PreviousImages::ALL, &definition, "ADyiAIABAAE=", LINK);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["_count"], 1);
        body["Documents"][0].clone()
    }

    #[test]
    fn a_flat_change_is_the_item_with_its_link() {
        let document = rendered(Operation::Write, WireFormat::Flat);
        assert_eq!(document["n"], 2);
        let rid = ResourceId::document(1, 1, 1).unwrap();
        assert_eq!(document["_self"], format!("{LINK}docs/{rid}/"));
    }

    #[test]
    fn a_latest_version_in_an_envelope_has_no_operation() {
        let document = rendered(Operation::Write, WireFormat::Envelope);
        assert_eq!(document["current"]["n"], 2);
        assert_eq!(document["metadata"], serde_json::json!({"lsn": 9, "crts": 77}));
    }

    #[test]
    fn a_delete_has_an_empty_current_and_says_what_it_was() {
        let document = rendered(Operation::Expire, WireFormat::Envelope);
        assert_eq!(document["current"], serde_json::json!({}));
        assert_eq!(document["previous"]["n"], 1);
        assert_eq!(
            document["metadata"],
            serde_json::json!({"lsn": 9, "crts": 77, "operationType": "delete", "previousImageLSN": 4,
                "timeToLiveExpired": true, "id": "1", "partitionKey": {"pk": "a"}})
        );
    }

    #[test]
    fn a_replace_carries_both_images_and_a_create_only_one() {
        assert_eq!(rendered(Operation::Replace, WireFormat::Envelope)["metadata"]["previousImageLSN"], 4);
        let created = rendered(Operation::Create, WireFormat::Envelope);
        assert_eq!(created["metadata"]["previousImageLSN"], 0);
        assert_eq!(created.get("previous"), None);
    }
}
