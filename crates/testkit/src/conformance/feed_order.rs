//! The order of the feed, and what a change carries.

use std::collections::BTreeMap;

use changefeed_core::{Lsn, StartFrom};

use super::{
    Fixture,
    reader::{ids, versions},
    stage::{Stage, many_keys},
};
use crate::fixtures::{create, item, object, user_members};

pub(super) async fn lsns_ascend_per_partition_key(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut last = BTreeMap::new();
    for n in 0..24 {
        let key = ["a", "b", "c"][n as usize % 3];
        let written = match n / 3 % 4 {
            0 => stage.container.create(&item(key, "x", n)).await.expect("create"),
            1 => stage.put(key, "y", n).await,
            2 => stage.batch(key, vec![create(&item(key, &format!("z{n}"), n))]).await.swap_remove(0),
            _ => {
                stage.remove(key, "x").await;
                continue;
            }
        };
        let before = last.insert(key, written.lsn).unwrap_or(Lsn::ZERO);
        assert!(written.lsn > before, "{} comes after {before} under {key}", written.lsn);
    }
}

pub(super) async fn changes_of_a_partition_key_come_in_lsn_order(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut expected: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for n in 0..40 {
        // Neither in key order nor in id order.
        let (key, id) = (format!("key-{}", n * 7 % 10), format!("id-{}", n * 13 % 40));
        let lsn = stage.put(&key, &id, n).await.lsn;
        expected.entry(key).or_default().push((id, lsn));
    }
    for max_items in [1, 7, 1000] {
        let changes = stage.reader(StartFrom::Beginning).max_items(max_items).drain().await;
        let mut seen: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for change in &changes {
            let body = object(change.current.as_deref().expect("the change carries the item"));
            let key = body.get("pk").and_then(serde_json::Value::as_str).expect("its partition key").to_owned();
            seen.entry(key).or_default().push((change.id.to_string(), change.lsn));
        }
        assert_eq!(seen, expected, "with {max_items} a page");
    }
}

pub(super) async fn changes_of_an_item_come_in_lsn_order(fixture: &dyn Fixture) {
    let stage = super::all_versions::stage(fixture).await;
    let mut reader = super::all_versions::reader(&stage).await.max_items(3);
    let keys = many_keys(4);
    let mut expected = BTreeMap::new();
    for n in 0..6 {
        for key in &keys {
            let lsn = stage.put(key, key, n).await.lsn;
            expected.entry(key.clone()).or_insert_with(Vec::new).push(lsn);
        }
    }
    let mut seen = BTreeMap::new();
    for change in reader.drain().await {
        seen.entry(change.id.to_string()).or_insert_with(Vec::new).push(change.lsn);
    }
    assert_eq!(seen, expected);
}

pub(super) async fn changes_of_a_key_come_in_the_order_of_their_writes(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    let keys = many_keys(12);
    for n in 0..5 {
        for key in &keys {
            stage.put(key, &format!("{key}/{n}").replace('/', "-"), n).await;
        }
    }
    let mut seen = Vec::new();
    for physical in stage.ranges().await {
        seen.extend(stage.reader_of(&physical.range, StartFrom::Beginning).max_items(2).drain().await);
    }
    assert_eq!(seen.len(), 60);
    for key in &keys {
        let of_key = versions(&seen).into_iter().filter(|one| one.starts_with(&format!("{key}-"))).collect::<Vec<_>>();
        let expected: Vec<_> = (0..5).map(|n| format!("{key}-{n}={n}")).collect();
        assert_eq!(of_key, expected);
    }
}

pub(super) async fn a_change_carries_the_item_and_its_lsn(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let written = stage.put("a", "x", 7).await;
    let stored = stage.get("a", "x").await;
    let changes = stage.reader(StartFrom::Beginning).drain().await;
    let change = changes.first().expect("there is a change");
    assert_eq!((&change.id, change.lsn, change.timestamp), (&written.id, written.lsn, written.timestamp));
    let current = change.current.as_deref().expect("the change carries the item");
    assert_eq!(user_members(current), item("a", "x", 7));
    let mut expected = object(&stored.body);
    expected.insert("_lsn".to_owned(), written.lsn.get().into());
    assert_eq!(object(current), expected, "the item as it is read, and its LSN");
}

pub(super) async fn two_containers_count_lsns_of_their_own(fixture: &dyn Fixture) {
    let one = Stage::named(fixture, "one", |_| {}).await;
    let two = Stage::named(fixture, "two", |_| {}).await;
    assert_ne!(one.rid(), two.rid());
    one.put("a", "x", 1).await;
    let before = one.snapshot().await;
    for n in 0..10 {
        two.put("a", "x", n).await;
        two.put("a", "y", n).await;
    }
    one.unchanged_since(&before, "a write to another container").await;
    assert_eq!(ids(&one.reader(StartFrom::Beginning).drain().await), ["x"]);
    assert_eq!(ids(&two.reader(StartFrom::Beginning).drain().await), ["x", "y"]);
}

pub(super) async fn the_newest_lsn_is_that_of_the_newest_commit_of_the_range(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 2).await;
    let ranges = stage.ranges().await;
    for key in many_keys(8) {
        let written = stage.put(&key, "x", 1).await;
        let own = ranges.iter().find(|physical| physical.range.contains(&stage.epk(&key))).expect("the key's range");
        for start in [StartFrom::Beginning, StartFrom::Now] {
            let page = stage.reader_of(&own.range, start).max_items(1).page().await;
            assert_eq!(page.newest_lsn, written.lsn);
        }
    }
}

pub(super) async fn a_page_names_the_physical_range_that_answered(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    stage.put("a", "x", 1).await;
    for physical in stage.ranges().await {
        let page = stage.reader_of(&physical.range, StartFrom::Beginning).page().await;
        assert_eq!(page.physical, physical.id);
    }
    for key in many_keys(6) {
        let page = stage.reader_of(&stage.range_of_key(key.as_str()), StartFrom::Now).page().await;
        let owner = stage.ranges().await.into_iter().find(|physical| physical.range.contains(&stage.epk(&key)));
        assert_eq!(Some(page.physical), owner.map(|physical| physical.id));
    }
}
