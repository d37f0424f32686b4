//! Answers that suites of SDKs expect as the service gives them.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Ask, World, item, world::DOCS};

#[tokio::test]
async fn items_of_a_partition_key_come_in_the_order_of_their_creation() {
    let world = World::new().await;
    let mut client = world.client().await;
    let ids: Vec<_> = (0..30).map(|n| format!("i{}", n * 7919 % 97)).collect();
    for id in &ids {
        client.send(Ask::post(DOCS, item(id, "p", 1)).key("p")).await.expect(201);
    }
    assert_eq!(client.send(Ask::get(DOCS).key("p")).await.expect(200).ids(), ids);
    assert_eq!(client.send(Ask::query(DOCS, "SELECT * FROM c").key("p")).await.expect(200).ids(), ids);
}

#[tokio::test]
async fn a_replace_may_change_the_id() {
    let world = World::new().await;
    let mut client = world.client().await;
    let first = client.send(Ask::post(DOCS, item("old", "p", 1)).key("p")).await.expect(201);
    client.send(Ask::post(DOCS, item("taken", "p", 1)).key("p")).await.expect(201);
    let put = |id: &str, number| Ask::put(format!("{DOCS}/old"), item(id, "p", number)).key("p");
    client.send(put("taken", 2)).await.expect(409);
    client.send(put("new", 2).with("if-match", "\"1-1\"")).await.expect(412);
    let renamed = client.send(put("new", 2).with("if-match", first.etag())).await.expect(200).json();
    assert_eq!((&renamed["id"], &renamed["n"]), (&json!("new"), &json!(2)));
    client.send(Ask::get(format!("{DOCS}/old")).key("p")).await.expect(404);
    client.send(Ask::get(format!("{DOCS}/new")).key("p")).await.expect(200);
    client.send(put("newer", 3)).await.expect(404);
}

#[tokio::test]
async fn etags_work_without_their_quotes() {
    let world = World::new().await;
    let mut client = world.client().await;
    let etag = client.send(Ask::post(DOCS, item("a", "p", 1)).key("p")).await.expect(201).etag();
    let put = |etag: &str| Ask::put(format!("{DOCS}/a"), item("a", "p", 2)).key("p").with("if-match", etag);
    client.send(put("other")).await.expect(412);
    let read = |etag: &str| Ask::get(format!("{DOCS}/a")).key("p").with("if-none-match", etag);
    client.send(read(etag.trim_matches('"'))).await.expect(304);
    let new = client.send(put(etag.trim_matches('"'))).await.expect(200).etag();
    client.send(read(etag.trim_matches('"'))).await.expect(200);
    client.send(read(&new)).await.expect(304);
    let etag = client.send(Ask::get("/dbs/db/colls/c")).await.expect(200).etag();
    let delete = |etag: &str| Ask::delete("/dbs/db/colls/c").with("if-match", etag);
    let refused = client.send(delete("other")).await.expect(412);
    assert!(refused.text().contains("one of the specified precondition is not met"), "{}", refused.text());
    client.send(delete(etag.trim_matches('"'))).await.expect(204);
}

#[tokio::test]
async fn an_empty_key_of_a_hierarchical_container_is_a_prefix_of_all() {
    let world = World::new().await;
    let mut client = world.client().await;
    let definition = json!({ "paths": ["/t", "/u"], "kind": "MultiHash", "version": 2 });
    client.send(Ask::post("/dbs/db/colls", json!({ "id": "h", "partitionKey": definition }))).await.expect(201);
    let docs = "/dbs/db/colls/h/docs";
    let key = |ask: Ask, key: &str| ask.with("x-ms-documentdb-partitionkey", key);
    for (id, t, u) in [("1", "a", "x"), ("2", "a", "y"), ("3", "b", "x")] {
        let body = json!({ "id": id, "t": t, "u": u });
        client.send(key(Ask::post(docs, body), &format!("[{t:?},{u:?}]"))).await.expect(201);
    }
    let all = [Ask::query(docs, "SELECT * FROM c"), Ask::get(docs), Ask::get(docs).feed()];
    for (prefix, count) in [("[]", 3), (r#"["a"]"#, 2), (r#"["a","y"]"#, 1)] {
        for ask in all.clone() {
            assert_eq!(client.send(key(ask, prefix)).await.expect(200).documents().len(), count, "{prefix}");
        }
    }
    // One item needs its whole key.
    for ask in [Ask::get(format!("{docs}/1")), Ask::delete(format!("{docs}/1"))] {
        let refused = client.send(key(ask, "[]")).await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), Some("1001"));
    }
}

#[tokio::test]
async fn one_conflict_is_not_found_and_the_list_is_empty() {
    let world = World::new().await;
    let mut client = world.client().await;
    let list = client.send(Ask::get("/dbs/db/colls/c/conflicts")).await.expect(200).json();
    assert_eq!((&list["Conflicts"], &list["_count"]), (&json!([]), &json!(0)));
    let missing = client.send(Ask::get("/dbs/db/colls/c/conflicts/x")).await.expect(404);
    assert!(missing.text().contains("Resource Not Found"), "{}", missing.text());
}

#[tokio::test]
async fn a_ttl_of_null_is_refused() {
    let world = World::new().await;
    let refused = world.client().await.send(Ask::post(DOCS, json!({"id": "a", "pk": "p", "ttl": null})).key("p")).await;
    assert!(refused.expect(400).text().contains("ttl"));
}

#[tokio::test]
async fn a_continuation_beyond_the_end_waits_for_writes() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, item("a", "p", 1)).key("p")).await.expect(201);
    let ask = Ask::get(DOCS).feed().range("0").with("if-none-match", "\"1000\"");
    let reply = client.send(ask.clone()).await.expect(304);
    assert_eq!((reply.etag().as_str(), reply.header("x-ms-item-count")), ("\"1000\"", Some("0")));
    let elsewhere = Ask::get(DOCS).feed().range("7").with("if-none-match", "\"1000\"");
    client.send(elsewhere).await.expect(410);
}

#[tokio::test]
async fn ranges_have_the_same_lsn_by_name_and_by_resource_id() {
    let world = World::new().await;
    let mut client = world.client().await;
    for n in 0..5 {
        client.send(Ask::post(DOCS, item(&format!("i{n}"), "p", n)).key("p")).await.expect(201);
    }
    let container = client.send(Ask::get("/dbs/db/colls/c")).await.expect(200).json();
    let by_rid = format!("/{}pkranges", container["_self"].as_str().unwrap());
    let lsn = |reply: crate::support::Reply| reply.json()["PartitionKeyRanges"][0]["_lsn"].clone();
    let by_name = lsn(client.send(Ask::get("/dbs/db/colls/c/pkranges")).await.expect(200));
    assert_eq!(by_name, lsn(client.send(Ask::get(by_rid)).await.expect(200)));
    assert_eq!(by_name, json!(6), "the first write has 2");
}

#[tokio::test]
async fn answers_name_their_location_and_the_account_its_storage() {
    let world = World::new().await;
    let mut client = world.client().await;
    let account = client.send(Ask::get("/")).await.expect(200);
    assert_eq!(account.header("x-ms-max-media-storage-usage-mb"), Some("10240"));
    assert_eq!(account.header("x-ms-media-storage-usage-mb"), Some("0"));
    let created = client.send(Ask::post(DOCS, item("a", "p", 1)).key("p")).await.expect(201);
    assert_eq!(created.header("content-location"), Some(format!("http://{}{DOCS}", world.address()).as_str()));
}

#[tokio::test]
async fn what_is_not_supported_is_named() {
    let world = World::new().await;
    let mut client = world.client().await;
    let script = json!({"id": "x", "body": "function () {}"});
    for (path, feature) in [
        ("/dbs/db/colls/c/sprocs", "stored procedures"),
        ("/dbs/db/colls/c/sprocs/x", "stored procedures"),
        ("/dbs/db/colls/c/triggers", "triggers"),
        ("/dbs/db/colls/c/udfs", "user-defined functions"),
        ("/dbs/db/users", "users"),
        ("/dbs/db/users/u/permissions", "permissions"),
    ] {
        let refused = client.send(Ask::post(path, &script)).await.expect(400);
        assert!(refused.text().contains(feature), "{path}: {refused:?}");
    }
    for path in ["conflicts/x", "sprocs/x", "triggers/x", "udfs/x"] {
        client.send(Ask::get(format!("/dbs/db/colls/c/{path}"))).await.expect(404);
    }
    client.send(Ask::get("/dbs/db/users/u")).await.expect(404);
    for (sql, feature) in [
        ("SELECT udf.f(c) FROM c", "user-defined functions"),
        ("SELECT ST_DISTANCE(c.a, c.b) FROM c", "spatial"),
        ("SELECT VectorDistance(c.a, c.b) FROM c", "vector"),
        ("SELECT * FROM c WHERE FullTextContains(c.a, 'x')", "full text"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 'x')", "full text"),
    ] {
        let refused = client.send(Ask::query(DOCS, sql)).await.expect(400).text();
        assert!(refused.contains(feature) && !refused.contains("Syntax error"), "{sql}: {refused}");
    }
    let wrong = client.send(Ask::query(DOCS, "SELECT FROM c")).await.expect(400);
    assert!(wrong.text().contains("Syntax error"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_of_one_item_take_turns() {
    let world = World::new().await;
    world.client().await.send(Ask::post(DOCS, item("n", "p", 0)).key("p")).await.expect(201);
    let mut clients = JoinSet::new();
    for number in 0..32 {
        let mut client = world.client().await;
        clients.spawn(async move {
            let increment = json!({"operations": [{"op": "incr", "path": "/n", "value": 1}]});
            for _ in 0..10 {
                if number % 4 == 0 {
                    let patch = json!([{"operationType": "Patch", "id": "n", "resourceBody": increment}]);
                    client.send(Ask::batch(DOCS, &patch).key("p")).await.expect(200);
                } else {
                    client.send(Ask::patch(format!("{DOCS}/n"), &increment).key("p")).await.expect(200);
                }
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let item = world.client().await.send(Ask::get(format!("{DOCS}/n")).key("p")).await.expect(200).json();
    assert_eq!(item["n"], 320);
}
