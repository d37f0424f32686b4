//! The change feed of latest versions: every start, every scope, both wire formats.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Clock, SystemClock};
use changefeed_embedded::Engine;
use changefeed_server::auth::Keys;
use changefeed_testkit::clock::TestClock;
use serde_json::json;

use crate::support::{Ask, Client, Reply, World, item, time, world::DOCS};

/// Keys in the lower and in the upper half.
const LOW: &str = "partitionKey";
const HIGH: &str = "a";

async fn write(client: &mut Client, id: &str, key: &str) {
    let ask = Ask::post(DOCS, item(id, key, 1)).key(key).with("x-ms-documentdb-is-upsert", "True");
    assert!(client.send(ask).await.status < 300);
}

async fn after(client: &mut Client, etag: &str) -> Reply {
    client.send(Ask::get(DOCS).feed().with("if-none-match", etag)).await
}

#[tokio::test]
async fn the_feed_begins_at_the_beginning_and_then_says_304_with_an_etag() {
    let world = World::new().await;
    let mut client = world.client().await;
    let empty = client.send(Ask::get(DOCS).feed()).await.expect(304);
    assert_eq!(empty.etag(), "\"1\"");
    assert!(empty.body.is_empty(), "no changes is not an empty list");
    for id in ["1", "2", "3"] {
        write(&mut client, id, HIGH).await;
    }
    let page = after(&mut client, &empty.etag()).await.expect(200);
    assert_eq!((page.ids(), page.etag()), (vec!["1".into(), "2".into(), "3".into()], "\"4\"".to_owned()));
    let idle = after(&mut client, &page.etag()).await.expect(304);
    assert_eq!(idle.etag(), page.etag());
    assert_eq!(idle.header("x-ms-item-count"), Some("0"));
    write(&mut client, "4", HIGH).await;
    assert_eq!(after(&mut client, &idle.etag()).await.expect(200).ids(), ["4"]);
}

#[tokio::test]
async fn each_item_comes_once_at_its_latest_version_and_deleted_ones_vanish() {
    let world = World::new().await;
    let mut client = world.client().await;
    for id in ["1", "2", "3", "1"] {
        write(&mut client, id, HIGH).await;
    }
    client.send(Ask::delete(format!("{DOCS}/2")).key(HIGH)).await.expect(204);
    let page = client.send(Ask::get(DOCS).feed()).await.expect(200);
    assert_eq!(page.ids(), ["3", "1"]);
    let lsns: Vec<u64> = page.documents().iter().map(|document| document["_lsn"].as_u64().unwrap()).collect();
    assert_eq!(lsns, [4, 5]);
    let idle = after(&mut client, &page.etag()).await.expect(304);
    assert_eq!(idle.etag(), "\"6\"", "the delete is behind us");
}

#[tokio::test]
async fn starting_now_shows_what_comes_later_only() {
    let world = World::new().await;
    let mut client = world.client().await;
    write(&mut client, "old", HIGH).await;
    let now = after(&mut client, "*").await.expect(304);
    assert_eq!(now.etag(), "\"2\"");
    write(&mut client, "new", HIGH).await;
    assert_eq!(after(&mut client, &now.etag()).await.expect(200).ids(), ["new"]);
    assert_eq!(after(&mut client, "2").await.expect(200).ids(), ["new"], "quotes may be missing");
}

/// A world whose store has a clock of its own.
async fn with_clock() -> (World, TestClock) {
    let clock = TestClock::at(SystemClock.wall());
    let engine = Engine::builder().clock(Arc::new(clock.clone())).in_memory().unwrap();
    let catalog = engine.catalog();
    let world = World::over(engine, catalog, Keys::emulator(), |builder| builder).await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let container = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    (world, clock)
}

#[tokio::test]
async fn starting_at_a_time_skips_what_is_older_on_this_page_and_on_later_ones() {
    let (world, clock) = with_clock().await;
    let mut client = world.client().await;
    write(&mut client, "old", HIGH).await;
    write(&mut client, "older", HIGH).await;
    clock.advance(Duration::from_secs(100));
    let at = time::now() + Duration::from_secs(50);
    let since = httpdate::fmt_http_date(at);
    let from = |etag: Option<&str>| {
        let ask = Ask::get(DOCS).feed().with("if-modified-since", &since).with("x-ms-max-item-count", 1);
        etag.map_or(ask.clone(), |etag| ask.with("if-none-match", etag))
    };
    let idle = client.send(from(None)).await.expect(304);
    for id in ["new", "newer", "newest"] {
        write(&mut client, id, HIGH).await;
    }
    // Clients send the time along with every continuation.
    for start in [None, Some(idle.etag()), Some("\"0\"".to_owned())] {
        let (mut seen, mut etag) = (Vec::new(), start);
        loop {
            let page = client.send(from(etag.as_deref())).await;
            etag = Some(page.etag());
            if page.status == 304 {
                break;
            }
            seen.extend(page.ids());
        }
        assert_eq!(seen, ["new", "newer", "newest"]);
    }
    let all = client.send(Ask::get(DOCS).feed()).await.expect(200);
    assert_eq!(all.ids().len(), 5);
}

#[tokio::test]
async fn pages_hold_what_was_asked_for_and_never_cut_a_transaction() {
    let world = World::new().await;
    let mut client = world.client().await;
    for id in ["1", "2"] {
        write(&mut client, id, HIGH).await;
    }
    let create = |id: &str| json!({ "operationType": "Create", "resourceBody": item(id, HIGH, 1) });
    client.send(Ask::batch(DOCS, &json!([create("b1"), create("b2"), create("b3")])).key(HIGH)).await.expect(200);
    write(&mut client, "3", HIGH).await;
    let (mut pages, mut etag) = (Vec::new(), "\"0\"".to_owned());
    loop {
        let page = client.send(Ask::get(DOCS).feed().with("if-none-match", &etag).with("x-ms-max-item-count", 1)).await;
        etag = page.etag();
        if page.status == 304 {
            break;
        }
        pages.push(page.ids().join(" "));
    }
    assert_eq!(pages, ["1", "2", "b1 b2 b3", "3"]);
}

#[tokio::test]
async fn every_scope_shows_its_own_changes() {
    let world = World::with(|builder| builder.ranges(2)).await;
    let mut client = world.client().await;
    for (id, key) in [("h1", HIGH), ("l1", LOW), ("h2", "abc"), ("l2", LOW)] {
        write(&mut client, id, key).await;
    }
    let part = |ask: Ask, start: &str, end: &str| {
        ask.with("x-ms-start-epk", start)
            .with("x-ms-end-epk", end)
            .with("x-ms-read-key-type", "EffectivePartitionKeyRange")
    };
    // The keys of a, abc and partitionKey: 3A53..., 2424..., 013A...
    let of_a = ("3A5381E1114EB8D3FCC90795045B49B7", "3A5381E1114EB8D3FCC90795045B49B8");
    let feed = || Ask::get(DOCS).feed();
    for (what, ask, expected) in [
        ("a range", feed().range("0"), &["l1", "l2"][..]),
        ("another range", feed().range("1"), &["h1", "h2"]),
        ("a part of a range", part(feed().range("1"), "30", "FF"), &["h1"]),
        ("the other part", part(feed().range("1"), "20", "30"), &["h2"]),
        ("more than a range narrows to it", part(feed().range("1"), "", "FF"), &["h1", "h2"]),
        ("lower case", part(feed().range("1"), "3a5381e1114eb8d3fcc90795045b49b7", "3a54"), &["h1"]),
        ("one key as a part, as one SDK does", part(feed().range("1"), of_a.0, of_a.1), &["h1"]),
        ("one key, as the others do", feed().key(HIGH), &["h1"]),
        ("one key in the other range", feed().key(LOW), &["l1", "l2"]),
        ("a part without range id", part(feed(), "20", "30"), &["h2"]),
    ] {
        let page = client.send(ask).await;
        assert_eq!(page.status, 200, "{what}: {page:?}");
        assert_eq!(page.ids(), expected, "{what}");
    }
}

#[tokio::test]
async fn a_scope_in_which_nothing_happens_advances_all_the_same() {
    let world = World::new().await;
    let mut client = world.client().await;
    for id in ["1", "2", "3"] {
        write(&mut client, id, HIGH).await;
    }
    let idle = client.send(Ask::get(DOCS).feed().key("nobody")).await.expect(304);
    assert_eq!(idle.etag(), "\"4\"");
}

#[tokio::test]
async fn the_prefix_of_a_hierarchical_key_shows_all_below_it() {
    let world = World::new().await;
    let mut client = world.client().await;
    let container = json!({ "id": "h", "partitionKey": { "paths": ["/t", "/u"], "kind": "MultiHash", "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    let docs = "/dbs/db/colls/h/docs";
    for (id, t, u) in [("1", "T", "U"), ("2", "T", "V"), ("3", "S", "U")] {
        let ask = Ask::post(docs, json!({ "id": id, "t": t, "u": u }));
        client.send(ask.with("x-ms-documentdb-partitionkey", json!([t, u]))).await.expect(201);
    }
    let by = |key: serde_json::Value| Ask::get(docs).feed().with("x-ms-documentdb-partitionkey", key);
    assert_eq!(client.send(by(json!(["T"]))).await.expect(200).ids(), ["1", "2"]);
    assert_eq!(client.send(by(json!(["T", "V"]))).await.expect(200).ids(), ["2"]);
    let epk = "017A5127EDEAEAFD8E3C9E8C0081CB34";
    let part = Ask::get(docs).feed().range("0").with("x-ms-start-epk", epk).with("x-ms-end-epk", format!("{epk}FF"));
    assert_eq!(client.send(part).await.expect(200).ids(), ["1", "2"], "as SDKs send it");
}

#[tokio::test]
async fn the_wire_format_is_what_the_header_says() {
    let world = World::new().await;
    let mut client = world.client().await;
    write(&mut client, "1", HIGH).await;
    let flat = client.send(Ask::get(DOCS).feed()).await.expect(200).documents().remove(0);
    assert_eq!((flat["id"].as_str(), flat["_lsn"].as_u64()), (Some("1"), Some(2)));
    for member in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
        assert!(flat.get(member).is_some(), "{member}: {flat}");
    }
    let ask = Ask::get(DOCS).feed().with("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");
    let envelope = client.send(ask).await.expect(200).documents().remove(0);
    let members: Vec<&String> = envelope.as_object().unwrap().keys().collect();
    assert_eq!(members, ["current", "metadata"], "an SDK takes it for an item otherwise");
    assert_eq!(envelope["current"], flat);
    assert_eq!(envelope["metadata"]["lsn"], 2);
    assert_eq!(envelope["metadata"]["crts"], flat["_ts"]);
    assert!(envelope["metadata"].get("operationType").is_none());
}

#[tokio::test]
async fn the_words_for_the_feed_are_read_in_any_case() {
    let world = World::new().await;
    let mut client = world.client().await;
    write(&mut client, "1", HIGH).await;
    for words in ["Incremental Feed", "Incremental feed", "incremental feed", "INCREMENTAL FEED", " Incremental Feed "]
    {
        client.send(Ask::get(DOCS).with("a-im", words)).await.expect(200);
        client.send(Ask::get(DOCS).with("a-im", words).with("if-none-match", "*")).await.expect(304);
    }
}

/// What the processor for Java makes of a continuation: it removes all quotes and reads a number.
fn as_number(etag: &str) -> u64 {
    etag.replace('"', "").parse().unwrap()
}

#[tokio::test]
async fn continuations_are_numbers_that_every_client_can_subtract() {
    let world = World::new().await;
    let [low, high] = world.split("0").await.try_into().unwrap();
    let mut client = world.client().await;
    let ask = |range: &str, etag: &str| Ask::get(DOCS).feed().range(range).with("if-none-match", etag);
    let before = client.send(ask(&low, "*")).await.expect(304).etag();
    assert_eq!(before, "\"1\"", "as Java takes a lease to be that has no continuation yet");
    for n in 0..6 {
        write(&mut client, &format!("h{n}"), HIGH).await;
        write(&mut client, &format!("l{}", n / 2), LOW).await;
    }
    let now = client.send(ask(&low, "*")).await.expect(304).etag();
    assert_eq!(as_number(&now) - as_number(&before), 6, "not the twelve of both ranges");
    for agent in ["azsdk-java-cosmos/4.81.0 Linux/6.1 JRE/21", "azsdk-python-cosmos/4.15.0"] {
        let one = ask(&low, &before).with("x-ms-max-item-count", "1").with("user-agent", agent);
        let page = client.send(one).await.expect(200);
        assert_eq!((page.ids(), page.etag().as_str()), (vec!["l0".to_owned()], "\"3\""));
        assert_eq!(as_number(&now) - as_number(&page.etag()), 4, "two versions of two items wait");
        let token = page.header("x-ms-session-token").unwrap().to_owned();
        assert_eq!(token, format!("{low}:-1#7"));
        let rest = client.send(ask(&low, &page.etag())).await.expect(200);
        assert_eq!((rest.ids(), rest.etag().as_str()), (vec!["l1".to_owned(), "l2".to_owned()], "\"7\""));
    }
    assert_eq!(as_number(&client.send(ask(&high, "*")).await.expect(304).etag()), 7);
}

#[tokio::test]
async fn session_tokens_are_of_their_range_and_outlive_it() {
    let world = World::new().await;
    let [low, high] = world.split("0").await.try_into().unwrap();
    let mut client = world.client().await;
    for n in 0..5 {
        write(&mut client, &format!("h{n}"), HIGH).await;
    }
    write(&mut client, "l", LOW).await;
    let read = |token: String| Ask::get(format!("{DOCS}/l")).key(LOW).with("x-ms-session-token", &token);
    // The low range has come to 2, the high one to 6, and their parent had come to 1.
    for seen in [format!("{low}:-1#2"), format!("{high}:-1#6,{low}:-1#2"), "0:-1#1".to_owned(), "77:-1#6".to_owned()] {
        client.send(read(seen)).await.expect(200);
    }
    for ahead in [format!("{low}:-1#3"), format!("{low}:-1#2,{high}:-1#7"), "0:-1#7".to_owned(), "77:-1#7".to_owned()] {
        let reply = client.send(read(ahead.clone())).await.expect(404);
        assert_eq!(reply.header("x-ms-substatus"), Some("1002"), "{ahead}");
    }
    let merged = world.merge(&low, &high).await;
    for seen in [format!("{low}:-1#2"), format!("{high}:-1#6"), format!("{merged}:-1#6")] {
        client.send(read(seen)).await.expect(200);
    }
    let written = client.send(Ask::post(DOCS, item("m", LOW, 1)).key(LOW)).await.expect(201);
    assert_eq!(written.header("x-ms-session-token"), Some(format!("{merged}:-1#7").as_str()));
}
