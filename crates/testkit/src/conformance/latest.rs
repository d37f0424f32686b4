//! Latest-version mode: each item once, at its newest version.

use std::collections::BTreeMap;

use changefeed_core::{Item, ListItems, StartFrom};

use super::{
    Feature, Fixture,
    reader::versions,
    stage::{Stage, many_keys},
};
use crate::fixtures::{item_number, number};

pub(super) async fn latest_version_mode_gives_each_item_once_at_its_newest_version(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for n in 0..10 {
        stage.put("a", "x", n).await;
        stage.put("b", "x", n + 100).await;
        stage.put("a", "y", n + 200).await;
    }
    for max_items in [1, 2, 1000] {
        let mut seen = versions(&stage.reader(StartFrom::Beginning).max_items(max_items).drain().await);
        assert!(seen.iter().position(|one| one == "x=9") < seen.iter().position(|one| one == "y=209"));
        seen.sort();
        assert_eq!(seen, ["x=109", "x=9", "y=209"]);
    }
}

pub(super) async fn latest_version_mode_leaves_deleted_items_out(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for n in 0..6 {
        stage.put("a", &format!("x{n}"), n).await;
    }
    let mut reader = stage.reader(StartFrom::Beginning).max_items(2);
    assert_eq!(versions(&reader.page().await.changes), ["x0=0", "x1=1"]);
    for gone in ["x0", "x2", "x5"] {
        stage.remove("a", gone).await;
    }
    assert_eq!(versions(&reader.drain().await), ["x3=3", "x4=4"]);
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["x1=1", "x3=3", "x4=4"]);
    for gone in ["x1", "x3", "x4"] {
        stage.remove("a", gone).await;
    }
    assert!(stage.reader(StartFrom::Beginning).page().await.changes.is_empty(), "nothing is left");
    assert!(reader.page().await.changes.is_empty(), "deletes do not show");
}

pub(super) async fn a_rewritten_item_moves_to_the_end_of_the_feed(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for id in ["x", "y", "z"] {
        stage.put("a", id, 1).await;
    }
    stage.put("a", "x", 2).await;
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["y=1", "z=1", "x=2"]);
    stage.put("a", "z", 2).await;
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["y=1", "x=2", "z=2"]);
}

pub(super) async fn an_item_deleted_and_created_again_appears_once(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let mut reader = stage.reader(StartFrom::Beginning);
    assert_eq!(versions(&reader.page().await.changes), ["x=1"]);
    stage.put("a", "y", 1).await;
    stage.remove("a", "x").await;
    stage.put("a", "x", 2).await;
    assert_eq!(versions(&reader.drain().await), ["y=1", "x=2"]);
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["y=1", "x=2"]);
}

pub(super) async fn the_feed_from_the_beginning_is_the_listing(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let keys = many_keys(7);
    for n in 0..60_u64 {
        let (key, id) = (&keys[n as usize * 5 % 7], format!("x{}", n * 11 % 4));
        match n % 5 {
            4 => drop(stage.container.delete(key.as_str(), &id).await),
            _ => drop(stage.put(key, &id, n).await),
        }
    }
    let changes = stage.reader(StartFrom::Beginning).max_items(3).drain().await;
    let fed: BTreeMap<_, _> = changes
        .iter()
        .map(|change| (change.rid, (change.lsn, number(change.current.as_deref().expect("the item")))))
        .collect();
    assert_eq!(fed.len(), changes.len(), "each item once");
    let items = stage.list(ListItems::default()).await;
    let knows_lsns = Feature::ListedLsns.is_offered_by(fixture);
    let lsn = |item: &Item| if knows_lsns { Some(item.lsn) } else { fed.get(&Some(item.rid)).map(|(lsn, _)| *lsn) };
    let listed: BTreeMap<_, _> =
        items.iter().map(|item| (Some(item.rid), (lsn(item).unwrap_or_default(), item_number(item)))).collect();
    assert_eq!(fed, listed, "each item at its LSN");
}
