//! Changes as the feed shows them. Each item is decoded on its own, and its body stays JSON until a delegate asks for a
//! type: one that does not fit is one bad item, not a bad page.

use azure_data_cosmos::models::{ChangeFeedItem, ChangeFeedOperationType};
use bytes::Bytes;
use changefeed_core::{Change, Error, ErrorKind, ItemId, Lsn, Mode, Operation, ResourceId, Result, Timestamp};
use serde_json::Value;

use crate::body::with_lsn;

/// The change that an entry of the feed tells. An entry that tells no position, as those of the SDK's emulator, has that
/// of its page.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it tells no id.
pub(crate) fn decode(entry: &ChangeFeedItem<Value>, mode: Mode, page: Lsn) -> Result<Change> {
    let (current, previous, metadata) = (entry.current(), entry.previous(), entry.metadata());
    let shown = current.or(previous);
    let id = metadata.and_then(|metadata| metadata.id()).or_else(|| text(shown, "id"));
    let without_id = || Error::new(ErrorKind::Corrupt, "the service returned a change without id");
    let id = ItemId::new(id.ok_or_else(without_id)?)?;
    let lsn = metadata.and_then(|metadata| metadata.lsn()).and_then(|lsn| u64::try_from(lsn.value()).ok());
    let lsn = lsn.or_else(|| number(current, "_lsn")).map_or(page, Lsn::new);
    let written = metadata.and_then(|metadata| metadata.conflict_resolution_timestamp()).map(|time| time.as_secs());
    let seconds = number(current, "_ts").or(written).unwrap_or_default();
    let previous_lsn = metadata.and_then(|metadata| metadata.previous_image_lsn());
    Ok(Change {
        rid: text(shown, "_rid").and_then(ResourceId::try_parse),
        lsn,
        timestamp: Timestamp::from_secs(seconds),
        operation: operation(entry, mode)?,
        current: current.map(|item| with_position(item, lsn)).transpose()?,
        previous: previous.filter(|_| mode == Mode::AllVersions).map(bytes).transpose()?,
        previous_lsn: previous_lsn
            .and_then(|lsn| u64::try_from(lsn.value()).ok())
            .filter(|lsn| *lsn > 0 && mode == Mode::AllVersions)
            .map(Lsn::new),
        id,
    })
}

fn operation(entry: &ChangeFeedItem<Value>, mode: Mode) -> Result<Operation> {
    if mode == Mode::LatestVersion {
        return Ok(Operation::Write);
    }
    let expired = entry.metadata().and_then(|metadata| metadata.time_to_live_expired()) == Some(true);
    match entry.operation_type() {
        Some(ChangeFeedOperationType::Create) => Ok(Operation::Create),
        Some(ChangeFeedOperationType::Replace) => Ok(Operation::Replace),
        Some(ChangeFeedOperationType::Delete) if expired => Ok(Operation::Expire),
        Some(ChangeFeedOperationType::Delete) => Ok(Operation::Delete),
        other => Err(Error::new(ErrorKind::Unsupported, format!("a change is {other:?}, which is not known here"))),
    }
}

/// The item with its `_lsn`, which the service tells beside it.
fn with_position(item: &Value, lsn: Lsn) -> Result<Bytes> {
    let json = bytes(item)?;
    Ok(if item.get("_lsn").is_some() { json } else { with_lsn(json.into(), lsn) })
}

fn bytes(item: &Value) -> Result<Bytes> {
    let json = serde_json::to_vec(item);
    json.map(Bytes::from).map_err(|error| Error::new(ErrorKind::Corrupt, "a change cannot be shown").with_source(error))
}

fn text<'a>(item: Option<&'a Value>, member: &str) -> Option<&'a str> {
    item?.get(member)?.as_str()
}

fn number(item: Option<&Value>, member: &str) -> Option<u64> {
    item?.get(member)?.as_u64()
}

#[cfg(test)]
mod tests {
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
        let change = decode(&change, Mode::LatestVersion, PAGE).unwrap();
        assert_eq!((change.id.as_str(), change.lsn, change.timestamp), ("x", Lsn::new(14), Timestamp::from_secs(7)));
        assert_eq!(change.operation, Operation::Write);
        let current: Value = serde_json::from_slice(&change.current.unwrap()).unwrap();
        assert_eq!((&current["n"], &current["_lsn"]), (&json!(1), &json!(14)));
        assert!(change.rid.is_some());
    }

    #[test]
    fn a_flat_document_is_accepted() {
        let change = decode(&entry(json!({"id": "x", "_ts": 7, "_lsn": 3})), Mode::LatestVersion, PAGE).unwrap();
        assert_eq!((change.lsn, change.current.unwrap()), (Lsn::new(3), r#"{"_lsn":3,"_ts":7,"id":"x"}"#.into()));
    }

    #[test]
    fn a_delete_tells_what_was_deleted_and_whether_it_expired() {
        for (expired, operation) in [(false, Operation::Delete), (true, Operation::Expire)] {
            let change = entry(json!({"current": {}, "previous": {"id": "x", "n": 1}, "metadata": {
                "operationType": "delete", "lsn": 9, "crts": 70, "previousImageLSN": 4, "id": "x",
                "timeToLiveExpired": expired}}));
            let change = decode(&change, Mode::AllVersions, PAGE).unwrap();
            assert_eq!((change.operation, change.current.is_none()), (operation, true));
            assert_eq!((change.previous_lsn, change.timestamp), (Some(Lsn::new(4)), Timestamp::from_secs(70)));
            assert_eq!(change.previous.unwrap(), r#"{"id":"x","n":1}"#);
        }
    }

    #[test]
    fn a_delete_without_previous_image_has_its_id() {
        let change = entry(json!({"metadata": {"operationType": "delete", "lsn": 9, "crts": 70, "id": "x"}}));
        let change = decode(&change, Mode::AllVersions, PAGE).unwrap();
        assert_eq!((change.id.as_str(), change.previous), ("x", None));
    }

    #[test]
    fn an_entry_without_id_is_refused_and_one_without_position_has_that_of_its_page() {
        let bad = entry(json!({"current": {"n": 1}, "metadata": {"lsn": 1}}));
        assert_eq!(decode(&bad, Mode::LatestVersion, PAGE).unwrap_err().kind(), ErrorKind::Corrupt);
        let bare = entry(json!({"current": {"id": "x"}}));
        assert_eq!(decode(&bare, Mode::LatestVersion, PAGE).unwrap().lsn, PAGE);
    }
}
