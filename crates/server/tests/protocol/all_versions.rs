//! The feed of all versions and deletes.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Clock, SystemClock};
use changefeed_embedded::Engine;
use changefeed_server::auth::Keys;
use changefeed_testkit::clock::TestClock;
use serde_json::{Value, json};

use crate::support::{Ask, Client, Reply, World, item, world::DOCS};

async fn with_clock(container: Value) -> (World, TestClock) {
    let clock = TestClock::at(SystemClock.wall());
    let engine = Engine::builder().clock(Arc::new(clock.clone())).in_memory().unwrap();
    let catalog = engine.catalog();
    let world = World::over(engine, catalog, Keys::emulator(), |builder| builder).await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let mut body = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    body.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    client.send(Ask::post("/dbs/db/colls", body)).await.expect(201);
    (world, clock)
}

async fn after(client: &mut Client, etag: &str) -> Reply {
    client.send(Ask::get(DOCS).all_versions().with("if-none-match", etag)).await
}

#[tokio::test]
async fn every_version_and_every_delete_comes_in_the_shape_that_sdks_parse() {
    let world = World::new().await;
    let mut client = world.client().await;
    let start = after(&mut client, "*").await.expect(304).etag();
    let one = format!("{DOCS}/1");
    client.send(Ask::post(DOCS, item("1", "a", 1)).key("a")).await.expect(201);
    client.send(Ask::put(&one, item("1", "a", 2)).key("a")).await.expect(200);
    let set = json!({ "operations": [{ "op": "set", "path": "/n", "value": 3 }] });
    client.send(Ask::patch(&one, set).key("a")).await.expect(200);
    client.send(Ask::delete(&one).key("a")).await.expect(204);
    let page = after(&mut client, &start).await.expect(200);
    let changes = page.documents();
    assert_eq!(page.header("x-ms-item-count"), Some("4"));
    let told: Vec<(&str, u64, u64)> = changes
        .iter()
        .map(|change| {
            let metadata = &change["metadata"];
            assert_eq!(metadata["timeToLiveExpired"], false);
            assert!(metadata["crts"].as_u64().unwrap() > 1_700_000_000, "seconds, never zero: {metadata}");
            let number = |name: &str| metadata[name].as_u64().unwrap_or_else(|| panic!("{name}: {metadata}"));
            (metadata["operationType"].as_str().unwrap(), number("lsn"), number("previousImageLSN"))
        })
        .collect();
    assert_eq!(told, [("create", 2, 0), ("replace", 3, 2), ("replace", 4, 3), ("delete", 5, 4)]);
    for (index, number) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(changes[index]["current"]["n"], number);
        assert!(changes[index]["metadata"].get("partitionKey").is_none());
    }
    assert!(changes.iter().all(|change| change.get("previous").is_none()), "previous images only on request");
    let delete = &changes[3];
    assert_eq!(delete["current"], json!({}));
    assert_eq!(delete["metadata"]["id"], "1");
    assert_eq!(delete["metadata"]["partitionKey"], json!({ "pk": "a" }), "an object, not an array");
    assert_eq!(after(&mut client, &page.etag()).await.expect(304).etag(), page.etag());
}

/// The previous versions (`n`) of a replace and of a delete, in a container with these members.
async fn previous_images(world: &World, name: &str, policy: Value) -> [Value; 2] {
    let mut client = world.client().await;
    let mut body = json!({ "id": name, "partitionKey": { "paths": ["/pk"], "version": 2 } });
    body["previousImageRetentionPolicy"] = policy;
    let created = client.send(Ask::post("/dbs/db/colls", &body)).await.expect(201);
    assert_eq!(created.json()["previousImageRetentionPolicy"], body["previousImageRetentionPolicy"]);
    assert_eq!(created.header("x-changefeed-not-acted-on"), None);
    let docs = format!("/dbs/db/colls/{name}/docs");
    let start = client.send(Ask::get(&docs).all_versions().with("if-none-match", "*")).await.expect(304).etag();
    client.send(Ask::post(&docs, item("1", "a", 1)).key("a")).await.expect(201);
    client.send(Ask::put(format!("{docs}/1"), item("1", "a", 2)).key("a")).await.expect(200);
    client.send(Ask::delete(format!("{docs}/1")).key("a")).await.expect(204);
    let page = client.send(Ask::get(&docs).all_versions().with("if-none-match", start)).await.expect(200);
    let changes = page.documents();
    assert!(changes[0].get("previous").is_none());
    [1, 2].map(|index| changes[index]["previous"]["n"].clone())
}

#[tokio::test]
async fn previous_images_come_where_a_container_or_the_account_asks_for_them() {
    let mode = |mode: u8| json!({ "supportedFeatures": { "allVersionsAndDeletes": { "mode": mode } } });
    let world = World::new().await;
    let null = || json!(null);
    assert_eq!(previous_images(&world, "none", mode(0)).await, [null(), null()]);
    assert_eq!(previous_images(&world, "replaces", mode(1)).await, [json!(1), null()]);
    assert_eq!(previous_images(&world, "deletes", mode(2)).await, [null(), json!(2)]);
    assert_eq!(previous_images(&world, "both", mode(3)).await, [json!(1), json!(2)]);
    let bad = json!({ "id": "bad", "partitionKey": { "paths": ["/pk"] }, "previousImageRetentionPolicy": mode(9) });
    let refused = world.client().await.send(Ask::post("/dbs/db/colls", bad)).await.expect(400);
    assert!(refused.text().contains("previousImageRetentionPolicy"), "{}", refused.text());

    let account = World::with(|builder| builder.previous_images(true)).await;
    assert_eq!(previous_images(&account, "account", null()).await, [json!(1), json!(2)]);
    assert_eq!(previous_images(&account, "off", mode(0)).await, [null(), null()]);
}

#[tokio::test]
async fn upserts_appear_as_what_they_did_and_a_batch_shares_its_lsn() {
    let world = World::new().await;
    let mut client = world.client().await;
    let start = after(&mut client, "*").await.expect(304).etag();
    let upsert = |n| Ask::post(DOCS, item("1", "a", n)).key("a").with("x-ms-documentdb-is-upsert", "True");
    client.send(upsert(1)).await.expect(201);
    client.send(upsert(2)).await.expect(200);
    let create = |id: &str| json!({ "operationType": "Create", "resourceBody": item(id, "a", 1) });
    client.send(Ask::batch(DOCS, &json!([create("x"), create("y")])).key("a")).await.expect(200);
    let changes = after(&mut client, &start).await.expect(200).documents();
    let told: Vec<String> = changes
        .iter()
        .map(|change| {
            format!("{} {}", change["metadata"]["operationType"].as_str().unwrap(), change["metadata"]["lsn"])
        })
        .collect();
    assert_eq!(told, ["create 2", "replace 3", "create 4", "create 4"]);
}

#[tokio::test]
async fn items_that_expire_are_deletes_that_say_so() {
    let (world, clock) = with_clock(json!({ "defaultTtl": 5 })).await;
    let mut client = world.client().await;
    let start = after(&mut client, "*").await.expect(304).etag();
    client.send(Ask::post(DOCS, item("1", "a", 1)).key("a")).await.expect(201);
    clock.advance(Duration::from_secs(60));
    world.engine.expire().await.unwrap();
    let changes = after(&mut client, &start).await.expect(200).documents();
    let delete = changes.last().unwrap();
    assert_eq!(delete["metadata"]["operationType"], "delete", "{changes:?}");
    assert_eq!(delete["metadata"]["timeToLiveExpired"], true);
    assert_eq!(delete["metadata"]["partitionKey"], json!({ "pk": "a" }));
    client.send(Ask::get(format!("{DOCS}/1")).key("a")).await.expect(404);
}

#[tokio::test]
async fn a_continuation_older_than_the_retention_is_400_and_never_skips() {
    let (world, clock) = with_clock(json!({ "changeFeedPolicy": { "retentionDuration": 10 } })).await;
    let mut client = world.client().await;
    let start = after(&mut client, "*").await.expect(304).etag();
    client.send(Ask::post(DOCS, item("1", "a", 1)).key("a")).await.expect(201);
    client.send(Ask::put(format!("{DOCS}/1"), item("1", "a", 2)).key("a")).await.expect(200);
    clock.advance(Duration::from_secs(9 * 60));
    assert_eq!(after(&mut client, &start).await.expect(200).documents().len(), 2);
    clock.advance(Duration::from_secs(2 * 60));
    client.send(Ask::post(DOCS, item("2", "a", 1)).key("a")).await.expect(201);
    world.engine.expire().await.unwrap();
    let refused = after(&mut client, &start).await.expect(400);
    assert!(refused.text().contains("retention"), "{}", refused.text());
    let again = after(&mut client, "*").await.expect(304).etag();
    client.send(Ask::post(DOCS, item("3", "a", 1)).key("a")).await.expect(201);
    assert_eq!(after(&mut client, &again).await.expect(200).documents().len(), 1);
}

#[tokio::test]
async fn where_nothing_is_kept_the_feed_of_all_versions_is_refused() {
    let world = World::with(|builder| builder.retention(None)).await;
    let mut client = world.client().await;
    after(&mut client, "*").await.expect(400);
    client.send(Ask::get(DOCS).feed().with("if-none-match", "*")).await.expect(304);
}
