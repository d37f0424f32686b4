//! Failures are reported with their cause; files are private; verification reads everything.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use changefeed_core::{Container, ErrorKind};
use changefeed_embedded::{Engine, vfs::memory::MemoryDisk};
use serde_json::json;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("changefeed-health-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

async fn container(engine: &Engine) -> Container {
    engine.database("db").container("c").partition_key("/pk").open_or_create().await.unwrap()
}

#[tokio::test]
async fn a_store_that_stopped_itself_names_the_cause() {
    let disk = MemoryDisk::unreliable();
    let engine = Engine::builder().open_on(disk.clone()).unwrap();
    let container = container(&engine).await;
    assert_eq!(engine.health().stopped, None);
    // The write of the frame is the first call, its sync the second.
    disk.power_off_after(1);
    container.create(&json!({"id": "1", "pk": "a"})).await.unwrap_err();
    let stopped = engine.health().stopped.unwrap();
    assert!(stopped.starts_with("append to the log: "), "{stopped}");
    let error = engine.stopped().await;
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.message().contains(&stopped), "{error:?}");
}

#[tokio::test]
async fn every_file_of_a_store_is_private() {
    let folder = Folder::new("private");
    fs::create_dir_all(&folder.0).unwrap();
    // As an older version left it.
    fs::write(folder.0.join("LOCK"), "").unwrap();
    fs::set_permissions(folder.0.join("LOCK"), fs::Permissions::from_mode(0o644)).unwrap();
    let engine = Engine::open(&folder.0).unwrap();
    container(&engine).await.create(&json!({"id": "1", "pk": "a"})).await.unwrap();
    engine.settle().await.unwrap();
    let mut count = 0;
    for entry in fs::read_dir(&folder.0).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        count += 1;
    }
    assert!(count >= 4, "{count} files");
}

#[tokio::test]
async fn verification_finds_damage_that_no_reader_meets() {
    let folder = Folder::new("verify");
    let engine = Engine::builder().segment_bytes(64 * 1024).open(&folder.0).unwrap();
    let container = container(&engine).await;
    let pad = "x".repeat(2000);
    for n in 0..200 {
        container.upsert(&json!({"id": format!("i{n}"), "pk": "a", "pad": pad})).await.unwrap();
    }
    let mut progress = Vec::new();
    let read = engine.verify_with(|bytes| progress.push(bytes)).unwrap();
    assert!(read > 200_000 && progress.len() >= 4, "{read} bytes: {progress:?}");
    assert!(progress.is_sorted() && progress.last() == Some(&read), "{read} bytes: {progress:?}");
    let mut names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    names.sort();
    let mut bytes = fs::read(&names[0]).unwrap();
    bytes[5000] ^= 1;
    fs::write(&names[0], bytes).unwrap();
    let error = engine.verify().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(names[0].file_name().unwrap().to_str().unwrap()), "{error:?}");
}
