//! Etags: a version per write, and writes that insist on one.

use std::collections::BTreeSet;

use changefeed_core::{ETag, ErrorKind, Write, WriteResult};

use super::{
    Fixture,
    stage::{Stage, refused},
};
use crate::fixtures::{body, item, item_number, replace_if};

fn etag(written: &WriteResult) -> ETag {
    written.etag.clone().expect("a write returns the new etag")
}

/// An etag that has the right form but was never given out.
fn unknown_etag() -> ETag {
    ETag::new("\"00000000-dead-beef-0000-000000000000\"").expect("a well-formed etag")
}

pub(super) async fn every_write_gives_an_etag_that_never_comes_back(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut seen = BTreeSet::new();
    for round in 0..5 {
        assert!(seen.insert(etag(&stage.container.create(&item("a", "x", round)).await.expect("create"))));
        assert!(seen.insert(etag(&stage.container.replace(&item("a", "x", round)).await.expect("replace"))));
        assert!(seen.insert(etag(&stage.put("a", "x", round).await)), "the same body again is a new version");
        stage.remove("a", "x").await;
    }
}

pub(super) async fn an_item_has_the_etag_of_its_last_write(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for n in 0..3 {
        let written = stage.put("a", "x", n).await;
        assert_eq!(stage.get("a", "x").await.etag, etag(&written));
        assert_eq!(stage.list(Default::default()).await[0].etag, etag(&written));
    }
}

pub(super) async fn a_write_with_the_current_etag_succeeds(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let first = etag(&stage.put("a", "x", 1).await);
    let second = etag(&stage.container.replace_if(&item("a", "x", 2), &first).await.expect("replace"));
    let upsert = Write::Upsert { body: body(&item("a", "x", 3)), if_match: Some(second) };
    let third = etag(&stage.try_write(None, upsert).await.expect("upsert")[0]);
    assert_eq!(item_number(&stage.get("a", "x").await), 3);
    stage.container.delete_if("a", "x", &third).await.expect("delete");
    refused(stage.try_get("a", "x").await, ErrorKind::ItemNotFound);
}

pub(super) async fn a_write_with_another_etag_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let old = etag(&stage.put("a", "x", 1).await);
    stage.put("a", "x", 2).await;
    let other = etag(&stage.put("a", "y", 1).await);
    let before = stage.snapshot().await;
    for wrong in [old, other, unknown_etag()] {
        let replaced = stage.container.replace_if(&item("a", "x", 3), &wrong).await;
        refused(replaced, ErrorKind::PreconditionFailed);
        let upsert = Write::Upsert { body: body(&item("a", "x", 3)), if_match: Some(wrong.clone()) };
        refused(stage.try_write(None, upsert).await, ErrorKind::PreconditionFailed);
        refused(stage.container.delete_if("a", "x", &wrong).await, ErrorKind::PreconditionFailed);
        stage.unchanged_since(&before, "a write with another etag").await;
    }
}

pub(super) async fn an_upsert_with_an_etag_creates_a_missing_item(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let upsert = Write::Upsert { body: body(&item("a", "x", 1)), if_match: Some(unknown_etag()) };
    let written = stage.try_write(None, upsert).await.expect("there is nothing that the etag could not match");
    assert!(written[0].created);
}

pub(super) async fn an_etag_does_not_make_a_missing_item_appear(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let old = etag(&stage.put("a", "x", 1).await);
    stage.remove("a", "x").await;
    let before = stage.snapshot().await;
    refused(stage.container.replace_if(&item("a", "x", 2), &old).await, ErrorKind::ItemNotFound);
    refused(stage.container.delete_if("a", "x", &old).await, ErrorKind::ItemNotFound);
    stage.unchanged_since(&before, "a write to a missing item").await;
}

pub(super) async fn the_etag_of_a_deleted_item_does_not_fit_its_successor(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let old = etag(&stage.put("a", "x", 1).await);
    stage.remove("a", "x").await;
    stage.put("a", "x", 1).await;
    refused(stage.container.replace_if(&item("a", "x", 2), &old).await, ErrorKind::PreconditionFailed);
    refused(stage.container.delete_if("a", "x", &old).await, ErrorKind::PreconditionFailed);
    assert_eq!(item_number(&stage.get("a", "x").await), 1);
}

pub(super) async fn an_etag_in_a_batch_is_compared_with_what_the_batch_wrote(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let old = etag(&stage.put("a", "x", 1).await);
    let before = stage.snapshot().await;
    let writes = vec![replace_if(&item("a", "x", 2), &old), replace_if(&item("a", "x", 3), &old)];
    let error = refused(stage.try_batch("a", writes).await, ErrorKind::PreconditionFailed);
    assert_eq!(error.operation(), Some(1));
    stage.unchanged_since(&before, "a refused batch").await;
}
