//! What a store records, as a program that exports it to Prometheus would see it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use changefeed_embedded::{Engine, vfs::memory::MemoryDisk};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;

#[track_caller]
fn value(handle: &PrometheusHandle, series: &str) -> f64 {
    let (text, start) = (handle.render(), format!("changefeed_store_{series} "));
    let found = text.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("there is no series {series} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn commits_syncs_and_compactions_are_measured() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let engine = Engine::builder().segment_bytes(64 * 1024).in_memory().unwrap();
    let items = engine.database("db").container("c").partition_key("/pk").create().await.unwrap();
    let (before, padding) = (value(&handle, "commit_seconds_count"), "x".repeat(2000));
    for number in 0..500 {
        items.upsert(&json!({ "id": "1", "pk": "a", "n": number, "padding": padding })).await.unwrap();
    }
    assert_eq!(value(&handle, "commit_seconds_count") - before, 500.0);
    assert!(value(&handle, "sync_seconds_count") >= 500.0);
    assert!(value(&handle, "written_bytes_total") > 500.0 * 2000.0);
    assert!(value(&handle, "writes_total") >= 500.0);
    engine.settle().await.unwrap();
    assert!(value(&handle, "compactions_total") >= 1.0);
    assert!(value(&handle, "compaction_freed_bytes_total") > 2000.0);
    assert!(value(&handle, "log_segments") >= 1.0);
    assert_eq!((value(&handle, "failed_syncs_total"), value(&handle, "stopped")), (0.0, 0.0));
    drop((items, engine));
    assert_eq!(value(&handle, "log_bytes"), 0.0, "a store that is closed has none");
}

#[tokio::test]
async fn a_store_that_stopped_itself_shows() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let disk = MemoryDisk::unreliable();
    let engine = Engine::builder().open_on(disk.clone()).unwrap();
    let items = engine.database("db").container("c").partition_key("/pk").create().await.unwrap();
    // The write of the frame is the first call, its sync the second.
    disk.power_off_after(1);
    items.create(&json!({"id": "1", "pk": "a"})).await.unwrap_err();
    assert_eq!((value(&handle, "failed_syncs_total"), value(&handle, "stopped")), (1.0, 1.0));
}
