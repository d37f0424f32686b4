//! LSNs of physical ranges: each has its own sequence, which goes on through splits, merges, compaction, closing and
//! crashes; and the continuations that name them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed_core::{
    ChangePage, Container, Continuation, Epk, ErrorKind, FeedRange, Mode, PhysicalRange, ReadChanges, ResourceId,
    StartFrom,
};
use changefeed_embedded::{Durability, Engine, vfs::memory::MemoryDisk};
use changefeed_testkit::{clock::TestClock, fixtures::item};
use serde_json::json;

const DATABASE: &str = "d";
const CONTAINER: &str = "c";

/// A container of two ranges, with keys that fall into each.
struct Stage {
    disk: MemoryDisk,
    clock: TestClock,
    engine: Engine,
    container: Container,
    left: Vec<String>,
    right: Vec<String>,
}

impl Stage {
    async fn new() -> Self {
        let disk = MemoryDisk::default();
        let clock = TestClock::new();
        let engine = open(&disk, &clock, Durability::Durable);
        let builder = engine.database(DATABASE).container(CONTAINER).partition_key("/pk").ranges(2);
        let container = builder.all_versions(Duration::from_secs(3600)).create().await.expect("create");
        let middle = container.feed_ranges().await.expect("ranges")[0].range.max_exclusive().clone();
        let keys = (0..200).map(|n| format!("key-{n}"));
        let (left, right) = keys.partition(|key| epk(&container, key) < middle);
        Self { disk, clock, engine, container, left, right }
    }

    /// Closes the store and opens it again.
    async fn reopen(self) -> Self {
        let Self { disk, clock, engine, container, left, right } = self;
        drop(container);
        engine.close().await.expect("close");
        let engine = open(&disk, &clock, Durability::Durable);
        let container = engine.catalog().container(DATABASE, CONTAINER).await.expect("open");
        Self { disk, clock, engine, container, left, right }
    }

    async fn write(&self, key: &str, id: &str) -> u64 {
        self.container.upsert(&item(key, id, 1)).await.expect("write").lsn.get()
    }

    async fn ranges(&self) -> Vec<PhysicalRange> {
        self.container.feed_ranges().await.expect("ranges")
    }

    async fn merge(&self) -> PhysicalRange {
        let ranges = self.ranges().await;
        let ids = [&ranges[0].id, &ranges[1].id];
        self.engine.catalog().merge(DATABASE, CONTAINER, ids).await.expect("merge")
    }

    async fn split(&self, range: &PhysicalRange) -> Vec<PhysicalRange> {
        self.engine.catalog().split(DATABASE, CONTAINER, &range.id, None).await.expect("split")
    }

    async fn page(&self, request: ReadChanges) -> ChangePage {
        self.container.read_changes(request).await.expect("read").into_value()
    }

    async fn end(&self, range: &FeedRange) -> u64 {
        self.page(ReadChanges::new(range.clone(), StartFrom::Now)).await.newest_lsn.get()
    }

    /// The LSNs and keys of all versions after `start`, in pages of so many.
    async fn feed(&self, range: &FeedRange, start: &str, max_items: usize) -> (Vec<(u64, String)>, Vec<Continuation>) {
        let (mut changes, mut continuations) = (Vec::new(), Vec::new());
        let mut request = ReadChanges::new(range.clone(), Continuation::from_token(start));
        request = request.mode(Mode::AllVersions).max_items(max_items);
        loop {
            let page = self.page(request.clone()).await;
            if page.changes.is_empty() {
                return (changes, continuations);
            }
            changes.extend(page.changes.iter().map(|change| (change.lsn.get(), change.id.to_string())));
            continuations.push(page.continuation.clone());
            request.start = page.continuation.into();
        }
    }
}

fn open(disk: &MemoryDisk, clock: &TestClock, durability: Durability) -> Engine {
    let builder = Engine::builder().segment_bytes(64 * 1024).durability(durability);
    builder.clock(Arc::new(clock.clone())).open_on(disk.clone()).expect("open")
}

fn epk(container: &Container, key: &str) -> Epk {
    container.identity().partition_key.epk(&key.into()).expect("a key")
}

#[tokio::test]
async fn each_range_counts_from_two() {
    let stage = Stage::new().await;
    let ranges = stage.ranges().await;
    assert_eq!([stage.end(&ranges[0].range).await, stage.end(&ranges[1].range).await], [1, 1]);
    assert_eq!(stage.write(&stage.left[0], "a").await, 2);
    assert_eq!(stage.write(&stage.left[1], "b").await, 3);
    assert_eq!(stage.write(&stage.right[0], "c").await, 2);
    let read = ReadChanges::new(ranges[1].range.clone(), StartFrom::Beginning);
    let page = stage.page(read).await;
    assert_eq!((page.newest_lsn.get(), page.continuation.token()), (2, "\"2\""));
    let far = ReadChanges::new(ranges[1].range.clone(), Continuation::from_token("\"3\""));
    let error = stage.container.read_changes(far).await.expect_err("the range has not come so far");
    assert_eq!(error.kind(), ErrorKind::ContinuationBeyondEnd);
}

#[tokio::test]
async fn children_go_on_from_their_parent_even_if_they_are_empty_and_the_store_is_closed() {
    let mut stage = Stage::new().await;
    for n in 0..5 {
        stage.write(&stage.left[0], &format!("a-{n}")).await;
    }
    let parent = stage.ranges().await[0].clone();
    let children = stage.split(&parent).await;
    for round in 0..3 {
        if round > 0 {
            stage = stage.reopen().await;
        }
        for child in &children {
            assert_eq!(stage.end(&child.range).await, 6);
        }
    }
    let find = |child: &PhysicalRange| stage.left.iter().find(|key| child.range.contains(&epk(&stage.container, key)));
    for child in &children {
        assert_eq!(stage.write(find(child).expect("a key"), "b").await, 7);
    }
}

#[tokio::test]
async fn a_merged_range_goes_on_above_both_and_interleaves_their_history() {
    let mut stage = Stage::new().await;
    for n in 0..3 {
        stage.write(&stage.left[n], &format!("l{n}")).await;
    }
    for n in 0..6 {
        stage.write(&stage.right[n], &format!("r{n}")).await;
    }
    let merged = stage.merge().await;
    assert_eq!(stage.write(&stage.left[0], "m").await, 8);
    for round in 0..2 {
        if round > 0 {
            stage = stage.reopen().await;
        }
        let (changes, continuations) = stage.feed(&merged.range, "\"1\"", 100).await;
        let expected = [
            (2, "l0"),
            (2, "r0"),
            (3, "l1"),
            (3, "r1"),
            (4, "l2"),
            (4, "r2"),
            (5, "r3"),
            (6, "r4"),
            (7, "r5"),
            (8, "m"),
        ];
        assert_eq!(changes, expected.map(|(lsn, id)| (lsn, id.to_owned())));
        assert_eq!(continuations, [Continuation::from_token("\"8\"")]);
    }
}

#[tokio::test]
async fn continuations_of_both_parents_lose_nothing_in_their_part_of_the_merged_range() {
    let stage = Stage::new().await;
    let parents = stage.ranges().await;
    for n in 0..2 {
        stage.write(&stage.left[n], &format!("l{n}")).await;
    }
    for n in 0..50 {
        stage.write(&stage.right[n], &format!("r{n}")).await;
    }
    let merged = stage.merge().await;
    assert_eq!(stage.write(&stage.left[0], "after").await, 52);
    // One reader had read the first change of each parent, another everything.
    let left = |start| stage.feed(&parents[0].range, start, 7);
    let right = |start| stage.feed(&parents[1].range, start, 7);
    assert_eq!(left("\"2\"").await.0, [(3, "l1".to_owned()), (52, "after".to_owned())]);
    assert_eq!(left("\"3\"").await.0, [(52, "after".to_owned())]);
    assert_eq!(right("\"2\"").await.0.len(), 49);
    assert_eq!(right("\"51\"").await.0, []);
    assert!(merged.range.contains_range(&parents[0].range));
}

#[tokio::test]
async fn a_page_ends_between_lsns_and_inside_one_only_if_that_is_longer_than_a_page() {
    let stage = Stage::new().await;
    for n in 0..4 {
        stage.write(&stage.left[n], &format!("l{n}")).await;
        stage.write(&stage.right[n], &format!("r{n}")).await;
    }
    let merged = stage.merge().await;
    for max_items in 2..9 {
        let (changes, continuations) = stage.feed(&merged.range, "\"1\"", max_items).await;
        assert_eq!(changes.len(), 8);
        for continuation in &continuations {
            let plain = continuation.to_lsn(&stage.container.identity().container);
            assert!(plain.is_ok(), "{continuation} in pages of {max_items}");
        }
        let size = max_items / 2 * 2;
        assert_eq!(continuations.len(), 8_usize.div_ceil(size), "no page is shorter than it must be");
    }
    let (changes, continuations) = stage.feed(&merged.range, "\"1\"", 1).await;
    assert_eq!(changes.len(), 8);
    assert_eq!(changes, stage.feed(&merged.range, "\"1\"", 100).await.0);
    let inside = format!("\"2.{}\"", epk(&stage.container, &stage.left[0]));
    assert_eq!(continuations[..2], [Continuation::from_token(inside), Continuation::from_token("\"2\"")]);
    // A wake-up: there is more inside.
    stage.container.backend().changed(&merged.range, &continuations[0]).await;
}

#[tokio::test]
async fn a_transaction_is_not_cut_though_another_shares_its_lsn() {
    let stage = Stage::new().await;
    for (key, id) in [(&stage.left[0], "l"), (&stage.right[0], "r")] {
        let mut batch = stage.container.batch(key.as_str());
        for n in 0..3 {
            batch = batch.upsert(&item(key, &format!("{id}{n}"), n));
        }
        batch.commit().await.expect("batch");
    }
    let merged = stage.merge().await;
    let mut request = ReadChanges::new(merged.range.clone(), StartFrom::Beginning).max_items(2).count_remaining();
    let first = stage.page(request.clone()).await;
    let ids = |page: &ChangePage| page.changes.iter().map(|change| change.id.to_string()).collect::<Vec<_>>();
    assert_eq!((ids(&first), first.remaining), (vec!["l0".into(), "l1".into(), "l2".into()], Some(3)));
    request.start = first.continuation.into();
    let second = stage.page(request).await;
    assert_eq!((ids(&second), second.remaining), (vec!["r0".into(), "r1".into(), "r2".into()], Some(0)));
    assert_eq!(second.continuation.token(), "\"2\"");
}

#[tokio::test]
async fn history_that_one_parent_has_lost_does_not_expire_readers_of_the_other() {
    let mut stage = Stage::new().await;
    let parents = stage.ranges().await;
    stage.write(&stage.left[0], "quiet").await;
    for n in 0..60 {
        stage
            .container
            .upsert(&json!({"id": "busy", "pk": stage.right[0], "text": "x".repeat(3000), "n": n}))
            .await
            .expect("write");
    }
    stage.clock.advance(Duration::from_secs(4000));
    stage.write(&stage.right[0], "busy").await;
    stage.engine.expire().await.expect("expire");
    stage.engine.settle().await.expect("compact");
    stage.merge().await;
    stage.write(&stage.left[0], "news").await;
    for round in 0..2 {
        if round > 0 {
            stage = stage.reopen().await;
        }
        let (changes, _) = stage.feed(&parents[0].range, "\"2\"", 10).await;
        assert_eq!(changes, [(63, "news".to_owned())]);
        let lost =
            ReadChanges::new(parents[1].range.clone(), Continuation::from_token("\"5\"")).mode(Mode::AllVersions);
        let error = stage.container.read_changes(lost).await.expect_err("its history is gone");
        assert_eq!(error.kind(), ErrorKind::ContinuationExpired);
        let (changes, _) = stage.feed(&parents[1].range, "\"61\"", 10).await;
        assert_eq!(changes, [(62, "busy".to_owned())]);
    }
}

#[tokio::test]
async fn lsns_and_document_numbers_are_not_given_out_again_after_their_records_were_compacted_away() {
    let disk = MemoryDisk::default();
    let clock = TestClock::new();
    let engine = open(&disk, &clock, Durability::Durable);
    let builder = engine.database(DATABASE).container(CONTAINER).partition_key("/pk").ranges(4);
    let mut container = builder.create().await.expect("create");
    let mut engine = engine;
    let mut lsns: BTreeMap<String, u64> = BTreeMap::new();
    let mut documents: Vec<ResourceId> = Vec::new();
    for round in 0..4 {
        for key in (0..40).map(|n| format!("key-{n}")) {
            let body = json!({"id": "x", "pk": key, "text": "x".repeat(2000)});
            let written = container.create(&body).await.expect("create");
            let before = lsns.insert(key.clone(), written.lsn.get()).unwrap_or(1);
            assert!(before < written.lsn.get(), "{key} in round {round}");
            let read = container.backend().read_item(&(key.as_str(), "x").into_key()).await.expect("read");
            documents.push(read.rid);
            container.delete(key.as_str(), "x").await.expect("delete");
            *lsns.get_mut(&key).expect("written") += 1;
        }
        // Half of the time they are still in the log.
        if round % 2 == 0 {
            engine.settle().await.expect("compact");
        }
        drop(container);
        engine.close().await.expect("close");
        engine = open(&disk, &clock, Durability::Durable);
        container = engine.catalog().container(DATABASE, CONTAINER).await.expect("open");
    }
    let count = documents.len();
    documents.sort_unstable();
    documents.dedup();
    assert_eq!(documents.len(), count, "a document number was used twice");
    let sum: u64 = {
        let mut sum = 0;
        for physical in container.feed_ranges().await.expect("ranges") {
            let now = ReadChanges::new(physical.range, StartFrom::Now);
            sum += container.read_changes(now).await.expect("read").newest_lsn.get() - 1;
        }
        sum
    };
    assert_eq!(sum, 4 * 40 * 2, "an LSN for each write, and none that was skipped");
}

trait IntoKey {
    fn into_key(self) -> changefeed_core::ItemKey;
}

impl IntoKey for (&str, &str) {
    fn into_key(self) -> changefeed_core::ItemKey {
        let (partition_key, id) = (self.0.into(), changefeed_core::ItemId::new(self.1).expect("an id"));
        changefeed_core::ItemKey { partition_key, id }
    }
}

#[tokio::test]
async fn a_container_of_the_same_name_starts_above_the_one_before() {
    let mut stage = Stage::new().await;
    for n in 0..5 {
        stage.write(&stage.left[0], &format!("a-{n}")).await;
    }
    stage.write(&stage.right[0], "b").await;
    let other = stage.engine.database(DATABASE).container("other").partition_key("/pk").create().await.expect("create");
    for round in 0..3 {
        let before = stage.container.identity().container;
        match round {
            0 => stage.engine.catalog().delete_container(DATABASE, CONTAINER).await.expect("delete"),
            _ => stage.engine.catalog().delete_database(DATABASE).await.expect("delete"),
        }
        if round < 2 {
            let Stage { disk, clock, engine, container, left, right } = stage;
            drop(container);
            engine.close().await.expect("close");
            let engine = open(&disk, &clock, Durability::Durable);
            let builder = engine.database(DATABASE).container(CONTAINER).partition_key("/pk").ranges(2);
            let container = builder.create().await.expect("create again");
            stage = Stage { disk, clock, engine, container, left, right };
            assert_ne!(stage.container.identity().container, before);
            // Both ranges start above all that the one before had.
            let first = 7 + round;
            assert_eq!(stage.write(&stage.left[0], "first").await, first);
            assert_eq!(stage.write(&stage.right[0], "first").await, first);
        }
    }
    drop(other);
    let fresh = stage.engine.database(DATABASE).container("fresh").partition_key("/pk").create().await.expect("create");
    assert_eq!(fresh.upsert(&item("k", "x", 1)).await.expect("write").lsn.get(), 2, "no other name is concerned");
}

#[tokio::test]
async fn a_lost_relaxed_session_skips_lsns_in_every_range() {
    let disk = MemoryDisk::unreliable();
    let clock = TestClock::new();
    let engine = open(&disk, &clock, Durability::Relaxed);
    let builder = engine.database(DATABASE).container(CONTAINER).partition_key("/pk").ranges(2);
    let container = builder.create().await.expect("create");
    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let mut before = BTreeMap::new();
    for key in &keys {
        before.insert(key, container.upsert(&item(key, "x", 1)).await.expect("write").lsn);
    }
    disk.power_off_after(0);
    drop((container, engine));
    disk.power_off_after(u64::MAX);
    let engine = open(&disk, &clock, Durability::Durable);
    let container = engine.catalog().container(DATABASE, CONTAINER).await.expect("open");
    for key in &keys {
        let lsn = container.upsert(&item(key, "x", 2)).await.expect("write").lsn;
        assert!(lsn.get() > before[key].get() + (1 << 28), "{key} got {lsn}");
    }
}
