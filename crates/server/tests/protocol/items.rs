//! Single items: what is answered to writes and reads.

use serde_json::{Value, json};

use crate::support::{Ask, World, item, world::DOCS};

#[tokio::test]
async fn items_are_created_read_replaced_upserted_and_deleted() {
    let world = World::new().await;
    let mut client = world.client().await;
    let one = format!("{DOCS}/one");
    let created = client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let body = created.json();
    assert_eq!(body["_etag"], created.etag(), "the header is the member, quotes included");
    assert!(created.etag().starts_with('"') && created.etag().ends_with('"'));
    assert_eq!(body["_rid"].as_str().unwrap().len(), 24, "sixteen bytes");
    assert!(body["_self"].as_str().unwrap().ends_with(&format!("/docs/{}/", body["_rid"].as_str().unwrap())));
    assert_eq!(body["_attachments"], "attachments/");
    assert!(body["_ts"].as_u64().unwrap() > 1_700_000_000);
    let read = client.send(Ask::get(&one).key("a")).await.expect(200);
    assert_eq!((read.json(), read.etag()), (body.clone(), created.etag()));
    let unchanged = client.send(Ask::get(&one).key("a").with("if-none-match", created.etag())).await.expect(304);
    assert!(unchanged.body.is_empty());
    let replaced = client.send(Ask::put(&one, item("one", "a", 2)).key("a").with("if-match", created.etag())).await;
    let replaced = replaced.expect(200);
    assert_ne!(replaced.etag(), created.etag());
    assert_eq!(replaced.json()["_rid"], body["_rid"], "it is the same item");
    client.send(Ask::get(&one).key("a").with("if-none-match", created.etag())).await.expect(200);
    let upsert = |id: &str| Ask::post(DOCS, item(id, "a", 3)).key("a").with("x-ms-documentdb-is-upsert", "True");
    client.send(upsert("one")).await.expect(200);
    client.send(upsert("new")).await.expect(201);
    let by_link = format!("/{}", body["_self"].as_str().unwrap());
    assert_eq!(client.send(Ask::get(&by_link).key("a")).await.expect(200).json()["n"], 3, "by resource ids");
    let deleted = client.send(Ask::delete(&one).key("a")).await.expect(204);
    assert!(deleted.body.is_empty());
    client.send(Ask::get(&one).key("a")).await.expect(404);
}

#[tokio::test]
async fn what_the_server_owns_is_not_taken_from_clients() {
    let world = World::new().await;
    let mut client = world.client().await;
    let mut body = item("one", "a", 1);
    for member in ["_rid", "_self", "_etag", "_attachments"] {
        body[member] = json!("mine");
    }
    body["_ts"] = json!(7);
    body["_lsn"] = json!(99);
    let created = client.send(Ask::post(DOCS, &body).key("a")).await.expect(201).text();
    assert!(!created.contains("mine"), "{created}");
    let read = client.send(Ask::get(format!("{DOCS}/one")).key("a")).await.expect(200).text();
    assert_eq!(read, created);
    for member in ["_rid", "_self", "_etag", "_attachments", "_ts"] {
        assert_eq!(read.matches(&format!("\"{member}\":")).count(), 1, "{member} in {read}");
    }
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_ne!(read["_ts"], 7);
}

#[tokio::test]
async fn lsn_is_shown_in_the_feed_and_nowhere_else() {
    let world = World::new().await;
    let mut client = world.client().await;
    let created = client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    assert!(created.json().get("_lsn").is_none());
    assert!(client.send(Ask::get(format!("{DOCS}/one")).key("a")).await.expect(200).json().get("_lsn").is_none());
    for ask in [Ask::get(DOCS), Ask::query(DOCS, "SELECT * FROM c")] {
        assert!(client.send(ask).await.expect(200).documents()[0].get("_lsn").is_none());
    }
    assert_eq!(client.send(Ask::get(DOCS).feed()).await.expect(200).documents()[0]["_lsn"], 2);
}

#[tokio::test]
async fn minimal_answers_have_the_usual_status_and_headers_and_no_body() {
    let world = World::new().await;
    let mut client = world.client().await;
    let minimal = |ask: Ask| ask.key("a").with("prefer", "return=minimal");
    let one = format!("{DOCS}/one");
    let set = json!({ "operations": [{ "op": "set", "path": "/n", "value": 5 }] });
    let upsert = || Ask::post(DOCS, item("one", "a", 2)).with("x-ms-documentdb-is-upsert", "True");
    for (ask, status) in [
        (Ask::post(DOCS, item("one", "a", 1)), 201),
        (Ask::put(&one, item("one", "a", 2)), 200),
        (upsert(), 200),
        (Ask::patch(&one, set), 200),
    ] {
        let reply = client.send(minimal(ask)).await.expect(status);
        assert!(reply.body.is_empty(), "{reply:?}");
        for name in ["etag", "x-ms-session-token", "lsn", "x-ms-item-lsn", "x-ms-documentdb-partitionkeyrangeid"] {
            assert!(reply.header(name).is_some(), "{name} in {reply:?}");
        }
        let read = client.send(Ask::get(&one).key("a").with("if-none-match", reply.etag())).await;
        assert_eq!(read.status, 304, "the etag is that of the item");
    }
    client.send(minimal(Ask::delete(&one))).await.expect(204);
}

#[tokio::test]
async fn binary_bodies_become_the_same_items_as_text() {
    let world = World::new().await;
    let mut client = world.client().await;
    let binary = [0x80, 0xed, 0x0d, 3, 0x82, 0x69, 0x64, 0x81, 0x31, 0x82, 0x70, 0x6b, 0x81, 0x61, 0x81, 0x76, 2];
    let ask = Ask::post(DOCS, "").body(binary.to_vec()).key("a").with("content-type", "application/json");
    let created =
        client.send(ask.with("x-ms-cosmos-supported-serialization-formats", "CosmosBinary")).await.expect(201);
    let body = created.json();
    assert_eq!((body["id"].as_str(), body["pk"].as_str(), body["v"].as_i64()), (Some("1"), Some("a"), Some(2)));
    assert_eq!(
        client.send(Ask::query(DOCS, "SELECT VALUE c.v FROM c")).await.expect(200).json()["Documents"],
        json!([2])
    );
}

#[tokio::test]
async fn every_kind_of_key_value_finds_its_item() {
    let world = World::with(|builder| builder.ranges(4)).await;
    let mut client = world.client().await;
    for (number, (member, header)) in (0_u64..).zip([
        (Some(json!("a")), "[\"a\"]"),
        (Some(json!("é✓")), "[\"\\u00e9\\u2713\"]"),
        (Some(json!(1.5)), "[1.5]"),
        (Some(json!(1)), "[1.0]"),
        (Some(json!(true)), "[true]"),
        (Some(Value::Null), "[null]"),
        (None, "[{}]"),
    ]) {
        let mut body = json!({ "id": "same", "n": number });
        if let Some(member) = member {
            body["pk"] = member;
        }
        let with = |ask: Ask| ask.with("x-ms-documentdb-partitionkey", header);
        client.send(with(Ask::post(DOCS, &body))).await.expect(201);
        let read = client.send(with(Ask::get(format!("{DOCS}/same")))).await.expect(200);
        assert_eq!(read.json()["n"], number, "{header}");
        let feed = client.send(with(Ask::get(DOCS).feed())).await.expect(200);
        assert_eq!(feed.documents().len(), 1, "{header}");
    }
}

#[tokio::test]
async fn an_item_with_half_a_surrogate_does_not_spoil_the_container_for_others() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let odd = r#"{"id":"odd","pk":"a","n":2,"v":"\ud800"}"#;
    client.send(Ask::post(DOCS, odd).key("a")).await.expect(201);
    let set = json!({ "operations": [{ "op": "set", "path": "/n", "value": 3 }] });
    client.send(Ask::patch(format!("{DOCS}/one"), set).key("a")).await.expect(200);
    for sql in
        ["SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c WHERE c.n > 0", "SELECT VALUE c.id FROM c ORDER BY c.n"]
    {
        let found = client.send(Ask::query(DOCS, sql)).await.expect(200).json();
        assert_eq!(found["_count"], 2, "{sql}: {found}");
    }
}

#[tokio::test]
async fn a_batch_has_one_lsn_and_answers_each_operation() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, item("old", "a", 1)).key("a")).await.expect(201);
    let batch = json!([
        { "operationType": "Create", "resourceBody": item("new", "a", 1) },
        { "operationType": "Upsert", "resourceBody": item("old", "a", 2) },
        { "operationType": "Read", "id": "old" },
        { "operationType": "Patch", "id": "new", "resourceBody": { "operations": [{ "op": "incr", "path": "/n", "value": 4 }] } },
        { "operationType": "Delete", "id": "old" },
    ]);
    let reply = client.send(Ask::batch(DOCS, &batch).key("a")).await.expect(200);
    let outcomes = reply.json();
    let statuses: Vec<u64> =
        outcomes.as_array().unwrap().iter().map(|one| one["statusCode"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 200, 200, 200, 204], "{outcomes}");
    assert_eq!(outcomes[2]["resourceBody"]["n"], 2, "a read sees what the batch did before it");
    assert_eq!(outcomes[3]["resourceBody"]["n"], 5);
    assert!(outcomes[0]["eTag"].as_str().unwrap().starts_with('"'));
    assert!(outcomes[0]["requestCharge"].is_number());
    let feed = client.send(Ask::get(DOCS).feed()).await.expect(200);
    assert_eq!(feed.ids(), ["new"]);
    assert_eq!((feed.documents()[0]["_lsn"].as_u64(), feed.etag()), (Some(3), "\"3\"".to_owned()));
}

#[tokio::test]
async fn bulk_operations_stand_each_for_itself() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    // Both keys lie in the upper half.
    let one = |id: &str, pk: &str| json!({ "operationType": "Create", "partitionKey": format!("[\"{pk}\"]"), "resourceBody": item(id, pk, 1) });
    let bulk = json!([one("1", "a"), one("1", "a"), one("2", "abc"), one("3", "partitionKey")]);
    let ask = Ask::post(DOCS, bulk)
        .range("1")
        .with("x-ms-cosmos-is-batch-request", "true")
        .with("x-ms-cosmos-batch-atomic", "false")
        .with("x-ms-cosmos-batch-continue-on-error", "true");
    let outcomes = client.send(ask).await.expect(207).json();
    let statuses: Vec<u64> =
        outcomes.as_array().unwrap().iter().map(|one| one["statusCode"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 409, 201, 410], "the last is not in this range: {outcomes}");
    assert_eq!(world.count().await, 2);
}
