//! Splits and merges of long ranges, while writers, readers and compaction go on.

#![expect(clippy::disallowed_methods, reason = "writers and readers are tasks that only these tests know")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use changefeed_core::{
    Batch, Container, ErrorKind, FeedRange, Mode, Operation, PartitionKey, PhysicalRange, ReadChanges, StartFrom, Write,
};
use changefeed_embedded::{Durability, Engine};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const KEYS: u64 = 600;
const ITEMS_PER_KEY: u64 = 100;

/// Keys that writers change, apart from those that make the range long.
const BUSY_KEYS: u64 = 40;

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("changefeed-relayout-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Self(path)
    }

    fn open(&self) -> Engine {
        // Small segments, so that compaction has something to do.
        let builder = Engine::builder().durability(Durability::Relaxed).segment_bytes(256 * 1024);
        builder.open(&self.0).expect("open")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

async fn create(engine: &Engine) -> Container {
    let builder = engine.database("d").container("c").partition_key("/pk").ranges(1);
    builder.all_versions(Duration::from_secs(3600)).create().await.expect("create")
}

/// Makes the only range long.
async fn fill(container: &Container) {
    let mut writers = tokio::task::JoinSet::new();
    for key in 0..KEYS {
        let container = container.clone();
        writers.spawn(async move {
            let body = |id: u64| Bytes::from(json!({"id": id.to_string(), "pk": format!("k{key}")}).to_string());
            let writes = (0..ITEMS_PER_KEY).map(|id| Write::Create { body: body(id) }).collect();
            let partition_key = Some(PartitionKey::from(format!("k{key}")));
            container.backend().write(Batch { partition_key, writes, return_items: false }).await.expect("fill");
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer ends well");
    }
}

async fn ranges(container: &Container) -> Vec<PhysicalRange> {
    container.feed_ranges().await.expect("ranges")
}

/// The versions of an item that were acknowledged, in order: its number, none for a delete.
type Versions = BTreeMap<String, Vec<Option<u64>>>;

/// Writes until it is stopped: creates, replaces and deletes items of some keys. Returns what was acknowledged.
fn write(container: Container, writer: u64, stop: Arc<AtomicBool>) -> JoinHandle<Versions> {
    tokio::spawn(async move {
        let mut versions = Versions::new();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("busy-{writer}-{}", number % BUSY_KEYS);
            let of_key = versions.entry(key.clone()).or_default();
            if number % 7 == 6 && of_key.last().is_some_and(Option::is_some) {
                container.delete(key.as_str(), "x").await.expect("delete");
                of_key.push(None);
            } else {
                container.upsert(&json!({"id": "x", "pk": key, "n": number})).await.expect("upsert");
                of_key.push(Some(number));
            }
        }
        versions
    })
}

/// Follows all versions from `starts` on, through splits and merges, until it is stopped and has come to the end. Returns
/// what it saw.
fn follow(container: Container, starts: Vec<(FeedRange, StartFrom)>, stop: Arc<AtomicBool>) -> JoinHandle<Versions> {
    tokio::spawn(async move {
        let (mut seen, mut starts) = (Versions::new(), starts);
        loop {
            // What is read after this has everything.
            let last = stop.load(Ordering::Relaxed);
            let mut moved = false;
            let mut next = Vec::new();
            for (range, start) in starts {
                let request = ReadChanges::new(range.clone(), start.clone()).mode(Mode::AllVersions).max_items(500);
                match container.read_changes(request).await {
                    Ok(page) => {
                        moved |= !page.changes.is_empty();
                        for change in &page.changes {
                            let Some((key, number)) = busy_key(change) else { continue };
                            seen.entry(key).or_default().push(number);
                        }
                        next.push((range, page.continuation.clone().into()));
                    }
                    // It was split: both children go on from where the parent was read to.
                    Err(error) if error.kind() == ErrorKind::RangeGone => {
                        moved = true;
                        let children = ranges(&container).await.into_iter().map(|child| child.range);
                        let parts = children.filter(|child| range.contains_range(child));
                        next.extend(parts.map(|child| (child, start.clone())));
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            starts = next;
            if last && !moved {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    })
}

/// The key and the number of a change of a writer.
fn busy_key(change: &changefeed_core::Change) -> Option<(String, Option<u64>)> {
    let body = change.current.as_ref().or(change.previous.as_ref())?;
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let key = body["pk"].as_str().filter(|key| key.starts_with("busy"))?.to_owned();
    Some((key, (change.operation != Operation::Delete).then(|| body["n"].as_u64().expect("a number"))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_readers_go_on_while_a_long_range_is_split_and_merged() {
    let folder = Folder::new("busy");
    let engine = folder.open();
    let container = create(&engine).await;
    fill(&container).await;
    let now = ReadChanges::new(FeedRange::full(), StartFrom::Now).mode(Mode::AllVersions);
    let start = container.read_changes(now).await.expect("read").continuation.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3).map(|number| write(container.clone(), number, Arc::clone(&stop))).collect();
    let read_to_end = Arc::new(AtomicBool::new(false));
    let reader = follow(container.clone(), vec![(FeedRange::full(), start.clone().into())], Arc::clone(&read_to_end));
    let catalog = engine.catalog();
    for _ in 0..2 {
        let parent = ranges(&container).await.remove(0);
        let children = catalog.split("d", "c", &parent.id, None).await.expect("split");
        assert_eq!(ranges(&container).await, children);
        catalog.merge("d", "c", [&children[0].id, &children[1].id]).await.expect("merge");
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Versions::new();
    for writer in writers {
        acknowledged.extend(writer.await.expect("a writer ends well"));
    }
    read_to_end.store(true, Ordering::Relaxed);
    assert_eq!(reader.await.expect("the reader ends well"), acknowledged);
    engine.settle().await.expect("compact");
    drop((container, catalog));
    engine.close().await.expect("close");

    // The records on disk say the same.
    let engine = folder.open();
    let container = engine.catalog().container("d", "c").await.expect("open");
    let again = follow(container.clone(), vec![(FeedRange::full(), start.into())], Arc::new(AtomicBool::new(true)));
    assert_eq!(again.await.expect("the reader ends well"), acknowledged);
    for (key, versions) in acknowledged {
        let stored: Option<Value> = match container.read(key.as_str(), "x").await {
            Ok(item) => Some(item),
            Err(error) if error.kind() == ErrorKind::ItemNotFound => None,
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(stored.map(|item| item["n"].as_u64()), versions.last().copied().flatten().map(Some), "{key}");
    }
    let items = container.list("").await.expect("list").len() as u64;
    assert!(items >= KEYS * ITEMS_PER_KEY, "{items} items");
    engine.close().await.expect("close");
}

async fn newest(container: &Container, range: &PhysicalRange) -> u64 {
    let now = ReadChanges::new(range.range.clone(), StartFrom::Now);
    container.read_changes(now).await.expect("read").newest_lsn.get()
}

/// A write that is submitted after a split goes to the parent if it need not wait: then both children continue above it. If it
/// had to wait, only the child that it goes to would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_comes_during_a_split_does_not_wait_for_it() {
    let folder = Folder::new("during");
    let engine = folder.open();
    let container = create(&engine).await;
    fill(&container).await;
    let catalog = engine.catalog();
    // On a busy machine this task may not get to the write before the split is done.
    for _ in 0..20 {
        let parent = ranges(&container).await.remove(0);
        let before = newest(&container, &parent).await;
        let item = json!({"id": "x", "pk": "during"});
        let (children, written) = tokio::join!(catalog.split("d", "c", &parent.id, None), container.upsert(&item));
        let (children, written) = (children.expect("split"), written.expect("write").lsn.get());
        assert_eq!(written, before + 1);
        let ends = [newest(&container, &children[0]).await, newest(&container, &children[1]).await];
        if ends == [written, written] {
            engine.close().await.expect("close");
            return;
        }
        catalog.merge("d", "c", [&children[0].id, &children[1].id]).await.expect("merge");
    }
    panic!("all writes waited for the split");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_changes_of_a_container_wait_for_its_split() {
    let folder = Folder::new("order");
    let engine = folder.open();
    let catalog = engine.catalog();
    // On a busy machine a container may be gone before this task asks for the range that the merge has made. A delete that
    // did not wait for the merge would fail it every time.
    let mut merged_before_delete = false;
    for _ in 0..10 {
        let container = create(&engine).await;
        fill(&container).await;
        let parent = ranges(&container).await.remove(0);
        let split = || catalog.split("d", "c", &parent.id, None);
        let (first, second) = tokio::join!(split(), split());
        let children = first.expect("split");
        assert_eq!(second.expect_err("the parent is gone").kind(), ErrorKind::RangeGone);
        assert_eq!(ranges(&container).await, children);
        let merging = catalog.merge("d", "c", [&children[0].id, &children[1].id]);
        let (merged, deleted) = tokio::join!(merging, catalog.delete_container("d", "c"));
        deleted.expect("delete");
        assert_eq!(container.feed_ranges().await.expect_err("it is gone").kind(), ErrorKind::ContainerNotFound);
        match merged {
            Ok(_) => {
                merged_before_delete = true;
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::ContainerNotFound, "{error}"),
        }
    }
    assert!(merged_before_delete, "no delete waited for the merge before it");
    engine.settle().await.expect("compact");
    let bytes = engine.disk_bytes().expect("measure");
    assert!(bytes < 3 * 1024 * 1024, "{bytes} bytes of a deleted container");
    engine.close().await.expect("close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_during_a_split_has_split_or_has_not() {
    let folder = Folder::new("closed");
    let engine = folder.open();
    let container = create(&engine).await;
    fill(&container).await;
    let before = ranges(&container).await;
    let catalog = engine.catalog();
    let splitting = {
        let (catalog, id) = (Arc::clone(&catalog), before[0].id.clone());
        tokio::spawn(async move { catalog.split("d", "c", &id, None).await })
    };
    tokio::task::yield_now().await;
    let closed = engine.close().await;
    closed.expect("close");
    let split = splitting.await.expect("no panic");
    drop((container, catalog));
    let engine = folder.open();
    let container = engine.catalog().container("d", "c").await.expect("open");
    let after = ranges(&container).await;
    match split {
        Ok(children) => assert_eq!(after, children),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
            assert_eq!(after, before);
        }
    }
    assert_eq!(container.list("").await.expect("list").len() as u64, KEYS * ITEMS_PER_KEY);
    engine.close().await.expect("close");
}
