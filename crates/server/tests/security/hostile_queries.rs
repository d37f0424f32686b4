//! Queries that take long, or make much of little, while others use the server.

use std::time::Duration;

use changefeed_server::Limits;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, task::JoinSet};

use crate::support::{Ask, Client, Reply, Wire, World, item, raw, time, world::DOCS};

/// About a quarter of a million combinations of each item.
const JOINS: &str = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.x JOIN b IN c.x WHERE a = b";

/// A container of items with an array of 490 numbers each.
async fn arrays(items: usize) -> World {
    arrays_with(items, Duration::from_millis(100)).await
}

/// The same, with so much time for a page.
async fn arrays_with(items: usize, query_time: Duration) -> World {
    let limits = Limits { query_time, ..Limits::default() };
    let world = World::with(|builder| builder.limits(limits)).await;
    let mut client = world.client().await;
    let numbers: Vec<_> = (0..490).collect();
    for first in (0..items).step_by(50) {
        let operations: Vec<_> = (first..items.min(first + 50))
            .map(|n| json!({"operationType": "Create", "resourceBody": {"id": format!("i{n}"), "pk": "p", "x": numbers}}))
            .collect();
        client.send(Ask::batch(DOCS, &Value::from(operations)).key("p")).await.expect(200);
    }
    client.send(Ask::post(DOCS, item("small", "q", 1)).key("q")).await.expect(201);
    world
}

fn query(sql: &str, continuation: Option<&str>) -> Ask {
    let ask = Ask::query(DOCS, sql).with("x-ms-documentdb-query-enablecrosspartition", "True");
    continuation.map_or(ask.clone(), |next| ask.with("x-ms-continuation", next))
}

/// All pages of a query, each asked for with the continuation of the one before.
async fn pages(client: &mut Client, ask: impl Fn(Option<&str>) -> Ask) -> Vec<Reply> {
    let mut pages: Vec<Reply> = Vec::new();
    loop {
        let next = pages.last().and_then(|page| page.header("x-ms-continuation")).map(str::to_owned);
        if next.is_none() && !pages.is_empty() {
            return pages;
        }
        pages.push(client.send(ask(next.as_deref())).await.expect(200));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn point_reads_are_answered_while_queries_use_all_their_time() {
    let world = arrays(100).await;
    let mut running = JoinSet::new();
    for _ in 0..4 {
        let mut client = world.client().await;
        running.spawn(async move { client.send(query(JOINS, None)).await });
    }
    let mut client = world.client().await;
    let mut read = 0;
    while running.try_join_next().is_none() {
        // With a single thread for sockets, one query on it would let all queries end before the first read.
        client.send(Ask::get(format!("{DOCS}/small")).key("q")).await.expect(200);
        read += 1;
    }
    assert!(read > 3, "only {read} reads were answered while queries ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregate_that_takes_many_pages_is_right_in_the_end() {
    let world = arrays(24).await;
    let mut client = world.client().await;
    let pages = pages(&mut client, |next| query(JOINS, next)).await;
    assert!(pages.len() > 1, "the query was too quick to show anything");
    let (last, before) = pages.split_last().unwrap();
    assert_eq!(last.documents(), [json!(24 * 490)]);
    assert!(before.iter().all(|page| page.documents().is_empty() && page.header("x-ms-item-count") == Some("0")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_runs_out_of_time_carries_what_it_has() {
    let world = arrays(24).await;
    let mut client = world.client().await;
    let sql = "SELECT VALUE c.id FROM c WHERE c.x = null OR 1 < ARRAY_LENGTH(ARRAY(SELECT VALUE a FROM a IN c.x JOIN b IN \
               c.x WHERE a = b))";
    let pages = pages(&mut client, |next| query(sql, next).with("x-ms-max-item-count", 1000)).await;
    assert!(pages.len() > 1, "the query was too quick to show anything");
    let mut ids: Vec<_> = pages.iter().flat_map(Reply::documents).map(|id| id.as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 24, "each item once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_state_is_gone_begins_its_page_again() {
    let world = arrays(24).await;
    let mut client = world.client().await;
    let first = client.send(query(JOINS, None)).await.expect(200);
    let next = first.header("x-ms-continuation").unwrap().to_owned();
    // The same continuation twice: the first use takes the state away.
    let mut second = world.client().await;
    second.send(query(JOINS, Some(&next))).await.expect(200);
    let mut page = client.send(query(JOINS, Some(&next))).await.expect(200);
    while let Some(next) = page.header("x-ms-continuation").map(str::to_owned) {
        page = client.send(query(JOINS, Some(&next))).await.expect(200);
    }
    assert_eq!(page.documents(), [json!(24 * 490)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_stops_in_order_while_queries_run() {
    let world = arrays(100).await;
    let mut running = JoinSet::new();
    for _ in 0..4 {
        let mut client = world.client().await;
        running.spawn(async move { client.try_send(query(JOINS, None)).await.map(|reply| reply.status) });
    }
    world.client().await.send(Ask::get("/")).await.expect(200);
    time::soon("stopping", world.server.stop()).await;
    while let Some(answer) = running.join_next().await {
        // Those that were accepted are answered.
        assert_eq!(answer.unwrap().unwrap_or(200), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_clients_that_left_are_given_up() {
    let world = arrays_with(100, time::LONG * 10).await;
    for _ in 0..50 {
        let mut stream = raw::connect(world.address()).await;
        stream.write_all(&query(JOINS, None).bytes(&world.keys)).await.unwrap();
        drop(stream);
    }
    // Fifty scans of all items would come before this query.
    let (answer, took) = time::timed(world.client().await.send(query("SELECT VALUE COUNT(1) FROM c", None))).await;
    assert_eq!(answer.documents(), [json!(101)]);
    assert!(took.as_secs() < 20, "abandoned queries were evaluated for {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_makes_gigabytes_of_one_item_is_refused() {
    let world = World::new().await;
    let mut client = world.client_by(&Wire::Two).await;
    let big = json!({"id": "big", "pk": "x", "b": "x".repeat(1_900_000)});
    client.send(Ask::post(DOCS, big).key("x")).await.expect(201);
    let columns: Vec<_> = (0..2000).map(|n| format!("c.b AS a{n}")).collect();
    let refused = client.send(query(&format!("SELECT {} FROM c", columns.join(",")), None)).await.expect(400);
    assert!(refused.text().contains("4 MiB"), "{refused:?}");
    let terms = format!("SELECT VALUE c.id FROM c WHERE {}true", "c.a = 1 OR ".repeat(10_000));
    assert_eq!(client.send(query(&terms, None)).await.expect(200).documents(), [json!("big")]);
}

#[tokio::test]
async fn later_pages_of_a_sorted_query_are_those_of_the_first_look() {
    let world = World::new().await;
    let mut client = world.client().await;
    for n in 0..30 {
        client.send(Ask::post(DOCS, item(&format!("i{n:02}"), "p", n % 7)).key("p")).await.expect(201);
    }
    let sql = "SELECT VALUE c.id FROM c ORDER BY c.n DESC";
    let whole = client.send(query(sql, None)).await.expect(200).documents();
    let paged = pages(&mut client, |next| query(sql, next).with("x-ms-max-item-count", 4)).await;
    assert_eq!(paged.len(), 8);
    assert_eq!(paged.iter().flat_map(Reply::documents).collect::<Vec<_>>(), whole);
}
