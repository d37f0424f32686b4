//! Reads of many items, queries and batches.

use serde_json::{Value, json};

use crate::{
    refusals::{Case, assert_refused, world},
    support::{Ask, item, world::DOCS},
};

/// Every way to read many items, with something added.
fn reads(change: impl Fn(Ask) -> Ask) -> [Ask; 3] {
    [Ask::get(DOCS), Ask::get(DOCS).feed(), Ask::query(DOCS, "SELECT * FROM c")].map(change)
}

#[tokio::test]
async fn ranges_that_are_gone_or_never_were_are_410_with_1002() {
    let (world, mut client) = world().await;
    world.split("0").await;
    let bulk = json!([{ "operationType": "Create", "partitionKey": "[\"a\"]", "resourceBody": item("x", "a", 1) }]);
    for range in ["0", "77", "abc", "-1", "18446744073709551616"] {
        let mut cases: Vec<Case> =
            reads(|ask| ask.range(range)).map(|ask| ("a range that is not", ask, 410, Some(1002))).into();
        let all = Ask::get(DOCS).all_versions().with("if-none-match", "*").range(range);
        cases.push(("all versions of a range that is not", all, 410, Some(1002)));
        let ask = Ask::post(DOCS, &bulk).with("x-ms-cosmos-is-batch-request", "True").range(range);
        cases.push(("a bulk request to a range that is not", ask, 410, Some(1002)));
        assert_refused(&world, &mut client, cases).await;
    }
    // Where the client names no range, there is nothing that it could read again.
    client.send(Ask::get(format!("{DOCS}/one")).key("a").range("0")).await.expect(200);
}

#[tokio::test]
async fn parts_of_ranges_that_are_none_are_400() {
    let (world, mut client) = world().await;
    let epk = |ask: Ask, start: &str, end: &str| ask.range("0").with("x-ms-start-epk", start).with("x-ms-end-epk", end);
    for (what, start, end) in [
        ("not hexadecimal", "zz", "FF"),
        ("not hexadecimal", "00", "F G"),
        ("half a byte", "0", "FF"),
        ("upside down", "30", "20"),
        ("empty", "20", "20"),
        ("quotes in between", "2\"0", "FF"),
    ] {
        assert_refused(&world, &mut client, reads(|ask| epk(ask, start, end)).map(|ask| (what, ask, 400, None))).await;
    }
    let other = reads(|ask| epk(ask, "", "20").with("x-ms-read-key-type", "ResourceId"));
    assert_refused(&world, &mut client, other.map(|ask| ("another type of key", ask, 400, None))).await;
    let both = reads(|ask| epk(ask, "", "01").key("a"));
    assert_refused(&world, &mut client, both.map(|ask| ("a key outside", ask, 400, None))).await;
}

#[tokio::test]
async fn a_part_outside_of_its_range_is_refused() {
    let (world, mut client) = world().await;
    let children = world.split("0").await;
    let outside = |ask: Ask| ask.range(&children[0]).with("x-ms-start-epk", "30").with("x-ms-end-epk", "31");
    for ask in reads(outside) {
        let reply = client.send(ask).await;
        assert!(matches!(reply.status, 400 | 410), "{reply:?}");
    }
    let cases = reads(|ask| ask.with("x-ms-documentdb-partitionkey", "[\"a\",1]"))
        .map(|ask| ("too many values", ask, 400, Some(1001)));
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn feeds_that_are_not_known_are_400() {
    let (world, mut client) = world().await;
    let format = |ask: Ask, version: &str| ask.with("x-ms-cosmos-changefeed-wire-format-version", version);
    let mut cases = vec![
        ("another manipulation", Ask::get(DOCS).with("a-im", "gzip"), 400, None),
        ("all versions from the beginning", Ask::get(DOCS).all_versions(), 400, None),
        (
            "all versions from a time",
            Ask::get(DOCS).all_versions().with("if-modified-since", "Sun, 15 Nov 2026 20:52:04 GMT"),
            400,
            None,
        ),
        ("all versions of ranges", Ask::get("/dbs/db/colls/c/pkranges").all_versions(), 400, None),
    ];
    for version in ["2020-01-01", "2021-09-16", "latest", "2021-09-15, 2021-09-15"] {
        cases.push(("another wire format", format(Ask::get(DOCS).feed(), version), 400, None));
    }
    for time in ["yesterday", "2026-11-15T20:52:04Z", "0", "Sun, 32 Nov 2026 20:52:04 GMT"] {
        cases.push(("no time", Ask::get(DOCS).feed().with("if-modified-since", time), 400, None));
    }
    for size in ["0", "-2", "x", "1.5", "99999999999999999999"] {
        cases.extend(reads(|ask| ask.with("x-ms-max-item-count", size)).map(|ask| ("no page size", ask, 400, None)));
    }
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn the_feed_of_several_ranges_at_once_is_400_and_never_one_of_them() {
    let (world, mut client) = world().await;
    world.split("0").await;
    let cases = [
        ("no scope", Ask::get(DOCS).feed(), 400, None),
        ("no scope, from now", Ask::get(DOCS).feed().with("if-none-match", "*"), 400, None),
        ("no scope, all versions", Ask::get(DOCS).all_versions().with("if-none-match", "*"), 400, None),
        ("a scope across both", Ask::get(DOCS).feed().with("x-ms-start-epk", "").with("x-ms-end-epk", "FF"), 400, None),
    ];
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn queries_that_are_none_are_400() {
    let (world, mut client) = world().await;
    for sql in [
        "",
        "SELECT",
        "SELEC * FROM c",
        "SELECT * FROM",
        "SELECT * FROM c WHERE",
        "SELECT * FROM c WHERE c.n =",
        "SELECT * FROM c WHERE c.n = 'open",
        "SELECT * FROM c ORDER",
        "SELECT * FROM c; DROP TABLE c",
        "SELECT * FROM c WHERE NO_SUCH_FUNCTION(c.n)",
        "SELECT * FROM c WHERE c.n = @missing",
        "SELECT TOP -1 * FROM c",
        "SELECT * FROM c OFFSET 1",
        "DELETE FROM c",
        "\0",
        "SELECT * FROM c WHERE udf.mine(c)",
    ] {
        let cases = [
            ("query", Ask::query(DOCS, sql), 400, None),
            ("plan", Ask::query(DOCS, sql).with("x-ms-cosmos-is-query-plan-request", "True"), 400, None),
            ("databases", Ask::query("/dbs", sql), 400, None),
            ("containers", Ask::query("/dbs/db/colls", sql), 400, None),
            ("offers", Ask::query("/offers", sql), 400, None),
        ];
        assert_refused(&world, &mut client, cases).await;
    }
    let raw = |body: &str| Ask::query(DOCS, "").body(body.to_owned());
    let cases = ["", "{", "[]", "1", "{}", r#"{"query":1}"#, r#"{"query":null}"#, "SELECT * FROM c"]
        .into_iter()
        .chain([r#"{"query":"SELECT * FROM c","parameters":1}"#, r#"{"query":"SELECT * FROM c","parameters":[1]}"#])
        .chain([r#"{"query":"SELECT * FROM c","parameters":[{"value":1}]}"#])
        .map(|body| ("body", raw(body), 400, None));
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn batches_that_make_no_sense_are_400() {
    let (world, mut client) = world().await;
    let create = |id: usize| json!({ "operationType": "Create", "resourceBody": item(&id.to_string(), "a", 1) });
    let too_many: Vec<Value> = (0..101).map(create).collect();
    let raw = |body: &str| Ask::batch(DOCS, &Value::Null).body(body.to_owned()).key("a");
    let cases = [
        ("101 operations", Ask::batch(DOCS, &too_many.clone().into()).key("a"), 400, None),
        ("none", Ask::batch(DOCS, &json!([])).key("a"), 400, None),
        ("no array", raw("{}"), 400, None),
        ("nothing", raw(""), 400, None),
        ("cut", raw("[{\"operationType\":\"Create\""), 400, None),
        ("no type", raw("[{\"id\":\"x\"}]"), 400, None),
        (
            "an unknown type",
            Ask::batch(DOCS, &json!([create(1), { "operationType": "Execute", "id": "x" }])).key("a"),
            400,
            None,
        ),
        ("no key", Ask::batch(DOCS, &json!([create(1)])), 400, None),
        (
            "a key of two values",
            Ask::batch(DOCS, &json!([create(1)])).with("x-ms-documentdb-partitionkey", "[1,2]"),
            400,
            Some(1001),
        ),
    ];
    assert_refused(&world, &mut client, cases).await;
    let hundred: Value = too_many[..100].to_vec().into();
    client.send(Ask::batch(DOCS, &hundred).key("a")).await.expect(200);
}

#[tokio::test]
async fn a_batch_with_one_bad_operation_does_nothing_and_tells_which_it_was() {
    let (world, mut client) = world().await;
    let good = |id: &str| json!({ "operationType": "Create", "resourceBody": item(id, "a", 1) });
    let bad = |operation: &str, more: Value| {
        let mut all = json!({ "operationType": operation });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    for (what, culprit, status) in [
        ("another key", bad("Create", json!({ "resourceBody": item("x", "b", 1) })), 400),
        ("an id that exists", bad("Create", json!({ "resourceBody": item("one", "a", 1) })), 409),
        ("an id that does not", bad("Replace", json!({ "id": "none", "resourceBody": item("none", "a", 1) })), 404),
        ("an item that is none", bad("Create", json!({ "resourceBody": [1] })), 400),
        ("no item", bad("Create", json!({})), 400),
        ("no id", bad("Delete", json!({})), 400),
        ("a delete of nothing", bad("Delete", json!({ "id": "none" })), 404),
        ("a read of nothing", bad("Read", json!({ "id": "none" })), 404),
        (
            "another version",
            bad("Replace", json!({ "id": "one", "ifMatch": "\"0\"", "resourceBody": item("one", "a", 2) })),
            412,
        ),
        ("two ids", bad("Replace", json!({ "id": "one", "resourceBody": item("two", "a", 2) })), 400),
        ("a patch that is none", bad("Patch", json!({ "id": "one", "resourceBody": { "operations": [] } })), 400),
        (
            "a patch of the key",
            bad(
                "Patch",
                json!({ "id": "one", "resourceBody": { "operations": [{ "op": "set", "path": "/pk", "value": "b" }] } }),
            ),
            400,
        ),
        ("an id too long", bad("Delete", json!({ "id": "x".repeat(1100) })), 400),
    ] {
        let before = world.state().await;
        let batch = json!([good("x1"), culprit, good("x2")]);
        let reply = client.send(Ask::batch(DOCS, &batch).key("a")).await.expect(207);
        let statuses: Vec<u64> =
            reply.json().as_array().unwrap().iter().map(|one| one["statusCode"].as_u64().unwrap()).collect();
        assert_eq!(statuses, [424, status, 424], "{what}: {}", reply.text());
        assert_eq!(world.state().await, before, "{what}");
    }
}
