//! Continuations that this server did not make, or made for something else.

use serde_json::json;

use crate::{
    refusals::{assert_refused, world},
    support::{Ask, item, world::DOCS},
};

#[tokio::test]
async fn positions_in_the_feed_that_are_none_are_400() {
    let (world, mut client) = world().await;
    let long = "9".repeat(20_000);
    for token in [
        "garbage",
        "\"garbage\"",
        "-1",
        "\"-1\"",
        "1.5",
        "0x10",
        "\"1",
        "1\"",
        "\"\"",
        "W/\"1\"",
        "\"1\",\"2\"",
        "\"18446744073709551616\"",
        "\"99999999999999999999999999999999999999\"",
        long.as_str(),
        "\u{e9}",
    ] {
        let cases = [
            ("latest versions", Ask::get(DOCS).feed().range("0").with("if-none-match", token), 400, None),
            ("all versions", Ask::get(DOCS).all_versions().range("0").with("if-none-match", token), 400, None),
            ("one key", Ask::get(DOCS).feed().key("a").with("if-none-match", token), 400, None),
        ];
        assert_refused(&world, &mut client, cases).await;
    }
    // The newest change is the second, and the first has LSN 2.
    client.send(Ask::get(DOCS).feed().range("0").with("if-none-match", "\"3\"")).await.expect(304);
    client.send(Ask::get(DOCS).feed().range("0").with("if-none-match", "3")).await.expect(304);
}

#[tokio::test]
async fn continuations_of_lists_and_queries_that_are_none_are_400() {
    let (world, mut client) = world().await;
    let long = "A".repeat(30_000);
    for token in ["garbage", "!", "{}", "AAAA", "\"1\"", "Li4v", "eyJ2IjoxfQ", long.as_str(), "\u{e9}"] {
        let with = |ask: Ask| ask.with("x-ms-continuation", token);
        let cases = [
            ("list", with(Ask::get(DOCS)), 400, None),
            ("query", with(Ask::query(DOCS, "SELECT * FROM c")), 400, None),
            ("ordered query", with(Ask::query(DOCS, "SELECT * FROM c ORDER BY c.n")), 400, None),
            ("databases", with(Ask::get("/dbs")), 400, None),
            ("containers", with(Ask::query("/dbs/db/colls", "SELECT * FROM c")), 400, None),
            ("offers", with(Ask::get("/offers")), 400, None),
        ];
        assert_refused(&world, &mut client, cases).await;
    }
}

#[tokio::test]
async fn a_continuation_of_one_request_does_not_continue_another() {
    let (world, mut client) = world().await;
    let container = json!({ "id": "other", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    let other = "/dbs/db/colls/other/docs";
    for id in ["one", "two", "three"] {
        client.send(Ask::post(other, item(id, "a", 1)).key("a")).await.expect(201);
    }
    let page = |ask: Ask| ask.with("x-ms-max-item-count", 1);
    let sql = "SELECT * FROM c";
    let of = |reply: &crate::support::Reply| reply.header("x-ms-continuation").unwrap().to_owned();
    let list = of(&client.send(page(Ask::get(DOCS))).await.expect(200));
    let list_elsewhere = of(&client.send(page(Ask::get(other))).await.expect(200));
    let query = of(&client.send(page(Ask::query(DOCS, sql))).await.expect(200));
    let query_elsewhere = of(&client.send(page(Ask::query(other, sql))).await.expect(200));
    let with = |ask: Ask, token: &str| page(ask).with("x-ms-continuation", token);
    client.send(with(Ask::get(DOCS), &list)).await.expect(200);
    client.send(with(Ask::query(DOCS, sql), &query)).await.expect(200);
    let cases = [
        ("a list of another container", with(Ask::get(DOCS), &list_elsewhere), 400, None),
        ("a query of another container", with(Ask::query(DOCS, sql), &query_elsewhere), 400, None),
        ("a query for a list", with(Ask::get(DOCS), &query), 400, None),
        ("a list for a query", with(Ask::query(DOCS, sql), &list), 400, None),
        ("another query", with(Ask::query(DOCS, "SELECT c.id FROM c"), &query), 400, None),
        ("an item query for databases", with(Ask::query("/dbs", sql), &query), 400, None),
    ];
    assert_refused(&world, &mut client, cases).await;
}
