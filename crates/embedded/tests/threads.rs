//! A store without threads of its own, used from many.

use std::sync::Arc;

use changefeed_embedded::Engine;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_on_several_threads_share_a_store_in_memory_while_it_compacts() {
    let engine = Engine::builder().segment_bytes(64 * 1024).in_memory().expect("open");
    let container = engine.database("d").container("c").partition_key("/pk").create().await.expect("create");
    let text: Arc<str> = "x".repeat(2000).into();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (container, text) = (container.clone(), Arc::clone(&text));
        tasks.spawn(async move {
            for round in 0..400 {
                let item = json!({"id": format!("{}", round % 7), "pk": writer, "round": round, "text": &*text});
                container.upsert(&item).await.expect("upsert");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a writer ends well");
    }
    assert_eq!(container.list("").await.expect("list").len(), 8 * 7);
}
