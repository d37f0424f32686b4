//! Pages without changes before the end of the feed: status 200, not 304, and an ETag to go on from.

use std::sync::{Arc, Mutex};

use changefeed::{Processor, Pull, RawChanges, core::StartFrom};
use changefeed_core::{Container, Continuation, ErrorKind, FeedRange, Mode, ReadChanges, Timestamp};
use serde_json::json;

use crate::{
    proxy::{Answering, Rules, refusal},
    seen::{Seen, TIMING},
    stage::Stage,
};

/// How many pages are empty.
const EMPTY: u64 = 5;

/// Before everything that is written here.
const EARLY: Timestamp = Timestamp::from_secs(1);

/// The ETags that pages were read after, but those from now on.
#[derive(Clone, Default)]
struct After(Arc<Mutex<Vec<String>>>);

impl After {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Answers the first reads of the feed of orders with empty pages, and the next ones with 429.
fn answering(throttled: usize) -> (Answering, After) {
    answering_from(0, throttled)
}

/// The same with ETags that count from another number than the LSNs.
fn answering_from(first: u64, throttled: usize) -> (Answering, After) {
    let read = After::default();
    let own = read.clone();
    let answered = Mutex::new((0, 0));
    let answering: Answering = Arc::new(move |asked| {
        let is_of_leases = asked.path().contains("leases");
        if !asked.reads_changes() || asked.after() == Some("*") || asked.is_of_part() || is_of_leases {
            return None;
        }
        own.0.lock().unwrap().push(asked.after().unwrap_or_default().to_owned());
        let mut answered = answered.lock().unwrap();
        if answered.0 < EMPTY {
            answered.0 += 1;
            return Some(asked.empty_page(first + answered.0, 2 * EMPTY + 1));
        }
        answered.1 += 1;
        (answered.1 <= throttled).then(|| refusal(429, 3200, "the request rate is large"))
    });
    (answering, read)
}

/// A stage whose feed of orders has nothing at its first positions: each write but the last replaced the one before it.
async fn stage(answering: Answering) -> Stage {
    stage_with(Rules { refuse_parts: true, answering: Some(answering), ..Rules::default() }).await
}

async fn stage_with(rules: Rules) -> Stage {
    let stage = Stage::new(rules).await;
    let direct = stage.direct("orders").await;
    for _ in 0..=2 * EMPTY {
        direct.upsert(&json!({"id": "0", "customer": "c0"})).await.unwrap();
    }
    stage.write(1..3).await;
    stage
}

async fn ids(orders: &Container, read: ReadChanges) -> changefeed_core::Result<Vec<String>> {
    let page = orders.read_changes(read).await?;
    Ok(page.changes.iter().map(|change| change.id.to_string()).collect())
}

fn etag(number: u64) -> String {
    format!("\"{number}\"")
}

#[tokio::test]
async fn changes_after_empty_pages_come_in_one_read() {
    for start in [EARLY.into(), StartFrom::Beginning, Continuation::from_token("\"0\"").into()] {
        let (answering, read) = answering(0);
        let stage = stage(answering).await;
        let orders = stage.open("orders").await;
        let request = ReadChanges::new(FeedRange::full(), start.clone());
        assert_eq!(ids(&orders, request).await.unwrap(), ["0", "1", "2"], "{start:?}");
        let etags = read.take();
        assert_eq!(etags[1..], (1..=EMPTY).map(etag).collect::<Vec<_>>(), "{start:?}");
    }
}

#[tokio::test]
async fn changes_of_a_part_after_empty_pages_come_in_one_read() {
    let (answering, read) = answering(0);
    let stage = stage(answering).await;
    let orders = stage.open("orders").await;
    let mut found = Vec::new();
    for part in ["-1F", "1F-FF"] {
        let request = ReadChanges::new(part.parse().unwrap(), EARLY);
        found.extend(ids(&orders, request).await.unwrap());
    }
    found.sort();
    assert_eq!(found, ["0", "1", "2"]);
    assert!(read.take().contains(&etag(EMPTY)));
}

#[tokio::test]
async fn changes_after_empty_pages_come_also_if_positions_do_not_count_as_the_feed_does() {
    let (answering, _) = answering_from(1000, 0);
    let stage = stage_with(Rules { shift_etags: true, answering: Some(answering), ..Rules::default() }).await;
    let orders = stage.open("orders").await;
    let request = ReadChanges::new(FeedRange::full(), EARLY);
    assert_eq!(ids(&orders, request).await.unwrap(), ["0", "1", "2"]);
}

#[tokio::test]
async fn all_versions_after_empty_pages_come_in_one_read() {
    let (answering, _) = answering(0);
    let stage = stage(answering).await;
    let start = Continuation::from_token("\"0\"");
    let request = ReadChanges::new(FeedRange::full(), start).mode(Mode::AllVersions);
    let versions = ids(&stage.open("orders").await, request).await.unwrap();
    assert_eq!(versions.last().map(String::as_str), Some("2"));
}

#[tokio::test]
async fn a_read_that_ends_among_empty_pages_is_continued_by_the_next_one() {
    // More than the SDK repeats by itself.
    let (answering, read) = answering(4);
    let stage = stage(answering).await;
    let orders = stage.open("orders").await;
    let request = ReadChanges::new(FeedRange::full(), EARLY);
    let failed = ids(&orders, request.clone()).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Throttled, "{failed:?}");
    read.take();
    assert_eq!(ids(&orders, request.clone()).await.unwrap(), ["0", "1", "2"]);
    assert!(read.take().iter().all(|after| *after == etag(EMPTY)), "no page is read twice");
    assert_eq!(ids(&orders, request).await.unwrap(), ["0", "1", "2"], "the next reader begins at the time");
    assert_eq!(read.take(), [""]);
}

/// What a service answers that never says 304.
#[tokio::test]
async fn an_empty_page_that_ends_where_it_began_is_the_end_of_the_feed() {
    let answering: Answering = Arc::new(|asked| {
        let is_read = asked.reads_changes() && asked.after() != Some("*");
        is_read.then(|| asked.empty_page(7, 7))
    });
    let stage = stage(answering).await;
    let orders = stage.open("orders").await;
    for start in [EARLY.into(), StartFrom::Beginning, Continuation::from_token("\"7\"").into()] {
        let page = orders.read_changes(ReadChanges::new(FeedRange::full(), start)).await.unwrap();
        assert!(page.changes.is_empty());
        assert_eq!(page.continuation.token(), etag(7));
    }
}

#[tokio::test]
async fn a_pull_and_a_job_deliver_what_comes_after_empty_pages() {
    let (rule, _) = answering(0);
    let shop = stage(rule).await;
    let orders = shop.open("orders").await;
    let mut pull = Pull::partition_key(&orders, "c1", StartFrom::Time(EARLY)).unwrap();
    assert_eq!(pull.next_page().await.unwrap().changes[0].id.as_str(), "1");

    let (rule, _) = answering(0);
    let shop = stage(rule).await;
    let (orders, leases) = (shop.open("orders").await, shop.open("leases").await);
    let seen = Seen::default();
    let own = seen.clone();
    let builder = Processor::builder("mailer", &orders, &leases).instance_name("a").lease_timing(TIMING);
    let job = builder.start_from(StartFrom::Time(EARLY)).build(move |changes: RawChanges, context| {
        own.note(&changes, &context);
        async { Ok(()) }
    });
    job.unwrap().run_until_caught_up().await.unwrap();
    assert_eq!(seen.distinct(), 3);
}
