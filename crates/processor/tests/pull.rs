//! The pull model: everything once, at the caller's pace, across splits, merges and restarts.

mod shop;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use changefeed::{
    Bookmark, Pull,
    core::{Container, ErrorKind, FeedRange, Mode, Operation, StartFrom},
};
use changefeed_testkit::faulty::{Call, Fault, Faulty};
use shop::{Order, Shop, order};

/// How often each version of each item was read.
type Counts = BTreeMap<(String, u64), usize>;

/// Reads until there is nothing new.
async fn drain(pull: &mut Pull, counts: &mut Counts) {
    loop {
        let page = pull.next_page().await.expect("page");
        if page.is_empty() {
            return;
        }
        for order in page.parse::<Order>().expect("orders") {
            *counts.entry((order.id, order.version)).or_default() += 1;
        }
    }
}

/// Through its text, as if the process had ended between.
fn reopen(pull: &Pull, orders: &Container) -> Pull {
    let bookmark: Bookmark = pull.bookmark().to_string().parse().expect("a bookmark");
    Pull::resume(orders, &bookmark).expect("resume").max_items(7)
}

fn assert_once(counts: &Counts, items: u64, versions: impl IntoIterator<Item = u64>) {
    let mut expected = Counts::new();
    for version in versions {
        expected.extend((0..items).map(|item| ((format!("o{item}"), version), 1)));
    }
    assert_eq!(*counts, expected);
}

#[tokio::test(start_paused = true)]
async fn a_container_is_read_once_and_then_only_what_is_new() {
    let shop = Shop::new(4).await;
    let mut counts = Counts::new();
    let mut pull = Pull::container(&shop.orders, StartFrom::Beginning).max_items(7);
    drain(&mut pull, &mut counts).await;
    assert!(counts.is_empty(), "an empty container gives an empty page");
    shop.write(0..200, 1).await;
    drain(&mut pull, &mut counts).await;
    assert_once(&counts, 200, [1]);
    shop.write(0..200, 2).await;
    drain(&mut pull, &mut counts).await;
    assert_once(&counts, 200, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_goes_on_exactly_where_it_was_made_across_split_and_merge() {
    let shop = Shop::new(2).await;
    let mut counts = Counts::new();
    let mut pull = Pull::container(&shop.orders, StartFrom::Beginning).max_items(7);
    shop.write(0..300, 1).await;
    for step in 0..60 {
        // One page, then a new process; layouts change on the way.
        let page = pull.next_page().await.expect("page");
        for order in page.parse::<Order>().expect("orders") {
            *counts.entry((order.id, order.version)).or_default() += 1;
        }
        match step {
            5 => shop.split(0).await,
            10 => shop.split(2).await,
            15 => shop.merge(0).await,
            20 => shop.merge(1).await,
            25 => shop.merge(0).await,
            _ => {}
        }
        pull = reopen(&pull, &shop.orders);
    }
    assert_eq!(shop.ranges().await.len(), 1);
    drain(&mut pull, &mut counts).await;
    assert_once(&counts, 300, [1]);
    shop.write(0..300, 2).await;
    drain(&mut reopen(&pull, &shop.orders), &mut counts).await;
    assert_once(&counts, 300, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_is_refused_by_a_store_that_was_replaced() {
    let (shop, replaced) = (Shop::new(2).await, Shop::new(2).await);
    assert_eq!(shop.orders.identity().container, replaced.orders.identity().container, "all else is equal");
    shop.write(0..10, 1).await;
    let mut pull = Pull::container(&shop.orders, StartFrom::Beginning);
    drain(&mut pull, &mut Counts::new()).await;
    replaced.write(0..50, 1).await;
    let text = pull.bookmark().to_string();
    let error = Pull::resume(&replaced.orders, &text.parse().expect("a bookmark")).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignContinuation);
    assert!(error.message().contains("restored or replaced"), "{error}");
    assert!(Pull::resume(&shop.orders, &text.parse().expect("a bookmark")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_of_the_version_before_still_resumes() {
    let shop = Shop::new(1).await;
    shop.write(0..20, 1).await;
    // In the form of version 1, after 12 changes: the first has LSN 2.
    let rid = shop.orders.identity().container;
    let json = format!(r#"{{"container":"{rid}","mode":"latest","ranges":[["-FF",{{"after":"\"13\""}}]]}}"#);
    let text = format!("cf1.{}", URL_SAFE_NO_PAD.encode(json));
    let mut pull = Pull::resume(&shop.orders, &text.parse().expect("a bookmark")).expect("resume");
    let mut counts = Counts::new();
    drain(&mut pull, &mut counts).await;
    assert_eq!(counts.len(), 8);
    assert!(pull.bookmark().to_string().starts_with("cf2."), "and knows its store from then on");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_open_follows_splits_and_merges() {
    let shop = Shop::new(1).await;
    let mut counts = Counts::new();
    let mut pull = Pull::container(&shop.orders, StartFrom::Now).max_items(7);
    shop.write(0..10, 0).await;
    drain(&mut pull, &mut counts).await;
    assert!(counts.is_empty(), "now is the moment of the first page");
    for version in 1..=6 {
        shop.write(0..100, version).await;
        let page = pull.next_page().await.expect("page");
        for order in page.parse::<Order>().expect("orders") {
            *counts.entry((order.id, order.version)).or_default() += 1;
        }
        match version {
            1..=3 => shop.split(0).await,
            _ => shop.merge(0).await,
        }
        drain(&mut pull, &mut counts).await;
    }
    assert_once(&counts, 100, 1..=6);
}

#[tokio::test(start_paused = true)]
async fn now_is_one_moment_for_all_ranges() {
    let shop = Shop::new(4).await;
    shop.write(0..50, 1).await;
    let mut pull = Pull::container(&shop.orders, StartFrom::Now);
    assert!(pull.next_page().await.expect("page").is_empty());
    shop.write(0..50, 2).await;
    let mut counts = Counts::new();
    drain(&mut pull, &mut counts).await;
    assert_once(&counts, 50, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_range_gives_its_own_keys_only_and_may_span_several_physical_ranges() {
    let shop = Shop::new(4).await;
    shop.write(0..200, 1).await;
    let ranges = shop.ranges().await;
    let middle = FeedRange::new(ranges[0].range.max_exclusive().clone(), ranges[3].range.min_inclusive().clone())
        .expect("the two in the middle");
    let mut counts = Counts::new();
    drain(&mut Pull::range(&shop.orders, middle.clone(), StartFrom::Beginning).max_items(7), &mut counts).await;
    let expected = (0..200).map(|item| order(item, 1)).filter(|order| shop::is_in(&shop.orders, order, &middle));
    let expected: Counts = expected.map(|order| ((order.id, 1), 1)).collect();
    assert!(!expected.is_empty() && expected.len() < 200);
    assert_eq!(counts, expected);
}

#[tokio::test(start_paused = true)]
async fn a_partition_key_gives_its_own_items_only_and_survives_splits() {
    let shop = Shop::new(1).await;
    shop.write(0..200, 1).await;
    let mut counts = Counts::new();
    let mut pull = Pull::partition_key(&shop.orders, "c7", StartFrom::Beginning).expect("key").max_items(2);
    drain(&mut pull, &mut counts).await;
    let expected: Counts = [7, 57, 107, 157].map(|item| ((format!("o{item}"), 1), 1)).into();
    assert_eq!(counts, expected);
    shop.split(0).await;
    shop.split(0).await;
    shop.write(0..10, 2).await;
    drain(&mut reopen(&pull, &shop.orders), &mut counts).await;
    assert_eq!(counts.len(), 5);
    let error = Pull::partition_key(&shop.orders, ("a", "b"), StartFrom::Now).expect_err("two values");
    assert_eq!(error.kind(), ErrorKind::WrongPartitionKey);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_of_another_container_or_mode_is_refused() {
    let shop = Shop::new(1).await;
    let bookmark = Pull::container(&shop.orders, StartFrom::Beginning).bookmark();
    let error = Pull::resume(&shop.rejected, &bookmark).expect_err("another container");
    assert_eq!(error.kind(), ErrorKind::ForeignContinuation);
    assert!(error.message().contains("pass the container that it was made with"), "{error}");
    let mut other = Pull::resume(&shop.orders, &bookmark).expect("resume").mode(Mode::AllVersions);
    let error = other.next_page().await.expect_err("another mode");
    assert_eq!(error.kind(), ErrorKind::BadContinuation);
    assert!(error.message().contains("was made in LatestVersion mode"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn all_versions_are_pulled_with_deletes() {
    let shop = Shop::with_history().await;
    let mut pull = Pull::container(&shop.orders, StartFrom::Now).mode(Mode::AllVersions);
    assert!(pull.next_page().await.expect("page").is_empty());
    shop.write(0..1, 1).await;
    shop.write(0..1, 2).await;
    shop.orders.delete("c0", "o0").await.expect("delete");
    let page = pull.next_page().await.expect("page");
    let operations: Vec<Operation> = page.changes.iter().map(|change| change.operation).collect();
    assert_eq!(operations, [Operation::Create, Operation::Replace, Operation::Delete]);
    assert_eq!(page.parse::<Order>().expect("orders").len(), 2, "a delete has no item");
}

#[tokio::test(start_paused = true)]
async fn one_sick_range_does_not_block_the_others() {
    let shop = Shop::new(2).await;
    shop.write(0..100, 1).await;
    let sick = shop.ranges().await[0].range.clone();
    let bad = sick.clone();
    let plan = move |call: &Call<'_>| match call {
        Call::ReadChanges(request) if bad.contains_range(&request.range) => Fault::Throttled,
        _ => Fault::None,
    };
    let orders = Container::new(Arc::new(Faulty::new(Arc::clone(shop.orders.backend()), plan)));
    let mut pull = Pull::container(&orders, StartFrom::Beginning).max_items(7);
    let (mut read, mut failures) = (0, 0);
    for _ in 0..60 {
        match pull.next_page().await {
            Ok(page) => read += page.changes.len(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Throttled);
                failures += 1;
            }
        }
    }
    let healthy = (0..100).filter(|item| !shop::is_in(&orders, &order(*item, 1), &sick)).count();
    assert_eq!(read, healthy);
    assert!(failures > 10);
    let mut counts = Counts::new();
    drain(&mut reopen(&pull, &shop.orders), &mut counts).await;
    assert_eq!(counts.len(), 100 - healthy, "the sick range lost nothing");
}

#[tokio::test(start_paused = true)]
async fn no_page_is_given_before_all_ranges_know_their_now() {
    let shop = Shop::new(2).await;
    let sick = shop.ranges().await[1].range.clone();
    let (bad, failures) = (sick.clone(), AtomicU32::new(2));
    let plan = move |call: &Call<'_>| match call {
        Call::ReadChanges(request) if bad.contains_range(&request.range) => {
            let left = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_ok() { Fault::Throttled } else { Fault::None }
        }
        _ => Fault::None,
    };
    let orders = Container::new(Arc::new(Faulty::new(Arc::clone(shop.orders.backend()), plan)));
    let mut pull = Pull::container(&orders, StartFrom::Now);
    // Something happens between the calls, so that the healthy range has news; then the first page comes.
    for version in 0.. {
        if pull.next_page().await.is_ok() {
            break;
        }
        assert!(version < 10, "the sick range got well long ago");
        shop.write(0..20, version).await;
    }
    shop.write(0..20, 100).await;
    let mut counts = Counts::new();
    for _ in 0..10 {
        if let Ok(page) = pull.next_page().await {
            let orders = page.parse::<Order>().expect("orders");
            counts.extend(orders.into_iter().map(|order| ((order.id, order.version), 1)));
        }
    }
    counts.retain(|(_, version), _| *version == 100);
    assert_once(&counts, 20, [100]);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_something_is_written() {
    let shop = Shop::new(2).await;
    let mut pull = Pull::container(&shop.orders, StartFrom::Now);
    pull.changed().await;
    assert!(pull.next_page().await.expect("page").is_empty());
    tokio::join!(pull.changed(), shop.write(0..1, 1));
    assert_eq!(pull.next_page().await.expect("page").changes.len(), 1);
}
