//! What `remaining` of a page says of long feeds: exact for a whole range; for a part of one, exact or unknown.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{
    Batch, ChangePage, Clock as _, Container, FeedRange, Mode, PartitionKey, ReadChanges, StartFrom, Timestamp, Write,
};
use changefeed_embedded::Engine;
use changefeed_testkit::clock::TestClock;
use serde_json::json;

const KEYS: u64 = 600;
const ITEMS_PER_KEY: u64 = 100;

/// So many keys are written later than the others.
const LATER: u64 = 50;

/// Writes to some keys, a transaction each.
async fn fill(container: &Container, keys: std::ops::Range<u64>) {
    for key in keys {
        let body = |id: u64| Bytes::from(json!({"id": id.to_string(), "pk": format!("k{key}")}).to_string());
        let writes = (0..ITEMS_PER_KEY).map(|id| Write::Create { body: body(id) }).collect();
        let partition_key = Some(PartitionKey::from(format!("k{key}")));
        container.backend().write(Batch { partition_key, writes, return_items: false }).await.unwrap();
    }
}

/// A container with one long range, and the moment at which its later keys were written.
async fn long_range() -> (Engine, Container, Timestamp) {
    let clock = TestClock::new();
    let engine = Engine::builder().clock(Arc::new(clock.clone())).in_memory().unwrap();
    let builder = engine.database("d").container("c").partition_key("/pk").ranges(1);
    let container = builder.all_versions(Duration::from_secs(3600)).create().await.unwrap();
    fill(&container, 0..KEYS - LATER).await;
    clock.advance(Duration::from_secs(60));
    fill(&container, KEYS - LATER..KEYS).await;
    (engine, container, clock.wall())
}

async fn read(container: &Container, request: ReadChanges) -> ChangePage {
    container.read_changes(request.count_remaining()).await.unwrap().into_value()
}

/// The lower half of the keys.
fn half(container: &Container) -> FeedRange {
    container.identity().partition_key.split_evenly(2).unwrap().remove(0)
}

#[tokio::test]
async fn what_remains_of_a_whole_range_is_exact() {
    let (engine, container, later) = long_range().await;
    let total = KEYS * ITEMS_PER_KEY;
    let page = read(&container, ReadChanges::new(FeedRange::full(), StartFrom::Beginning).max_items(1)).await;
    assert_eq!(page.remaining, Some(total - page.changes.len() as u64));
    let since = ReadChanges::new(FeedRange::full(), StartFrom::Time(later)).max_items(1);
    let page = read(&container, since).await;
    let read_before = page.changes.len() as u64;
    assert_eq!(page.remaining, Some(LATER * ITEMS_PER_KEY - read_before));
    let page = read(&container, ReadChanges::new(FeedRange::full(), page.continuation).max_items(1000)).await;
    assert_eq!(page.remaining, Some(LATER * ITEMS_PER_KEY - read_before - page.changes.len() as u64));
    let begin = changefeed_core::Continuation::from_token("\"0\"");
    let versions = ReadChanges::new(FeedRange::full(), begin).mode(Mode::AllVersions).max_items(1);
    let page = read(&container, versions.clone()).await;
    assert_eq!(page.remaining, Some(total - page.changes.len() as u64));
    let page = read(&container, versions.not_before(later)).await;
    assert_eq!(page.remaining, Some(LATER * ITEMS_PER_KEY - page.changes.len() as u64));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn what_remains_of_a_part_of_a_range_is_exact_or_unknown() {
    let (engine, container, _) = long_range().await;
    let mut pages = Vec::new();
    let mut start = StartFrom::Beginning;
    loop {
        let page = read(&container, ReadChanges::new(half(&container), start).max_items(1000)).await;
        if page.changes.is_empty() {
            assert_eq!(page.remaining, Some(0));
            break;
        }
        start = page.continuation.clone().into();
        pages.push((page.changes.len() as u64, page.remaining));
    }
    // Counting 30,000 of 60,000 entries would keep writers waiting.
    assert_eq!(pages[0].1, None);
    let total: u64 = pages.iter().map(|(count, _)| count).sum();
    let mut read = 0;
    for (count, remaining) in &pages {
        read += count;
        assert_eq!(remaining.unwrap_or(total - read), total - read, "after {read} of {total}");
    }
    let known = pages.iter().filter(|(_, remaining)| remaining.is_some()).count();
    assert!(known >= 3, "{known} of {} pages say what remains", pages.len());
    engine.close().await.unwrap();
}

/// A page ends before it has looked at all of a long feed; nothing is missing from those that follow.
#[tokio::test]
async fn a_key_with_few_items_in_a_long_range_is_read_in_pages_that_are_not_full() {
    let (engine, container, _) = long_range().await;
    let keys = &container.identity().partition_key;
    let upsert = json!({"id": "last", "pk": "k0"});
    container.upsert(&upsert).await.unwrap();
    let range = keys.key_range(&PartitionKey::from("k0")).unwrap();
    let (mut counts, mut start) = (Vec::new(), StartFrom::Beginning);
    loop {
        let page = read(&container, ReadChanges::new(range.clone(), start).max_items(1000)).await;
        if page.changes.is_empty() {
            break;
        }
        counts.push(page.changes.len() as u64);
        start = page.continuation.into();
    }
    assert_eq!(counts, [ITEMS_PER_KEY, 1]);
    engine.close().await.unwrap();
}
