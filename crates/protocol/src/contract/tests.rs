//! Every value of the contract comes back as it was sent.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;

use super::*;
use crate::codec::{decode, encode};

/// Compares by `Debug` and by the bytes of a second encoding: not all types can be compared.
fn comes_back<T: Wire + Debug>(value: T) {
    let bytes = encode(&value);
    assert!(bytes.len() < 2 * value.size_hint() + 64, "{value:?} is larger than announced: {}", value.size_hint());
    let back: T = decode(bytes.clone()).unwrap();
    assert_eq!(format!("{back:?}"), format!("{value:?}"));
    assert_eq!(encode(&back), bytes, "{value:?}");
    for length in 0..bytes.len() {
        assert!(decode::<T>(bytes.slice(..length)).is_err(), "{value:?} cut to {length}");
    }
}

fn id(text: &str) -> ItemId {
    ItemId::new(text).unwrap()
}

fn item() -> Item {
    Item {
        id: id("ü 1"),
        etag: ETag::new("\"1-2f\"").unwrap(),
        timestamp: Timestamp::from_millis(1_700_000_000_123),
        lsn: Lsn::new(u64::MAX),
        rid: ResourceId::document(1, 2, 3).unwrap(),
        body: Bytes::from_static(b"{\"id\":\"1\"}"),
    }
}

#[test]
fn items_and_writes_come_back_also_with_bodies_that_are_not_json() {
    comes_back(item());
    let if_match = Some(ETag::new("\"x\"").unwrap());
    let body = Bytes::from_static(b"\xff not json");
    let writes = vec![
        Write::Create { body: body.clone() },
        Write::Upsert { body: body.clone(), if_match: None },
        Write::Replace { body, if_match: if_match.clone() },
        Write::Delete { id: id("a"), if_match },
    ];
    for key in ["[]", "[{}]", "[null]", "[\"a\\\"b\"]", "[1.5,true,\"x\"]", "[1e300]"] {
        let partition_key = Some(key.parse().unwrap());
        comes_back(Batch { partition_key, writes: writes.clone(), return_items: true });
    }
    comes_back(Batch { partition_key: None, writes: Vec::new(), return_items: false });
    let result = WriteResult {
        id: id("a"),
        etag: None,
        lsn: Lsn::new(4),
        timestamp: Timestamp::default(),
        created: true,
        item: Some(item()),
    };
    comes_back(Response::new(vec![result], 1.25));
    comes_back(ItemKey::new("k", id("a")));
    comes_back(ItemPage { items: vec![item()], cursors: vec!["c".to_owned()], next: Some("n".to_owned()) });
    let range = "05C1-FF".parse().unwrap();
    comes_back(ListItems {
        id_prefix: "p".to_owned(),
        rid: Some(ResourceId::container(1, 2)),
        range,
        after: Some("x".to_owned()),
        max_items: 7,
        cursors: true,
    });
}

#[test]
fn a_page_of_items_has_its_room_from_the_start() {
    let item = Item { body: Bytes::from(vec![b'x'; 5000]), ..item() };
    let page = Response::new(ItemPage { items: vec![item; 100], cursors: Vec::new(), next: None }, 0.0);
    let bytes = encode(&page);
    assert!(bytes.len() <= page.size_hint(), "{} bytes, announced {}", bytes.len(), page.size_hint());
    assert!(page.size_hint() < bytes.len() * 5 / 4, "{} bytes, announced {}", bytes.len(), page.size_hint());
}

#[test]
fn reads_of_the_feed_and_its_pages_come_back() {
    let container = ResourceId::container(3, 4);
    for start in [
        StartFrom::Beginning,
        StartFrom::Now,
        StartFrom::Time(Timestamp::from_millis(1234)),
        StartFrom::Continuation(Continuation::from_token("anything é")),
        StartFrom::Continuation(Continuation::after(Lsn::new(9), container)),
    ] {
        let read = ReadChanges::new("-10".parse().unwrap(), start).mode(Mode::AllVersions).physical(RangeId::from(7));
        comes_back(read.not_before(Timestamp::from_millis(5)).max_items(3).count_remaining());
    }
    let operations = [Operation::Write, Operation::Create, Operation::Replace, Operation::Delete, Operation::Expire];
    let changes = operations.map(|operation| Change {
        id: id("a"),
        rid: (operation != Operation::Write).then(|| ResourceId::document(1, 2, 3).unwrap()),
        lsn: Lsn::new(5),
        timestamp: Timestamp::from_millis(77),
        operation,
        current: Some(Bytes::from_static(b"{}")),
        previous: (operation == Operation::Replace).then(|| Bytes::from_static(b"{\"n\":1}")),
        previous_lsn: (operation == Operation::Replace).then(|| Lsn::new(2)),
    });
    let page = ChangePage {
        changes: changes.to_vec(),
        continuation: Continuation::after(Lsn::new(5), container),
        newest_lsn: Lsn::new(6),
        remaining: Some(1),
        physical: RangeId::from(0),
    };
    comes_back(page.clone());
    let back: ChangePage = decode(encode(&page)).unwrap();
    assert_eq!(back.continuation.container(), Some(&container), "a foreign continuation stays one");
}

#[test]
fn the_catalog_comes_back() {
    let mut extra = Map::new();
    extra.insert("indexingPolicy".to_owned(), serde_json::json!({"automatic": true, "n": 0.1}));
    comes_back(DatabaseSpec { name: "shop".to_owned(), extra: extra.clone() });
    let timestamp = Timestamp::from_millis(1);
    comes_back(DatabaseInfo { name: "shop".to_owned(), rid: ResourceId::database(9), timestamp, extra: extra.clone() });
    let definitions = [
        PartitionKeyDefinition::id(),
        PartitionKeyDefinition::hash_v1("/a/b").unwrap(),
        PartitionKeyDefinition::hierarchical(["/a", "/b"]).unwrap(),
    ];
    let lives = [TimeToLive::Off, TimeToLive::ItemsOnly, TimeToLive::Seconds(3)];
    for (partition_key, time_to_live) in definitions.into_iter().zip(lives) {
        let mut spec = ContainerSpec::new("orders", partition_key);
        (spec.ranges, spec.time_to_live, spec.extra) = (4, time_to_live, extra.clone());
        spec.all_versions_retention = Some(Duration::from_millis(1500));
        let info = ContainerInfo { rid: ResourceId::container(1, 2), timestamp, spec };
        assert_eq!(decode::<ContainerInfo>(encode(&info)).unwrap(), info);
        comes_back(info);
    }
    comes_back(PhysicalRange { id: RangeId::from(3), range: "-FF".parse().unwrap(), parents: vec![RangeId::from(0)] });
}

#[test]
fn capabilities_come_back_as_those_of_a_store_elsewhere() {
    let all = Capabilities::new().split_on_demand(true).all_versions(true).wake_ups(true).range_parents(true);
    assert_eq!(decode::<Capabilities>(encode(&all.in_process(true))).unwrap(), all);
    assert_eq!(decode::<Capabilities>(encode(&Capabilities::new())).unwrap(), Capabilities::new());
}

#[test]
fn resource_ids_come_back_and_other_bytes_are_refused() {
    for rid in [ResourceId::database(9), ResourceId::container(1, 2), ResourceId::document(1, 2, 3).unwrap()] {
        assert_eq!(decode::<ResourceId>(encode(&rid)), Ok(rid));
    }
    let user = [8, 0, 0, 0, 1, 0, 0, 0, 2];
    for wrong in [&[0][..], &[3, 0, 0, 0], &[5, 0, 0, 0, 1, 0x80], &user, &[17; 18]] {
        let refused = decode::<ResourceId>(Bytes::copy_from_slice(wrong));
        assert_eq!(refused, Err(Malformed("a resource id is not one")), "{wrong:?}");
    }
}
