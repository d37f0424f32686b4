//! Changes as the feed shows them. Each item is decoded on its own, and its body stays JSON until a delegate asks for a
//! type: one that does not fit is one bad item, not a bad page.

use azure_data_cosmos::models::{ChangeFeedItem, ChangeFeedOperationType};
use bytes::Bytes;
use changefeed_core::{
    Change, ItemId, Lsn, Mode, Operation, PartitionKey, PartitionKeyDefinition, ResourceId, Timestamp,
};
use serde_json::Value;

use crate::body::with_lsn;

/// The change that an entry of the feed tells. An entry that tells no position, as those of the SDK's emulator, has that
/// of its page. Never fails: an entry that makes no sense would stop its range for good. It becomes an item that fits no
/// type, so that the delegate fails for it alone.
pub(crate) fn decode(entry: &ChangeFeedItem<Value>, mode: Mode, page: Lsn) -> Change {
    let (current, previous, metadata) = (entry.current(), entry.previous(), entry.metadata());
    let shown = current.or(previous);
    let id = metadata.and_then(|metadata| metadata.id()).or_else(|| text(shown, "id"));
    let id = ItemId::stored(id.unwrap_or_default());
    let lsn = metadata.and_then(|metadata| metadata.lsn()).and_then(|lsn| u64::try_from(lsn.value()).ok());
    let lsn = lsn.or_else(|| number(current, "_lsn")).map_or(page, Lsn::new);
    let written = metadata.and_then(|metadata| metadata.conflict_resolution_timestamp()).map(|time| time.as_secs());
    let seconds = number(current, "_ts").or(written).unwrap_or_default();
    let previous_lsn = metadata.and_then(|metadata| metadata.previous_image_lsn());
    let operation = operation(entry, mode);
    let current = match current {
        Some(item) => Some(with_position(item, lsn)),
        None if matches!(operation, Operation::Delete | Operation::Expire) => None,
        None => Some(unreadable(entry)),
    };
    Change {
        rid: text(shown, "_rid").and_then(ResourceId::try_parse),
        lsn,
        timestamp: Timestamp::from_secs(seconds),
        operation,
        current,
        previous: previous.filter(|_| mode == Mode::AllVersions).map(bytes),
        previous_lsn: previous_lsn
            .and_then(|lsn| u64::try_from(lsn.value()).ok())
            .filter(|lsn| *lsn > 0 && mode == Mode::AllVersions)
            .map(Lsn::new),
        id,
    }
}

/// The partition key that comes with a delete: its values by path or, by a comment in the SDK, as an array.
pub(crate) fn deleted_key(told: &Value, definition: &PartitionKeyDefinition) -> Option<PartitionKey> {
    let members = match told {
        Value::Array(_) => return told.to_string().parse().ok(),
        Value::Object(members) if !members.is_empty() => members,
        // The answer names no key.
        _ => return None,
    };
    let value = |path: &str| {
        let value = members.get(path.trim_start_matches('/')).or_else(|| members.get(path));
        value.map_or("{}".to_owned(), Value::to_string)
    };
    let values: Vec<String> = definition.paths().map(value).collect();
    format!("[{}]", values.join(",")).parse().ok()
}

/// What happened. A kind of change that is not known here is a write: the item may be in the entry.
fn operation(entry: &ChangeFeedItem<Value>, mode: Mode) -> Operation {
    if mode == Mode::LatestVersion {
        return Operation::Write;
    }
    let expired = entry.metadata().and_then(|metadata| metadata.time_to_live_expired()) == Some(true);
    match entry.operation_type() {
        Some(ChangeFeedOperationType::Create) => Operation::Create,
        Some(ChangeFeedOperationType::Replace) => Operation::Replace,
        Some(ChangeFeedOperationType::Delete) if expired => Operation::Expire,
        Some(ChangeFeedOperationType::Delete) => Operation::Delete,
        _ => Operation::Write,
    }
}

/// The item with its `_lsn`, which the service tells beside it.
fn with_position(item: &Value, lsn: Lsn) -> Bytes {
    let json = bytes(item);
    if item.get("_lsn").is_some() { json } else { with_lsn(json.into(), lsn) }
}

fn bytes(item: &Value) -> Bytes {
    serde_json::to_vec(item).expect("invariant: what was read as JSON is JSON").into()
}

/// What stands for the item of an entry that is no delete and has none: JSON, but no object.
fn unreadable(entry: &ChangeFeedItem<Value>) -> Bytes {
    bytes(&Value::String(format!("the service returned a change ({:?}) without its item", entry.operation_type())))
}

fn text<'a>(item: Option<&'a Value>, member: &str) -> Option<&'a str> {
    item?.get(member)?.as_str()
}

fn number(item: Option<&Value>, member: &str) -> Option<u64> {
    item?.get(member)?.as_u64()
}

#[cfg(test)]
mod tests {
    use changefeed_core::ErrorKind;
    use serde_json::json;

    use super::*;

    const PAGE: Lsn = Lsn::new(99);

    fn entry(json: Value) -> ChangeFeedItem<Value> {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_latest_version_is_the_item_with_its_position() {
        let change = entry(json!({"current": {"id": "x", "n": 1, "_ts": 7, "_rid": "ADyiAIABAAENAAAAAAAAAA=="},
            "metadata": {"lsn": 14, "crts": 7}}));
        let change = decode(&change, Mode::LatestVersion, PAGE);
        assert_eq!((change.id.as_str(), change.lsn, change.timestamp), ("x", Lsn::new(14), Timestamp::from_secs(7)));
        assert_eq!(change.operation, Operation::Write);
        let current: Value = serde_json::from_slice(&change.current.unwrap()).unwrap();
        assert_eq!((&current["n"], &current["_lsn"]), (&json!(1), &json!(14)));
        assert!(change.rid.is_some());
    }

    #[test]
    fn a_flat_document_is_accepted() {
        let change = decode(&entry(json!({"id": "x", "_ts": 7, "_lsn": 3})), Mode::LatestVersion, PAGE);
        assert_eq!((change.lsn, change.current.unwrap()), (Lsn::new(3), r#"{"_lsn":3,"_ts":7,"id":"x"}"#.into()));
    }

    #[test]
    fn a_delete_tells_what_was_deleted_and_whether_it_expired() {
        for (expired, operation) in [(false, Operation::Delete), (true, Operation::Expire)] {
            let change = entry(json!({"current": {}, "previous": {"id": "x", "n": 1}, "metadata": {
                "operationType": "delete", "lsn": 9, "crts": 70, "previousImageLSN": 4, "id": "x",
                "timeToLiveExpired": expired}}));
            let change = decode(&change, Mode::AllVersions, PAGE);
            assert_eq!((change.operation, change.current.is_none()), (operation, true));
            assert_eq!((change.previous_lsn, change.timestamp), (Some(Lsn::new(4)), Timestamp::from_secs(70)));
            assert_eq!(change.previous.unwrap(), r#"{"id":"x","n":1}"#);
        }
    }

    #[test]
    fn a_delete_without_previous_image_has_its_id() {
        let change = entry(json!({"metadata": {"operationType": "delete", "lsn": 9, "crts": 70, "id": "x"}}));
        let change = decode(&change, Mode::AllVersions, PAGE);
        assert_eq!((change.id.as_str(), change.previous), ("x", None));
    }

    #[test]
    fn the_key_of_a_delete_is_read_in_both_forms() {
        let definition = PartitionKeyDefinition::hierarchical(["/tenant", "/user/name"]).unwrap();
        for told in [json!({"tenant": "a", "user/name": 7}), json!(["a", 7]), json!({"/tenant": "a", "/user/name": 7})]
        {
            assert_eq!(deleted_key(&told, &definition).unwrap(), ("a", 7).into(), "{told}");
        }
        let half = deleted_key(&json!({"tenant": "a"}), &definition).unwrap();
        assert_eq!(half, r#"["a",{}]"#.parse().unwrap());
        assert!(deleted_key(&json!({}), &definition).is_none() && deleted_key(&json!(null), &definition).is_none());
    }

    #[test]
    fn an_entry_without_position_has_that_of_its_page() {
        let bare = entry(json!({"current": {"id": "x"}}));
        assert_eq!(decode(&bare, Mode::LatestVersion, PAGE).lsn, PAGE);
    }

    #[test]
    fn an_id_is_taken_as_it_is() {
        for id in ["a/b", "a\\b", "a#b", &"x".repeat(5000)] {
            let change = entry(json!({"current": {"id": id}, "metadata": {"lsn": 1}}));
            assert_eq!(decode(&change, Mode::LatestVersion, PAGE).id.as_str(), id);
        }
    }

    #[test]
    fn an_entry_that_makes_no_sense_is_one_bad_item_with_its_coordinates() {
        #[derive(Debug, serde::Deserialize)]
        struct Order {
            #[serde(rename = "id")]
            _id: String,
        }
        let without_id =
            json!({"current": {"n": 1, "_ts": 7, "_rid": "ADyiAIABAAENAAAAAAAAAA=="}, "metadata": {"lsn": 3}});
        let empty = json!({"current": {}, "metadata": {"lsn": 3, "crts": 7}});
        let unknown = json!({"metadata": {"operationType": "archive", "lsn": 3, "crts": 7, "id": "x"}});
        let modes = [Mode::LatestVersion, Mode::LatestVersion, Mode::AllVersions];
        for (json, mode) in [without_id, empty, unknown].into_iter().zip(modes) {
            let change = decode(&entry(json), mode, PAGE);
            assert_eq!((change.lsn, change.timestamp), (Lsn::new(3), Timestamp::from_secs(7)));
            assert_eq!(change.operation, Operation::Write);
            assert_eq!(change.parse::<Order>().unwrap_err().kind(), ErrorKind::BadJson);
        }
        let known = json!({"current": {"id": "x"}, "metadata": {"operationType": "archive", "lsn": 3}});
        let change = decode(&entry(known), Mode::AllVersions, PAGE);
        assert_eq!((change.id.as_str(), change.operation), ("x", Operation::Write), "its item is there");
    }
}
