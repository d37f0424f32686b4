//! Retention: how far all-versions mode looks back.

use std::time::Duration;

use changefeed_core::{ContainerSpec, ErrorKind, Mode, StartFrom};

use super::{
    Fixture,
    all_versions::{RETENTION, reader, stage},
    reader::versions,
    stage::{DATABASE, Stage, by_pk},
};

/// Well within retention.
const HALF: Duration = Duration::from_secs(RETENTION.as_secs() / 2);
/// Well beyond it.
const TWICE: Duration = Duration::from_secs(RETENTION.as_secs() * 2);

pub(super) async fn a_continuation_after_which_something_left_retention_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut old = reader(&stage).await;
    stage.put("a", "x", 1).await;
    let mut middle = reader(&stage).await;
    stage.put("a", "x", 2).await;
    fixture.advance(TWICE).await;
    old.refused(ErrorKind::ContinuationExpired).await;
    middle.refused(ErrorKind::ContinuationExpired).await;
    stage.put("a", "x", 3).await;
    old.refused(ErrorKind::ContinuationExpired).await;
    middle.refused(ErrorKind::ContinuationExpired).await;
}

pub(super) async fn a_continuation_after_which_nothing_left_retention_is_served(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut empty = reader(&stage).await;
    fixture.advance(TWICE).await;
    assert!(empty.page().await.changes.is_empty(), "nothing was written, so nothing is lost");
    stage.put("a", "x", 1).await;
    let mut after = reader(&stage).await;
    assert_eq!(versions(&empty.drain().await), ["x=1"]);
    fixture.advance(TWICE).await;
    assert!(after.page().await.changes.is_empty(), "it stands after what has left");
    stage.put("a", "x", 2).await;
    assert_eq!(versions(&after.drain().await), ["x=2"]);
}

pub(super) async fn changes_within_retention_are_served(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut reader = reader(&stage).await;
    stage.put("a", "x", 1).await;
    stage.put("a", "x", 2).await;
    fixture.advance(HALF).await;
    stage.put("a", "x", 3).await;
    assert_eq!(versions(&reader.clone().drain().await), ["x=1", "x=2", "x=3"]);
    let first = reader.max_items(2);
    reader = first;
    assert_eq!(reader.page().await.changes.len(), 2);
    fixture.advance(HALF + HALF / 2).await;
    assert_eq!(versions(&reader.drain().await), ["x=3"], "only what it has read has left");
}

pub(super) async fn a_reader_that_keeps_reading_never_expires(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut idle = stage.reader_of(&stage.range_of_key("nobody"), StartFrom::Now).all_versions();
    let mut busy = reader(&stage).await;
    for n in 0..6 {
        stage.put("a", "x", n).await;
        fixture.advance(HALF).await;
        assert!(idle.page().await.changes.is_empty(), "its empty pages advance with the writes of others");
        assert_eq!(versions(&busy.drain().await), [format!("x={n}")]);
    }
}

pub(super) async fn latest_version_mode_knows_no_retention(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut reader = stage.reader(StartFrom::Beginning);
    reader.page().await;
    stage.put("a", "x", 1).await;
    stage.put("a", "y", 1).await;
    stage.put("a", "x", 2).await;
    fixture.advance(TWICE).await;
    assert_eq!(versions(&reader.drain().await), ["y=1", "x=2"]);
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["y=1", "x=2"]);
}

pub(super) async fn a_previous_image_outlives_the_version_it_shows(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    stage.put("a", "x", 1).await;
    fixture.advance(TWICE).await;
    let mut reader = reader(&stage).await;
    stage.put("a", "x", 2).await;
    stage.remove("a", "x").await;
    let changes = reader.drain().await;
    let previous = changes[0].previous.as_deref().map(crate::fixtures::number);
    assert_eq!(previous, Some(1), "the item was still there when it was replaced");
}

pub(super) async fn retention_can_be_turned_on_and_off(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let spec = |retention| ContainerSpec { all_versions_retention: retention, ..ContainerSpec::new("items", by_pk()) };
    let now = || stage.reader(StartFrom::Now).mode(Mode::AllVersions);
    now().refused(ErrorKind::Unsupported).await;
    stage.catalog.replace_container(DATABASE, spec(Some(RETENTION))).await.expect("turn it on");
    let mut reader = reader(&stage).await;
    stage.put("a", "x", 2).await;
    stage.put("a", "x", 3).await;
    assert_eq!(versions(&reader.drain().await), ["x=2", "x=3"]);
    stage.catalog.replace_container(DATABASE, spec(None)).await.expect("turn it off");
    now().refused(ErrorKind::Unsupported).await;
    reader.refused(ErrorKind::Unsupported).await;
}

pub(super) async fn a_split_does_not_change_what_has_left_retention(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let expired = reader(&stage).await;
    stage.put("a", "x", 1).await;
    fixture.advance(TWICE).await;
    let fresh = reader(&stage).await;
    stage.put("a", "x", 2).await;
    let parent = stage.ranges().await.swap_remove(0);
    let mut seen = Vec::new();
    for child in stage.split(&parent, None).await {
        if child.range.contains(&stage.epk("a")) {
            expired.in_range(&child.range).refused(ErrorKind::ContinuationExpired).await;
        }
        seen.extend(versions(&fresh.in_range(&child.range).drain().await));
    }
    assert_eq!(seen, ["x=2"]);
}
