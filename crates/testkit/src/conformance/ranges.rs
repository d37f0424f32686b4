//! Feed ranges: physical ranges, parts of them, single keys, key prefixes.

use changefeed_core::{ErrorKind, FeedRange, PartitionKeyDefinition, RangeId, StartFrom};

use super::{
    Fixture,
    reader::ids,
    stage::{DATABASE, Stage, by_pk, many_keys, refused},
};
use crate::fixtures::session;

/// An id that no store gives out: much larger than the number of ranges ever made here.
pub(super) fn unknown_range() -> RangeId {
    RangeId::from(987_654_321)
}

/// The two halves of `range`, cut at a key.
fn cut(range: &FeedRange, at: &changefeed_core::Epk) -> [FeedRange; 2] {
    let (low, high) = range.split_at(at).expect("the key lies inside");
    [low, high]
}

pub(super) async fn a_container_begins_with_the_ranges_it_was_created_with(fixture: &dyn Fixture) {
    for count in [1, 2, 3, 5, 16] {
        let stage = Stage::named(fixture, &format!("c{count}"), |spec| spec.ranges = count).await;
        let ranges = stage.ranges().await;
        assert_eq!(ranges.len(), count);
        assert!(ranges.iter().all(|physical| physical.parents.is_empty()), "they descend from nothing");
    }
}

pub(super) async fn feed_ranges_stay_the_same_while_nothing_is_split(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    let before = stage.ranges().await;
    for key in many_keys(10) {
        stage.put(&key, "x", 1).await;
    }
    assert_eq!(stage.ranges().await, before);
    let again = stage.catalog.container(DATABASE, stage.name()).await.expect("open again");
    assert_eq!(again.feed_ranges().await.expect("feed ranges"), before, "every handle sees the same");
}

pub(super) async fn physical_ranges_share_the_keys_without_loss(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 4).await;
    let keys = many_keys(40);
    for key in &keys {
        stage.put(key, key, 1).await;
    }
    let mut seen = Vec::new();
    for physical in stage.ranges().await {
        let by_keys = stage.reader_of(&physical.range, StartFrom::Beginning).drain().await;
        let by_id = stage.reader(StartFrom::Beginning).physical(&physical.id).drain().await;
        let reader = stage.reader_of(&physical.range, StartFrom::Beginning);
        let same = reader.briefs_by_key(&by_keys) == reader.briefs_by_key(&by_id);
        assert!(same, "named by id or by keys, the range is the same: {by_keys:?}, {by_id:?}");
        assert!(by_keys.iter().all(|change| physical.range.contains(&stage.epk(&change.id))));
        seen.extend(ids(&by_keys).into_iter().map(str::to_owned));
    }
    let mut expected = keys;
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

pub(super) async fn any_sub_range_can_be_read(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    sub_ranges_hold_their_keys(&stage).await;
}

pub(super) async fn any_sub_range_of_a_version_1_container_can_be_read(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hash_v1("/pk").expect("a good path");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    sub_ranges_hold_their_keys(&stage).await;
}

async fn sub_ranges_hold_their_keys(stage: &Stage<'_>) {
    let keys = many_keys(15);
    for n in 0..2 {
        for key in &keys {
            stage.put(key, key, n).await;
        }
    }
    for at in &keys {
        for part in cut(&FeedRange::full(), &stage.epk(at)) {
            let mut expected: Vec<_> = keys.iter().filter(|key| part.contains(&stage.epk(key))).collect();
            expected.sort_by_key(|key| stage.epk(key));
            for max_items in [1, 4, 1000] {
                let mut reader = stage.reader_of(&part, StartFrom::Beginning).max_items(max_items);
                let changes = reader.drain().await;
                assert_eq!(ids(&reader.by_key(&changes)), expected, "{part} with {max_items} a page");
            }
        }
        let one = stage.range_of_key(at.as_str());
        assert_eq!(ids(&stage.reader_of(&one, StartFrom::Beginning).drain().await), [at], "a key is a range");
    }
}

pub(super) async fn only_changes_of_the_asked_range_are_counted_and_returned(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for n in 0..10 {
        for key in ["loud", "louder", "quiet", "loudest"] {
            stage.put(key, &format!("{key}{n}"), n).await;
        }
    }
    let mut reader = stage.reader_of(&stage.range_of_key("quiet"), StartFrom::Beginning).max_items(4);
    assert_eq!(ids(&reader.page().await.changes), ["quiet0", "quiet1", "quiet2", "quiet3"], "a full page");
    assert_eq!(ids(&reader.page().await.changes), ["quiet4", "quiet5", "quiet6", "quiet7"]);
    assert_eq!(ids(&reader.page().await.changes), ["quiet8", "quiet9"]);
    assert!(reader.page().await.changes.is_empty());
}

pub(super) async fn an_empty_sub_range_advances_past_the_writes_of_others(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut reader = stage.reader_of(&stage.range_of_key("nobody"), StartFrom::Beginning).max_items(1);
    let mut seen = Vec::new();
    for n in 0..4 {
        stage.put("somebody", "x", n).await;
        assert!(reader.page().await.changes.is_empty(), "a page is not empty by accident, there is nothing");
        assert!(!seen.contains(&reader.continuation()), "the continuation advances");
        seen.push(reader.continuation());
    }
}

pub(super) async fn a_prefix_of_a_hierarchical_key_is_a_range(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hierarchical(["/tenant", "/user", "/session"]).expect("good paths");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    let mut n = 0;
    for tenant in ["t1", "t2"] {
        for user in ["u1", "u2"] {
            for each in ["s1", "s2"] {
                stage.upsert(&session(tenant, user, each, &format!("{tenant}{user}{each}"), n)).await;
                n += 1;
            }
        }
    }
    let cases = [
        (stage.range_of_key("t1"), vec!["t1u1s1", "t1u1s2", "t1u2s1", "t1u2s2"]),
        (stage.range_of_key(("t2", "u1")), vec!["t2u1s1", "t2u1s2"]),
        (stage.range_of_key(("t2", "u2", "s1")), vec!["t2u2s1"]),
        (stage.range_of_key("t3"), vec![]),
    ];
    for (range, expected) in cases {
        for max_items in [1, 3, 1000] {
            let changes = stage.reader_of(&range, StartFrom::Beginning).max_items(max_items).drain().await;
            assert_eq!(ids(&changes), expected);
        }
    }
}

pub(super) async fn a_feed_range_that_spans_several_physical_ranges_is_gone(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    stage.put("a", "x", 1).await;
    let ranges = stage.ranges().await;
    let (low, high) = (ranges[0].range.min_inclusive().clone(), ranges[1].range.max_exclusive().clone());
    let two = FeedRange::new(low, high).expect("a range");
    let before = stage.snapshot().await;
    for spanning in [FeedRange::full(), two] {
        for start in [StartFrom::Beginning, StartFrom::Now] {
            stage.reader_of(&spanning, start).refused(ErrorKind::RangeGone).await;
        }
    }
    stage.unchanged_since(&before, "a refused read").await;
}

pub(super) async fn a_range_id_that_never_existed_is_not_found(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    for unknown in [unknown_range(), "no-such-range".parse().expect("a range id")] {
        for start in [StartFrom::Beginning, StartFrom::Now] {
            stage.reader(start).physical(&unknown).refused(ErrorKind::RangeNotFound).await;
        }
    }
    stage.unchanged_since(&before, "a refused read").await;
}

pub(super) async fn a_store_with_one_range_per_container_says_so(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut spec = changefeed_core::ContainerSpec::new("many", by_pk());
    spec.ranges = 2;
    refused(stage.catalog.create_container(DATABASE, spec).await, ErrorKind::Unsupported);
}
