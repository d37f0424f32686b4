//! Partition key ranges: the list that clients drain until it says 304.

use serde_json::{Value, json};

use crate::support::{Ask, Client, Reply, World, world::DOCS};

const RANGES: &str = "/dbs/db/colls/c/pkranges";

/// Reads the ranges as SDKs do: until a 304, with the etag of the answer before.
async fn drained(client: &mut Client) -> (Vec<Value>, String) {
    let drain = |etag: Option<&str>| {
        let ask = Ask::get(RANGES).feed().with("x-ms-max-item-count", -1);
        etag.map_or(ask.clone(), |etag| ask.with("if-none-match", etag))
    };
    let first = client.send(drain(None)).await.expect(200);
    let etag = first.etag();
    let second = client.send(drain(Some(&etag))).await.expect(304);
    assert_eq!(second.etag(), etag);
    assert!(second.body.is_empty());
    (ranges(&first), etag)
}

fn ranges(reply: &Reply) -> Vec<Value> {
    let body = reply.json();
    let ranges = body["PartitionKeyRanges"].as_array().unwrap().clone();
    assert_eq!(body["_count"], ranges.len());
    ranges
}

/// The ids, if they cover everything without gap or overlap.
fn complete(ranges: &[Value]) -> Vec<String> {
    let text = |range: &Value, name: &str| range[name].as_str().unwrap_or_else(|| panic!("{name}: {range}")).to_owned();
    let mut next = String::new();
    for range in ranges {
        assert_eq!(text(range, "minInclusive"), next, "{ranges:?}");
        next = text(range, "maxExclusive");
        assert_eq!(range["status"], "online");
    }
    assert_eq!(next, "FF", "{ranges:?}");
    ranges.iter().map(|range| text(range, "id")).collect()
}

#[tokio::test]
async fn ranges_have_an_etag_and_answer_304_to_it() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let (all, _) = drained(&mut client).await;
    assert_eq!(complete(&all), ["0", "1"], "ids are texts");
    let middle = all[1]["minInclusive"].as_str().unwrap();
    assert!(("1FFF".."2001").contains(&middle), "the keys of the second version lie in 00 to 3F: {middle}");
    assert!(!middle.ends_with("00"), "SDKs do not agree on zeros at the end: {middle}");
    assert_eq!(all[0]["parents"], json!([]));
    let plain = client.send(Ask::get(RANGES)).await.expect(200);
    assert_eq!(ranges(&plain), all, "without A-IM, too");
}

#[tokio::test]
async fn a_split_changes_the_etag_and_shows_the_children_with_all_their_ancestors() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let (_, before) = drained(&mut client).await;
    assert_eq!(world.split("0").await, ["2", "3"]);
    let changed = client.send(Ask::get(RANGES).feed().with("if-none-match", &before)).await.expect(200);
    let (all, after) = drained(&mut client).await;
    assert_eq!(ranges(&changed), all, "the whole live list");
    assert_ne!(after, before);
    assert_eq!(complete(&all), ["2", "3", "1"]);
    assert_eq!(all[0]["parents"], json!(["0"]));
    world.split("3").await;
    let (all, later) = drained(&mut client).await;
    assert_eq!(complete(&all), ["2", "4", "5", "1"]);
    assert_eq!(all[1]["parents"], json!(["0", "3"]));
    assert!(later != before && later != after);
}

#[tokio::test]
async fn a_merge_changes_the_etag_and_names_both_parents() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let (_, before) = drained(&mut client).await;
    let merge = json!({ "container": "db/c", "ranges": ["0", "1"] });
    client.send(Ask::post("/_changefeed/merge", merge)).await.expect(200);
    let (all, after) = drained(&mut client).await;
    assert_ne!(after, before);
    assert_eq!(complete(&all), ["2"]);
    assert_eq!(all[0]["parents"], json!(["0", "1"]));
    // As many ranges as once before, but not the same.
    world.split("2").await;
    let (all, again) = drained(&mut client).await;
    assert_eq!(complete(&all), ["3", "4"]);
    assert!(again != before && again != after);
}

#[tokio::test]
async fn a_split_of_which_the_server_was_not_told_is_seen_at_once() {
    let world = World::new().await;
    let mut client = world.client().await;
    let (_, before) = drained(&mut client).await;
    let range = "0".parse().unwrap();
    world.engine.catalog().split("db", "c", &range, None).await.unwrap();
    client.send(Ask::get(RANGES).feed().with("if-none-match", before)).await.expect(200);
    let gone = client.send(Ask::get(DOCS).feed().range("0")).await.expect(410);
    assert_eq!(gone.substatus(), Some(1002));
    assert_eq!(complete(&drained(&mut client).await.0), ["1", "2"]);
}
