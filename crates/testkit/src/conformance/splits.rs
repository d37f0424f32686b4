//! Splits: one range becomes two, and nobody loses or repeats anything.

use changefeed_core::{Change, Epk, ErrorKind, FeedRange, Mode, PartitionKeyDefinition, PhysicalRange, StartFrom};

use super::{
    Fixture, all_versions,
    ranges::unknown_range,
    reader::{Reader, ids, versions},
    stage::{DATABASE, Stage, many_keys, refused},
};
use crate::fixtures::{create, item, item_number, session};

/// Keys enough for both sides of a split.
const KEYS: usize = 16;

/// One item per key, some rewritten and deleted, and a batch on each side.
async fn populate(stage: &Stage<'_>, generation: u64) {
    let keys = many_keys(KEYS);
    for (n, key) in keys.iter().enumerate() {
        stage.put(key, key, generation * 100 + n as u64).await;
    }
    for key in &keys[..4] {
        let writes = (0..3).map(|n| create(&item(key, &format!("{key}-batch{generation}-{n}"), n))).collect();
        stage.batch(key, writes).await;
    }
    stage.put(&keys[5], &keys[5], generation * 100 + 50).await;
    stage.remove(&keys[6], &keys[6]).await;
}

/// Reads to the end in each child from where `reader` stands.
async fn drain_in(reader: &Reader, children: &[PhysicalRange]) -> Vec<Change> {
    let mut changes = Vec::new();
    for child in children {
        if let Some(part) = reader.range().intersection(&child.range) {
            changes.extend(reader.in_range(&part).physical(&child.id).drain().await);
        }
    }
    changes
}

pub(super) async fn a_split_gives_two_children_that_tile_their_parent(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 2).await;
    let before = stage.ranges().await;
    let children = stage.split(&before[0], None).await;
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].range.min_inclusive(), before[0].range.min_inclusive());
    assert_eq!(children[0].range.max_exclusive(), children[1].range.min_inclusive());
    assert_eq!(children[1].range.max_exclusive(), before[0].range.max_exclusive());
    let after = stage.ranges().await;
    assert_eq!(after[..2], children[..], "the live list shows the children");
    assert_eq!(after[2..], before[1..], "and the other range as it was");
    for child in &children {
        assert!(before.iter().all(|old| old.id != child.id), "ids are never used again");
    }
}

pub(super) async fn a_split_in_the_middle_shares_the_keys(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let parent = stage.ranges().await.swap_remove(0);
    let children = stage.split(&parent, None).await;
    let keys = many_keys(200);
    let left = keys.iter().filter(|key| children[0].range.contains(&stage.epk(key))).count();
    assert!((60..=140).contains(&left), "of 200 keys {left} went left");
}

pub(super) async fn children_serve_their_parents_history_under_its_continuations(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    serve_history_from_every_page(&stage, stage.reader(StartFrom::Beginning)).await;
}

pub(super) async fn children_serve_all_versions_of_their_parent_under_its_continuations(fixture: &dyn Fixture) {
    let stage = all_versions::stage(fixture).await;
    let reader = all_versions::reader(&stage).await;
    serve_history_from_every_page(&stage, reader).await;
}

/// Remembers where a reader stood after each page, splits twice, and resumes from each of these places.
async fn serve_history_from_every_page(stage: &Stage<'_>, start: Reader) {
    populate(stage, 1).await;
    let by_key = |changes: &[Change]| start.briefs_by_key(changes);
    let expected = by_key(&start.clone().drain().await);
    let mut reader = start.clone().max_items(3);
    let mut places = vec![(reader.clone(), Vec::new())];
    loop {
        let page = reader.page().await;
        let (_, read) = places.last().expect("there is a first place");
        let read = [read.clone(), page.changes.clone()].concat();
        places.push((reader.clone(), read));
        if page.changes.is_empty() {
            break;
        }
    }
    let mut live = stage.ranges().await;
    for _ in 0..2 {
        stage.split(&live[0], None).await;
        live = stage.ranges().await;
        for (reader, read) in &places {
            let rest = drain_in(reader, &live).await;
            assert_eq!(by_key(&[read.clone(), rest].concat()), expected, "after {} changes", read.len());
        }
    }
    let (_, read) = places.pop().expect("there is a last place");
    stage.put("key-0", "later", 9).await;
    let later = drain_in(&reader, &live).await;
    assert_eq!((read.len(), versions(&later)), (expected.len(), vec!["later=9".to_owned()]));
}

pub(super) async fn children_serve_history_from_every_start(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    populate(&stage, 1).await;
    fixture.advance(std::time::Duration::from_secs(10)).await;
    let moment = stage.put("key-1", "marker", 1).await.timestamp;
    populate(&stage, 2).await;
    let starts = [StartFrom::Beginning, StartFrom::Time(moment), StartFrom::Now];
    let mut before = Vec::new();
    for start in &starts {
        let mut reader = stage.reader(start.clone());
        let changes = reader.drain().await;
        before.push(reader.briefs_by_key(&changes));
    }
    let parent = stage.ranges().await.swap_remove(0);
    stage.split(&parent, None).await;
    let live = stage.ranges().await;
    for (start, expected) in starts.iter().zip(before) {
        let reader = stage.reader(start.clone());
        assert_eq!(reader.briefs_by_key(&drain_in(&reader, &live).await), expected, "{start:?}");
    }
}

pub(super) async fn the_lsns_of_children_come_after_their_parents(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let keys = many_keys(16);
    for key in &keys {
        stage.put(key, key, 1).await;
    }
    let parent = stage.ranges().await.swap_remove(0);
    let newest = stage.newest_lsns().await.swap_remove(0);
    let children = stage.split(&parent, None).await;
    for lsn in stage.newest_lsns().await {
        assert!(lsn >= newest, "a child stands where its parent stood, not at {lsn} before {newest}");
    }
    for child in &children {
        let definition = &stage.container.identity().partition_key;
        let is_inside =
            |key: &&String| definition.epk(&key.as_str().into()).is_ok_and(|epk| child.range.contains(&epk));
        let key = keys.iter().find(is_inside).expect("a key of the child");
        let lsn = stage.put(key, key, 2).await.lsn;
        assert!(lsn > newest, "a child goes on after its parent, not with {lsn} after {newest}");
    }
}

pub(super) async fn a_split_range_is_gone(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    gone_in(&stage, Mode::LatestVersion).await;
}

pub(super) async fn a_split_range_is_gone_for_all_versions(fixture: &dyn Fixture) {
    let stage = all_versions::stage(fixture).await;
    gone_in(&stage, Mode::AllVersions).await;
}

async fn gone_in(stage: &Stage<'_>, mode: Mode) {
    let parent = stage.ranges().await.swap_remove(0);
    let mut by_keys = stage.reader(StartFrom::Now).mode(mode);
    by_keys.page().await;
    let mut by_id = by_keys.clone().physical(&parent.id);
    let child = stage.split(&parent, None).await.swap_remove(0);
    let mut narrow = by_keys.in_range(&child.range).physical(&parent.id);
    for reader in [&mut by_keys, &mut by_id, &mut narrow] {
        reader.refused(ErrorKind::RangeGone).await;
    }
    stage.split(&child, None).await;
    by_id.refused(ErrorKind::RangeGone).await;
    by_id.physical(&child.id).refused(ErrorKind::RangeGone).await;
    let never = by_keys.in_range(&child.range).physical(&unknown_range());
    never.clone().refused(ErrorKind::RangeNotFound).await;
}

pub(super) async fn a_reader_of_a_part_on_one_side_does_not_notice_a_split(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let parent = stage.ranges().await.swap_remove(0);
    let mut readers: Vec<_> = many_keys(6)
        .iter()
        .map(|key| (key.clone(), stage.reader_of(&stage.range_of_key(key.as_str()), StartFrom::Beginning)))
        .collect();
    for (key, reader) in &mut readers {
        stage.put(key, "x", 1).await;
        assert_eq!(versions(&reader.page().await.changes), ["x=1"]);
        stage.put(key, "x", 2).await;
    }
    stage.split(&parent, None).await;
    for (key, reader) in &mut readers {
        stage.put(key, "y", 3).await;
        assert_eq!(versions(&reader.drain().await), ["x=2", "y=3"]);
    }
}

pub(super) async fn a_child_can_be_split_again_and_names_all_its_ancestors(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    populate(&stage, 1).await;
    let start = stage.reader(StartFrom::Beginning);
    let expected = start.briefs_by_key(&start.clone().drain().await);
    let mut ancestors = Vec::new();
    let mut range = stage.ranges().await.swap_remove(0);
    for generation in 1..=4 {
        ancestors.push(range.id.clone());
        let children = stage.split(&range, None).await;
        for child in &children {
            assert_eq!(child.parents, ancestors, "all ancestors, oldest first");
            assert!(!ancestors.contains(&child.id));
        }
        let live = stage.ranges().await;
        assert_eq!(live.len(), generation + 1);
        let seen = start.briefs_by_key(&drain_in(&start, &live).await);
        assert_eq!(seen, expected, "history is whole after {generation} splits");
        range = children[generation % 2].clone();
    }
}

pub(super) async fn a_split_at_a_key_cuts_there(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let keys = many_keys(10);
    for key in &keys {
        stage.put(key, key, 1).await;
    }
    let at = stage.epk(&keys[3]);
    let parent = stage.ranges().await.swap_remove(0);
    let children = stage.split(&parent, Some(at.clone())).await;
    assert_eq!(children[0].range.max_exclusive(), &at);
    assert_eq!(children[1].range.min_inclusive(), &at, "the key itself lies on the right");
    for child in &children {
        let mut expected: Vec<_> = keys.iter().filter(|key| child.range.contains(&stage.epk(key))).collect();
        expected.sort_by_key(|key| stage.epk(key));
        let mut reader = stage.reader_of(&child.range, StartFrom::Beginning);
        let changes = reader.drain().await;
        assert_eq!(ids(&reader.by_key(&changes)), expected);
    }
}

pub(super) async fn a_split_that_makes_no_sense_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 2).await;
    let [left, right] = <[PhysicalRange; 2]>::try_from(stage.ranges().await).expect("two ranges");
    let before = stage.snapshot().await;
    let split = |range: &PhysicalRange, at: Epk| {
        let (catalog, id) = (stage.catalog.clone(), range.id.clone());
        async move { catalog.split(DATABASE, "items", &id, Some(at)).await }
    };
    let border = right.range.min_inclusive();
    for (range, at) in [(&left, Epk::MIN), (&left, border.clone()), (&right, border.clone()), (&right, Epk::MAX)] {
        refused(split(range, at).await, ErrorKind::BadRange);
    }
    refused(split(&left, border.successor()).await, ErrorKind::BadRange);
    refused(split(&right, Epk::MIN).await, ErrorKind::BadRange);
    let unknown = stage.catalog.split(DATABASE, "items", &unknown_range(), None).await;
    refused(unknown, ErrorKind::RangeNotFound);
    let nowhere = stage.catalog.split(DATABASE, "nowhere", &left.id, None).await;
    refused(nowhere, ErrorKind::ContainerNotFound);
    let nowhere = stage.catalog.split("nowhere", "items", &left.id, None).await;
    refused(nowhere, ErrorKind::DatabaseNotFound);
    stage.unchanged_since(&before, "a refused split").await;
    stage.split(&left, None).await;
    refused(stage.catalog.split(DATABASE, "items", &left.id, None).await, ErrorKind::RangeGone);
    assert_eq!(stage.ranges().await.len(), 3);
}

pub(super) async fn a_split_does_not_touch_items(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    populate(&stage, 1).await;
    let before = stage.list(Default::default()).await;
    let parent = stage.ranges().await.swap_remove(0);
    stage.split(&parent, None).await;
    assert_eq!(stage.list(Default::default()).await, before, "same items, same etags, same LSNs");
    for (n, key) in many_keys(KEYS).iter().enumerate() {
        let last = stage.put(key, &format!("{key}-again"), 400).await.lsn;
        let written = stage.put(key, key, 500 + n as u64).await;
        assert!(written.lsn > last, "LSNs go on ascending per partition key");
        assert_eq!(item_number(&stage.get(key, key).await), 500 + n as u64);
    }
}

pub(super) async fn the_neighbours_of_a_split_range_do_not_notice(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 2).await;
    populate(&stage, 1).await;
    let ranges = stage.ranges().await;
    let mut neighbour = stage.reader_of(&ranges[1].range, StartFrom::Beginning).physical(&ranges[1].id).max_items(2);
    let all = neighbour.clone().drain().await;
    let mut seen = neighbour.page().await.changes;
    stage.split(&ranges[0], None).await;
    seen.extend(neighbour.drain().await);
    assert_eq!(neighbour.briefs_by_key(&seen), neighbour.briefs_by_key(&all));
}

pub(super) async fn a_container_of_hierarchical_keys_splits(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hierarchical(["/tenant", "/user", "/session"]).expect("good paths");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    for n in 0..20 {
        stage.upsert(&session("t", &format!("u{}", n % 5), "s", &format!("x{n}"), n)).await;
    }
    let start = stage.reader(StartFrom::Beginning);
    let expected = start.briefs_by_key(&start.clone().drain().await);
    let tenant = stage.range_of_key("t");
    let user = stage.range_of_key(("t", "u1"));
    let parent = stage.ranges().await.swap_remove(0);
    // Inside of the tenant: its users are served by different ranges now.
    stage.split(&parent, Some(user.min_inclusive().clone())).await;
    let live = stage.ranges().await;
    assert_eq!(start.briefs_by_key(&drain_in(&start, &live).await), expected);
    stage.reader_of(&tenant, StartFrom::Beginning).refused(ErrorKind::RangeGone).await;
    assert_eq!(stage.reader_of(&user, StartFrom::Beginning).drain().await.len(), 4);
}

pub(super) async fn a_version_1_container_splits(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hash_v1("/pk").expect("a good path");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    serve_history_from_every_page(&stage, stage.reader(StartFrom::Beginning)).await;
}

pub(super) async fn a_range_of_one_key_cannot_be_split(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let one = stage.range_of_key("a");
    let parent = stage.ranges().await.swap_remove(0);
    let right = stage.split(&parent, Some(one.min_inclusive().clone())).await.swap_remove(1);
    let left = stage.split(&right, Some(one.max_exclusive().clone())).await.swap_remove(0);
    assert_eq!(left.range, one);
    stage.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    let error = stage.catalog.split(DATABASE, "items", &left.id, None).await.expect_err("there is no place to cut");
    let kinds = [ErrorKind::BadRange, ErrorKind::InvalidArgument];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    stage.unchanged_since(&before, "a refused split").await;
}

pub(super) async fn a_store_that_does_not_know_the_parents_of_ranges_names_none(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let parent = stage.ranges().await.swap_remove(0);
    let children = stage.split(&parent, None).await;
    for range in children.iter().chain(&stage.ranges().await) {
        assert!(range.parents.is_empty(), "parents that are not all ancestors mislead: {range:?}");
    }
}

pub(super) async fn a_store_that_cannot_split_says_so(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let range = stage.ranges().await.swap_remove(0);
    let split = stage.catalog.split(DATABASE, stage.name(), &range.id, None).await;
    refused(split, ErrorKind::Unsupported);
    assert_eq!(stage.ranges().await, [range]);
    assert!(stage.reader_of(&FeedRange::full(), StartFrom::Now).page().await.changes.is_empty());
}
