//! Answers that the service may give and the server of this project never does: unusual ids, ranges without names.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{Backoff, Changes, Context, DeadLetter, DeadLetters, Processor, core::StartFrom};
use changefeed_core::{FeedRange, ReadChanges};
use changefeed_cosmos::Options;
use changefeed_testkit::clock::TestClock;
use serde_json::json;

use crate::{
    proxy::Rules,
    seen::{TIMING, until},
    stage::Stage,
};

/// Stands for `a/b\c#d` and much more, which the service has and nobody can write any more.
const ODD: &str = "odd-one";

fn odd() -> String {
    format!("a/b\\\\c#d?{}", "x".repeat(3000))
}

fn with_odd_ids() -> Rules {
    Rules { replaced: vec![(ODD, odd())], ..Rules::default() }
}

#[derive(Debug, serde::Deserialize)]
struct Order {
    id: String,
    total: u32,
}

#[tokio::test]
async fn items_with_unusual_ids_are_read_and_listed_like_others() {
    let stage = Stage::new(with_odd_ids()).await;
    let direct = stage.direct("orders").await;
    for id in ["1", ODD, "2"] {
        direct.upsert(&json!({"id": id, "customer": "c"})).await.unwrap();
    }
    let orders = stage.open("orders").await;
    let page = orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning)).await.unwrap();
    let ids: Vec<&str> = page.changes.iter().map(|change| change.id.as_str()).collect();
    let expected = odd().replace("\\\\", "\\");
    assert_eq!(ids, ["1", &expected, "2"]);
    let mut listed: Vec<String> =
        orders.list("").await.unwrap().into_iter().map(|item| item.id.as_str().to_owned()).collect();
    listed.sort();
    assert_eq!(listed, ["1", "2", &expected]);
}

#[tokio::test]
async fn an_item_with_an_unusual_id_stops_neither_its_range_nor_the_leases() {
    let stage = Stage::new(with_odd_ids()).await;
    stage.create("rejected", changefeed_core::PartitionKeyDefinition::id()).await;
    let direct = stage.direct("orders").await;
    for (id, total) in [("1", json!(1)), (ODD, json!("much")), ("2", json!(2))] {
        direct.upsert(&json!({"id": id, "customer": "c", "total": total})).await.unwrap();
    }
    let (orders, leases) = (stage.open("orders").await, stage.open("leases").await);
    let rejected = stage.direct("rejected").await;
    // A document that no host has written, under an id that begins as those of leases do.
    let identity = orders.identity();
    let prefix = format!("mailer{}_{}_{}..", identity.account_host, identity.database, identity.container);
    stage.direct("leases").await.upsert(&json!({"id": format!("{prefix}{ODD}")})).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&seen);
    let soon = Backoff { first: TIMING.renew / 100, longest: TIMING.renew / 10 };
    let builder = Processor::builder("mailer", &orders, &leases).instance_name("a").lease_timing(TIMING).retry(soon);
    let builder = builder.start_from(StartFrom::Beginning).dead_letter(DeadLetter::to(&rejected).after_attempts(2));
    let processor = builder.build(move |orders: Changes<Order>, _: Context| {
        own.lock().unwrap().extend(orders.iter().map(|order| (order.id.clone(), order.total)));
        async { Ok(()) }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery", || seen.lock().unwrap().iter().any(|(id, total)| id == "2" && *total == 2)).await;
    running.stop().await.unwrap();
    let letters = DeadLetters::new(&rejected).list().await.unwrap();
    let letter = DeadLetters::new(&rejected).get(&letters[0].id).await.unwrap();
    assert_eq!(letter.item_id, odd().replace("\\\\", "\\"));
    assert_eq!(letter.change().unwrap().id.as_str(), letter.item_id, "and it can be redriven");
}

/// Every position looks like one that is ahead of the feed.
#[tokio::test]
async fn positions_that_do_not_count_as_the_feed_does_are_not_left_again_and_again() {
    let stage = Stage::new(Rules { shift_etags: true, ..Rules::default() }).await;
    stage.write(0..2).await;
    let last = stage.direct("orders").await.upsert(&json!({"id": "2", "customer": "c"})).await.unwrap();
    for begins_with_a_page in [true, false] {
        let clock = TestClock::at(last.timestamp);
        let orders = stage.open_with("orders", Options::new().clock(Arc::new(clock.clone()))).await;
        let read = |start: StartFrom| {
            let read = orders.read_changes(ReadChanges::new(FeedRange::full(), start));
            async { read.await.unwrap().into_value() }
        };
        let mut end = changefeed_core::Continuation::from_token("\"1004\"");
        if begins_with_a_page {
            let page = read(StartFrom::Beginning).await;
            assert_eq!((page.changes.len(), &page.continuation), (3, &end));
            end = page.continuation;
        }
        let mut repeated = 0;
        for _ in 0..20 {
            repeated += read(end.clone().into()).await.changes.len();
            clock.advance(Duration::from_secs(60));
        }
        assert_eq!(repeated, if begins_with_a_page { 0 } else { 3 }, "once, if nothing was known before");
    }
}

#[tokio::test]
async fn ranges_without_names_are_named_by_the_session() {
    let stage = Stage::new(Rules { hide_range_ids: true, ..Rules::default() }).await;
    stage.write(0..3).await;
    let (orders, direct) = (stage.open("orders").await, stage.direct("orders").await);
    let id = &direct.feed_ranges().await.unwrap()[0].id;
    assert_eq!(orders.feed_ranges().await.unwrap()[0].id, *id);
    let page = orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning)).await.unwrap();
    assert_eq!((page.changes.len(), &page.physical), (3, id));
    let next = ReadChanges::new(FeedRange::full(), page.into_value().continuation);
    let page = orders.read_changes(next).await.unwrap();
    assert_eq!((page.changes.len(), &page.physical), (0, id), "nothing is new");
}
