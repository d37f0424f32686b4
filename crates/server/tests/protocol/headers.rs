//! Headers of answers, and the sessions that they carry.

use serde_json::json;

use crate::support::{Ask, Reply, World, item, world::DOCS};

#[track_caller]
fn assert_usual(reply: &Reply, what: &str) {
    assert_eq!(reply.header("x-ms-activity-id"), Some("my-activity"), "{what}: {reply:?}");
    assert!(
        reply.header("x-ms-request-charge").is_some_and(|charge| charge.parse::<f64>().is_ok()),
        "{what}: {reply:?}"
    );
    assert_eq!(reply.header("x-ms-version"), Some("2020-07-15"), "{what}");
    assert!(reply.header("date").is_some_and(|date| httpdate::parse_http_date(date).is_ok()), "{what}");
    if !reply.body.is_empty() {
        assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_usual_headers() {
    let world = World::new().await;
    let mut client = world.client().await;
    let one = format!("{DOCS}/one");
    for (ask, status) in [
        (Ask::get("/"), 200),
        (Ask::get("/dbs"), 200),
        (Ask::post("/dbs", json!({ "id": "x" })), 201),
        (Ask::get("/dbs/x"), 200),
        (Ask::delete("/dbs/x"), 204),
        (Ask::get("/dbs/x"), 404),
        (Ask::get("/dbs/db/colls/c"), 200),
        (Ask::get("/dbs/db/colls/c/pkranges"), 200),
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 201),
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 409),
        (Ask::get(&one).key("a"), 200),
        (Ask::get(DOCS).feed(), 200),
        (Ask::get(DOCS).feed().with("if-none-match", "*"), 304),
        (Ask::query(DOCS, "SELECT * FROM c"), 200),
        (Ask::query(DOCS, "SELECT"), 400),
        (Ask::delete(&one).key("a"), 204),
        (Ask::get("/offers"), 200),
        (Ask::get("/nowhere"), 404),
        (Ask::new("PATCH", "/dbs"), 405),
        (Ask::get(DOCS).feed().range("99"), 410),
    ] {
        let what = format!("{} {}", ask.method, ask.path);
        let reply = client.send(ask.with("x-ms-activity-id", "my-activity")).await.expect(status);
        assert_usual(&reply, &what);
    }
    let reply = client.send(Ask::get("/")).await;
    let made = reply.header("x-ms-activity-id").unwrap();
    assert_eq!((made.len(), made.matches('-').count()), (36, 4), "who sends none is given one: {made}");
    let reply = client.send(Ask::get("/").with("x-ms-activity-id", "x".repeat(5000))).await;
    assert_eq!(reply.header("x-ms-activity-id").unwrap().len(), 36, "and who sends a novel");
}

#[tokio::test]
async fn answers_about_items_say_where_they_are() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let rid = client.send(Ask::get("/dbs/db/colls/c")).await.expect(200).json()["_rid"].as_str().unwrap().to_owned();
    let one = format!("{DOCS}/one");
    let set = json!({ "operations": [{ "op": "set", "path": "/n", "value": 5 }] });
    let batch = json!([{ "operationType": "Read", "id": "one" }]);
    // The key a lies in the upper half.
    for (ask, status) in [
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 201),
        (Ask::post(DOCS, item("one", "a", 1)).key("a"), 409),
        (Ask::get(&one).key("a"), 200),
        (Ask::get(&one).key("a").with("if-none-match", "*"), 304),
        (Ask::put(&one, item("one", "a", 2)).key("a"), 200),
        (Ask::put(&one, item("one", "a", 2)).key("a").with("if-match", "\"0\""), 412),
        (Ask::patch(&one, set).key("a"), 200),
        (Ask::batch(DOCS, &batch).key("a"), 200),
        (Ask::get(DOCS).range("1"), 200),
        (Ask::get(DOCS).key("a"), 200),
        (Ask::get(DOCS).feed().range("1"), 200),
        (Ask::get(DOCS).feed().key("a"), 200),
        (Ask::get(DOCS).feed().range("1").with("if-none-match", "*"), 304),
        (Ask::get(DOCS).all_versions().range("1").with("if-none-match", "*"), 304),
        (Ask::query(DOCS, "SELECT * FROM c").range("1"), 200),
        (Ask::query(DOCS, "SELECT * FROM c").key("a"), 200),
        (Ask::delete(&one).key("a"), 204),
        (Ask::delete(&one).key("a"), 404),
        (Ask::get(&one).key("a"), 404),
    ] {
        let what = format!("{} {} {:?}", ask.method, ask.path, ask.headers);
        let reply = client.send(ask).await.expect(status);
        assert_eq!(reply.header("x-ms-documentdb-partitionkeyrangeid"), Some("1"), "{what}");
        let lsn: u64 = reply.header("lsn").unwrap_or_else(|| panic!("{what}: {reply:?}")).parse().unwrap();
        assert_eq!(reply.header("x-ms-session-token"), Some(format!("1:-1#{lsn}").as_str()), "{what}");
        assert_eq!(reply.header("x-ms-alt-content-path"), Some("dbs/db/colls/c"), "{what}: by name");
        assert_eq!(reply.header("x-ms-content-path"), Some(rid.as_str()), "{what}: by resource id");
    }
    // A query or a list across ranges names a live range, too.
    for ask in [Ask::query(DOCS, "SELECT * FROM c"), Ask::get(DOCS)] {
        let reply = client.send(ask).await.expect(200);
        assert!(matches!(reply.header("x-ms-documentdb-partitionkeyrangeid"), Some("0" | "1")), "{reply:?}");
    }
}

#[tokio::test]
async fn lists_say_how_many_items_they_hold() {
    let world = World::new().await;
    let mut client = world.client().await;
    for id in ["1", "2", "3"] {
        client.send(Ask::post(DOCS, item(id, "a", 1)).key("a")).await.expect(201);
    }
    for ask in [Ask::get(DOCS), Ask::get(DOCS).feed(), Ask::query(DOCS, "SELECT * FROM c")] {
        let reply = client.send(ask).await.expect(200);
        assert_eq!(reply.header("x-ms-item-count"), Some("3"), "{reply:?}");
        assert_eq!(reply.json()["_count"], 3);
    }
}

#[tokio::test]
async fn a_session_token_of_a_write_is_good_for_every_read_after_it() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let written = client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let token = written.header("x-ms-session-token").unwrap().to_owned();
    world.split("1").await;
    for token in [token.clone(), format!("0:-1#0,{token}"), format!("{token},2:-1#1,3:1#1#0=1")] {
        for ask in [
            Ask::get(format!("{DOCS}/one")).key("a"),
            Ask::get(DOCS),
            Ask::get(DOCS).feed().range("3"),
            Ask::query(DOCS, "SELECT * FROM c"),
            Ask::get("/dbs/db/colls/c/pkranges"),
        ] {
            client.send(ask.with("x-ms-session-token", &token)).await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_session_that_is_ahead_is_told_so_until_its_write_is_there() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let read = || Ask::get(format!("{DOCS}/one")).key("a").with("x-ms-session-token", "0:-1#3");
    let ahead = client.send(read()).await.expect(404);
    assert_eq!(ahead.substatus(), Some(1002));
    // A write of which the server was not told.
    world.engine.catalog().container("db", "c").await.unwrap().upsert(&item("one", "a", 2)).await.unwrap();
    assert_eq!(client.send(read()).await.expect(200).json()["n"], 2);
}
