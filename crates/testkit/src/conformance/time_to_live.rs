//! Time to live: items that end by themselves.

use std::time::Duration;

use changefeed_core::{ContainerSpec, ErrorKind, Lsn, Operation, StartFrom, TimeToLive};

use super::{
    Fixture, all_versions,
    reader::versions,
    stage::{DATABASE, Stage, by_pk, refused},
};
use crate::fixtures::{item, item_number, mortal, number};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A container whose items live for 100 seconds, and that keeps all versions where the store can.
async fn mortals(fixture: &dyn Fixture) -> Stage<'_> {
    Stage::with(fixture, |spec| {
        spec.time_to_live = TimeToLive::Seconds(100);
        let keeps = fixture.capabilities().all_versions;
        spec.all_versions_retention = keeps.then_some(all_versions::RETENTION);
    })
    .await
}

async fn lives(stage: &Stage<'_>, id: &str) -> bool {
    match stage.try_get("a", id).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ItemNotFound, "{error:?}");
            false
        }
    }
}

pub(super) async fn an_expired_item_is_gone(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    stage.put("a", "x", 1).await;
    let mut reader = stage.reader(StartFrom::Beginning);
    fixture.advance(seconds(90)).await;
    assert!(lives(&stage, "x").await, "its time is not over");
    fixture.advance(seconds(20)).await;
    assert!(!lives(&stage, "x").await, "its time is over");
    assert_eq!(stage.list(Default::default()).await, []);
    assert!(reader.page().await.changes.is_empty(), "latest-version mode leaves expired items out");
    refused(stage.container.replace(&item("a", "x", 2)).await, ErrorKind::ItemNotFound);
    refused(stage.container.delete("a", "x").await, ErrorKind::ItemNotFound);
}

pub(super) async fn an_expired_item_can_be_created_again(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    stage.put("a", "x", 1).await;
    let rid = stage.get("a", "x").await.rid;
    let mut reader = stage.reader(StartFrom::Beginning);
    assert_eq!(versions(&reader.drain().await), ["x=1"]);
    fixture.advance(seconds(110)).await;
    assert!(stage.container.create(&item("a", "x", 2)).await.expect("create again").created);
    assert_ne!(stage.get("a", "x").await.rid, rid, "it is another item");
    assert_eq!(versions(&reader.drain().await), ["x=2"]);
    fixture.advance(seconds(90)).await;
    assert_eq!(item_number(&stage.get("a", "x").await), 2, "with a life of its own");
}

pub(super) async fn a_write_restarts_the_time_to_live(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    stage.put("a", "x", 1).await;
    for n in 2..5 {
        fixture.advance(seconds(60)).await;
        stage.container.replace(&item("a", "x", n)).await.expect("it still lives");
    }
    assert!(lives(&stage, "x").await);
    fixture.advance(seconds(110)).await;
    assert!(!lives(&stage, "x").await);
}

pub(super) async fn an_items_own_time_to_live_wins(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    stage.upsert(&mortal("a", "short", 1, 10)).await;
    stage.upsert(&mortal("a", "long", 1, 1000)).await;
    stage.upsert(&mortal("a", "unlimited", 1, -1)).await;
    stage.put("a", "default", 1).await;
    fixture.advance(seconds(20)).await;
    let alive = [lives(&stage, "short").await, lives(&stage, "default").await, lives(&stage, "long").await];
    assert_eq!(alive, [false, true, true]);
    fixture.advance(seconds(100)).await;
    let alive = [lives(&stage, "default").await, lives(&stage, "long").await, lives(&stage, "unlimited").await];
    assert_eq!(alive, [false, true, true]);
    fixture.advance(seconds(5000)).await;
    assert_eq!([lives(&stage, "long").await, lives(&stage, "unlimited").await], [false, true]);
}

pub(super) async fn a_new_version_may_live_longer_or_shorter(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    stage.upsert(&mortal("a", "saved", 1, 10)).await;
    stage.upsert(&mortal("a", "saved", 2, -1)).await;
    stage.upsert(&mortal("a", "doomed", 1, -1)).await;
    stage.upsert(&mortal("a", "doomed", 2, 10)).await;
    fixture.advance(seconds(500)).await;
    assert_eq!([lives(&stage, "saved").await, lives(&stage, "doomed").await], [true, false]);
}

pub(super) async fn without_time_to_live_a_ttl_is_just_a_member(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.upsert(&mortal("a", "x", 1, 10)).await;
    fixture.advance(seconds(100_000)).await;
    let stored = stage.get("a", "x").await;
    assert_eq!(crate::fixtures::user_members(&stored.body), mortal("a", "x", 1, 10));
}

pub(super) async fn items_only_lets_expire_those_that_ask_for_it(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.time_to_live = TimeToLive::ItemsOnly).await;
    stage.upsert(&mortal("a", "mortal", 1, 10)).await;
    stage.upsert(&mortal("a", "unlimited", 1, -1)).await;
    stage.put("a", "default", 1).await;
    fixture.advance(seconds(100_000)).await;
    let alive = [lives(&stage, "mortal").await, lives(&stage, "unlimited").await, lives(&stage, "default").await];
    assert_eq!(alive, [false, true, true]);
}

pub(super) async fn all_versions_mode_shows_an_expiry_as_such(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    let mut reader = all_versions::reader(&stage).await.max_items(1);
    let written = stage.put("a", "x", 7).await;
    stage.upsert(&mortal("a", "y", 1, -1)).await;
    fixture.advance(seconds(110)).await;
    let changes = reader.drain().await;
    let operations: Vec<_> = changes.iter().map(|change| (change.operation, change.id.as_str())).collect();
    assert_eq!(operations, [(Operation::Create, "x"), (Operation::Create, "y"), (Operation::Expire, "x")]);
    let expiry = &changes[2];
    assert_eq!(expiry.previous.as_deref().map(number), Some(7), "with the previous image");
    assert_eq!(expiry.previous_lsn, Some(written.lsn));
    assert!(expiry.lsn > changes[1].lsn, "an expiry is a change like others");
}

pub(super) async fn each_item_expires_exactly_once(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    let mut reader = all_versions::reader(&stage).await;
    for n in 0..10 {
        stage.upsert(&mortal("a", &format!("x{n}"), n, 10 + 10 * (n as i64 % 3))).await;
    }
    let mut expired = Vec::new();
    let mut last = Lsn::ZERO;
    for _ in 0..6 {
        fixture.advance(seconds(11)).await;
        for change in reader.drain().await {
            assert!(change.lsn > last);
            last = change.lsn;
            if change.operation == Operation::Expire {
                expired.push(change.id.to_string());
            }
        }
    }
    expired.sort();
    assert_eq!(expired, (0..10).map(|n| format!("x{n}")).collect::<Vec<_>>());
}

pub(super) async fn a_deleted_item_does_not_expire(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    let mut reader = all_versions::reader(&stage).await;
    stage.put("a", "x", 1).await;
    stage.remove("a", "x").await;
    fixture.advance(seconds(500)).await;
    let operations: Vec<_> = reader.drain().await.iter().map(|change| change.operation).collect();
    assert_eq!(operations, [Operation::Create, Operation::Delete]);
}

pub(super) async fn items_expire_in_the_children_of_a_split(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    for key in super::stage::many_keys(8) {
        stage.put(&key, &key, 1).await;
    }
    let parent = stage.ranges().await.swap_remove(0);
    stage.split(&parent, None).await;
    fixture.advance(seconds(110)).await;
    assert_eq!(stage.list(Default::default()).await, []);
    for physical in stage.ranges().await {
        assert!(stage.reader_of(&physical.range, StartFrom::Beginning).page().await.changes.is_empty());
    }
}

pub(super) async fn the_time_to_live_is_read_as_last_set(fixture: &dyn Fixture) {
    let stage = mortals(fixture).await;
    let mut spec = ContainerSpec::new("items", by_pk());
    let other = Stage::named(fixture, "others", |_| {}).await;
    for time_to_live in [TimeToLive::Seconds(100), TimeToLive::ItemsOnly, TimeToLive::Seconds(7), TimeToLive::Off] {
        if time_to_live != TimeToLive::Seconds(100) {
            spec.time_to_live = time_to_live;
            stage.catalog.replace_container(DATABASE, spec.clone()).await.expect("replace");
        }
        assert_eq!(stage.container.time_to_live().await.expect("read"), time_to_live);
        assert_eq!(other.container.time_to_live().await.expect("read"), TimeToLive::Off, "of this container");
    }
}

pub(super) async fn a_store_without_time_to_live_says_so(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    assert_eq!(stage.container.time_to_live().await.expect("read"), TimeToLive::Off);
    for time_to_live in [TimeToLive::ItemsOnly, TimeToLive::Seconds(10)] {
        let spec = ContainerSpec { time_to_live, ..ContainerSpec::new("mortals", by_pk()) };
        refused(stage.catalog.create_container(DATABASE, spec).await, ErrorKind::Unsupported);
    }
}
