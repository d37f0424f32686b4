//! One process at a time: a folder that is open is refused to everybody else, until its holder is gone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use changefeed_core::{Error, ErrorKind};
use changefeed_embedded::Engine;
use serde_json::json;

/// Set for a process that is to hold the folder it names.
const FOLDER: &str = "CHANGEFEED_LOCK_TEST_FOLDER";

fn new_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lock-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    folder
}

fn check_refusal(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Locked, "{error:?}");
    assert!(error.message().contains("`changefeed serve`"), "{error}");
}

/// The other process: opens the folder, says so, and waits to be killed, or for its parent to go. Does nothing as a
/// test.
#[tokio::test]
async fn holder() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let engine = Engine::open(folder).unwrap();
    let container = engine.database("shop").container("orders").open_or_create().await.unwrap();
    container.upsert(&json!({"id": "1"})).await.unwrap();
    eprintln!("holding");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

fn start_holder(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["holder", "--exact", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("holding")), "the holder ended");
    child
}

#[tokio::test]
async fn a_second_engine_of_the_same_process_is_refused_until_the_first_is_gone() {
    let folder = new_folder("engine");
    let engine = Engine::open(&folder).unwrap();
    check_refusal(&Engine::open(&folder).unwrap_err());
    engine.close().await.unwrap();
    Engine::open(&folder).unwrap().close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_is_killed() {
    let folder = new_folder("process");
    let mut holder = start_holder(&folder);
    check_refusal(&Engine::open(&folder).unwrap_err());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let engine = Engine::open(&folder).unwrap();
    let container = engine.database("shop").container("orders").open().await.unwrap();
    container.read_item("1", "1").await.unwrap();
    drop((container, engine));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_refused_engine_changes_nothing_for_the_holder() {
    let folder = new_folder("unharmed");
    let engine = Engine::open(&folder).unwrap();
    let container = engine.database("shop").container("orders").open_or_create().await.unwrap();
    for round in 0..3 {
        container.upsert(&json!({"id": "1", "round": round})).await.unwrap();
        check_refusal(&Engine::open(&folder).unwrap_err());
    }
    engine.close().await.unwrap();
    drop(container);
    let engine = Engine::open(&folder).unwrap();
    let container = engine.database("shop").container("orders").open().await.unwrap();
    assert_eq!(container.read::<serde_json::Value>("1", "1").await.unwrap()["round"], 2);
    drop((container, engine));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_closed_store_refuses_everything_instead_of_waiting() {
    let folder = new_folder("closed");
    let engine = Engine::open(&folder).unwrap();
    let container = engine.database("shop").container("orders").open_or_create().await.unwrap();
    engine.clone().close().await.unwrap();
    assert_eq!(container.upsert(&json!({"id": "1"})).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(engine.settle().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(engine.expire().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(engine.close().await.unwrap_err().kind(), ErrorKind::Closed);
    std::fs::remove_dir_all(&folder).unwrap();
}
