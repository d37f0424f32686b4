//! What pages say about how many changes a range has had, against a count of the writes, while ranges split and merge
//! and the store compacts, closes and crashes.

#[path = "crash/rng.rs"]
#[expect(dead_code, unreachable_pub, reason = "other tests have it in a module of their own and need more of it")]
mod rng;

use std::{collections::BTreeSet, time::Duration};

use changefeed_core::{Container, Epk, FeedRange, Mode, PhysicalRange, ReadChanges, StartFrom};
use changefeed_embedded::{Durability, Engine, vfs::memory::MemoryDisk};
use rng::Rng;
use serde_json::json;

/// Keys enough to fall into every part of the key space.
const KEYS: u64 = 40;

fn open(disk: &MemoryDisk) -> Engine {
    Engine::builder().segment_bytes(16 * 1024).open_on(disk.clone()).expect("open")
}

async fn container(engine: &Engine) -> Container {
    engine.database("d").container("c").open().await.expect("open the container")
}

async fn tally_at(container: &Container, range: &FeedRange, start: impl Into<StartFrom>) -> u64 {
    let page = container.read_changes(ReadChanges::new(range.clone(), start).tally()).await.expect("read");
    page.tally.expect("a tally was asked for")
}

/// Somebody who has read everything in some keys, and what was written there since.
#[derive(Debug)]
struct Follower {
    range: FeedRange,
    tally: u64,
    written: u64,
}

/// A container, those who follow it, and what is counted together in it.
struct Stage {
    disk: MemoryDisk,
    engine: Engine,
    container: Container,
    rng: Rng,
    followers: Vec<Follower>,
    parts: Vec<FeedRange>,
    items: BTreeSet<(u64, u64)>,
}

impl Stage {
    async fn new(seed: u64) -> Self {
        let disk = MemoryDisk::default();
        let engine = open(&disk);
        let container = engine.database("d").container("c").partition_key("/pk").ranges(2).create().await;
        let container = container.expect("create");
        let ranges = container.feed_ranges().await.expect("ranges");
        let parts: Vec<_> = ranges.into_iter().map(|physical| physical.range).collect();
        let followers = parts.iter().map(|range| Follower { range: range.clone(), tally: 0, written: 0 }).collect();
        Self { disk, engine, container, rng: Rng::new(seed), followers, parts, items: BTreeSet::new() }
    }

    fn epk(&self, key: u64) -> Epk {
        self.container.identity().partition_key.epk(&key.to_string().as_str().into()).expect("a key")
    }

    fn wrote(&mut self, key: u64, count: u64) {
        let epk = self.epk(key);
        for follower in self.followers.iter_mut().filter(|follower| follower.range.contains(&epk)) {
            follower.written += count;
        }
    }

    async fn step(&mut self) {
        match self.rng.below(100) {
            0..50 => {
                let (key, id) = (self.rng.below(KEYS), self.rng.below(3));
                let text = "x".repeat(500);
                let item = json!({"id": id.to_string(), "pk": key.to_string(), "text": text});
                self.container.upsert(&item).await.expect("upsert");
                self.items.insert((key, id));
                self.wrote(key, 1);
            }
            50..60 => {
                let (key, count) = (self.rng.below(KEYS), 1 + self.rng.below(4));
                let mut batch = self.container.batch(key.to_string().as_str());
                for n in 0..count {
                    batch = batch.upsert(&json!({"id": format!("batch-{n}"), "pk": key.to_string()}));
                }
                batch.commit().await.expect("batch");
                self.wrote(key, count);
            }
            60..85 => {
                let Some((key, id)) = self.items.iter().nth(self.rng.below(30) as usize).copied() else { return };
                self.container.delete(key.to_string().as_str(), &id.to_string()).await.expect("delete");
                self.items.remove(&(key, id));
                self.wrote(key, 1);
                // A batch that is refused uses nothing up.
                let refused = self.container.batch(key.to_string().as_str());
                let refused = refused.upsert(&json!({"id": "y", "pk": key.to_string()})).delete("never");
                refused.commit().await.expect_err("there is nothing to delete");
            }
            85..88 => self.split().await,
            88..91 => self.merge().await,
            91..94 => {
                self.engine.settle().await.expect("compact");
            }
            94..97 => {
                let engine = std::mem::replace(&mut self.engine, Engine::in_memory().expect("open"));
                engine.close().await.expect("close");
                self.engine = open(&self.disk);
                self.container = container(&self.engine).await;
            }
            _ => {
                let at = self.rng.below(self.followers.len() as u64) as usize;
                self.poll(at).await;
            }
        }
    }

    async fn ranges(&self) -> Vec<PhysicalRange> {
        self.container.feed_ranges().await.expect("ranges")
    }

    /// Splits a range; whoever follows it goes on in both halves.
    async fn split(&mut self) {
        let ranges = self.ranges().await;
        let physical = ranges[self.rng.below(ranges.len() as u64) as usize].clone();
        if ranges.len() > 5 {
            return;
        }
        let catalog = self.engine.catalog();
        let children = catalog.split("d", "c", &physical.id, None).await.expect("split");
        let at = children[1].range.min_inclusive();
        let counted_apart = self.parts.iter().filter(|part| physical.range.overlaps(part)).count() > 1;
        self.parts.retain(|part| !physical.range.overlaps(part));
        self.parts.extend(children.iter().map(|child| child.range.clone()));
        for follower in std::mem::take(&mut self.followers) {
            let halves = match follower.range.split_at(at) {
                Ok((left, right)) => vec![left, right],
                Err(_) => vec![follower.range.clone()],
            };
            for range in halves {
                self.followers.push(Follower { range, ..follower });
            }
        }
        for at in 0..self.followers.len() {
            // What was written before the split is not known for each half, and parts that were counted apart go on
            // from the sum of their counts: never less.
            if physical.range.overlaps(&self.followers[at].range) {
                let follower = &self.followers[at];
                let behind = self.behind(&follower.range, follower.tally).await;
                assert!(behind >= 0 && (!counted_apart || behind >= follower.written as i64), "{behind}: {follower:?}");
                self.poll(at).await;
            }
        }
    }

    async fn merge(&mut self) {
        let ranges = self.ranges().await;
        if let [left, right, ..] = &ranges[self.rng.below(ranges.len() as u64) as usize..] {
            let ids = if self.rng.percent(50) { [&left.id, &right.id] } else { [&right.id, &left.id] };
            self.engine.catalog().merge("d", "c", ids).await.expect("merge");
        }
    }

    async fn behind(&self, range: &FeedRange, tally: u64) -> i64 {
        tally_at(&self.container, range, StartFrom::Now).await as i64 - tally as i64
    }

    async fn poll(&mut self, at: usize) {
        let range = self.followers[at].range.clone();
        let tally = tally_at(&self.container, &range, StartFrom::Now).await;
        self.followers[at] = Follower { range, tally, written: 0 };
    }

    async fn check(&self, step: usize) {
        for follower in &self.followers {
            let behind = self.behind(&follower.range, follower.tally).await;
            let written = follower.written as i64;
            let whole = self.parts.iter().filter(|part| part.overlaps(&follower.range));
            if whole.clone().all(|part| follower.range.contains_range(part)) {
                assert_eq!(behind, written, "step {step}: {follower:?}");
            } else {
                assert!(behind >= written, "step {step}: {behind} for {follower:?}");
            }
        }
        for physical in self.ranges().await {
            self.check_pages(&physical.range, step).await;
        }
    }

    /// A page in the middle tells what waits after it.
    async fn check_pages(&self, range: &FeedRange, step: usize) {
        let now = tally_at(&self.container, range, StartFrom::Now).await;
        let mut start = StartFrom::Beginning;
        for _ in 0..4 {
            let request = ReadChanges::new(range.clone(), start).max_items(5).tally().count_remaining();
            let page = self.container.read_changes(request).await.expect("read").into_value();
            let (tally, remaining) = (page.tally.expect("a tally"), page.remaining.expect("a count"));
            assert_eq!(tally + remaining, now, "step {step}: after {}", page.continuation);
            start = page.continuation.into();
        }
    }
}

#[tokio::test]
async fn a_tally_counts_the_writes_to_its_range_whatever_becomes_of_it() {
    for seed in 0..30 {
        let mut stage = Stage::new(seed).await;
        for step in 0..300 {
            stage.step().await;
            if step % 10 == 9 {
                stage.check(step).await;
            }
        }
        stage.check(300).await;
    }
}

#[tokio::test]
async fn a_number_is_not_given_twice_when_the_records_that_had_it_are_dropped() {
    let disk = MemoryDisk::default();
    let engine = open(&disk);
    let items = engine.database("d").container("c").partition_key("/pk").ranges(2).create().await.expect("create");
    let text = "x".repeat(1000);
    for n in 0..60 {
        items.upsert(&json!({"id": n.to_string(), "pk": n.to_string(), "text": text})).await.expect("upsert");
    }
    for n in 0..60 {
        items.delete(n.to_string().as_str(), &n.to_string()).await.expect("delete");
    }
    let ranges = items.feed_ranges().await.expect("ranges");
    let before: Vec<u64> = tallies(&items, &ranges).await;
    assert_eq!(before.iter().sum::<u64>(), 120);
    let mut engine = engine;
    for _ in 0..3 {
        // Something else, so that the segments with the deletes are compacted; and floors of floors.
        let other = engine.database("d").container("other").partition_key("/pk").open_or_create().await.expect("other");
        for n in 0..40 {
            other.upsert(&json!({"id": "x", "pk": "x", "n": n, "text": text})).await.expect("upsert");
        }
        engine.settle().await.expect("compact");
        engine.close().await.expect("close");
        engine = open(&disk);
        assert_eq!(tallies(&container(&engine).await, &ranges).await, before);
    }
    assert!(engine.disk_bytes().expect("size") < 60 * 1000, "the records were dropped");
}

async fn tallies(container: &Container, ranges: &[PhysicalRange]) -> Vec<u64> {
    let mut tallies = Vec::new();
    for physical in ranges {
        tallies.push(tally_at(container, &physical.range, StartFrom::Now).await);
    }
    tallies
}

#[tokio::test]
async fn a_number_that_a_crash_took_back_is_not_given_again() {
    let disk = MemoryDisk::unreliable();
    let relaxed = |disk: &MemoryDisk| {
        Engine::builder().durability(Durability::Relaxed).open_on(disk.clone()).expect("open in relaxed mode")
    };
    let engine = relaxed(&disk);
    let items = engine.database("d").container("c").partition_key("/pk").ranges(2).create().await.expect("create");
    for n in 0..20 {
        items.upsert(&json!({"id": n.to_string(), "pk": n.to_string()})).await.expect("upsert");
    }
    let ranges = items.feed_ranges().await.expect("ranges");
    let before = tallies(&items, &ranges).await;
    let after_crash = disk.power_cut(|| false);
    let engine = relaxed(&after_crash);
    let items = container(&engine).await;
    let after = tallies(&items, &ranges).await;
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?}, then {after:?}");
}

#[tokio::test]
async fn versions_that_wait_are_counted_in_all_versions_mode() {
    let engine = Engine::in_memory().expect("open");
    let items = engine.database("d").container("c").partition_key("/pk").all_versions(Duration::from_secs(1000));
    let items = items.create().await.expect("create");
    let request = |start: StartFrom| ReadChanges::new(FeedRange::full(), start).mode(Mode::AllVersions).tally();
    let start = items.read_changes(request(StartFrom::Now)).await.expect("read");
    for n in 0..5 {
        items.upsert(&json!({"id": "x", "pk": "x", "n": n})).await.expect("upsert");
    }
    items.delete("x", "x").await.expect("delete");
    let page = items.read_changes(request(start.continuation.clone().into()).max_items(2)).await.expect("read");
    assert_eq!((start.tally, page.changes.len(), page.tally), (Some(0), 2, Some(2)));
    assert_eq!(tally_at(&items, &FeedRange::full(), StartFrom::Now).await, 6);
}
