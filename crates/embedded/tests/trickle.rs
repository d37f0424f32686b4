//! A store that is never idle: compaction does its work between writes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use changefeed_core::Container;
use changefeed_embedded::{Durability, Engine};
use changefeed_testkit::clock::TestClock;
use serde_json::json;

/// How long to wait until the disk is free again.
const LONG: Duration = Duration::from_secs(60);

/// Shorter than any pause after which a store counts as idle.
const BETWEEN_WRITES: Duration = Duration::from_millis(50);

async fn write(container: &Container, id: u64, version: u64) {
    let item = json!({"id": id.to_string(), "pk": "a", "version": version, "text": "x".repeat(4000)});
    container.upsert(&item).await.expect("write");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "compaction is a thread, which takes real time")]
async fn a_trickle_of_writes_does_not_postpone_compaction() {
    let folder: PathBuf = std::env::temp_dir().join(format!("changefeed-trickle-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    let builder = Engine::builder().durability(Durability::Relaxed).segment_bytes(256 * 1024);
    let clock = TestClock::new();
    let engine = builder.clock(Arc::new(clock.clone())).open(&folder).expect("open");
    let container = engine.database("d").container("c").partition_key("/pk");
    let container = container.all_versions(Duration::from_secs(3600)).create().await.expect("create");
    // Everything is needed as long as retention lasts: compaction has nothing to do yet.
    for version in 0..100 {
        for id in 0..20 {
            write(&container, id, version).await;
        }
    }
    let before = engine.disk_bytes().expect("measure");
    assert!(before > 6 * 1024 * 1024, "{before} bytes");
    clock.advance(Duration::from_secs(7200));
    let freed = async {
        let mut version = 100;
        while engine.disk_bytes().expect("measure") > before / 4 {
            write(&container, 0, version).await;
            version += 1;
            clock.advance(BETWEEN_WRITES);
            tokio::time::sleep(BETWEEN_WRITES).await;
        }
    };
    let waited = tokio::time::timeout(LONG, freed).await;
    assert!(waited.is_ok(), "still {} of {before} bytes", engine.disk_bytes().expect("measure"));
    drop(container);
    engine.close().await.expect("close");
    std::fs::remove_dir_all(&folder).expect("remove");
}
