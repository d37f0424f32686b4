//! All-versions mode: every version and every delete, with the previous image.

use std::{collections::BTreeMap, time::Duration};

use changefeed_core::{ErrorKind, ListItems, Mode, Operation, StartFrom, Timestamp};

use super::{
    Fixture,
    reader::{Reader, briefs},
    stage::{DATABASE, Stage, refused},
};
use crate::fixtures::{item, number, object, user_members};

/// How far back the containers of these cases look.
pub(super) const RETENTION: Duration = Duration::from_secs(3600);

/// A container with all-versions mode.
pub(super) async fn stage(fixture: &dyn Fixture) -> Stage<'_> {
    Stage::with(fixture, |spec| spec.all_versions_retention = Some(RETENTION)).await
}

/// A reader of all versions of the whole container, one range, from now on.
pub(super) async fn reader(stage: &Stage<'_>) -> Reader {
    let mut reader = stage.reader(StartFrom::Now).all_versions();
    assert!(reader.page().await.changes.is_empty(), "now is after the newest change");
    reader
}

pub(super) async fn all_versions_mode_gives_every_version_and_delete_with_the_previous_image(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut reader = reader(&stage).await;
    let first = stage.container.create(&item("a", "x", 1)).await.expect("create");
    let second = stage.container.replace(&item("a", "x", 2)).await.expect("replace");
    let third = stage.put("a", "x", 3).await;
    stage.remove("a", "x").await;
    let fifth = stage.put("a", "x", 5).await;
    for max_items in [1, 2, 1000] {
        let changes = reader.clone().max_items(max_items).drain().await;
        let operations: Vec<_> = changes.iter().map(|change| change.operation).collect();
        use Operation::{Create, Delete, Replace};
        assert_eq!(operations, [Create, Replace, Replace, Delete, Create], "upserts show as what they did");
        let current: Vec<_> = changes.iter().map(|change| change.current.as_deref().map(number)).collect();
        assert_eq!(current, [Some(1), Some(2), Some(3), None, Some(5)]);
        let previous: Vec<_> = changes.iter().map(|change| change.previous.as_deref().map(number)).collect();
        assert_eq!(previous, [None, Some(1), Some(2), Some(3), None]);
        let lsns: Vec<_> = changes.iter().map(|change| change.previous_lsn).collect();
        assert_eq!(lsns, [None, Some(first.lsn), Some(second.lsn), Some(third.lsn), None]);
        assert_eq!((changes[0].lsn, changes[2].lsn, changes[4].lsn), (first.lsn, third.lsn, fifth.lsn));
    }
    assert_eq!(reader.drain().await.len(), 5);
}

pub(super) async fn a_previous_image_is_the_whole_item_as_it_was(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut reader = reader(&stage).await;
    let rich = serde_json::json!({"id": "x", "pk": "a", "n": 1, "deep": {"list": [1, null, "é"]}});
    let first = stage.upsert(&rich).await;
    stage.put("a", "x", 2).await;
    stage.remove("a", "x").await;
    let changes = reader.drain().await;
    let previous = changes[1].previous.as_deref().expect("the previous image");
    assert_eq!(user_members(previous), rich);
    assert_eq!(object(previous).get("_etag"), first.etag.map(|etag| etag.as_str().into()).as_ref());
    assert_eq!(user_members(changes[2].previous.as_deref().expect("the previous image")), item("a", "x", 2));
}

pub(super) async fn all_versions_mode_starts_at_now_or_at_a_continuation_only(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    stage.put("a", "x", 1).await;
    for start in [StartFrom::Beginning, StartFrom::Time(Timestamp::from_secs(1))] {
        stage.reader(start).all_versions().refused(ErrorKind::InvalidArgument).await;
    }
    let mut reader = reader(&stage).await;
    stage.put("a", "x", 2).await;
    assert_eq!(reader.drain().await.len(), 1);
}

pub(super) async fn a_container_without_retention_refuses_all_versions_mode(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    stage.reader(StartFrom::Now).all_versions().refused(ErrorKind::Unsupported).await;
    let mut reader = stage.reader(StartFrom::Now);
    reader.page().await;
    reader.all_versions().refused(ErrorKind::Unsupported).await;
    stage.unchanged_since(&before, "a refused mode").await;
}

pub(super) async fn a_store_without_all_versions_mode_says_so(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.reader(StartFrom::Now).all_versions().refused(ErrorKind::Unsupported).await;
    let mut spec = changefeed_core::ContainerSpec::new("versions", super::stage::by_pk());
    spec.all_versions_retention = Some(RETENTION);
    refused(stage.catalog.create_container(DATABASE, spec).await, ErrorKind::Unsupported);
}

pub(super) async fn all_versions_of_a_sub_range_are_those_of_its_keys(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut reader = stage.reader_of(&stage.range_of_key("a"), StartFrom::Now).all_versions().max_items(2);
    assert!(reader.page().await.changes.is_empty());
    for n in 0..5 {
        stage.put("b", "x", n).await;
        stage.put("a", "x", n + 10).await;
        stage.put("c", "x", n).await;
    }
    stage.remove("b", "x").await;
    stage.remove("a", "x").await;
    let numbers: Vec<_> = reader.drain().await.iter().map(|change| change.current.as_deref().map(number)).collect();
    assert_eq!(numbers, [Some(10), Some(11), Some(12), Some(13), Some(14), None]);
}

pub(super) async fn replaying_all_versions_gives_the_items(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut reader = reader(&stage).await.max_items(7);
    for n in 0..80_u64 {
        let id = format!("x{}", n * 7 % 9);
        match n % 4 {
            3 => drop(stage.container.delete("a", &id).await),
            _ => drop(stage.put("a", &id, n).await),
        }
    }
    let mut replayed = BTreeMap::new();
    for change in reader.drain().await {
        let was = replayed.get(change.id.as_str()).copied();
        assert_eq!(change.previous.as_deref().map(number), was, "each previous image is what the change before left");
        match &change.current {
            Some(current) => drop(replayed.insert(change.id.to_string(), number(current))),
            None => drop(replayed.remove(change.id.as_str())),
        }
    }
    let items = stage.list(ListItems::default()).await;
    let listed: BTreeMap<_, _> = items.iter().map(|item| (item.id.to_string(), number(&item.body))).collect();
    assert_eq!(replayed, listed);
}

pub(super) async fn both_modes_read_side_by_side(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let mut all = reader(&stage).await;
    let mut latest = stage.reader(StartFrom::Beginning).mode(Mode::LatestVersion);
    for n in 0..3 {
        stage.put("a", "x", n).await;
    }
    assert_eq!(all.drain().await.len(), 3);
    assert_eq!(latest.drain().await.len(), 1);
    stage.remove("a", "x").await;
    assert_eq!(all.drain().await.len(), 1);
    assert_eq!(briefs(&latest.drain().await), [""; 0]);
}
