//! The account document, and what clients do with paths and flags.

use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::support::{Ask, World, item, raw, world::DOCS};

#[tokio::test]
async fn the_account_is_not_called_localhost_and_has_what_clients_need() {
    let world = World::new().await;
    let account = world.client().await.send(Ask::get("/")).await.expect(200).json();
    assert_ne!(account["id"], "localhost", "one SDK then reads the account again before every request");
    for member in ["id", "_rid", "_self", "_dbs", "queryEngineConfiguration"] {
        assert!(account[member].is_string(), "{member}: {account}");
    }
    assert_eq!(account["userConsistencyPolicy"]["defaultConsistencyLevel"], "Session");
    assert_eq!(account["enableMultipleWriteLocations"], false);
    assert_eq!(account["writableLocations"].as_array().unwrap().len(), 1);
    assert_eq!(account["readableLocations"], account["writableLocations"]);
    assert!(account.get("_etag").is_none());
    let text = account.to_string();
    assert!(!text.contains("thinClient"), "clients would speak another protocol then: {text}");
    let configuration = account["queryEngineConfiguration"].as_str().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(configuration).unwrap().is_object());
}

#[tokio::test]
async fn clients_are_sent_to_where_they_came_from() {
    let world = World::with_own_key().await;
    for host in ["localhost:1234", "cosmos.example", "[::1]:8081", "10.0.0.7"] {
        let ask = Ask::get("/").head(&world.keys, &[]);
        let head = String::from_utf8(ask).unwrap().replace("host: localhost", &format!("host: {host}"));
        let mut stream = raw::connect(world.address()).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = raw::one_answer(&mut stream).await;
        let expected = format!("\"databaseAccountEndpoint\":\"http://{host}/\"");
        assert_eq!(answer.matches(&expected).count(), 2, "{answer}");
    }
}

#[tokio::test]
async fn a_host_header_cannot_put_anything_else_into_the_account() {
    let world = World::with_own_key().await;
    for host in ["a\",\"id\":\"localhost", "a/b?c#d", "<script>"] {
        let ask = Ask::get("/").head(&world.keys, &[]);
        let head = String::from_utf8(ask).unwrap().replace("host: localhost", &format!("host: {host}"));
        let mut stream = raw::connect(world.address()).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = raw::one_answer(&mut stream).await;
        if answer.starts_with("HTTP/1.1 200") {
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let account: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(account["id"], "changefeed", "{answer}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_slash_at_the_end_changes_nothing() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post(format!("{DOCS}/"), item("one", "a", 1)).key("a")).await.expect(201);
    for path in ["/dbs", "/dbs/db", "/dbs/db/colls", "/dbs/db/colls/c", DOCS, "/dbs/db/colls/c/pkranges", "/offers"] {
        let without = client.send(Ask::get(path)).await.expect(200);
        let with = client.send(Ask::get(format!("{path}/"))).await.expect(200);
        assert_eq!(without.body, with.body, "{path}");
    }
    client.send(Ask::get(format!("{DOCS}/one/")).key("a")).await.expect(200);
    client.send(Ask::get(format!("{DOCS}/")).feed()).await.expect(200);
    client.send(Ask::query(format!("{DOCS}/"), "SELECT * FROM c")).await.expect(200);
    client.send(Ask::delete(format!("{DOCS}/one/")).key("a")).await.expect(204);
}

#[tokio::test]
async fn flags_are_read_in_any_case() {
    let world = World::new().await;
    let mut client = world.client().await;
    for (number, truth) in (1..).zip(["true", "True", "TRUE", "tRuE"]) {
        let upsert = Ask::post(DOCS, item("one", "a", number)).key("a").with("x-ms-documentdb-is-upsert", truth);
        let reply = client.send(upsert).await;
        assert_eq!(reply.status, if number == 1 { 201 } else { 200 }, "{truth}");
        let query =
            Ask::post(DOCS, json!({ "query": "SELECT VALUE c.n FROM c" })).with("x-ms-documentdb-isquery", truth);
        assert_eq!(client.send(query).await.expect(200).json()["Documents"], json!([number]));
        let batch = json!([{ "operationType": "Read", "id": "one" }]);
        let batch = Ask::post(DOCS, batch)
            .key("a")
            .with("x-ms-cosmos-is-batch-request", truth)
            .with("x-ms-cosmos-batch-atomic", truth);
        client.send(batch).await.expect(200);
    }
    for lie in ["false", "False", "", "1", "yes"] {
        let create = Ask::post(DOCS, item("one", "a", 9)).key("a").with("x-ms-documentdb-is-upsert", lie);
        client.send(create).await.expect(409);
    }
}

#[tokio::test]
async fn unknown_and_empty_headers_are_ignored() {
    let world = World::new().await;
    let ask = Ask::post(DOCS, item("one", "a", 1))
        .key("a")
        .with("x-ms-thinclient-pkrange-min", "")
        .with("x-ms-noretry-449", "true")
        .with("x-ms-cosmos-something-new", "at all")
        .with("x-ms-session-token", "")
        .with("x-ms-continuation", "")
        .with("if-match", "")
        .with("accept-encoding", "gzip, deflate")
        .with("x-ms-cosmos-supported-serialization-formats", "CosmosBinary");
    world.client().await.send(ask).await.expect(201);
}

#[tokio::test]
async fn databases_are_made_listed_queried_read_and_deleted() {
    let world = World::new().await;
    let mut client = world.client().await;
    let made = client.send(Ask::post("/dbs", json!({ "id": "second" }))).await.expect(201);
    let database = made.json();
    assert_eq!(database["_etag"], made.etag());
    let rid = database["_rid"].as_str().unwrap();
    assert_eq!(rid.len(), 8, "four bytes");
    assert_eq!(database["_self"], format!("dbs/{rid}/"));
    assert_eq!((database["_colls"].as_str(), database["_users"].as_str()), (Some("colls/"), Some("users/")));
    let all = client.send(Ask::get("/dbs")).await.expect(200).json();
    assert_eq!((all["_count"].as_u64(), all["_rid"].as_str()), (Some(2), Some("")));
    let found = client.send(Ask::query("/dbs", "SELECT * FROM root r WHERE r.id = 'second'")).await.expect(200).json();
    assert_eq!(found["Databases"], json!([database]));
    assert_eq!(client.send(Ask::get(format!("/dbs/{rid}"))).await.expect(200).json(), database, "by resource id");
    client.send(Ask::delete("/dbs/second").with("if-match", made.etag())).await.expect(204);
    client.send(Ask::get("/dbs/second")).await.expect(404);
}

#[tokio::test]
async fn lists_of_databases_come_in_pages() {
    let world = World::new().await;
    let mut client = world.client().await;
    for number in 0..5 {
        client.send(Ask::post("/dbs", json!({ "id": format!("x{number}") }))).await.expect(201);
    }
    let (mut seen, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let mut ask = Ask::get("/dbs").with("x-ms-max-item-count", 2);
        if let Some(continuation) = &continuation {
            ask = ask.with("x-ms-continuation", continuation);
        }
        let reply = client.send(ask).await.expect(200);
        let page = reply.json();
        let page = page["Databases"].as_array().unwrap();
        assert!(page.len() <= 2);
        seen.extend(page.iter().map(|database| database["id"].as_str().unwrap().to_owned()));
        continuation = reply.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["db", "x0", "x1", "x2", "x3", "x4"]);
}
