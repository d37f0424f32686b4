//! Request charges: what the store charged is what the client is told.

use std::sync::Arc;

use changefeed_embedded::Engine;
use changefeed_server::auth::Keys;
use changefeed_testkit::{clock::TestClock, model::ModelStore};
use serde_json::json;

use crate::support::{Ask, World, item, world::DOCS};

#[tokio::test]
async fn a_reply_tells_what_the_store_charged() {
    // The model charges 1 RU for a call and an eighth for each item of its response.
    let catalog = Arc::new(ModelStore::new(TestClock::new()));
    let world = World::over(Engine::in_memory().unwrap(), catalog, Keys::emulator(), |builder| builder).await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let container = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    let one = format!("{DOCS}/one");
    let patch = json!({ "operations": [{ "op": "incr", "path": "/n", "value": 1 }] });
    for (ask, status, charge) in [
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 201, "1.125"),
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 409, "1"),
        (Ask::post(DOCS, item("two", "a", 1)).key("a"), 201, "1.125"),
        (Ask::get(&one).key("a"), 200, "1.125"),
        (Ask::get(format!("{DOCS}/none")).key("a"), 404, "1"),
        (Ask::get(DOCS), 200, "1.25"),
        (Ask::get(DOCS).feed(), 200, "1.25"),
        (Ask::get(DOCS).feed().with("if-none-match", "*"), 304, "1"),
        (Ask::query(DOCS, "SELECT * FROM c"), 200, "1.25"),
        // A read and a write.
        (Ask::patch(&one, patch).key("a"), 200, "2.25"),
        (Ask::delete(&one).key("a"), 204, "1.125"),
    ] {
        let what = format!("{} {}", ask.method, ask.path);
        let reply = client.send(ask).await.expect(status);
        assert_eq!(reply.header("x-ms-request-charge"), Some(charge), "{what}");
    }
}

#[tokio::test]
async fn a_batch_tells_what_its_operations_were_charged() {
    let catalog = Arc::new(ModelStore::new(TestClock::new()));
    let world = World::over(Engine::in_memory().unwrap(), catalog, Keys::emulator(), |builder| builder).await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let container = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    let operations = json!([
        { "operationType": "Create", "resourceBody": item("one", "a", 1) },
        { "operationType": "Create", "resourceBody": item("two", "a", 1) },
    ]);
    let reply = client.send(Ask::batch(DOCS, &operations).key("a")).await.expect(200);
    assert_eq!(reply.header("x-ms-request-charge"), Some("1.25"));
    let charges: Vec<_> = reply.json().as_array().unwrap().iter().map(|one| one["requestCharge"].clone()).collect();
    assert_eq!(charges, [json!(0.625), json!(0.625)], "in equal shares");
}

#[tokio::test]
async fn a_store_that_does_not_charge_is_charged_for_by_the_work() {
    let world = World::new().await;
    let mut client = world.client().await;
    let large = |n: u64| json!({ "id": "large", "pk": "a", "n": n, "text": "x".repeat(20 * 1024) });
    let (one, two) = (format!("{DOCS}/one"), format!("{DOCS}/large"));
    for (ask, status, charge) in [
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 201, "5"),
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 409, "1"),
        (Ask::put(&one, item("one", "a", 2)).key("a"), 200, "10"),
        // 21 started KiB.
        (Ask::post(DOCS, large(1)).key("a"), 201, "105"),
        (Ask::put(&two, large(2)).key("a"), 200, "210"),
        (Ask::get(&one).key("a"), 200, "1"),
        (Ask::get(&two).key("a"), 200, "21"),
        (Ask::get(format!("{DOCS}/none")).key("a"), 404, "1"),
        // 2 for a page, and three started 10 KiB.
        (Ask::get(DOCS), 200, "5"),
        (Ask::query(DOCS, "SELECT VALUE COUNT(1) FROM c"), 200, "5"),
        (Ask::get(DOCS).feed(), 200, "4"),
        (Ask::get(DOCS).feed().with("if-none-match", "*"), 304, "1"),
        (Ask::delete(&one).key("a"), 204, "5"),
    ] {
        let what = format!("{} {}", ask.method, ask.path);
        let reply = client.send(ask).await.expect(status);
        assert_eq!(reply.header("x-ms-request-charge"), Some(charge), "{what}");
    }
}
