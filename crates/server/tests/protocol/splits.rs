//! Splits and merges as clients see them, with positions from before.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Ask, Client, World, item, world::DOCS};

/// Writes items under as many keys; their ids.
async fn write(client: &mut Client, name: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let id = format!("{name}{number}");
        client.send(Ask::post(DOCS, item(&id, &id, 1)).key(&id)).await.expect(201);
        ids.push(id);
    }
    ids.sort();
    ids
}

/// Reads a range to its end; the ids, and where it goes on.
async fn drain(client: &mut Client, ask: &Ask, mut etag: Option<String>) -> (Vec<String>, String) {
    let mut ids = Vec::new();
    loop {
        let page = ask.clone().with("x-ms-max-item-count", 7);
        let page = client.send(etag.iter().fold(page, |page, etag| page.with("if-none-match", etag))).await;
        etag = Some(page.etag());
        if page.status == 304 {
            return (ids, page.etag());
        }
        ids.extend(page.expect(200).ids());
    }
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

async fn ranges(client: &mut Client) -> Vec<(String, String, String)> {
    let body = client.send(Ask::get("/dbs/db/colls/c/pkranges")).await.expect(200).json();
    let text = |range: &serde_json::Value, name: &str| range[name].as_str().unwrap().to_owned();
    let all = body["PartitionKeyRanges"].as_array().unwrap();
    all.iter().map(|range| (text(range, "id"), text(range, "minInclusive"), text(range, "maxExclusive"))).collect()
}

#[tokio::test]
async fn a_split_between_two_polls_loses_and_repeats_nothing() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let before = write(&mut client, "before", 30).await;
    let feed = |range: &str| Ask::get(DOCS).feed().range(range);
    let (mut first, parent) = drain(&mut client, &feed("0"), None).await;
    let (others, other) = drain(&mut client, &feed("1"), None).await;
    first.extend(others);
    assert_eq!(sorted(first), before);
    let between = write(&mut client, "between", 30).await;
    let old_list = client.send(Ask::get("/dbs/db/colls/c/pkranges")).await.expect(200).etag();
    assert_eq!(world.split("0").await, ["2", "3"]);
    let later = write(&mut client, "later", 30).await;

    let gone = client.send(feed("0").with("if-none-match", &parent)).await.expect(410);
    assert_eq!(gone.substatus(), Some(1002));
    let list =
        client.send(Ask::get("/dbs/db/colls/c/pkranges").feed().with("if-none-match", old_list)).await.expect(200);
    client.send(Ask::get("/dbs/db/colls/c/pkranges").feed().with("if-none-match", list.etag())).await.expect(304);

    let mut seen = drain(&mut client, &feed("1"), Some(other)).await.0;
    for child in ["2", "3"] {
        let (ids, etag) = drain(&mut client, &feed(child), Some(parent.clone())).await;
        assert!(!ids.is_empty(), "both children hold something");
        seen.extend(ids);
        client.send(feed(child).with("if-none-match", etag)).await.expect(304);
    }
    let expected = sorted([between, later].concat());
    assert_eq!(sorted(seen), expected);
    for _ in 0..3 {
        client.send(feed("0").with("if-none-match", "*")).await.expect(410);
    }
}

#[tokio::test]
async fn children_hold_the_whole_history_of_their_parent_with_its_lsns() {
    let world = World::new().await;
    let mut client = world.client().await;
    let all = write(&mut client, "x", 40).await;
    let lsns = |documents: Vec<serde_json::Value>| -> BTreeMap<String, u64> {
        let one = |document: &serde_json::Value| {
            (document["id"].as_str().unwrap().to_owned(), document["_lsn"].as_u64().unwrap())
        };
        documents.iter().map(one).collect()
    };
    let of_parent = lsns(client.send(Ask::get(DOCS).feed().range("0")).await.expect(200).documents());
    let mut of_children = BTreeMap::new();
    for child in world.split("0").await {
        let page = client.send(Ask::get(DOCS).feed().range(&child)).await.expect(200);
        assert_eq!(page.header("lsn"), Some("41"), "a child has come as far as its parent");
        of_children.extend(lsns(page.documents()));
    }
    assert_eq!(of_children, of_parent);
    assert_eq!(of_children.len(), all.len());
}

#[tokio::test]
async fn a_merge_between_two_polls_loses_and_repeats_nothing() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    write(&mut client, "before", 20).await;
    let (_, low) = drain(&mut client, &Ask::get(DOCS).feed().range("0"), None).await;
    let between = write(&mut client, "between", 20).await;
    let (high_seen, high) = drain(&mut client, &Ask::get(DOCS).feed().range("1"), None).await;
    let halves = ranges(&mut client).await;
    let merge = json!({ "container": "db/c", "ranges": ["0", "1"] });
    client.send(Ask::post("/_changefeed/merge", merge)).await.expect(200);
    let later = write(&mut client, "later", 20).await;

    // Clients keep their two smaller ranges, each with its own position.
    let mut seen: Vec<String> = high_seen.into_iter().filter(|id| id.starts_with("between")).collect();
    for ((old, min, max), etag) in halves.into_iter().zip([low, high]) {
        let gone = client.send(Ask::get(DOCS).feed().range(&old).with("if-none-match", &etag)).await.expect(410);
        assert_eq!(gone.substatus(), Some(1002));
        let part = Ask::get(DOCS).feed().range("2").with("x-ms-start-epk", min).with("x-ms-end-epk", max);
        let part = part.with("x-ms-read-key-type", "EffectivePartitionKeyRange");
        seen.extend(drain(&mut client, &part, Some(etag)).await.0);
    }
    assert_eq!(sorted(seen), sorted([between, later].concat()));
}

#[tokio::test]
async fn all_versions_of_the_parent_are_told_by_its_children() {
    let world = World::new().await;
    let mut client = world.client().await;
    let feed = |range: &str| Ask::get(DOCS).all_versions().range(range);
    let start = client.send(feed("0").with("if-none-match", "*")).await.expect(304).etag();
    let ids = write(&mut client, "x", 20).await;
    for id in &ids {
        client.send(Ask::put(format!("{DOCS}/{id}"), item(id, id, 2)).key(id)).await.expect(200);
    }
    let children = world.split("0").await;
    for id in &ids {
        client.send(Ask::delete(format!("{DOCS}/{id}")).key(id)).await.expect(204);
    }
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for child in &children {
        for change in client.send(feed(child).with("if-none-match", &start)).await.expect(200).documents() {
            let operation = change["metadata"]["operationType"].as_str().unwrap().to_owned();
            let id = change["current"]["id"].as_str().or(change["metadata"]["id"].as_str()).unwrap();
            told.entry(id.to_owned()).or_default().push(operation);
        }
    }
    assert_eq!(told.keys().cloned().collect::<Vec<_>>(), ids);
    assert!(told.values().all(|operations| *operations == ["create", "replace", "delete"]), "{told:?}");
}

#[tokio::test]
async fn items_keys_lists_and_queries_never_meet_a_410() {
    let world = World::new().await;
    let mut client = world.client().await;
    let ids = write(&mut client, "x", 20).await;
    let key = ids[0].as_str();
    let etag = client.send(Ask::get(DOCS).feed().key(key)).await.expect(200).etag();
    let list = Ask::get(DOCS).with("x-ms-max-item-count", 5);
    let page = client.send(list.clone()).await.expect(200);
    let (mut seen, mut next) = (page.ids(), page.header("x-ms-continuation").map(str::to_owned));
    let sql = Ask::query(DOCS, "SELECT * FROM c").with("x-ms-max-item-count", 5);
    let page = client.send(sql.clone()).await.expect(200);
    let (mut found, mut more) = (page.ids(), page.header("x-ms-continuation").map(str::to_owned));
    world.split("0").await;
    client.send(Ask::get(format!("{DOCS}/{key}")).key(key)).await.expect(200);
    client.send(Ask::put(format!("{DOCS}/{key}"), item(key, key, 2)).key(key)).await.expect(200);
    let page = client.send(Ask::get(DOCS).feed().key(key).with("if-none-match", etag)).await.expect(200);
    assert_eq!(page.ids(), [key]);
    while let Some(token) = next {
        let page = client.send(list.clone().with("x-ms-continuation", token)).await.expect(200);
        seen.extend(page.ids());
        next = page.header("x-ms-continuation").map(str::to_owned);
    }
    while let Some(token) = more {
        let page = client.send(sql.clone().with("x-ms-continuation", token)).await.expect(200);
        found.extend(page.ids());
        more = page.header("x-ms-continuation").map(str::to_owned);
    }
    assert_eq!(sorted(seen), ids);
    assert_eq!(sorted(found), ids);
}

#[tokio::test]
async fn answers_name_the_live_range_right_after_a_split() {
    let world = World::new().await;
    let mut client = world.client().await;
    // The key a lies in the upper half.
    client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let children = world.split("0").await;
    for ask in [Ask::get(format!("{DOCS}/one")).key("a"), Ask::get(DOCS).feed().key("a")] {
        let reply = client.send(ask).await.expect(200);
        assert_eq!(reply.header("x-ms-documentdb-partitionkeyrangeid"), Some(children[1].as_str()));
    }
}
