//! Changes of time to live and retention of a long container, while writers, readers, splits and merges go on.

#![expect(clippy::disallowed_methods, reason = "writers are tasks that only these tests know")]

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{
    Batch, Container, ContainerSpec, ErrorKind, FeedRange, Mode, PartitionKey, PartitionKeyDefinition, PhysicalRange,
    ReadChanges, StartFrom, TimeToLive, Write,
};
use changefeed_embedded::{Durability, Engine, vfs::memory::MemoryDisk};
use changefeed_testkit::clock::TestClock;
use serde_json::{Value, json};

/// Many times what is looked at under the lock at once.
const KEYS: u64 = 600;
const ITEMS_PER_KEY: u64 = 100;

const HOUR: Duration = Duration::from_secs(3600);

/// Half an hour, an hour and two hours.
const HALF: TimeToLive = TimeToLive::Seconds(1800);
const ONE: TimeToLive = TimeToLive::Seconds(3600);
const TWO: TimeToLive = TimeToLive::Seconds(7200);

/// A folder that goes with its test, and its time.
struct Folder(PathBuf, TestClock);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("changefeed-settings-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Self(path, TestClock::new())
    }

    fn open(&self) -> Engine {
        let builder = Engine::builder().durability(Durability::Relaxed).clock(Arc::new(self.1.clone()));
        builder.open(&self.0).expect("open")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn spec(time_to_live: TimeToLive, all_versions_retention: Option<Duration>) -> ContainerSpec {
    let partition_key = PartitionKeyDefinition::hash("/pk").expect("a path");
    ContainerSpec { time_to_live, all_versions_retention, ..ContainerSpec::new("c", partition_key) }
}

async fn create(engine: &Engine, spec: ContainerSpec) -> Container {
    let catalog = engine.catalog();
    if catalog.list_databases().await.expect("list").is_empty() {
        catalog.create_database(changefeed_core::DatabaseSpec::new("d")).await.expect("create the database");
    }
    catalog.create_container("d", spec).await.expect("create");
    catalog.container("d", "c").await.expect("open")
}

async fn set(engine: &Engine, time_to_live: TimeToLive) {
    engine.catalog().replace_container("d", spec(time_to_live, None)).await.expect("replace");
}

/// Writes all items.
async fn fill(container: &Container) {
    let mut writers = tokio::task::JoinSet::new();
    for key in 0..KEYS {
        let container = container.clone();
        writers.spawn(async move {
            let body = |id: u64| Bytes::from(json!({"id": id.to_string(), "pk": format!("k{key}")}).to_string());
            let write = |id| Write::Upsert { body: body(id), if_match: None };
            let writes = (0..ITEMS_PER_KEY).map(write).collect();
            let partition_key = Some(PartitionKey::from(format!("k{key}")));
            container.backend().write(Batch { partition_key, writes, return_items: false }).await.expect("fill");
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer ends well");
    }
}

async fn is_there(container: &Container, key: &str, id: &str) -> bool {
    match container.read::<Value>(key, id).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ItemNotFound => false,
        Err(error) => panic!("{error:?}"),
    }
}

async fn listed(container: &Container) -> u64 {
    container.list("").await.expect("list").len() as u64
}

async fn ranges(container: &Container) -> Vec<PhysicalRange> {
    container.feed_ranges().await.expect("ranges")
}

/// What later pages of the whole feed would give, where known.
async fn remaining(container: &Container) -> Option<u64> {
    let request = ReadChanges::new(FeedRange::full(), StartFrom::Beginning).max_items(1).count_remaining();
    let page = container.read_changes(request).await.expect("read");
    page.remaining.map(|remaining| remaining + page.changes.len() as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_follow_a_new_time_to_live_before_the_index_does() {
    let folder = Folder::new("readers");
    let engine = folder.open();
    let container = create(&engine, spec(TimeToLive::Off, None)).await;
    fill(&container).await;
    folder.1.advance(HOUR);
    container.upsert(&json!({"id": "new", "pk": "new"})).await.expect("write");
    container.upsert(&json!({"id": "long", "pk": "new", "ttl": 100_000})).await.expect("write");
    set(&engine, ONE).await;
    assert!(!is_there(&container, "k0", "0").await);
    assert!(is_there(&container, "new", "new").await);
    assert_eq!(listed(&container).await, 2);
    let counted = remaining(&container).await;
    assert!(counted.is_none_or(|counted| counted == 2), "{counted:?}");
    engine.expire().await.expect("expire");
    assert_eq!(remaining(&container).await, Some(2));
    // Longer or off: what has not expired stays.
    set(&engine, TWO).await;
    folder.1.advance(HOUR);
    engine.expire().await.expect("expire");
    assert_eq!(listed(&container).await, 2);
    set(&engine, HALF).await;
    assert_eq!(listed(&container).await, 1);
    engine.expire().await.expect("expire");
    set(&engine, TimeToLive::Off).await;
    folder.1.advance(100 * HOUR);
    engine.expire().await.expect("expire");
    assert_eq!(listed(&container).await, 1);
    set(&engine, TimeToLive::ItemsOnly).await;
    assert_eq!(listed(&container).await, 0);
    engine.close().await.expect("close");
}

/// If the index followed the change at once, or expiry deleted all at once, the write would wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_comes_during_a_change_does_not_wait_for_it() {
    let folder = Folder::new("during");
    let engine = folder.open();
    let container = create(&engine, spec(TimeToLive::Off, None)).await;
    fill(&container).await;
    // On a busy machine this task may not get to the write before the index has followed.
    for _ in 0..20 {
        set(&engine, ONE).await;
        let following = {
            let engine = engine.clone();
            tokio::spawn(async move { engine.expire().await })
        };
        container.upsert(&json!({"id": "x", "pk": "during"})).await.expect("write");
        let is_early = !following.is_finished() && remaining(&container).await.is_none();
        following.await.expect("no panic").expect("expire");
        assert_eq!(remaining(&container).await, Some(KEYS * ITEMS_PER_KEY + 1));
        if is_early {
            engine.close().await.expect("close");
            return;
        }
        set(&engine, TimeToLive::Off).await;
    }
    panic!("all writes waited for the change");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_reopened_during_a_change_has_the_new_setting() {
    let folder = Folder::new("reopened");
    let engine = folder.open();
    let container = create(&engine, spec(TimeToLive::Off, None)).await;
    fill(&container).await;
    folder.1.advance(HOUR);
    container.upsert(&json!({"id": "new", "pk": "new"})).await.expect("write");
    set(&engine, ONE).await;
    drop(container);
    engine.close().await.expect("close");
    for _ in 0..2 {
        let engine = folder.open();
        let container = engine.catalog().container("d", "c").await.expect("open");
        assert!(!is_there(&container, "k0", "0").await);
        assert_eq!(listed(&container).await, 1);
        // In the middle of the deletes, which begin again after the next open.
        drop(container);
        engine.close().await.expect("close");
    }
    let engine = folder.open();
    let container = engine.catalog().container("d", "c").await.expect("open");
    engine.expire().await.expect("expire");
    assert_eq!(remaining(&container).await, Some(1));
    folder.1.advance(HOUR);
    engine.expire().await.expect("expire");
    assert_eq!(remaining(&container).await, Some(0));
    engine.close().await.expect("close");
}

#[tokio::test]
async fn a_change_that_was_acknowledged_survives_a_power_cut() {
    let (disk, clock) = (MemoryDisk::unreliable(), TestClock::new());
    let open = |disk: MemoryDisk| {
        let builder = Engine::builder().durability(Durability::Relaxed).clock(Arc::new(clock.clone()));
        builder.open_on(disk).expect("open")
    };
    let engine = open(disk.clone());
    let container = create(&engine, spec(TimeToLive::Off, Some(HOUR))).await;
    container.upsert(&json!({"id": "old", "pk": "old"})).await.expect("write");
    engine.catalog().replace_container("d", spec(ONE, None)).await.expect("replace");
    let image = disk.power_cut(|| false);
    let engine = open(image);
    let container = engine.catalog().container("d", "c").await.expect("open");
    assert!(is_there(&container, "old", "old").await);
    clock.advance(HOUR);
    assert!(!is_there(&container, "old", "old").await);
    let request = ReadChanges::new(FeedRange::full(), StartFrom::Now).mode(Mode::AllVersions);
    assert_eq!(container.read_changes(request).await.expect_err("no history").kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_merges_and_further_changes_during_a_change_lose_no_item_and_leave_none() {
    let folder = Folder::new("relayout");
    let engine = folder.open();
    let container = create(&engine, spec(TimeToLive::Off, None)).await;
    fill(&container).await;
    folder.1.advance(HOUR);
    let catalog = engine.catalog();
    let children = {
        let parent = ranges(&container).await.remove(0);
        let (changed, children) =
            tokio::join!(catalog.replace_container("d", spec(TWO, None)), catalog.split("d", "c", &parent.id, None));
        changed.expect("replace");
        children.expect("split")
    };
    // Off and on again: the first listing is given up.
    set(&engine, TimeToLive::Off).await;
    set(&engine, TWO).await;
    let (merged, changed) = tokio::join!(
        catalog.merge("d", "c", [&children[0].id, &children[1].id]),
        catalog.replace_container("d", spec(TimeToLive::Seconds(7201), None)),
    );
    merged.expect("merge");
    changed.expect("replace");
    for key in 0..KEYS / 2 {
        container.upsert(&json!({"id": "0", "pk": format!("k{key}")})).await.expect("write");
    }
    engine.expire().await.expect("expire");
    assert_eq!(remaining(&container).await, Some(KEYS * ITEMS_PER_KEY));
    folder.1.advance(HOUR);
    engine.expire().await.expect("expire");
    assert_eq!(remaining(&container).await, Some(KEYS * ITEMS_PER_KEY));
    folder.1.advance(Duration::from_secs(1));
    engine.expire().await.expect("expire");
    assert_eq!(remaining(&container).await, Some(KEYS / 2));
    assert_eq!(listed(&container).await, KEYS / 2);
    engine.close().await.expect("close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_is_deleted_during_a_change_is_gone() {
    let folder = Folder::new("deleted");
    let engine = folder.open();
    let catalog = engine.catalog();
    let container = loop {
        let container = create(&engine, spec(TimeToLive::Off, None)).await;
        fill(&container).await;
        let (changed, deleted) =
            tokio::join!(catalog.replace_container("d", spec(ONE, None)), catalog.delete_container("d", "c"));
        deleted.expect("delete");
        // On a busy machine the change may be looked at after the delete: then there is nothing to see.
        match changed {
            Err(error) if error.kind() == ErrorKind::ContainerNotFound => {}
            changed => {
                changed.expect("replace");
                break container;
            }
        }
    };
    folder.1.advance(HOUR);
    engine.expire().await.expect("expire");
    assert_eq!(container.feed_ranges().await.expect_err("it is gone").kind(), ErrorKind::ContainerNotFound);
    drop((container, catalog));
    engine.close().await.expect("close");
    let engine = folder.open();
    assert_eq!(engine.catalog().list_containers("d").await.expect("list").len(), 0);
    engine.close().await.expect("close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_follow_a_new_retention_before_history_is_purged() {
    let folder = Folder::new("retention");
    let engine = folder.open();
    let container = create(&engine, spec(TimeToLive::Off, Some(10 * HOUR))).await;
    let all_versions = |start: StartFrom| ReadChanges::new(FeedRange::full(), start).mode(Mode::AllVersions);
    let start = container.read_changes(all_versions(StartFrom::Now)).await.expect("read").continuation.clone();
    fill(&container).await;
    fill(&container).await;
    folder.1.advance(2 * HOUR);
    let catalog = engine.catalog();
    let middle = container.read_changes(all_versions(StartFrom::Now)).await.expect("read").continuation.clone();
    container.upsert(&json!({"id": "0", "pk": "k0"})).await.expect("write");
    let read = |start: &changefeed_core::Continuation| container.read_changes(all_versions(start.clone().into()));
    assert!(read(&start).await.is_ok());
    catalog.replace_container("d", spec(TimeToLive::Off, Some(HOUR))).await.expect("replace");
    assert_eq!(read(&start).await.expect_err("left retention").kind(), ErrorKind::ContinuationExpired);
    assert_eq!(read(&middle).await.expect("read").changes.len(), 1);
    // Off while history is being purged, and on again: history begins with the latter.
    catalog.replace_container("d", spec(TimeToLive::Off, None)).await.expect("replace");
    assert_eq!(read(&middle).await.expect_err("no history").kind(), ErrorKind::Unsupported);
    catalog.replace_container("d", spec(TimeToLive::Off, Some(10 * HOUR))).await.expect("replace");
    assert_eq!(read(&middle).await.expect_err("before it").kind(), ErrorKind::ContinuationExpired);
    let begin = container.read_changes(all_versions(StartFrom::Now)).await.expect("read").continuation.clone();
    container.upsert(&json!({"id": "0", "pk": "k0"})).await.expect("write");
    assert_eq!(read(&begin).await.expect("read").changes.len(), 1);
    engine.expire().await.expect("expire");
    assert_eq!(read(&begin).await.expect("read").changes.len(), 1);
    assert_eq!(listed(&container).await, KEYS * ITEMS_PER_KEY);
    catalog.replace_container("d", spec(TimeToLive::Off, None)).await.expect("replace");
    engine.expire().await.expect("expire");
    engine.settle().await.expect("compact");
    assert_eq!(listed(&container).await, KEYS * ITEMS_PER_KEY);
    engine.close().await.expect("close");
}
