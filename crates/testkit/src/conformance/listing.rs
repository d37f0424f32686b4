//! Listings: all items of a container, page by page.

use std::sync::Arc;

use changefeed_core::{Backend, FeedRange, Item, ListItems, Lsn};

use super::{
    Feature, Fixture,
    stage::{Stage, many_keys},
};
use crate::fixtures::item_number;

/// More pages than any case has: a listing that gets here does not advance.
const MAX_PAGES: usize = 20_000;

/// Follows a listing to its end.
pub(super) async fn all_pages(backend: &Arc<dyn Backend>, mut request: ListItems) -> Vec<Item> {
    let mut items = Vec::new();
    for _ in 0..MAX_PAGES {
        let page = backend.list_items(request.clone()).await.expect("list a page of items").into_value();
        assert!(page.items.len() <= request.max_items, "a page of a listing holds at most what was asked for");
        items.extend(page.items);
        match page.next {
            Some(next) => request.after = Some(next),
            None => return items,
        }
    }
    panic!("{MAX_PAGES} pages and no end: the listing does not advance");
}

pub(super) async fn a_full_listing_returns_every_item_exactly_once(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for (n, key) in many_keys(25).iter().enumerate() {
        stage.put(key, &format!("item-{}", n % 3), n as u64).await;
    }
    for max_items in [1, 2, 7, 25, 1000] {
        let items = stage.list(ListItems { max_items, ..ListItems::default() }).await;
        let mut numbers: Vec<_> = items.iter().map(item_number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..25).collect::<Vec<_>>(), "with {max_items} a page");
    }
}

pub(super) async fn a_listing_keeps_its_order_from_page_size_to_page_size(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for key in many_keys(20) {
        stage.put(&key, "same id", 1).await;
        stage.put(&key, "another id", 1).await;
    }
    let whole = stage.list(ListItems::default()).await;
    for max_items in [1, 3, 40] {
        assert_eq!(stage.list(ListItems { max_items, ..ListItems::default() }).await, whole);
    }
}

pub(super) async fn a_listing_shows_items_as_a_read_does(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for (n, key) in many_keys(10).iter().enumerate() {
        stage.put(key, key, n as u64).await;
    }
    stage.remove("key-3", "key-3").await;
    stage.put("key-4", "key-4", 44).await;
    let items = stage.list(ListItems::default()).await;
    assert_eq!(items.len(), 9, "deleted items are not listed");
    for mut item in items {
        let read = stage.get(&item.id, &item.id).await;
        if !Feature::ListedLsns.is_offered_by(fixture) {
            assert_eq!(item.lsn, Lsn::ZERO, "what is not known is not made up");
            item.lsn = read.lsn;
        }
        assert_eq!(item, read);
    }
}

pub(super) async fn a_listing_by_prefix_returns_only_ids_that_begin_with_it(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let ids =
        ["lease", "lease.", "lease..1", "lease..2", "Lease..3", "x lease..4", "leas", "lease%", "léase", "lease_1"];
    for (n, id) in ids.iter().enumerate() {
        stage.put(if n % 2 == 0 { "a" } else { "b" }, id, 1).await;
    }
    for prefix in ["", "lease", "lease.", "lease..", "lease..1", "lease%", "lé", "nothing", "lease_", "\u{10FFFF}"] {
        let mut expected: Vec<_> = ids.iter().copied().filter(|id| id.starts_with(prefix)).collect();
        expected.sort_unstable();
        for max_items in [1, 2, 1000] {
            let request = ListItems { id_prefix: prefix.to_owned(), max_items, ..ListItems::default() };
            let items = stage.list(request).await;
            let mut found: Vec<_> = items.iter().map(|item| item.id.as_str()).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "prefix {prefix:?}, {max_items} a page");
        }
    }
}

pub(super) async fn a_listing_of_a_range_may_span_physical_ranges(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    let keys = many_keys(30);
    for key in &keys {
        stage.put(key, key, 1).await;
    }
    let ranges = stage.ranges().await;
    let (low, high) = (ranges[0].range.min_inclusive().clone(), ranges[1].range.max_exclusive().clone());
    let range = FeedRange::new(low, high).expect("two neighbours make a range");
    let mut expected: Vec<_> = keys.iter().filter(|key| range.contains(&stage.epk(key))).collect();
    expected.sort_unstable();
    for max_items in [1, 4, 1000] {
        let items = stage.list(ListItems { range: range.clone(), max_items, ..ListItems::default() }).await;
        let mut found: Vec<_> = items.iter().map(|item| item.id.to_string()).collect();
        found.sort_unstable();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
}

pub(super) async fn a_listing_returns_what_stays_while_other_items_come_and_go(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let keys = many_keys(20);
    for key in &keys {
        stage.put(key, "stays", 1).await;
        stage.put(key, "goes", 1).await;
    }
    let mut request = ListItems { max_items: 3, ..ListItems::default() };
    let mut stayed = 0;
    for round in 0.. {
        let page = stage.backend().list_items(request.clone()).await.expect("list a page of items").into_value();
        stayed += page.items.iter().filter(|item| item.id.as_str() == "stays").count();
        if let Some(key) = keys.get(round) {
            stage.remove(key, "goes").await;
            stage.put(key, "comes", 1).await;
            stage.put(key, "stays", 2).await;
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    assert_eq!(stayed, keys.len(), "every item that was there all the time is listed exactly once");
}

pub(super) async fn a_listing_goes_on_after_any_item_also_when_it_is_gone(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for key in &many_keys(6) {
        stage.put(key, "x", 1).await;
        stage.put(key, "y", 1).await;
    }
    let whole = stage.list(ListItems::default()).await;
    let page = stage
        .backend()
        .list_items(ListItems { cursors: true, ..ListItems::default() })
        .await
        .expect("a listing")
        .into_value();
    assert_eq!(page.cursors.len(), whole.len(), "one cursor for each item");
    for (index, cursor) in page.cursors.iter().enumerate() {
        let rest = ListItems { after: Some(cursor.clone()), max_items: 2, ..ListItems::default() };
        assert_eq!(stage.list(rest).await, whole[index + 1..], "after item {index}");
    }
    for key in &many_keys(6) {
        stage.remove(key, "x").await;
    }
    let left = stage.list(ListItems::default()).await;
    for (index, cursor) in page.cursors.iter().enumerate() {
        let rest = stage.list(ListItems { after: Some(cursor.clone()), ..ListItems::default() }).await;
        let expected: Vec<_> = whole[index + 1..].iter().filter(|item| left.contains(item)).cloned().collect();
        assert_eq!(rest, expected, "after item {index}, which may be gone");
    }
    let plain = stage.backend().list_items(ListItems::default()).await.expect("a listing").into_value();
    assert!(plain.cursors.is_empty(), "cursors come only when asked for");
}

pub(super) async fn an_empty_container_lists_nothing(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    assert_eq!(stage.list(ListItems::default()).await, []);
}
