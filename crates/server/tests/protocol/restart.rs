//! What a store remembers when its server starts again.

use changefeed_embedded::Engine;
use changefeed_server::auth::Keys;
use serde_json::{Value, json};

use crate::support::{Ask, Reply, World, item, world::DOCS};

/// Everything that a client can see of the container.
async fn seen(world: &World) -> Vec<Value> {
    let mut client = world.client().await;
    let mut all = Vec::new();
    for ask in [
        Ask::get("/dbs"),
        Ask::get("/dbs/db/colls"),
        Ask::get("/dbs/db/colls/c"),
        Ask::get("/offers"),
        Ask::get("/dbs/db/colls/c/pkranges"),
        Ask::get(DOCS),
        Ask::get(DOCS).feed().range("1"),
        Ask::get(DOCS).feed().range("2"),
    ] {
        let Reply { status, headers, body } = client.send(ask).await;
        let etag = headers.get("etag").map(|etag| etag.to_str().unwrap().to_owned());
        let mut body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
        // How far the container has come is known again when somebody asks.
        for range in body["PartitionKeyRanges"].as_array_mut().into_iter().flatten() {
            range["_lsn"] = Value::Null;
        }
        all.push(json!({ "status": status, "etag": etag, "body": body }));
    }
    all
}

#[tokio::test]
async fn a_server_that_starts_again_shows_everything_as_it_was() {
    let folder = std::env::temp_dir().join(format!("changefeed-server-restart-{}", std::process::id()));
    let open = || async {
        let engine = Engine::open(&folder).unwrap();
        let catalog = engine.catalog();
        World::over(engine, catalog, Keys::emulator(), |builder| builder).await
    };
    let world = open().await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" })).with("x-ms-offer-throughput", 900)).await.expect(201);
    let container = json!({
        "id": "c", "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 }, "defaultTtl": -1,
        "changeFeedPolicy": { "retentionDuration": 30 }, "vectorEmbeddingPolicy": { "vectorEmbeddings": [1, 2.5, "x"] },
        "uniqueKeyPolicy": { "uniqueKeys": [{ "paths": ["/a"] }] }, "made up": null,
    });
    client.send(Ask::post("/dbs/db/colls", container).with("x-ms-offer-throughput", 700)).await.expect(201);
    for id in ["1", "2", "3", "4"] {
        client.send(Ask::post(DOCS, item(id, id, 1)).key(id)).await.expect(201);
    }
    client.send(Ask::delete(format!("{DOCS}/3")).key("3")).await.expect(204);
    world.split("0").await;
    let before = seen(&world).await;
    assert_eq!(before[2]["body"]["vectorEmbeddingPolicy"]["vectorEmbeddings"], json!([1, 2.5, "x"]));
    assert!(before[2]["body"].as_object().unwrap().contains_key("made up"));
    assert_eq!(before[3]["body"]["_count"], 2, "database and container have a throughput");
    drop(client);
    world.server.stop().await;
    world.engine.close().await.unwrap();

    let world = open().await;
    assert_eq!(seen(&world).await, before);
    let mut client = world.client().await;
    let written = client.send(Ask::post(DOCS, item("5", "5", 1)).key("5")).await.expect(201);
    assert_eq!(written.header("lsn"), Some("7"), "numbers go on where they were");
    assert_eq!(world.split("1").await, ["3", "4"], "and ids of ranges are never used again");
    world.server.stop().await;
    world.engine.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_folder_written_at_a92fe1f_verifies() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../embedded/tests/fixtures/a92fe1f/store");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("old-folder-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let engine = changefeed_embedded::Engine::open(&folder).unwrap();
    let found = serde_json::to_value(changefeed_server::verify(&engine.catalog()).await.unwrap()).unwrap();
    assert_eq!((&found["databases"], &found["containers"]), (&1.into(), &3.into()), "{found}");
    assert_eq!(found["items"], found["changes"], "each item once in the feed: {found}");
    engine.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
