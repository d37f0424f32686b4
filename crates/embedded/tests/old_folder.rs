//! Folders of version 1 of the format, in which the ranges of a container had one sequence of LSNs together. One was
//! written at commit a92fe1f, before stores had an identity; the other at 3a0266f, the last commit of that version, with
//! a relaxed session that was lost and history that was purged. They open, serve the same feed, can be written on, and
//! continuations that are kept elsewhere lose nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use changefeed_core::{
    Container, Continuation, ErrorKind, FeedRange, ListItems, Mode, ReadChanges, StartFrom, Timestamp,
};
use changefeed_embedded::Engine;
use changefeed_testkit::{clock::TestClock, fixtures::item};
use serde_json::{Value, json};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// The commit that wrote a folder, and the containers in it.
type Written = (&'static str, &'static [&'static str]);
const FIRST: Written = ("a92fe1f", &["orders", "plain", "sessions"]);
const LAST: Written = ("3a0266f", &["kept", "orders", "plain", "sessions"]);

/// A copy of the folder: opening it writes to it.
struct Copy {
    folder: PathBuf,
    clock: TestClock,
    expected: Value,
}

impl Copy {
    fn new(name: &str, (commit, names): Written) -> Self {
        let folder = format!("old-folder-{name}-{commit}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        let fixture = Path::new(FIXTURES).join(commit);
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("make the folder");
        for entry in fs::read_dir(fixture.join("store")).expect("the fixture") {
            let entry = entry.expect("a file of the fixture");
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("copy a file");
        }
        let expected = fs::read(fixture.join("expected.json")).expect("the expectation");
        let mut expected: Value = serde_json::from_slice(&expected).expect("JSON");
        for name in names {
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
        let now = ReadChanges::new(physical.range.clone(), StartFrom::Now);
        let end = container.read_changes(now).await.expect("read").continuation.clone();
        ranges.push(json!({
            "id": physical.id, "range": physical.range, "parents": physical.parents, "latest": latest, "all": all,
            "end": end.token(),
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

/// What the generator wrote down. The first one did not say where ranges end.
fn expected(copy: &Copy, name: &str, found: &Value) -> Value {
    let mut expected = copy.expected["containers"][name].clone();
    let ranges = expected["ranges"].as_array_mut().expect("ranges");
    for (range, found) in ranges.iter_mut().zip(found["ranges"].as_array().expect("ranges")) {
        if range.get("end").is_none() {
            range["end"] = found["end"].clone();
        }
    }
    expected
}

#[tokio::test]
async fn an_old_folder_serves_the_same_items_and_the_same_feed() {
    for written in [FIRST, LAST] {
        let copy = Copy::new("same", written);
        for round in 0..2 {
            let format = fs::read_to_string(copy.folder.join("FORMAT")).expect("read FORMAT");
            assert_eq!(format, format!("changefeed embedded {}\n", round + 1));
            let engine = copy.open();
            for name in written.1 {
                let found = describe(&engine, name).await;
                assert_eq!(found, expected(&copy, name, &found), "{name}");
            }
            let databases = engine.catalog().list_databases().await.expect("list");
            assert_eq!(databases.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["shop"]);
            assert_eq!(databases[0].extra.get("note"), Some(&json!("kept")));
            let orders = engine.catalog().list_containers("shop").await.expect("list");
            let orders = orders.iter().find(|info| info.spec.name == "orders").expect("orders");
            assert_eq!(orders.spec.extra.get("colour"), Some(&json!({"deep": [1, 2]})));
            // Compaction rewrites old segments, and changes nothing.
            engine.settle().await.expect("compact");
            for name in written.1 {
                let found = describe(&engine, name).await;
                assert_eq!(found, expected(&copy, name, &found), "{name} after compaction");
            }
            engine.close().await.expect("close");
        }
    }
}

/// Whoever kept any position of the old sequence finds everything that came after it, also in ranges that are split and
/// merged later.
#[tokio::test]
async fn positions_of_an_old_folder_lose_nothing() {
    for written in [FIRST, LAST] {
        let copy = Copy::new("positions", written);
        let engine = copy.open();
        let orders = container(&engine, "orders").await;
        let ranges = orders.feed_ranges().await.expect("read the ranges");
        let [left, right] = [&ranges[0], &ranges[1]];
        engine.catalog().merge("shop", "orders", [&left.id, &right.id]).await.expect("merge");
        orders.upsert(&item("key-1", "news", 1)).await.expect("write");
        let news = orders.identity().partition_key.epk(&"key-1".into()).expect("a key");
        for (old, described) in
            [left, right].into_iter().zip(copy.expected["containers"]["orders"]["ranges"].as_array().expect("ranges"))
        {
            let all = described["all"].as_array().expect("versions");
            let lsn = |change: &Value| change[1].as_u64().expect("an LSN");
            for kept in [0].into_iter().chain(all.iter().map(lsn)) {
                let start = Continuation::from_token(format!("\"{kept}\"")).into();
                let mut found = feed(&orders, &old.range, start, Mode::AllVersions).await;
                if old.range.contains(&news) {
                    assert_eq!(found.pop().expect("the news")[0], "news");
                }
                let later: Vec<_> = all.iter().filter(|change| lsn(change) > kept).cloned().collect();
                assert_eq!(found, later, "after {kept}");
            }
        }
    }
}

#[tokio::test]
async fn each_range_of_an_old_folder_goes_on_above_the_old_sequence() {
    let copy = Copy::new("sequences", LAST);
    let engine = copy.open();
    let kept = container(&engine, "kept").await;
    // The history of the busy range was purged up to 200, of all ranges as far as that version knew.
    let error =
        ReadChanges::new(kept.feed_ranges().await.expect("ranges")[0].range.clone(), Continuation::from_token("\"5\""));
    let error = kept.read_changes(error.mode(Mode::AllVersions)).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::ContinuationExpired);
    let deleted = kept.identity().container;
    let created = kept.create(&item("key-0", "created", 1)).await.expect("create");
    assert_eq!(created.lsn.get(), 212);
    let backend = kept.backend();
    let listed = backend.list_items(ListItems { id_prefix: "created".to_owned(), ..ListItems::default() }).await;
    let number = listed.expect("list").items[0].rid.document_number().expect("a document");
    assert!(number > 211 * 128 + 127, "{number} may have been a document of {deleted} that is gone");
    let mut lsns = Vec::new();
    for key in ["key-0", "key-1", "key-2", "key-3"] {
        lsns.push(kept.upsert(&item(key, "next", 1)).await.expect("write").lsn.get());
    }
    lsns.sort_unstable();
    assert_eq!(lsns[0], 212, "the other range goes on from the old end, too: {lsns:?}");
}

#[tokio::test]
async fn an_old_folder_gets_an_identity_at_its_first_opening_and_keeps_it() {
    let (one, two) = (Copy::new("one", FIRST), Copy::new("two", FIRST));
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
    let copy = Copy::new("written", FIRST);
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
