//! Databases, containers, offers and our own calls.

use serde_json::{Value, json};

use crate::{
    refusals::{Case, assert_refused, world},
    support::{Ask, World, world::DOCS},
};

#[tokio::test]
async fn databases_that_cannot_be_made_are_refused() {
    let (world, mut client) = world().await;
    let raw = |body: &str| Ask::post("/dbs", body);
    let cases = [
        ("nothing", raw(""), 400, None),
        ("no JSON", raw("{"), 400, None),
        ("an array", raw("[]"), 400, None),
        ("no id", raw("{}"), 400, None),
        ("an id that is a number", raw(r#"{"id":1}"#), 400, None),
        ("an empty id", raw(r#"{"id":""}"#), 400, None),
        ("a space at the end", raw(r#"{"id":"a "}"#), 400, None),
        ("a slash", raw(r#"{"id":"a/b"}"#), 400, None),
        ("one that is there", raw(r#"{"id":"db"}"#), 409, None),
        ("read of nothing", Ask::get("/dbs/none"), 404, Some(0)),
        ("delete of nothing", Ask::delete("/dbs/none"), 404, Some(0)),
        ("delete of another version", Ask::delete("/dbs/db").with("if-match", "\"0\""), 412, None),
        ("containers of nothing", Ask::get("/dbs/none/colls"), 404, Some(1003)),
        ("a container in nothing", Ask::post("/dbs/none/colls", json!({ "id": "x" })), 404, Some(1003)),
        ("users of nothing", Ask::get("/dbs/none/users"), 404, Some(0)),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn container_definitions_that_make_no_sense_are_400() {
    let (world, mut client) = world().await;
    let key = json!({ "paths": ["/pk"], "kind": "Hash", "version": 2 });
    let with_key = |key: Value| json!({ "id": "x", "partitionKey": key });
    let with = |name: &str, value: Value| {
        let mut body = with_key(key.clone());
        body[name] = value;
        body
    };
    let bodies = [
        ("nothing", Value::Null),
        ("no id", json!({ "partitionKey": key })),
        ("an id that is a number", json!({ "id": 1, "partitionKey": key })),
        ("an id with a slash", json!({ "id": "a/b", "partitionKey": key })),
        ("no key", json!({ "id": "x" })),
        ("a key that is null", with_key(Value::Null)),
        ("a key that is a text", with_key("/pk".into())),
        ("a key without paths", with_key(json!({ "kind": "Hash" }))),
        ("no path", with_key(json!({ "paths": [] }))),
        ("an empty path", with_key(json!({ "paths": [""] }))),
        ("a path that is only a slash", with_key(json!({ "paths": ["/"] }))),
        ("a path without slash", with_key(json!({ "paths": ["pk"] }))),
        ("a path that is a number", with_key(json!({ "paths": [1] }))),
        ("two paths for one hash", with_key(json!({ "paths": ["/a", "/b"], "kind": "Hash", "version": 2 }))),
        ("four levels", with_key(json!({ "paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash", "version": 2 }))),
        ("levels of the first version", with_key(json!({ "paths": ["/a", "/b"], "kind": "MultiHash", "version": 1 }))),
        ("the same path twice", with_key(json!({ "paths": ["/a", "/a"], "kind": "MultiHash", "version": 2 }))),
        ("another kind", with_key(json!({ "paths": ["/pk"], "kind": "Range" }))),
        ("another version", with_key(json!({ "paths": ["/pk"], "kind": "Hash", "version": 3 }))),
        ("a version that is a word", with_key(json!({ "paths": ["/pk"], "kind": "Hash", "version": "two" }))),
        ("no time to live", with("defaultTtl", json!(0))),
        ("a negative time to live", with("defaultTtl", json!(-2))),
        ("a time to live that is a text", with("defaultTtl", json!("60"))),
        ("half a second to live", with("defaultTtl", json!(0.5))),
        ("a negative retention", with("changeFeedPolicy", json!({ "retentionDuration": -1 }))),
        ("a retention that is a text", with("changeFeedPolicy", json!({ "retentionDuration": "10" }))),
    ];
    let cases = bodies.map(|(what, body)| (what, Ask::post("/dbs/db/colls", body), 400, None));
    assert_refused(&world, &mut client, cases).await;
    let good = with_key(key.clone());
    let throughput = |name: &str, value: &str| Ask::post("/dbs/db/colls", &good).with(name, value);
    let cases = [
        ("no JSON", Ask::post("/dbs/db/colls", "{"), 400, None),
        ("no throughput", throughput("x-ms-offer-throughput", "many"), 400, None),
        ("a negative throughput", throughput("x-ms-offer-throughput", "-400"), 400, None),
        ("no settings", throughput("x-ms-cosmos-offer-autopilot-settings", "{"), 400, None),
        ("one that is there", Ask::post("/dbs/db/colls", json!({ "id": "c", "partitionKey": key })), 409, None),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn changes_of_containers_that_cannot_be_are_refused() {
    let (world, mut client) = world().await;
    let path = "/dbs/db/colls/c";
    let body =
        |id: &str, key: &str| json!({ "id": id, "partitionKey": { "paths": [key], "kind": "Hash", "version": 2 } });
    let cases = [
        ("another key", Ask::put(path, body("c", "/other")), 400, None),
        (
            "another version of the key",
            Ask::put(path, json!({ "id": "c", "partitionKey": { "paths": ["/pk"] } })),
            400,
            None,
        ),
        ("another id", Ask::put(path, body("d", "/pk")), 400, None),
        ("no JSON", Ask::put(path, "{"), 400, None),
        ("another version", Ask::put(path, body("c", "/pk")).with("if-match", "\"0\""), 412, None),
        ("delete of another version", Ask::delete(path).with("if-match", "\"0\""), 412, None),
        ("one that is not there", Ask::put("/dbs/db/colls/none", body("none", "/pk")), 404, Some(0)),
        ("delete of one that is not there", Ask::delete("/dbs/db/colls/none"), 404, Some(0)),
        ("one in no database", Ask::get("/dbs/none/colls/c"), 404, Some(1003)),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn offers_that_make_no_sense_are_refused() {
    let (world, mut client) = world().await;
    let offers = client.send(Ask::get("/offers")).await.expect(200).json();
    let path = format!("/offers/{}", offers["Offers"][0]["_rid"].as_str().unwrap());
    let offer = |throughput: Value| json!({ "content": { "offerThroughput": throughput } });
    let cases = [
        ("one that is not there", Ask::get("/offers/none"), 404, Some(0)),
        ("a change of one that is not there", Ask::put("/offers/none", offer(json!(500))), 404, Some(0)),
        ("no JSON", Ask::put(&path, "{"), 400, None),
        ("no throughput", Ask::put(&path, json!({ "content": {} })), 400, None),
        ("a negative throughput", Ask::put(&path, offer(json!(-1))), 400, None),
        ("no throughput at all", Ask::put(&path, offer(json!(0))), 400, None),
        ("a throughput that is a text", Ask::put(&path, offer(json!("500"))), 400, None),
    ];
    assert_refused(&world, &mut client, cases).await;
}

fn call(name: &str, body: Value) -> Ask {
    Ask::post(format!("/_changefeed/{name}"), body)
}

#[tokio::test]
async fn our_own_calls_refuse_what_makes_no_sense() {
    let (world, mut client) = world().await;
    let split = |container: &str, range: Value| call("split", json!({ "container": container, "range": range }));
    let at = |at: &str| call("split", json!({ "container": "db/c", "range": "0", "at": at }));
    let merge = |ranges: Value| call("merge", json!({ "container": "db/c", "ranges": ranges }));
    let cases: Vec<Case> = vec![
        ("no body", call("split", Value::Null), 400, None),
        ("no range", call("split", json!({ "container": "db/c" })), 400, None),
        ("a range that is a number", split("db/c", json!(0)), 400, None),
        ("another member", call("split", json!({ "container": "db/c", "range": "0", "into": 3 })), 400, None),
        ("a container without database", split("c", json!("0")), 400, None),
        ("a container with a path", split("db/c/docs", json!("0")), 400, None),
        ("a container that is not there", split("db/none", json!("0")), 404, Some(0)),
        ("a database that is not there", split("none/c", json!("0")), 404, Some(0)),
        ("a range that is not there", split("db/c", json!("77")), 410, Some(1002)),
        ("a cut that is none", at("zz"), 400, None),
        ("a cut at the edge", at(""), 400, None),
        ("a cut outside", at("FF"), 400, None),
        ("one range", merge(json!(["0"])), 400, None),
        ("a range with itself", merge(json!(["0", "0"])), 400, None),
        ("a range that is not there", merge(json!(["0", "77"])), 410, Some(1002)),
        ("no seconds", call("throttle", json!({})), 400, None),
        ("negative seconds", call("throttle", json!({ "seconds": -1 })), 400, None),
        ("a day", call("throttle", json!({ "seconds": 86400 })), 400, None),
        ("no container", call("throttle", json!({ "seconds": 1, "container": "c" })), 400, None),
        ("faults are off", call("faults", json!({ "status": 500 })), 403, None),
        ("an unknown call", call("stop", json!({})), 404, Some(0)),
        ("a longer call", call("split/0", json!({})), 404, Some(0)),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn ranges_that_are_no_neighbours_are_not_merged() {
    let (world, mut client) = world().await;
    let [a, b] = <[String; 2]>::try_from(world.split("0").await).unwrap();
    let [_, d] = <[String; 2]>::try_from(world.split(&b).await).unwrap();
    let ask = call("merge", json!({ "container": "db/c", "ranges": [a, d] }));
    assert_refused(&world, &mut client, [("no neighbours", ask, 400, None)]).await;
    let gone = call("merge", json!({ "container": "db/c", "ranges": ["0", a] }));
    assert_refused(&world, &mut client, [("one is gone", gone, 410, Some(1002))]).await;
    let again = call("split", json!({ "container": "db/c", "range": "0" }));
    assert_refused(&world, &mut client, [("it is gone", again, 410, Some(1002))]).await;
}

#[tokio::test]
async fn faults_that_make_no_sense_are_400() {
    let world = World::with(|builder| builder.allow_faults(true)).await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, crate::support::item("one", "a", 1)).key("a")).await.expect(201);
    let bodies = [
        json!({}),
        json!({ "status": 200 }),
        json!({ "status": 304 }),
        json!({ "status": 600 }),
        json!({ "status": "500" }),
        json!({ "status": 500, "often": 1 }),
    ];
    let cases = bodies.map(|body| ("no fault", call("faults", body), 400, None));
    assert_refused(&world, &mut client, cases).await;
}
