//! Responses stay within 4 MiB, one larger item apart, however large the items are that they are made of.

use changefeed_server::Limits;
use serde_json::{Value, json};

use crate::support::{Ask, Client, World, time, world::DOCS};

const MOST: usize = 4 * 1024 * 1024;

async fn large_items(count: usize) -> (World, Client) {
    let limits = Limits { query_time: time::LONG, ..Limits::default() };
    let world = World::with(|builder| builder.limits(limits)).await;
    let mut client = world.client().await;
    let big = "x".repeat(1_900_000);
    for n in 0..count {
        let item = json!({"id": format!("i{n}"), "pk": "p", "b": big});
        client.send(Ask::post(DOCS, item).key("p").with("prefer", "return=minimal")).await.expect(201);
    }
    (world, client)
}

fn reads(count: usize) -> Value {
    (0..count).map(|_| json!({"operationType": "Read", "id": "i0", "partitionKey": "[\"p\"]"})).collect()
}

#[tokio::test]
async fn a_transaction_of_many_large_reads_is_refused_as_a_whole() {
    let (_world, mut client) = large_items(1).await;
    let reply = client.send(Ask::batch(DOCS, &reads(100)).key("p")).await.expect(207);
    let statuses: Vec<_> = reply.json().as_array().unwrap().iter().map(|one| one["statusCode"].clone()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 413).count(), 1);
    assert_eq!(statuses.iter().filter(|status| **status == 424).count(), 99);
    let two = client.send(Ask::batch(DOCS, &reads(2)).key("p")).await.expect(200);
    assert!(two.body.len() < MOST);
}

#[tokio::test]
async fn bulk_reads_beyond_the_bound_are_refused_one_by_one() {
    let (_world, mut client) = large_items(1).await;
    let ask = Ask::post(DOCS, reads(100)).with("x-ms-cosmos-is-batch-request", "True");
    for all in ["True", "False"] {
        let ask = ask.clone().with("x-ms-cosmos-batch-continue-on-error", all);
        let reply = client.send(ask).await.expect(207);
        assert!(reply.body.len() < MOST, "{}", reply.body.len());
        let outcomes = reply.json();
        assert_eq!((&outcomes[1]["statusCode"], &outcomes[2]["statusCode"]), (&json!(200), &json!(413)));
    }
}

#[tokio::test]
async fn bulk_patches_beyond_the_bound_are_refused_before_they_are_made() {
    let (_world, mut client) = large_items(1).await;
    let patch = json!({"operationType": "Patch", "id": "i0", "partitionKey": "[\"p\"]",
        "resourceBody": {"operations": [{"op": "incr", "path": "/n", "value": 1}]}});
    let ask = Ask::post(DOCS, Value::from(vec![patch; 10]))
        .with("x-ms-cosmos-is-batch-request", "True")
        .with("x-ms-cosmos-batch-continue-on-error", "True");
    let reply = client.send(ask).await.expect(207);
    assert!(reply.body.len() < MOST, "{}", reply.body.len());
    let done = reply.json().as_array().unwrap().iter().filter(|one| one["statusCode"] == 200).count();
    let item = client.send(Ask::get(format!("{DOCS}/i0")).key("p")).await.expect(200).json();
    assert_eq!((done, &item["n"]), (2, &json!(2)), "what is refused was not done");
}

#[tokio::test]
async fn pages_of_all_versions_count_previous_images() {
    let (_world, mut client) = large_items(6).await;
    let ask = |at: &str| Ask::get(DOCS).all_versions().range("0").with("if-none-match", at);
    let mut at = client.send(ask("*")).await.expect(304).etag();
    for n in 0..6 {
        client.send(Ask::delete(format!("{DOCS}/i{n}")).key("p")).await.expect(204);
    }
    let mut deleted = 0;
    while deleted < 6 {
        let page = client.send(ask(&at)).await.expect(200);
        assert!(page.body.len() < MOST, "{}", page.body.len());
        deleted += page.documents().len();
        at = page.etag();
    }
    assert_eq!(deleted, 6);
    client.send(ask(&at)).await.expect(304);
}

#[tokio::test]
async fn lists_and_feeds_and_queries_of_large_items_stay_within_the_bound() {
    let (_world, mut client) = large_items(5).await;
    for ask in [
        Ask::get(DOCS),
        Ask::get(DOCS).feed().range("0"),
        Ask::query(DOCS, "SELECT * FROM c").key("p"),
        Ask::query(DOCS, "SELECT c.b, c.id FROM c ORDER BY c.id").key("p"),
    ] {
        let reply = client.send(ask.clone().with("x-ms-max-item-count", 1000)).await.expect(200);
        assert!(reply.body.len() < MOST, "{} {ask:?}", reply.body.len());
        assert!(reply.documents().len() >= 2);
    }
}
