//! Merges: two neighbours become one range that serves both parents' history.

use changefeed_core::{Change, ErrorKind, FeedRange, Mode, PhysicalRange, RangeId, StartFrom};

use super::{
    Fixture, all_versions,
    ranges::unknown_range,
    reader::{Reader, versions},
    stage::{DATABASE, Stage, many_keys, refused},
};
use crate::fixtures::{create, item};

async fn two_ranges(fixture: &dyn Fixture, mode: Mode) -> (Stage<'_>, [PhysicalRange; 2]) {
    let stage = Stage::with(fixture, |spec| {
        spec.ranges = 2;
        spec.all_versions_retention = (mode == Mode::AllVersions).then_some(all_versions::RETENTION);
    })
    .await;
    let ranges = stage.ranges().await.try_into().expect("two ranges");
    (stage, ranges)
}

async fn populate(stage: &Stage<'_>, generation: u64) {
    let keys = many_keys(16);
    for (n, key) in keys.iter().enumerate() {
        stage.put(key, key, generation * 100 + n as u64).await;
    }
    for key in &keys[..4] {
        let writes = (0..3).map(|n| create(&item(key, &format!("{key}-batch{generation}-{n}"), n))).collect();
        stage.batch(key, writes).await;
    }
    stage.remove(&keys[6], &keys[6]).await;
}

pub(super) async fn a_merge_makes_one_range_of_two_neighbours(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    let before = stage.ranges().await;
    let merged = stage.merge(&before[0], &before[1]).await;
    assert_eq!(merged.range.min_inclusive(), before[0].range.min_inclusive());
    assert_eq!(merged.range.max_exclusive(), before[1].range.max_exclusive());
    assert!(before.iter().all(|old| old.id != merged.id), "ids are never used again");
    let mut parents = merged.parents.clone();
    parents.sort();
    let mut expected = vec![before[0].id.clone(), before[1].id.clone()];
    expected.sort();
    assert_eq!(parents, expected);
    assert_eq!(stage.ranges().await, [merged, before[2].clone()]);
}

pub(super) async fn neighbours_merge_in_either_order(fixture: &dyn Fixture) {
    let (stage, [left, right]) = two_ranges(fixture, Mode::LatestVersion).await;
    let merged = stage.merge(&right, &left).await;
    assert_eq!(merged.range, FeedRange::full());
    assert_eq!(stage.ranges().await, [merged]);
}

pub(super) async fn a_merged_range_serves_both_parents_history(fixture: &dyn Fixture) {
    let (stage, ranges) = two_ranges(fixture, Mode::LatestVersion).await;
    let readers = ranges.clone().map(|physical| stage.reader_of(&physical.range, StartFrom::Beginning));
    serve_history_after_merge(&stage, &ranges, readers).await;
    let merged = stage.ranges().await.swap_remove(0);
    let changes = stage.reader_of(&merged.range, StartFrom::Beginning).max_items(3).drain().await;
    assert_eq!(changes.len(), stage.list(Default::default()).await.len(), "read as one it is whole, too");
}

pub(super) async fn a_merged_range_serves_all_versions_of_both_parents(fixture: &dyn Fixture) {
    let (stage, ranges) = two_ranges(fixture, Mode::AllVersions).await;
    let mut readers =
        ranges.clone().map(|physical| stage.reader_of(&physical.range, StartFrom::Now).mode(Mode::AllVersions));
    for reader in &mut readers {
        reader.page().await;
    }
    serve_history_after_merge(&stage, &ranges, readers).await;
}

/// After a merge each old range is still read with its own old continuations, from wherever its reader stood.
async fn serve_history_after_merge(stage: &Stage<'_>, ranges: &[PhysicalRange; 2], readers: [Reader; 2]) {
    populate(stage, 1).await;
    let mut places = Vec::new();
    for (side, start) in readers.into_iter().enumerate() {
        let expected = start.briefs_by_key(&start.clone().drain().await);
        assert!(!expected.is_empty(), "both sides have items");
        let mut reader = start.max_items(2 + side);
        let mut read = Vec::new();
        loop {
            places.push((reader.clone(), read.clone(), expected.clone()));
            let page = reader.page().await;
            if page.changes.is_empty() {
                break;
            }
            read.extend(page.changes);
        }
    }
    let merged = stage.merge(&ranges[0], &ranges[1]).await;
    for (reader, read, expected) in places {
        for mut resumed in [reader.in_range(reader.range()), reader.clone().physical(&merged.id)] {
            let all = [read.clone(), resumed.drain().await].concat();
            assert_eq!(resumed.briefs_by_key(&all), expected, "after {} changes", read.len());
        }
    }
}

/// Writes a few times to the left range and often to the right one. Returns a key of each.
async fn populate_unequally(stage: &Stage<'_>, left: &PhysicalRange) -> [String; 2] {
    let definition = &stage.container.identity().partition_key;
    let is_left = |key: &String| definition.epk(&key.as_str().into()).is_ok_and(|epk| left.range.contains(&epk));
    let (few, many): (Vec<_>, Vec<_>) = many_keys(24).into_iter().partition(is_left);
    for (n, key) in (0..).zip(few.iter().take(2)) {
        stage.put(key, key, n).await;
    }
    for (n, key) in (0..).zip(many.iter().cycle().take(40)) {
        stage.put(key, &format!("{key}-{}", n % 11), n).await;
    }
    [few[0].clone(), many[0].clone()]
}

pub(super) async fn the_lsns_of_a_merged_range_come_after_both_parents(fixture: &dyn Fixture) {
    let (stage, [left, right]) = two_ranges(fixture, Mode::LatestVersion).await;
    let keys = populate_unequally(&stage, &left).await;
    let newest = stage.newest_lsns().await.into_iter().max().expect("two ranges");
    stage.merge(&left, &right).await;
    assert!(stage.newest_lsns().await[0] >= newest, "a merged range stands where both parents stood");
    for key in keys {
        let lsn = stage.put(&key, "after", 1).await.lsn;
        assert!(lsn > newest, "a merged range goes on after both parents, not with {lsn} after {newest}");
    }
}

pub(super) async fn a_merged_range_serves_parents_of_unequal_age(fixture: &dyn Fixture) {
    resume_unequally(fixture, Mode::LatestVersion).await;
}

pub(super) async fn a_merged_range_serves_all_versions_of_parents_of_unequal_age(fixture: &dyn Fixture) {
    resume_unequally(fixture, Mode::AllVersions).await;
}

/// Readers of both parents stood at their ends, which are far from each other. After the merge each gets what is new in
/// its part, and nothing else.
async fn resume_unequally(fixture: &dyn Fixture, mode: Mode) {
    let (stage, [left, right]) = two_ranges(fixture, mode).await;
    let mut readers = [&left, &right].map(|old| stage.reader_of(&old.range, StartFrom::Now).mode(mode));
    for reader in &mut readers {
        reader.page().await;
    }
    let keys = populate_unequally(&stage, &left).await;
    for reader in &mut readers {
        assert!(!reader.drain().await.is_empty(), "both sides have changes");
    }
    stage.merge(&left, &right).await;
    for key in &keys {
        stage.put(key, "after", 1).await;
    }
    for (reader, key) in readers.iter_mut().zip(&keys) {
        let changes = reader.drain().await;
        let found: Vec<_> = changes.iter().map(|change| (change.id.as_str(), reader.key_of(change))).collect();
        let definition = &stage.container.identity().partition_key;
        let epk = definition.epk(&key.as_str().into()).expect("a key");
        assert_eq!(found, [("after", epk)]);
    }
}

pub(super) async fn a_merged_range_gives_the_same_sequence_at_every_page_size(fixture: &dyn Fixture) {
    let (stage, [left, right]) = two_ranges(fixture, Mode::LatestVersion).await;
    populate(&stage, 1).await;
    let merged = stage.merge(&left, &right).await;
    populate(&stage, 2).await;
    let read = async |max_items| {
        let mut reader = stage.reader_of(&merged.range, StartFrom::Beginning).max_items(max_items);
        let changes = reader.drain().await;
        reader.briefs_by_key(&changes)
    };
    let whole = read(1000).await;
    for max_items in 1..12 {
        assert_eq!(read(max_items).await, whole, "in pages of {max_items}");
    }
}

pub(super) async fn a_merged_away_range_is_gone(fixture: &dyn Fixture) {
    let (stage, [left, right]) = two_ranges(fixture, Mode::LatestVersion).await;
    let mut readers = [&left, &right].map(|old| stage.reader_of(&old.range, StartFrom::Beginning).physical(&old.id));
    for reader in &mut readers {
        reader.page().await;
    }
    stage.merge(&left, &right).await;
    for reader in &mut readers {
        reader.refused(ErrorKind::RangeGone).await;
    }
    refused(stage.catalog.merge(DATABASE, "items", [&left.id, &right.id]).await, ErrorKind::RangeGone);
    refused(stage.catalog.split(DATABASE, "items", &left.id, None).await, ErrorKind::RangeGone);
}

pub(super) async fn a_merge_that_makes_no_sense_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 3).await;
    stage.put("a", "x", 1).await;
    let ranges = stage.ranges().await;
    let before = stage.snapshot().await;
    let merge =
        async |database: &str, container: &str, ids: [&RangeId; 2]| stage.catalog.merge(database, container, ids).await;
    for (a, b) in [(0, 2), (2, 0), (0, 0)] {
        let apart = merge(DATABASE, "items", [&ranges[a].id, &ranges[b].id]).await;
        refused(apart, ErrorKind::InvalidArgument);
    }
    refused(merge(DATABASE, "items", [&ranges[0].id, &unknown_range()]).await, ErrorKind::RangeNotFound);
    refused(merge(DATABASE, "items", [&unknown_range(), &ranges[0].id]).await, ErrorKind::RangeNotFound);
    let neighbours = [&ranges[0].id, &ranges[1].id];
    refused(merge(DATABASE, "nowhere", neighbours).await, ErrorKind::ContainerNotFound);
    refused(merge("nowhere", "items", neighbours).await, ErrorKind::DatabaseNotFound);
    stage.unchanged_since(&before, "a refused merge").await;
}

pub(super) async fn a_range_can_be_split_and_merged_again_and_again(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut whole = stage.ranges().await.swap_remove(0);
    let mut old = vec![whole.id.clone()];
    let mut reader = stage.reader(StartFrom::Beginning);
    for round in 0..4 {
        populate(&stage, round).await;
        let children = stage.split(&whole, None).await;
        let newer = stage.put("key-3", &format!("between-{round}"), round).await;
        whole = stage.merge(&children[0], &children[1]).await;
        old.extend(children.iter().map(|child| child.id.clone()));
        let mut parents = whole.parents.clone();
        parents.sort();
        let mut expected = old.clone();
        expected.sort();
        assert_eq!(parents, expected, "all ancestors, each once");
        assert_eq!(parents.len(), whole.parents.iter().collect::<std::collections::BTreeSet<_>>().len());
        let seen = reader.drain().await;
        let is_newer = |change: &Change| change.id == newer.id && change.lsn == newer.lsn;
        assert!(seen.iter().any(is_newer), "the old continuation goes on");
        old.push(whole.id.clone());
    }
    let all = stage.reader(StartFrom::Beginning).drain().await;
    assert_eq!(all.len(), stage.list(Default::default()).await.len());
}

pub(super) async fn writers_go_on_after_a_merge(fixture: &dyn Fixture) {
    let (stage, [left, right]) = two_ranges(fixture, Mode::LatestVersion).await;
    populate(&stage, 1).await;
    let before = stage.list(Default::default()).await;
    stage.merge(&left, &right).await;
    assert_eq!(stage.list(Default::default()).await, before, "a merge does not touch items");
    let mut reader = stage.reader(StartFrom::Now);
    reader.page().await;
    let mut expected = Vec::new();
    for (n, key) in many_keys(8).iter().enumerate() {
        stage.put(key, key, n as u64).await;
        expected.push(format!("{key}={n}"));
    }
    let mut seen = versions(&reader.drain().await);
    seen.sort();
    assert_eq!(seen, expected);
}

pub(super) async fn a_store_that_cannot_merge_says_so(fixture: &dyn Fixture) {
    let (stage, [left, right]) = two_ranges(fixture, Mode::LatestVersion).await;
    let merge = stage.catalog.merge(DATABASE, stage.name(), [&left.id, &right.id]).await;
    refused(merge, ErrorKind::Unsupported);
    assert_eq!(stage.ranges().await, [left, right]);
}
