//! A folder written at commit a92fe1f, before stores had an identity: it opens, serves the same feed, can be written
//! on, and gets an identity that stays.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use changefeed_core::{Container, Continuation, FeedRange, ListItems, Mode, ReadChanges, StartFrom, Timestamp};
use changefeed_embedded::Engine;
use changefeed_testkit::{clock::TestClock, fixtures::item};
use serde_json::{Value, json};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/a92fe1f");
const NAMES: [&str; 3] = ["orders", "plain", "sessions"];

/// A copy of the folder: opening it writes to it.
struct Copy {
    folder: PathBuf,
    clock: TestClock,
    expected: Value,
}

impl Copy {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("old-folder-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("make the folder");
        for entry in fs::read_dir(Path::new(FIXTURE).join("store")).expect("the fixture") {
            let entry = entry.expect("a file of the fixture");
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("copy a file");
        }
        let expected = fs::read(Path::new(FIXTURE).join("expected.json")).expect("the expectation");
        let mut expected: Value = serde_json::from_slice(&expected).expect("JSON");
        for name in NAMES {
            let items = expected["containers"][name]["items"].as_array_mut().expect("items");
            items.sort_by_key(Value::to_string);
        }
        let clock = TestClock::at(Timestamp::from_millis(expected["now"].as_u64().expect("a time")));
        Self { folder, clock, expected }
    }

    fn open(&self) -> Engine {
        let builder = Engine::builder().clock(Arc::new(self.clock.clone())).segment_bytes(64 * 1024);
        builder.open(&self.folder).expect("open the old folder")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

async fn container(engine: &Engine, name: &str) -> Container {
    engine.catalog().container("shop", name).await.expect("open the container")
}

/// All that the generator wrote down about a container.
async fn describe(engine: &Engine, name: &str) -> Value {
    let container = container(engine, name).await;
    let mut ranges = Vec::new();
    for physical in container.feed_ranges().await.expect("read the ranges") {
        let latest = feed(&container, &physical.range, StartFrom::Beginning, Mode::LatestVersion).await;
        let all = match name {
            "orders" => {
                feed(&container, &physical.range, Continuation::from_token("\"0\"").into(), Mode::AllVersions).await
            }
            _ => Vec::new(),
        };
        ranges.push(json!({
            "id": physical.id, "range": physical.range, "parents": physical.parents, "latest": latest, "all": all,
        }));
    }
    let items = container.backend().list_items(ListItems::default()).await.expect("list").into_value().items;
    // The order of a listing is no part of the format: this version lists by resource id, the one before by key.
    let mut items: Vec<_> = items.iter().map(|item| json!([item.id, item.etag.as_str(), item.rid])).collect();
    items.sort_by_key(Value::to_string);
    json!({"rid": container.identity().container, "ranges": ranges, "items": items})
}

async fn feed(container: &Container, range: &FeedRange, start: StartFrom, mode: Mode) -> Vec<Value> {
    let mut changes = Vec::new();
    let mut request = ReadChanges::new(range.clone(), start).mode(mode).max_items(7);
    loop {
        let page = container.read_changes(request.clone()).await.expect("read changes").into_value();
        if page.changes.is_empty() {
            return changes;
        }
        for change in &page.changes {
            let sum = |body: &Option<changefeed_core::Bytes>| body.as_ref().map(|body| crc32fast::hash(body));
            let (current, previous) = (sum(&change.current), sum(&change.previous));
            changes.push(json!([change.id, change.lsn, change.timestamp, change.operation, current, previous]));
        }
        request.start = page.continuation.into();
    }
}

#[tokio::test]
async fn an_old_folder_serves_the_same_items_and_the_same_feed() {
    let copy = Copy::new("same");
    for _ in 0..2 {
        let engine = copy.open();
        for name in NAMES {
            assert_eq!(describe(&engine, name).await, copy.expected["containers"][name], "{name}");
        }
        let databases = engine.catalog().list_databases().await.expect("list");
        assert_eq!(databases.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["shop"]);
        assert_eq!(databases[0].extra.get("note"), Some(&json!("kept")));
        let containers = engine.catalog().list_containers("shop").await.expect("list");
        assert_eq!(containers[0].spec.extra.get("colour"), Some(&json!({"deep": [1, 2]})));
        // Compaction rewrites old segments, and changes nothing.
        engine.settle().await.expect("compact");
        for name in NAMES {
            assert_eq!(describe(&engine, name).await, copy.expected["containers"][name], "{name} after compaction");
        }
        engine.close().await.expect("close");
    }
}

#[tokio::test]
async fn an_old_folder_gets_an_identity_at_its_first_opening_and_keeps_it() {
    let (one, two) = (Copy::new("one"), Copy::new("two"));
    assert!(!one.folder.join("STORE").exists(), "it was written before");
    let engine = one.open();
    let id = engine.store_id().clone();
    assert_eq!(container(&engine, "orders").await.identity().store, id);
    engine.close().await.expect("close");
    assert_eq!(fs::read_to_string(one.folder.join("STORE")).expect("read STORE").split(' ').next(), Some(id.as_str()));
    let engine = one.open();
    assert_eq!(*engine.store_id(), id);
    assert_eq!(container(&engine, "plain").await.identity().store, id);
    assert_ne!(*two.open().store_id(), id, "each folder gets its own");
}

#[tokio::test]
async fn an_old_folder_can_be_written_on() {
    let copy = Copy::new("written");
    let engine = copy.open();
    let orders = container(&engine, "orders").await;
    let ranges = orders.feed_ranges().await.expect("read the ranges");
    let mut ends = Vec::new();
    for physical in &ranges {
        let now = ReadChanges::new(physical.range.clone(), StartFrom::Now).mode(Mode::AllVersions);
        ends.push(orders.read_changes(now).await.expect("read").continuation.clone());
    }
    copy.clock.advance(Duration::from_secs(1));
    for n in 0..20 {
        orders.upsert(&item(&format!("key-{n}"), "new", n)).await.expect("write");
    }
    orders.replace(&item("key-5", "between", 2)).await.expect("replace an old item");
    orders.delete("key-1", "late-1").await.expect("delete an old item");
    let children = engine.catalog().split("shop", "orders", &ranges[0].id, None).await.expect("split");
    assert!(children[0].parents.contains(&ranges[0].id));
    drop(orders);
    engine.close().await.expect("close");
    let engine = copy.open();
    let orders = container(&engine, "orders").await;
    let mut news = 0;
    for physical in orders.feed_ranges().await.expect("read the ranges") {
        let old = ranges.iter().position(|old| old.range.contains_range(&physical.range)).expect("its old range");
        news += feed(&orders, &physical.range, ends[old].clone().into(), Mode::AllVersions).await.len();
    }
    assert_eq!(news, 22, "old continuations show what is new, and nothing else");
    assert_eq!(orders.read::<Value>("key-5", "between").await.expect("read")["n"], 2);
}
