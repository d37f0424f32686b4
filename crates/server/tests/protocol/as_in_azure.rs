//! What the service refuses or does is refused or done here, so that nothing passes here and fails there.

use serde_json::{Value, json};

use crate::support::{Ask, Client, World, item, world::DOCS};

/// Makes a container with these settings.
fn make(id: &str, settings: &Value) -> Ask {
    let mut body = json!({ "id": id, "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 } });
    for (name, value) in settings.as_object().unwrap() {
        body[name] = value.clone();
    }
    Ask::post("/dbs/db/colls", body)
}

async fn ranges(client: &mut Client, container: &str) -> usize {
    let live = client.send(Ask::get(format!("/dbs/db/colls/{container}/pkranges"))).await.expect(200).json();
    live["PartitionKeyRanges"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_write_that_names_a_trigger_is_not_performed_without_it() {
    let world = World::new().await;
    let mut client = world.client().await;
    for header in ["x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"] {
        let ask = Ask::post(DOCS, item("a", "p", 1)).key("p").with(header, "stamp");
        let refused = client.send(ask).await.expect(400).text();
        assert!(refused.contains("stamp") && refused.contains("does not exist"), "{refused}");
    }
    assert_eq!(world.count().await, 0);
}

#[tokio::test]
async fn all_items_of_a_partition_key_are_deleted_at_once() {
    let world = World::new().await;
    let mut client = world.client().await;
    for n in 0..250 {
        client.send(Ask::post(DOCS, item(&format!("i{n}"), "p", n)).key("p")).await.expect(201);
    }
    client.send(Ask::post(DOCS, item("other", "q", 1)).key("q")).await.expect(201);
    let path = "/dbs/db/colls/c/operations/partitionkeydelete";
    let missing = client.send(Ask::new("POST", path)).await.expect(400).text();
    assert!(missing.contains("x-ms-documentdb-partitionkey"), "{missing}");
    let deleted = client.send(Ask::new("POST", path).key("p")).await.expect(200);
    assert!(deleted.header("x-ms-session-token").is_some(), "{deleted:?}");
    assert_eq!(client.send(Ask::get(DOCS)).await.expect(200).ids(), ["other"]);
    // Some SDKs sign it as a request about the container.
    let mut as_container = Ask::new("POST", path).key("q");
    as_container.signed_path = Some("/dbs/db/colls/c".to_owned());
    client.send(as_container).await.expect(200);
    assert_eq!(world.count().await, 0);
    client.send(Ask::new("POST", path).key("nobody")).await.expect(200);
}

#[tokio::test]
async fn an_indexing_policy_is_completed_and_a_bad_one_refused() {
    let world = World::new().await;
    let mut client = world.client().await;
    let policy = json!({ "indexingPolicy": { "indexingMode": "Consistent", "excludedPaths": [{ "path": "/a/*" }] } });
    let made = client.send(make("sorted", &policy)).await.expect(201).json();
    let whole = json!({
        "indexingMode": "consistent", "automatic": true, "includedPaths": [{ "path": "/*" }],
        "excludedPaths": [{ "path": "/a/*" }, { "path": "/\"_etag\"/?" }],
    });
    assert_eq!(made["indexingPolicy"], whole);
    let bad = json!({ "indexingPolicy": { "includedPaths": [{ "path": "/a" }] } });
    let refused = client.send(make("refused", &bad)).await.expect(400).text();
    assert!(refused.contains("The indexing path '/a' could not be accepted"), "{refused}");
    client.send(Ask::get("/dbs/db/colls/refused")).await.expect(404);
    // What a client read it may write back.
    client.send(Ask::put("/dbs/db/colls/sorted", &made)).await.expect(200);
}

#[tokio::test]
async fn sorting_by_several_paths_needs_a_composite_index() {
    let world = World::new().await;
    let mut client = world.client().await;
    let index = json!([[{ "path": "/a", "order": "ascending" }, { "path": "/b", "order": "descending" }]]);
    client.send(make("sorted", &json!({ "indexingPolicy": { "compositeIndexes": index } }))).await.expect(201);
    let query = |container: &str, sql: &str| Ask::query(format!("/dbs/db/colls/{container}/docs"), sql);
    let sql = "SELECT * FROM c ORDER BY c.a, c.b DESC";
    client.send(query("sorted", sql)).await.expect(200);
    client.send(query("sorted", "SELECT * FROM c ORDER BY c.a DESC, c.b")).await.expect(200);
    client.send(query("sorted", "SELECT * FROM c ORDER BY c.z")).await.expect(200);
    let plan = |container: &str| query(container, sql).with("x-ms-cosmos-is-query-plan-request", "True");
    client.send(plan("sorted")).await.expect(200);
    for refused in [query("c", sql), query("sorted", "SELECT * FROM c ORDER BY c.a, c.b"), plan("c")] {
        let refused = client.send(refused).await.expect(400).text();
        let text = "The order by query does not have a corresponding composite index that it can be served from";
        assert!(refused.contains(text), "{refused}");
    }
}

#[tokio::test]
async fn settings_without_effect_are_named_in_the_response() {
    let world = World::new().await;
    let mut client = world.client().await;
    let header = "x-changefeed-not-acted-on";
    let settings = json!({
        "computedProperties": [{ "name": "lower", "query": "SELECT VALUE LOWER(c.name) FROM c" }],
        "vectorEmbeddingPolicy": { "vectorEmbeddings": [{ "path": "/v" }] },
    });
    let made = client.send(make("rich", &settings)).await.expect(201);
    assert_eq!(made.header(header), Some("computedProperties, vectorEmbeddingPolicy"));
    let replaced = client.send(Ask::put("/dbs/db/colls/rich", made.json())).await.expect(200);
    assert_eq!(replaced.header(header), Some("computedProperties, vectorEmbeddingPolicy"));
    let plain = client.send(make("plain", &json!({ "computedProperties": [], "defaultTtl": 60 }))).await.expect(201);
    assert_eq!(plain.header(header), None);
    let replaced = client.send(Ask::put("/dbs/db/colls/plain", plain.json())).await.expect(200);
    assert_eq!(replaced.header(header), None, "what the server itself shows");
}

#[tokio::test]
async fn ranges_follow_the_throughput() {
    let world = World::new().await;
    let mut client = world.client().await;
    for (id, header, value, count) in [
        ("small", "x-ms-offer-throughput", "400", 1),
        ("full", "x-ms-offer-throughput", "10000", 1),
        ("large", "x-ms-offer-throughput", "10100", 2),
        ("larger", "x-ms-offer-throughput", "35000", 4),
        ("auto", "x-ms-cosmos-offer-autopilot-settings", "{\"maxThroughput\":20000}", 2),
    ] {
        client.send(make(id, &json!({})).with(header, value)).await.expect(201);
        assert_eq!(ranges(&mut client, id).await, count, "{id}");
    }
    let made = client.send(Ask::get("/dbs/db/colls/small")).await.expect(200).json();
    let offers = client.send(Ask::get("/offers")).await.expect(200).json();
    let mut offers = offers["Offers"].as_array().unwrap().iter();
    let mut offer = offers.find(|offer| offer["resource"] == made["_self"]).unwrap().clone();
    let path = format!("/offers/{}", offer["id"].as_str().unwrap());
    for (units, count) in [(25_000, 3), (1000, 3), (40_000, 4)] {
        offer["content"]["offerThroughput"] = units.into();
        client.send(Ask::put(&path, &offer)).await.expect(200);
        assert_eq!(ranges(&mut client, "small").await, count, "{units}");
    }
}

#[tokio::test]
async fn a_fixed_number_of_ranges_does_not_follow_the_throughput() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    client.send(make("large", &json!({})).with("x-ms-offer-throughput", "50000")).await.expect(201);
    assert_eq!(ranges(&mut client, "large").await, 2);
}

#[tokio::test]
async fn refusals_have_the_words_of_the_service() {
    let world = World::new().await;
    let mut client = world.client().await;
    let created = Ask::post(DOCS, item("a", "p", 1)).key("p");
    client.send(created.clone()).await.expect(201);
    for (ask, status, words) in [
        (Ask::get(format!("{DOCS}/none")).key("p"), 404, "Resource Not Found"),
        (Ask::get("/dbs/none"), 404, "Resource Not Found"),
        (Ask::get("/dbs/none/colls/c/docs/a").key("p"), 404, "Owner resource does not exist"),
        (created, 409, "Entity with the specified id already exists in the system"),
        (Ask::delete(format!("{DOCS}/a")).key("p").with("if-match", "\"x\""), 412, "precondition is not met"),
        (
            Ask::get(format!("{DOCS}/a")).key("p").with("x-ms-session-token", "0:-1#1000"),
            404,
            "The read session is not available for the input session token",
        ),
        (Ask::get(format!("{DOCS}/a")), 400, "PartitionKey value must be supplied for this operation"),
        (Ask::query(DOCS, "SELECT"), 400, "Syntax error"),
        (
            Ask::post(DOCS, item("b", "p", 1)).key("q"),
            400,
            "Partition key provided either doesn't correspond to definition in the collection",
        ),
    ] {
        let what = format!("{} {}", ask.method, ask.path);
        let refused = client.send(ask).await.expect(status).text();
        assert!(refused.contains(words), "{what}: {refused}");
    }
}

#[tokio::test]
async fn unique_keys_are_enforced_within_a_partition_key() {
    let world = World::new().await;
    let mut client = world.client().await;
    let policy = json!({ "uniqueKeyPolicy": { "uniqueKeys": [{ "paths": ["/email"] }, { "paths": ["/a/b", "/n"] }] } });
    let made = client.send(make("unique", &policy)).await.expect(201);
    assert_eq!(made.header("x-changefeed-not-acted-on"), None);
    let docs = "/dbs/db/colls/unique/docs";
    let by_rid = format!("/{}docs", made.json()["_self"].as_str().unwrap());
    let person = |id: &str, pk: &str, email: &str, n: f64| json!({ "id": id, "pk": pk, "email": email, "n": n });
    let put = |id: &str, email: &str| Ask::put(format!("{docs}/{id}"), person(id, "p", email, 2.0)).key("p");
    client.send(Ask::post(docs, person("1", "p", "x", 1.0)).key("p")).await.expect(201);
    let refused = client.send(Ask::post(docs, person("2", "p", "x", 2.0)).key("p")).await.expect(409).text();
    assert!(refused.contains("Unique index constraint violation"), "{refused}");
    client.send(Ask::post(&by_rid, person("2", "p", "x", 2.0)).key("p")).await.expect(409);
    client.send(Ask::post(docs, json!({ "id": "2", "pk": "p", "email": "y", "n": 1 })).key("p")).await.expect(409);
    client.send(Ask::post(docs, person("1", "q", "x", 1.0)).key("q")).await.expect(201);
    client.send(Ask::post(docs, person("2", "p", "y", 2.0)).key("p")).await.expect(201);
    client.send(put("2", "x")).await.expect(409);
    client.send(put("2", "y")).await.expect(200);
    let patch = json!({ "operations": [{ "op": "set", "path": "/email", "value": "x" }] });
    client.send(Ask::patch(format!("{docs}/2"), patch).key("p")).await.expect(409);
    // What is missing counts as null, once.
    client.send(Ask::post(docs, json!({ "id": "3", "pk": "p", "n": 3 })).key("p")).await.expect(201);
    client.send(Ask::post(docs, json!({ "id": "4", "pk": "p", "email": null, "n": 4 })).key("p")).await.expect(409);
    let batch = json!([
        { "operationType": "Delete", "id": "1" },
        { "operationType": "Create", "resourceBody": person("5", "p", "x", 5.0) },
        { "operationType": "Create", "resourceBody": person("6", "p", "x", 6.0) },
    ]);
    let outcomes = client.send(Ask::batch(docs, &batch).key("p")).await.expect(207).json();
    let statuses: Vec<_> = outcomes.as_array().unwrap().iter().map(|one| one["statusCode"].clone()).collect();
    assert_eq!(statuses, [json!(424), json!(424), json!(409)]);
    let batch = Value::Array(batch.as_array().unwrap()[..2].to_vec());
    client.send(Ask::batch(docs, &batch).key("p")).await.expect(200);
}

#[tokio::test]
async fn unique_keys_stay_as_they_were_made() {
    let world = World::new().await;
    let mut client = world.client().await;
    let keys = |path: &str| json!({ "uniqueKeyPolicy": { "uniqueKeys": [{ "paths": [path] }] } });
    let made = client.send(make("unique", &keys("/a"))).await.expect(201).json();
    let path = "/dbs/db/colls/unique";
    client.send(Ask::put(path, &made)).await.expect(200);
    let mut other = made.clone();
    other["uniqueKeyPolicy"] = keys("/b")["uniqueKeyPolicy"].clone();
    client.send(Ask::put(path, &other)).await.expect(400);
    other.as_object_mut().unwrap().remove("uniqueKeyPolicy");
    let kept = client.send(Ask::put(path, &other)).await.expect(200).json();
    assert_eq!(kept["uniqueKeyPolicy"], made["uniqueKeyPolicy"]);
    let mut plain = client.send(Ask::get("/dbs/db/colls/c")).await.expect(200).json();
    plain["uniqueKeyPolicy"] = keys("/a")["uniqueKeyPolicy"].clone();
    client.send(Ask::put("/dbs/db/colls/c", &plain)).await.expect(400);
    for bad in [json!([]), json!({ "uniqueKeys": [{ "paths": [] }] }), json!({ "uniqueKeys": [{ "paths": ["a"] }] })] {
        client.send(make("bad", &json!({ "uniqueKeyPolicy": bad }))).await.expect(400);
    }
}
