//! A disk that the store has filled up to the last byte: deletes make room again, without help.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use changefeed_core::{Container, ErrorKind};
use changefeed_embedded::Engine;
use serde_json::json;

/// The folder, in the process that runs on the small file system.
const FOLDER: &str = "CHANGEFEED_FULL_DISK_FOLDER";

/// How long to wait until there is room again.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_frees_a_disk_that_commits_have_filled() {
    match std::env::var_os(FOLDER) {
        Some(folder) => fill_and_free(Path::new(&folder)).await,
        None => run_on_a_small_file_system("compaction_frees_a_disk_that_commits_have_filled"),
    }
}

/// Runs a test of this file in a process of its own, whose folder is on a file system of a few megabytes.
fn run_on_a_small_file_system(test: &str) {
    let folder: PathBuf = std::env::temp_dir().join(format!("changefeed-full-disk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("make a folder");
    let script = format!("mount -t tmpfs -o size=24m tmpfs \"${FOLDER}\" && exec \"$0\" --exact {test} --nocapture");
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.args(mount_options()).args(["sh", "-c", &script]).arg(program).env(FOLDER, &folder);
    let ended = command.status().expect("run unshare");
    drop(std::fs::remove_dir_all(&folder));
    assert!(ended.success(), "{ended}");
}

/// The options of `unshare` with which a mount is allowed and ends with the process: as root, or in a user namespace.
fn mount_options() -> &'static [&'static str] {
    const TRIED: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let works = |options: &&[&str]| {
        let mount = ["sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"];
        let tried = Command::new("unshare").args(options.iter().chain(&mount)).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    TRIED.into_iter().find(works).expect(
        "a test of a full disk mounts a small file system: run it as root, or where user namespaces are allowed \
         (sysctl kernel.unprivileged_userns_clone=1)",
    )
}

async fn write(container: &Container, id: u64) -> Result<(), ErrorKind> {
    let item = json!({"id": id.to_string(), "pk": "a", "text": "x".repeat(20_000)});
    container.upsert(&item).await.map(drop).map_err(|error| error.kind())
}

#[expect(clippy::disallowed_methods, reason = "compaction is a thread, which takes real time")]
async fn fill_and_free(folder: &Path) {
    let engine = Engine::open(folder.join("store")).expect("open");
    let container = engine.database("d").container("c").partition_key("/pk").create().await.expect("create");
    let mut ids = 0..;
    let full = loop {
        let id = ids.next().expect("endless");
        if let Err(kind) = write(&container, id).await {
            assert_eq!(kind, ErrorKind::Io, "item {id}");
            break id;
        }
    };
    assert!(full > 500, "only {full} items fit");
    // Other writers do not stop trying, and must not take the room that deletes need.
    let (deleting, others) = (AtomicBool::new(true), container.clone());
    let try_on = async {
        while deleting.load(Ordering::Relaxed) {
            let _ = write(&others, full).await;
        }
    };
    let delete = async {
        let mut deleted = 0;
        while deleted < full / 2 && container.delete("a", &deleted.to_string()).await.is_ok() {
            deleted += 1;
        }
        deleting.store(false, Ordering::Relaxed);
        deleted
    };
    let (deleted, ()) = tokio::join!(delete, try_on);
    assert_eq!(deleted, full / 2, "deletes are refused: {:?}", engine.health());
    // Nobody frees anything but compaction.
    let again = async {
        while write(&container, full).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, again).await;
    assert!(waited.is_ok(), "{deleted} items of 20 kB were deleted, and there is still no room: {:?}", engine.health());
    drop((container, others));
    engine.close().await.expect("close");
    let engine = Engine::open(folder.join("store")).expect("open again");
    let container = engine.catalog().container("d", "c").await.expect("open the container");
    let listed = container.list("").await.expect("list").len() as u64;
    assert_eq!(listed, full - deleted + 1);
    engine.close().await.expect("close");
}
