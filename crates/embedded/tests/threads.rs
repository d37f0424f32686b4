//! A store without threads of its own, used from many.

use std::{collections::BTreeSet, sync::Arc};

use changefeed_core::{FeedRange, ReadChanges, StartFrom};
use changefeed_embedded::Engine;
use serde_json::{Value, json};

/// Rounds of writes; each writes one of seven items.
const ROUNDS: u64 = 400;
const WRITERS: u32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_on_several_threads_share_a_store_in_memory_while_it_compacts() {
    share_a_store(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_at_hand_stays_right_while_compaction_moves_it() {
    share_a_store(200 * 1024).await;
}

async fn share_a_store(recent_bytes: usize) {
    let builder = Engine::builder().segment_bytes(64 * 1024).recent_bytes(recent_bytes);
    let engine = builder.in_memory().expect("open");
    let container = engine.database("d").container("c").partition_key("/pk").create().await.expect("create");
    let text: Arc<str> = "x".repeat(2000).into();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (container, text) = (container.clone(), Arc::clone(&text));
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let id = (round % 7).to_string();
                let item = json!({"id": id, "pk": writer, "round": round, "text": &*text});
                container.upsert(&item).await.expect("upsert");
                let read: Value = container.read(writer, &id).await.expect("read");
                assert_eq!(read["round"], round);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a writer ends well");
    }
    engine.settle().await.expect("compact");
    let listed = container.list("").await.expect("list");
    let rounds: BTreeSet<(u32, u64)> = listed.iter().map(|item| round_of(&item.body)).collect();
    assert_eq!(
        rounds,
        (0..WRITERS).flat_map(|writer| (ROUNDS - 7..ROUNDS).map(move |round| (writer, round))).collect()
    );
    let all = ReadChanges::new(FeedRange::full(), StartFrom::Beginning);
    let page = container.read_changes(all).await.expect("read the feed");
    assert_eq!(
        page.changes.iter().filter_map(|change| change.current.as_deref()).map(round_of).collect::<BTreeSet<_>>(),
        rounds
    );
}

/// Which writer wrote an item, and in which round.
fn round_of(body: &[u8]) -> (u32, u64) {
    let item: Value = serde_json::from_slice(body).expect("an item");
    (item["pk"].as_u64().and_then(|pk| pk.try_into().ok()).expect("a writer"), item["round"].as_u64().expect("a round"))
}
