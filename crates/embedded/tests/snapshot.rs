//! Snapshots: what was acknowledged before one is in it, whatever commits and compaction do meanwhile.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use changefeed_core::{Container, ErrorKind};
use changefeed_embedded::{Engine, Snapshot};
use serde_json::{Value, json};

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("changefeed-snapshot-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    path
}

fn open(folder: &Path) -> Engine {
    // Small segments, so that there are many.
    Engine::builder().segment_bytes(64 * 1024).open(folder).unwrap()
}

async fn orders(engine: &Engine) -> Container {
    engine.database("shop").container("orders").partition_key("/id").open_or_create().await.unwrap()
}

async fn write(orders: &Container, round: u64, count: u64) {
    for number in 0..count {
        let padding = "x".repeat(600);
        orders.upsert(&json!({ "id": format!("o{number}"), "round": round, "padding": padding })).await.unwrap();
    }
}

fn copy(snapshot: &Snapshot, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in snapshot.files() {
        snapshot.check(&file.name).unwrap();
        let mut bytes = Vec::new();
        // In parts, as over a network.
        while (bytes.len() as u64) < file.bytes {
            bytes.extend(snapshot.read(&file.name, bytes.len() as u64, 10_000).unwrap());
        }
        assert!(snapshot.read(&file.name, file.bytes, 10).unwrap().is_empty());
        fs::write(to.join(&file.name), bytes).unwrap();
    }
}

async fn rounds(folder: &Path) -> Vec<u64> {
    let engine = open(folder);
    engine.verify().unwrap();
    let items = orders(&engine).await.list("").await.unwrap();
    let rounds = items.iter().map(|item| item.parse::<Value>().unwrap()["round"].as_u64().unwrap()).collect();
    engine.close().await.unwrap();
    rounds
}

#[tokio::test]
async fn a_snapshot_holds_what_was_there_when_it_was_taken() {
    let (source, target) = (folder("source"), folder("target"));
    let engine = open(&source);
    let container = orders(&engine).await;
    for round in 0..3 {
        write(&container, round, 200).await;
    }
    let snapshot = engine.snapshot().unwrap();
    // What comes after it is not in it, and compaction takes nothing away from it.
    for round in 3..9 {
        write(&container, round, 200).await;
    }
    engine.settle().await.unwrap();
    copy(&snapshot, &target);
    assert_eq!(snapshot.store_id(), engine.store_id());
    drop((snapshot, container));
    assert_eq!(rounds(&target).await, vec![2; 200]);
    let copied = open(&target);
    assert_ne!(copied.store_id(), engine.store_id(), "a copy has an identity of its own");
    copied.close().await.unwrap();
    engine.close().await.unwrap();
    assert_eq!(rounds(&source).await, vec![8; 200]);
    for folder in [source, target] {
        fs::remove_dir_all(folder).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_that_are_taken_while_writers_go_on_can_all_be_opened() {
    let (source, target) = (folder("busy"), folder("copies"));
    let engine = open(&source);
    let container = orders(&engine).await;
    let mut writers = tokio::task::JoinSet::new();
    let writer = container.clone();
    writers.spawn(async move {
        for round in 0..30 {
            write(&writer, round, 60).await;
        }
    });
    let mut number = 0;
    while writers.try_join_next().is_none() {
        let acknowledged = container.list("").await.unwrap().len();
        let copied = target.join(number.to_string());
        copy(&engine.snapshot().unwrap(), &copied);
        assert!(rounds(&copied).await.len() >= acknowledged, "what was seen before is in it");
        number += 1;
    }
    assert!(number > 1);
    drop(container);
    engine.close().await.unwrap();
    for folder in [source, target] {
        fs::remove_dir_all(folder).unwrap();
    }
}

#[tokio::test]
async fn damage_is_found_and_a_closed_store_has_no_snapshot() {
    let source = folder("damaged");
    let engine = open(&source);
    let container = orders(&engine).await;
    write(&container, 0, 400).await;
    let snapshot = engine.snapshot().unwrap();
    let first = snapshot.files().nth(1).unwrap().name.clone();
    let path = source.join(&first);
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damage = snapshot.check(&first).unwrap_err();
    assert_eq!(damage.kind(), ErrorKind::Corrupt);
    assert!(damage.message().contains(&first), "{damage}");
    assert_eq!(snapshot.read("none", 0, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(container);
    let handle = engine.clone();
    engine.close().await.unwrap();
    assert_eq!(handle.snapshot().unwrap_err().kind(), ErrorKind::Closed);
    drop(handle);
    fs::remove_dir_all(source).unwrap();
}
