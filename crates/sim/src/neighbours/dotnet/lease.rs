//! The lease class of the .NET SDK: the members that it keeps of a document, which are all that it writes back.
//! `spec/dotnet-cfp.md` §1.3.

use changefeed_core::{FeedRange, Item};
use serde_json::{Map, Value, json};

use super::super::Seen;
use crate::checks::lease_document::LeaseDocument;

/// The members of the class. Any other is lost with the next write.
const MEMBERS: [&str; 13] = [
    "id",
    "partitionKey",
    "version",
    "_etag",
    "LeaseToken",
    "PartitionId",
    "FeedRange",
    "Owner",
    "ContinuationToken",
    "properties",
    "timestamp",
    "_ts",
    "Mode",
];

/// Those that are written even if they have no value.
const NULLABLE: [&str; 3] = ["Owner", "ContinuationToken", "timestamp"];

impl Seen {
    /// A document as the class holds it; none if it is no lease.
    pub(super) fn of_class(item: &Item) -> Option<Self> {
        let stored: Value = serde_json::from_slice(&item.body).ok()?;
        let document = LeaseDocument::parse(&item.body)?;
        let mut body = Map::new();
        for name in MEMBERS {
            match stored.get(name).filter(|value| !value.is_null()) {
                Some(value) => drop(body.insert(name.to_owned(), value.clone())),
                None if NULLABLE.contains(&name) => drop(body.insert(name.to_owned(), Value::Null)),
                None => {}
            }
        }
        // A document that has only `PartitionId` keeps it, and gets the other.
        body.insert("LeaseToken".to_owned(), json!(document.token));
        body.entry("properties").or_insert_with(|| json!({}));
        body.insert("_etag".to_owned(), json!(item.etag.as_str()));
        body.insert("_ts".to_owned(), json!(item.timestamp.as_millis() / 1000));
        let version = u64::from(stored["version"] == 1);
        body.insert("version".to_owned(), json!(version));
        if version == 1 {
            body.remove("PartitionId");
        }
        Some(Self { document, body: body.into(), etag: Some(item.etag.clone()) })
    }

    /// A lease for a part of the keys of this one, as it is before it is stored: without an etag.
    pub(super) fn child(
        &self,
        version: u64,
        token: &str,
        range: &FeedRange,
        continuation: Option<&str>,
    ) -> Option<Self> {
        let parent = self.body["id"].as_str()?;
        let id = format!("{}..{token}", parent.rsplit_once("..")?.0);
        let (min, max) = (range.min_inclusive().to_string(), range.max_exclusive().to_string());
        let mut body = json!({
            "id": id, "version": version, "_etag": null, "LeaseToken": token,
            "FeedRange": {"Range": {"min": min, "max": max}}, "Owner": null, "ContinuationToken": continuation,
            "properties": {}, "timestamp": null, "_ts": 0,
        });
        for (name, value) in [("partitionKey", json!(id)), ("Mode", self.body["Mode"].clone())] {
            if self.body.get(name).is_some() {
                body[name] = value;
            }
        }
        Self::of_body(body, None)
    }

    /// What was read, or is written; none if it is no lease.
    pub(super) fn of_body(body: Value, etag: Option<changefeed_core::ETag>) -> Option<Self> {
        let document = LeaseDocument::parse(body.to_string().as_bytes())?;
        Some(Self { document, body, etag })
    }

    /// Whether it is for a feed range instead of a physical range.
    pub(super) fn is_version_1(&self) -> bool {
        self.body["version"] == 1
    }

    /// The keys that the document names, if it does.
    pub(super) fn feed_range(&self) -> Option<FeedRange> {
        self.document.range.as_ref()?.to_string().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::{ETag, ItemId, Lsn, ResourceId, Timestamp};

    use super::*;

    fn stored(body: &Value) -> Seen {
        let item = Item {
            id: ItemId::new("x..3").unwrap(),
            etag: ETag::new("\"7\"").unwrap(),
            timestamp: Timestamp::from_millis(5_999),
            lsn: Lsn::new(1),
            rid: ResourceId::database(1),
            body: body.to_string().into_bytes().into(),
        };
        Seen::of_class(&item).unwrap()
    }

    #[test]
    fn what_the_class_has_no_member_for_is_dropped_and_properties_are_kept() {
        let seen = stored(&json!({"id": "x..3", "version": 0, "LeaseToken": "3", "Owner": "a", "StartTime": "now",
            "properties": {"cf.epoch": "2"}, "_ts": 1, "_etag": "\"6\"", "Mode": "Incremental Feed"}));
        let expected = json!({"id": "x..3", "version": 0, "_etag": "\"7\"", "LeaseToken": "3", "Owner": "a",
            "ContinuationToken": null, "properties": {"cf.epoch": "2"}, "timestamp": null, "_ts": 5,
            "Mode": "Incremental Feed"});
        assert_eq!(seen.body, expected);
    }

    #[test]
    fn a_tombstone_gets_its_token_back_and_keeps_the_other() {
        let seen = stored(&json!({"id": "x..3", "version": 0, "PartitionId": "3", "properties": {"cf.gone": "true"}}));
        assert_eq!((&seen.body["LeaseToken"], &seen.body["PartitionId"]), (&json!("3"), &json!("3")));
        assert!(seen.document.is_gone());
    }
}
