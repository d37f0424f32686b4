//! What calls cost.

use changefeed_core::{Batch, FeedRange, ItemKey, ListItems, ReadChanges, StartFrom};

use super::{Fixture, stage::Stage};
use crate::fixtures::{create, id, item, upsert};

/// The charge of each kind of call, with its name.
async fn charges(stage: &Stage<'_>) -> Vec<(&'static str, f64)> {
    let backend = stage.backend();
    let write = backend.write(Batch::single(None, upsert(&item("a", "x", 1)))).await.expect("write");
    let ranges = backend.feed_ranges().await.expect("read the feed ranges");
    let read = backend.read_item(&ItemKey::new("a", id("x"))).await.expect("read");
    let list = backend.list_items(ListItems::default()).await.expect("list");
    let changes = |start| backend.read_changes(ReadChanges::new(FeedRange::full(), start));
    let page = changes(StartFrom::Beginning).await.expect("read changes");
    let empty = changes(StartFrom::Now).await.expect("read changes");
    assert_eq!((page.changes.len(), empty.changes.len()), (1, 0));
    vec![
        ("write", write.request_charge),
        ("feed_ranges", ranges.request_charge),
        ("read_item", read.request_charge),
        ("list_items", list.request_charge),
        ("read_changes", page.request_charge),
        ("read_changes without news", empty.request_charge),
    ]
}

pub(super) async fn every_response_carries_its_request_charge(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for (call, charge) in charges(&stage).await {
        assert!(charge.is_finite() && charge > 0.0, "{call} costs {charge} RU");
    }
}

pub(super) async fn a_refused_call_carries_its_request_charge(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let conflict = stage.try_write(Some("a"), create(&item("a", "x", 2))).await.expect_err("it exists");
    let missing = stage.try_get("a", "y").await.expect_err("it does not exist");
    for error in [conflict, missing] {
        let charge = error.request_charge();
        assert!(charge.is_finite() && charge > 0.0, "{error:?}");
    }
}

pub(super) async fn a_store_that_does_not_charge_says_zero(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for (call, charge) in charges(&stage).await {
        assert_eq!(charge, 0.0, "{call}");
    }
}
