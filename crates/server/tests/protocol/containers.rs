//! Containers: what is kept, what is filled in, and their offers.

use serde_json::{Value, json};

use crate::support::{Ask, World, item};

async fn made(world: &World, body: Value) -> Value {
    world.client().await.send(Ask::post("/dbs/db/colls", body)).await.expect(201).json()
}

/// A container that was read, without the identity of its store.
fn without_store(mut container: Value) -> Value {
    container.as_object_mut().unwrap().remove("_changefeed").expect("the store");
    container
}

#[tokio::test]
async fn a_container_without_version_hashes_as_the_first_version_did() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    let container = made(&world, json!({ "id": "v1", "partitionKey": { "paths": ["/pk"] } })).await;
    assert!(matches!(container["partitionKey"]["version"].as_u64(), None | Some(1)), "{container}");
    let ranges = client.send(Ask::get("/dbs/db/colls/v1/pkranges")).await.expect(200).json();
    let boundary = ranges["PartitionKeyRanges"][1]["minInclusive"].as_str().unwrap();
    assert!(boundary.starts_with("05C1"), "keys of the first version all begin so: {boundary}");
    // 05C1D78593652C086200 is below the middle, 05C1ED155F4F7C0862636400 above it.
    for (key, range) in [("a", "0"), ("abc", "1")] {
        let reply = client.send(Ask::post("/dbs/db/colls/v1/docs", item(key, key, 1)).key(key)).await.expect(201);
        assert_eq!(reply.header("x-ms-documentdb-partitionkeyrangeid"), Some(range), "{key}");
        let feed = client.send(Ask::get("/dbs/db/colls/v1/docs").feed().range(range)).await.expect(200);
        assert_eq!(feed.ids(), [key]);
    }
}

#[tokio::test]
async fn a_container_is_shown_with_all_that_clients_look_for() {
    let world = World::new().await;
    let key = json!({ "paths": ["/pk"], "kind": "Hash", "version": 2 });
    let container = made(&world, json!({ "id": "x", "partitionKey": key })).await;
    let rid = container["_rid"].as_str().unwrap();
    assert_eq!(rid.len(), 12, "eight bytes");
    assert_eq!(container["partitionKey"], key);
    assert!(container["_self"].as_str().unwrap().ends_with(&format!("/colls/{rid}/")));
    for (member, text) in [("_docs", "docs/"), ("_sprocs", "sprocs/"), ("_conflicts", "conflicts/")] {
        assert_eq!(container[member], text);
    }
    for member in ["indexingPolicy", "conflictResolutionPolicy", "geospatialConfig"] {
        assert!(container[member].is_object(), "{member}: {container}");
    }
    assert!(container.get("changeFeedPolicy").is_none(), "nobody asked for one: {container}");
    let mut client = world.client().await;
    for path in ["/dbs/db/colls/x".to_owned(), format!("/{}", container["_self"].as_str().unwrap())] {
        let read = client.send(Ask::get(&path)).await.expect(200).json();
        assert_eq!(without_store(read), container, "{path}");
    }
    let all = client.send(Ask::get("/dbs/db/colls")).await.expect(200).json();
    assert_eq!(all["_count"], 2);
    let found = client.send(Ask::query("/dbs/db/colls", "SELECT * FROM c WHERE c.id = 'x'")).await.expect(200).json();
    assert_eq!(found["DocumentCollections"], json!([container]));
}

#[tokio::test]
async fn settings_that_are_not_understood_are_kept_and_those_that_are_can_change() {
    let world = World::new().await;
    let mut client = world.client().await;
    let more = json!({
        "uniqueKeyPolicy": { "uniqueKeys": [] }, "computedProperties": [{ "name": "n", "query": "SELECT VALUE 1" }],
        "indexingPolicy": {
            "indexingMode": "none", "automatic": false, "includedPaths": [], "excludedPaths": [],
        },
    });
    let mut body = json!({ "id": "x", "partitionKey": { "paths": ["/t", "/u"], "kind": "MultiHash", "version": 2 } });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body["defaultTtl"] = json!(-1);
    body["changeFeedPolicy"] = json!({ "retentionDuration": 10 });
    let container = made(&world, body.clone()).await;
    for (member, value) in body.as_object().unwrap() {
        assert_eq!(&container[member], value, "{member}");
    }
    body["defaultTtl"] = json!(60);
    body["future"] = json!({ "of": ["any", "kind"] });
    body.as_object_mut().unwrap().remove("computedProperties");
    let changed = client.send(Ask::put("/dbs/db/colls/x", &body)).await.expect(200).json();
    for (member, value) in body.as_object().unwrap() {
        assert_eq!(&changed[member], value, "{member}");
    }
    assert!(changed.get("computedProperties").is_none());
    assert_eq!(changed["_rid"], container["_rid"], "it is the same container");
    assert_ne!(changed["_etag"], container["_etag"]);
}

#[tokio::test]
async fn every_change_of_a_container_has_another_etag_however_fast_they_come() {
    let world = World::new().await;
    let mut client = world.client().await;
    let mut etags = std::collections::BTreeSet::new();
    for seconds in 1..=50 {
        let key = json!({ "paths": ["/pk"], "kind": "Hash", "version": 2 });
        let body = json!({ "id": "c", "partitionKey": key, "defaultTtl": seconds });
        let changed = client.send(Ask::put("/dbs/db/colls/c", body)).await.expect(200);
        assert_eq!(changed.json()["_etag"], changed.etag());
        etags.insert(changed.etag());
    }
    assert_eq!(etags.len(), 50);
}

#[tokio::test]
async fn a_container_made_anew_has_another_resource_id() {
    let world = World::new().await;
    let mut client = world.client().await;
    let body = json!({ "id": "x", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    let first = made(&world, body.clone()).await;
    client.send(Ask::post("/dbs/db/colls/x/docs", item("old", "a", 1)).key("a")).await.expect(201);
    client.send(Ask::delete("/dbs/db/colls/x")).await.expect(204);
    client.send(Ask::get("/dbs/db/colls/x/docs/old").key("a")).await.expect(404);
    let second = made(&world, body).await;
    assert_ne!(first["_rid"], second["_rid"]);
    client.send(Ask::get("/dbs/db/colls/x/docs/old").key("a")).await.expect(404);
    client.send(Ask::post("/dbs/db/colls/x/docs", item("new", "a", 1)).key("a")).await.expect(201);
}

#[tokio::test]
async fn throughput_is_found_by_link_and_can_change() {
    let world = World::new().await;
    let mut client = world.client().await;
    let body = json!({ "id": "x", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    let create = Ask::post("/dbs/db/colls", body).with("x-ms-offer-throughput", 1000);
    let container = client.send(create).await.expect(201).json();
    let find = || {
        Ask::post(
            "/offers",
            json!({
                "query": "SELECT * FROM root WHERE root.resource = @link",
                "parameters": [{ "name": "@link", "value": container["_self"] }],
            }),
        )
        .with("content-type", "application/query+json")
        .with("x-ms-documentdb-isquery", "true")
    };
    let found = client.send(find()).await.expect(200).json();
    assert_eq!(found["_count"], 1, "{found}");
    let mut offer = found["Offers"][0].clone();
    assert_eq!(offer["content"]["offerThroughput"], 1000);
    assert_eq!(offer["offerResourceId"], container["_rid"]);
    offer["content"]["offerThroughput"] = json!(4000);
    let path = format!("/{}", offer["_self"].as_str().unwrap());
    client.send(Ask::put(&path, &offer)).await.expect(200);
    assert_eq!(client.send(Ask::get(&path)).await.expect(200).json()["content"]["offerThroughput"], 4000);
    assert_eq!(client.send(find()).await.expect(200).json()["Offers"][0]["content"]["offerThroughput"], 4000);
    let shown = without_store(client.send(Ask::get("/dbs/db/colls/x")).await.expect(200).json()).to_string();
    assert!(!shown.contains("4000") && !shown.contains("_changefeed"), "what is noted aside stays aside: {shown}");
    let all = client.send(Ask::get("/offers")).await.expect(200).json();
    assert_eq!(all["_count"], 2, "one for each container");
}

#[tokio::test]
async fn a_database_has_a_throughput_that_its_containers_share() {
    let world = World::new().await;
    let mut client = world.client().await;
    let autoscale = json!({ "maxThroughput": 5000 }).to_string();
    let create = Ask::post("/dbs", json!({ "id": "shared" })).with("x-ms-cosmos-offer-autopilot-settings", autoscale);
    let database = client.send(create).await.expect(201).json();
    let body = |id: &str| json!({ "id": id, "partitionKey": { "paths": ["/pk"], "version": 2 } });
    client.send(Ask::post("/dbs/shared/colls", body("shares"))).await.expect(201);
    let own = Ask::post("/dbs/shared/colls", body("own")).with("x-ms-offer-throughput", 600);
    let own = client.send(own).await.expect(201).json();
    let mut offers = async || {
        let all = client.send(Ask::get("/offers")).await.expect(200).json();
        let of_shared =
            |offer: &&Value| offer["resource"].as_str().unwrap().starts_with(database["_self"].as_str().unwrap());
        all["Offers"].as_array().unwrap().iter().filter(of_shared).cloned().collect::<Vec<_>>()
    };
    let [of_database, of_own] = <[Value; 2]>::try_from(offers().await).unwrap();
    assert_eq!((&of_database["resource"], &of_database["offerResourceId"]), (&database["_self"], &database["_rid"]));
    assert_eq!(of_database["content"]["offerAutopilotSettings"]["maxThroughput"], 5000);
    assert_eq!((&of_own["resource"], &of_own["content"]["offerThroughput"]), (&own["_self"], &json!(600)));
    let path = format!("/{}", of_database["_self"].as_str().unwrap());
    let other = json!({ "content": { "offerThroughput": 900 } });
    let changed = world.client().await.send(Ask::put(&path, other)).await.expect(200).json();
    assert_eq!(changed["content"]["offerThroughput"], 900);
    assert_ne!(changed["_etag"], of_database["_etag"]);
    assert_eq!(offers().await, [changed, of_own]);
    let mut client = world.client().await;
    let shown = client.send(Ask::get("/dbs/shared")).await.expect(200).json();
    assert_eq!(shown, database, "what is noted aside stays aside");
    client.send(Ask::delete("/dbs/shared")).await.expect(204);
    client.send(Ask::get(&path)).await.expect(404);
}

#[tokio::test]
async fn a_client_cannot_set_what_the_server_notes_aside() {
    let world = World::new().await;
    let body = json!({
        "id": "x", "partitionKey": { "paths": ["/pk"], "version": 2 },
        "_changefeed_throughput": 7, "_changefeed_default_retention": true, "_rid": "mine", "_etag": "mine",
    });
    let container = made(&world, body).await;
    assert_ne!(container["_rid"], "mine");
    assert_ne!(container["_etag"], "mine");
    let offers = world.client().await.send(Ask::get("/offers")).await.expect(200).json();
    assert!(offers["Offers"].as_array().unwrap().iter().all(|offer| offer["content"]["offerThroughput"] == 400));
}

#[tokio::test]
async fn a_container_that_is_read_names_its_store_and_that_is_not_kept_as_a_setting() {
    let world = World::new().await;
    let mut client = world.client().await;
    made(&world, json!({ "id": "x", "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 } })).await;
    let read = client.send(Ask::get("/dbs/db/colls/x")).await.expect(200).json();
    let store = &read["_changefeed"];
    assert_eq!(store["accountHost"], "localhost");
    assert_eq!(store["storeId"].as_str().unwrap().len(), 32, "{store}");
    // A client that replaces what it has read.
    let mut changed = read.clone();
    changed["defaultTtl"] = json!(60);
    changed["_changefeed"]["storeId"] = json!("another");
    let replaced = client.send(Ask::put("/dbs/db/colls/x", changed)).await.expect(200).json();
    assert!(replaced.get("_changefeed").is_none(), "{replaced}");
    let again = client.send(Ask::get("/dbs/db/colls/x")).await.expect(200).json();
    assert_eq!((&again["_changefeed"], &again["defaultTtl"]), (store, &json!(60)));
}
