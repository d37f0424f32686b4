//! Single items: bodies, keys, versions, patches.

use serde_json::{Value, json};

use crate::{
    refusals::{assert_refused, world},
    support::{Ask, item, world::DOCS},
};

#[tokio::test]
async fn bodies_that_are_no_item_are_400() {
    let (world, mut client) = world().await;
    let bodies: [(&str, &[u8]); 22] = [
        ("nothing", b""),
        ("a space", b" "),
        ("cut", b"{\"id\":\"x\",\"pk\":\"a\""),
        ("cut string", b"{\"id\":\"x"),
        ("more after the end", b"{\"id\":\"x\",\"pk\":\"a\"} x"),
        ("two objects", b"{\"id\":\"x\",\"pk\":\"a\"}{\"id\":\"y\",\"pk\":\"a\"}"),
        ("an array", b"[{\"id\":\"x\",\"pk\":\"a\"}]"),
        ("null", b"null"),
        ("a string", b"\"x\""),
        ("a number", b"1"),
        ("no id", b"{\"pk\":\"a\"}"),
        ("an id that is a number", b"{\"id\":1,\"pk\":\"a\"}"),
        ("an id that is null", b"{\"id\":null,\"pk\":\"a\"}"),
        ("an empty id", b"{\"id\":\"\",\"pk\":\"a\"}"),
        ("not UTF-8", b"{\"id\":\"x\",\"pk\":\"a\",\"v\":\"\xff\"}"),
        ("overlong UTF-8", b"{\"id\":\"x\",\"pk\":\"a\",\"v\":\"\xc0\xaf\"}"),
        ("not a number", b"{\"id\":\"x\",\"pk\":\"a\",\"v\":NaN}"),
        ("hexadecimal", b"{\"id\":\"x\",\"pk\":\"a\",\"v\":0x10}"),
        ("single quotes", b"{'id':'x','pk':'a'}"),
        ("a trailing comma", b"{\"id\":\"x\",\"pk\":\"a\",}"),
        ("a raw line break in a string", b"{\"id\":\"x\",\"pk\":\"a\",\"v\":\"\n\"}"),
        ("a byte order mark", b"\xef\xbb\xbf{\"id\":\"x\",\"pk\":\"a\"}"),
    ];
    for upsert in ["False", "True"] {
        let ask =
            |body: &[u8]| Ask::post(DOCS, "").body(body.to_vec()).key("a").with("x-ms-documentdb-is-upsert", upsert);
        assert_refused(&world, &mut client, bodies.map(|(what, body)| (what, ask(body), 400, None))).await;
    }
    let replace = |body: &[u8]| Ask::new("PUT", format!("{DOCS}/one")).body(body.to_vec()).key("a");
    assert_refused(&world, &mut client, bodies.map(|(what, body)| (what, replace(body), 400, None))).await;
}

#[tokio::test]
async fn binary_bodies_that_are_no_item_are_400() {
    let (world, mut client) = world().await;
    // {"id":"1","pk":"a","v":2}, as the SDK for Rust sends it.
    let good = [0x80, 0xed, 0x0d, 3, 0x82, 0x69, 0x64, 0x81, 0x31, 0x82, 0x70, 0x6b, 0x81, 0x61, 0x81, 0x76, 2];
    let change = |at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        bytes
    };
    let mut bodies = vec![
        ("more after the end", [&good[..], &[0]].concat()),
        ("a longer object than there is", change(2, 0x7f)),
        ("a shorter object than there is", change(2, 4)),
        ("more members than there are", change(3, 9)),
        ("fewer members than there are", change(3, 2)),
        ("an unknown marker", change(16, 0xff)),
        ("a name that is a number", change(4, 2)),
        ("a string longer than the body", change(14, 0xbf)),
        ("no UTF-8", change(15, 0xff)),
        ("a number", vec![0x80, 7]),
        ("an array", vec![0x80, 0xe0]),
        ("lengths of four gigabytes", vec![0x80, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("a reference to nowhere", vec![0x80, 0xed, 2, 1, 0xc3, 0xff]),
    ];
    bodies.extend((1..good.len()).map(|length| ("cut", good[..length].to_vec())));
    let cases = bodies.into_iter().map(|(what, body)| (what, Ask::post(DOCS, "").body(body).key("a"), 400, None));
    assert_refused(&world, &mut client, cases).await;
    client.send(Ask::post(DOCS, "").body(good.to_vec()).key("a")).await.expect(201);
}

#[tokio::test]
async fn partition_keys_that_do_not_fit_are_told_apart() {
    let (world, mut client) = world().await;
    let with = |ask: Ask, key: &str| ask.with("x-ms-documentdb-partitionkey", key);
    let create = || Ask::post(DOCS, item("x", "a", 1));
    let read = || Ask::get(format!("{DOCS}/one"));
    let mut cases = vec![
        ("another key than in the body", create().key("b"), 400, Some(1001)),
        ("a number for a string", with(create(), "[1]"), 400, Some(1001)),
        ("null for a string", with(create(), "[null]"), 400, Some(1001)),
        ("two values", with(create(), "[\"a\",\"b\"]"), 400, Some(1001)),
        ("two values for a read", with(read(), "[\"a\",\"b\"]"), 400, Some(1001)),
        ("another key for a replace", Ask::put(format!("{DOCS}/one"), item("one", "a", 2)).key("b"), 400, Some(1001)),
        ("a replace that moves", Ask::put(format!("{DOCS}/one"), item("one", "b", 2)).key("a"), 400, Some(1001)),
        ("no key for a read", read(), 400, None),
        ("no key for a delete", Ask::delete(format!("{DOCS}/one")), 400, None),
    ];
    for key in ["", "a", "[", "[\"a\"", "{}", "\"a\"", "[[\"a\"]]", "[{\"a\":1}]", "[NaN]", "[\"\\ud800\"]"] {
        if !key.is_empty() {
            cases.push(("a header that is no key", with(read(), key), 400, Some(1001)));
        }
        cases.push(("a header that is no key", with(Ask::delete(format!("{DOCS}/one")), key), 400, Some(1001)));
    }
    // An empty header is no header.
    cases.retain(|(_, ask, ..)| {
        !ask.headers.iter().any(|(name, value)| name.ends_with("partitionkey") && value.is_empty())
    });
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn what_is_not_there_is_404_and_tells_item_from_container() {
    let (world, mut client) = world().await;
    let there = format!("{DOCS}/nothing");
    let set = json!({ "operations": [{ "op": "set", "path": "/n", "value": 2 }] });
    let cases = [
        ("read", Ask::get(&there).key("a"), 404, Some(0)),
        ("read under another key", Ask::get(format!("{DOCS}/one")).key("b"), 404, Some(0)),
        ("replace", Ask::put(&there, item("nothing", "a", 1)).key("a"), 404, Some(0)),
        ("delete", Ask::delete(&there).key("a"), 404, Some(0)),
        ("delete under another key", Ask::delete(format!("{DOCS}/one")).key("b"), 404, Some(0)),
        ("patch", Ask::patch(&there, set).key("a"), 404, Some(0)),
        ("an item of no container", Ask::get("/dbs/db/colls/none/docs/one").key("a"), 404, Some(1003)),
        ("a write to no container", Ask::post("/dbs/db/colls/none/docs", item("x", "a", 1)).key("a"), 404, Some(1003)),
        ("the items of no database", Ask::get("/dbs/none/colls/c/docs"), 404, Some(1003)),
        ("the ranges of no container", Ask::get("/dbs/db/colls/none/pkranges"), 404, Some(1003)),
        ("the feed of no container", Ask::get("/dbs/db/colls/none/docs").feed(), 404, Some(1003)),
        ("a query of no container", Ask::query("/dbs/db/colls/none/docs", "SELECT * FROM c"), 404, Some(1003)),
        (
            "an item by a resource id that nobody has",
            Ask::get(format!("{DOCS}/AQAAAIABAAAB8A==")).key("a"),
            404,
            Some(0),
        ),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn a_second_item_with_the_same_id_is_409() {
    let (world, mut client) = world().await;
    assert_refused(&world, &mut client, [("again", Ask::post(DOCS, item("one", "a", 2)).key("a"), 409, None)]).await;
    client.send(Ask::post(DOCS, item("one", "b", 2)).key("b")).await.expect(201);
}

#[tokio::test]
async fn versions_that_do_not_match_are_412() {
    let (world, mut client) = world().await;
    let one = format!("{DOCS}/one");
    let old = client.send(Ask::get(&one).key("a")).await.expect(200).etag();
    client.send(Ask::put(&one, item("one", "a", 2)).key("a").with("if-match", &old)).await.expect(200);
    let set = json!({ "operations": [{ "op": "set", "path": "/n", "value": 2 }] });
    let long = "x".repeat(10_000);
    for etag in [old.as_str(), "\"\"", "garbage", "\"0000\"", "W/\"1\"", "\"a\", \"b\"", long.as_str(), "\u{e9}"] {
        let cases = [
            ("replace", Ask::put(&one, item("one", "a", 3)).key("a").with("if-match", etag), 412, None),
            ("delete", Ask::delete(&one).key("a").with("if-match", etag), 412, None),
            ("patch", Ask::patch(&one, &set).key("a").with("if-match", etag), 412, None),
            (
                "upsert",
                Ask::post(DOCS, item("one", "a", 3))
                    .key("a")
                    .with("x-ms-documentdb-is-upsert", "true")
                    .with("if-match", etag),
                412,
                None,
            ),
        ];
        assert_refused(&world, &mut client, cases).await;
    }
    client.send(Ask::put(&one, item("one", "a", 4)).key("a").with("if-match", "*")).await.expect(200);
}

#[tokio::test]
async fn a_replace_with_the_id_of_another_item_is_409() {
    let (world, mut client) = world().await;
    let ask = Ask::put(format!("{DOCS}/one"), item("two", "a", 1)).key("a");
    assert_refused(&world, &mut client, [("another id", ask, 409, None)]).await;
}

fn patch(operations: Value) -> Ask {
    Ask::patch(format!("{DOCS}/one"), json!({ "operations": operations })).key("a")
}

#[tokio::test]
async fn patches_that_make_no_sense_are_400() {
    let (world, mut client) = world().await;
    let set = json!({ "op": "set", "path": "/n", "value": 1 });
    let raw = |body: &str| Ask::patch(format!("{DOCS}/one"), body).key("a");
    let condition = |text: &str| raw(&json!({ "operations": [set], "condition": text }).to_string());
    let cases = [
        ("no body", raw(""), 400, None),
        ("no JSON", raw("{"), 400, None),
        ("no operations", raw("{}"), 400, None),
        ("another member", raw(r#"{"operations":[],"more":1}"#), 400, None),
        ("an empty list", patch(json!([])), 400, None),
        ("eleven", patch(Value::from(vec![set.clone(); 11])), 400, None),
        ("an unknown operation", patch(json!([{ "op": "frobnicate", "path": "/n" }])), 400, None),
        ("no operation", patch(json!([{ "path": "/n", "value": 1 }])), 400, None),
        ("no path", patch(json!([{ "op": "set", "value": 1 }])), 400, None),
        ("a path without slash", patch(json!([{ "op": "set", "path": "n", "value": 1 }])), 400, None),
        ("an empty path", patch(json!([{ "op": "set", "path": "", "value": {} }])), 400, None),
        ("no value", patch(json!([{ "op": "add", "path": "/n" }])), 400, None),
        ("the id", patch(json!([{ "op": "set", "path": "/id", "value": "x" }])), 400, None),
        ("the key", patch(json!([{ "op": "set", "path": "/pk", "value": "b" }])), 400, None),
        ("the key away", patch(json!([{ "op": "remove", "path": "/pk" }])), 400, None),
        ("the etag", patch(json!([{ "op": "set", "path": "/_etag", "value": "x" }])), 400, None),
        ("what is not there", patch(json!([{ "op": "replace", "path": "/none", "value": 1 }])), 400, None),
        ("away with what is not there", patch(json!([{ "op": "remove", "path": "/none" }])), 400, None),
        ("through what is not there", patch(json!([{ "op": "set", "path": "/none/x", "value": 1 }])), 400, None),
        ("more of a string", patch(json!([{ "op": "incr", "path": "/_rid", "value": 1 }])), 400, None),
        ("a string more", patch(json!([{ "op": "incr", "path": "/n", "value": "1" }])), 400, None),
        ("from nowhere", patch(json!([{ "op": "move", "path": "/m" }])), 400, None),
        ("the first is good, the second is not", patch(json!([set, { "op": "remove", "path": "/none" }])), 400, None),
        ("a condition that is none", condition("where where"), 400, None),
        ("a condition that does not hold", condition("from c where c.n = 77"), 412, None),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn another_container_of_the_same_name_is_400_with_1024() {
    let (world, mut client) = world().await;
    let rid = client.send(Ask::get("/dbs/db/colls/c")).await.expect(200).json()["_rid"].as_str().unwrap().to_owned();
    let intended = |ask: Ask| ask.with("x-ms-cosmos-intended-collection-rid", &rid);
    let one = format!("{DOCS}/one");
    client.send(intended(Ask::get(&one).key("a"))).await.expect(200);
    client.send(Ask::delete("/dbs/db/colls/c")).await.expect(204);
    let container = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let cases = [
        ("read", intended(Ask::get(&one).key("a")), 400, Some(1024)),
        ("create", intended(Ask::post(DOCS, item("x", "a", 1)).key("a")), 400, Some(1024)),
        ("replace", intended(Ask::put(&one, item("one", "a", 1)).key("a")), 400, Some(1024)),
        ("delete", intended(Ask::delete(&one).key("a")), 400, Some(1024)),
        ("feed", intended(Ask::get(DOCS).feed().range("0")), 400, Some(1024)),
        ("list", intended(Ask::get(DOCS)), 400, Some(1024)),
        ("query", intended(Ask::query(DOCS, "SELECT * FROM c")), 400, Some(1024)),
        ("ranges", intended(Ask::get("/dbs/db/colls/c/pkranges")), 400, Some(1024)),
        ("garbage", Ask::get(&one).key("a").with("x-ms-cosmos-intended-collection-rid", "garbage"), 400, Some(1024)),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn session_tokens_that_are_none_are_400_and_those_ahead_are_404_with_1002() {
    let (world, mut client) = world().await;
    let asks = || {
        [
            Ask::get(format!("{DOCS}/one")).key("a"),
            Ask::get(DOCS),
            Ask::get(DOCS).feed(),
            Ask::query(DOCS, "SELECT * FROM c"),
            Ask::get("/dbs/db/colls/c/pkranges"),
        ]
    };
    for token in ["garbage", "0", "0:", "0:#", "0:-1#", "0:-1#x", "0:-1#99999999999999999999", "0:-1#1,garbage"] {
        let cases = asks().map(|ask| ("no token", ask.with("x-ms-session-token", token), 400, None));
        assert_refused(&world, &mut client, cases).await;
    }
    for token in ["0:-1#1000000", "7:-1#1000000", "0:-1#1,0:1#1000000#0=5", "0:9223372036854775807"] {
        let cases = asks().map(|ask| ("ahead", ask.with("x-ms-session-token", token), 404, Some(1002)));
        assert_refused(&world, &mut client, cases).await;
    }
}
