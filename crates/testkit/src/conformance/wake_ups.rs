//! Wake-ups: `changed` returns when there may be news.

use changefeed_core::{Change, StartFrom};
use tokio::task::{JoinSet, yield_now};

use super::{
    Fixture, all_versions,
    patience::within,
    reader::{Reader, versions},
    stage::Stage,
};
use crate::fixtures::{create, item, mortal};

/// Waits with `reader` until there is something to read.
async fn news(stage: &Stage<'_>, reader: &mut Reader) -> Vec<Change> {
    loop {
        let (range, continuation) = (reader.range().clone(), reader.continuation());
        stage.backend().changed(&range, &continuation).await;
        let page = reader.page().await;
        if !page.changes.is_empty() {
            return page.changes;
        }
        // A store may wake for nothing, even all the time: let the others run.
        yield_now().await;
    }
}

/// Lets `reader` wait, then does something, and returns what the reader was woken by.
async fn woken_by(stage: &Stage<'_>, reader: &mut Reader, action: impl Future<Output = ()>) -> Vec<Change> {
    // `join!` polls in order: the reader waits before the action begins.
    let both = async { tokio::join!(news(stage, reader), action).0 };
    within(stage.fixture, "changed returns after a change in its range", both).await
}

async fn caught_up(stage: &Stage<'_>) -> Reader {
    let mut reader = stage.reader(StartFrom::Now);
    reader.page().await;
    reader
}

pub(super) async fn changed_returns_after_a_write_in_the_range(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut reader = caught_up(&stage).await;
    for n in 0..5 {
        let write = async { drop(stage.put("a", "x", n).await) };
        assert_eq!(versions(&woken_by(&stage, &mut reader, write).await), [format!("x={n}")]);
    }
    let batch = async { drop(stage.batch("a", vec![create(&item("a", "y", 1)), create(&item("a", "z", 1))]).await) };
    assert_eq!(versions(&woken_by(&stage, &mut reader, batch).await), ["y=1", "z=1"]);
}

pub(super) async fn changed_returns_at_once_when_there_is_news_already(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let reader = caught_up(&stage).await;
    stage.put("a", "x", 1).await;
    for _ in 0..3 {
        let continuation = reader.continuation();
        let waiting = stage.backend().changed(reader.range(), &continuation);
        within(fixture, "changed returns at once when there is news already", waiting).await;
    }
}

pub(super) async fn changed_returns_after_a_write_in_a_sub_range(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut reader = stage.reader_of(&stage.range_of_key("a"), StartFrom::Now);
    reader.page().await;
    let writes = async {
        for n in 0..3 {
            stage.put("b", "x", n).await;
        }
        stage.put("a", "x", 9).await;
    };
    assert_eq!(versions(&woken_by(&stage, &mut reader, writes).await), ["x=9"]);
}

pub(super) async fn changed_wakes_every_waiting_reader(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let reader = caught_up(&stage).await;
    let mut waiting = JoinSet::new();
    for _ in 0..10 {
        let (backend, reader) = (stage.backend().clone(), reader.clone());
        waiting.spawn(async move { backend.changed(reader.range(), &reader.continuation()).await });
    }
    yield_now().await;
    stage.put("a", "x", 1).await;
    within(fixture, "changed returns for each of ten readers", async {
        while let Some(done) = waiting.join_next().await {
            done.expect("a waiting reader does not panic");
        }
    })
    .await;
}

pub(super) async fn changed_returns_when_the_range_is_split(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let reader = caught_up(&stage).await;
    let parent = stage.ranges().await.swap_remove(0);
    let continuation = reader.continuation();
    let waiting = stage.backend().changed(reader.range(), &continuation);
    let both = async { tokio::join!(waiting, async { drop(stage.split(&parent, None).await) }) };
    within(fixture, "changed returns when the range is split", both).await;
    let gone = stage.backend().changed(reader.range(), &continuation);
    within(fixture, "changed returns at once if the range is gone", gone).await;
}

pub(super) async fn changed_goes_on_in_the_children_of_a_split(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let parent = stage.ranges().await.swap_remove(0);
    let reader = caught_up(&stage).await;
    let children = stage.split(&parent, None).await;
    for key in super::stage::many_keys(6) {
        let child = children.iter().find(|child| child.range.contains(&stage.epk(&key))).expect("a child for the key");
        let mut reader = reader.in_range(&child.range);
        reader.drain().await;
        let write = async { drop(stage.put(&key, &key, 1).await) };
        assert_eq!(versions(&woken_by(&stage, &mut reader, write).await), [format!("{key}=1")]);
    }
}

pub(super) async fn changed_returns_after_a_delete_in_all_versions_mode(fixture: &dyn Fixture) {
    let stage = all_versions::stage(fixture).await;
    stage.put("a", "x", 1).await;
    let mut reader = all_versions::reader(&stage).await;
    let delete = async { stage.remove("a", "x").await };
    assert_eq!(versions(&woken_by(&stage, &mut reader, delete).await), ["x=1"]);
}

pub(super) async fn changed_returns_after_an_expiry_in_all_versions_mode(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| {
        spec.all_versions_retention = Some(all_versions::RETENTION);
        spec.time_to_live = changefeed_core::TimeToLive::ItemsOnly;
    })
    .await;
    stage.upsert(&mortal("a", "x", 1, 10)).await;
    let mut reader = all_versions::reader(&stage).await;
    let expiry = fixture.advance(std::time::Duration::from_secs(20));
    assert_eq!(versions(&woken_by(&stage, &mut reader, expiry).await), ["x=1"]);
}

pub(super) async fn a_reader_that_stops_waiting_changes_nothing(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut reader = caught_up(&stage).await;
    for _ in 0..10 {
        let continuation = reader.continuation();
        tokio::select! {
            biased;
            () = stage.backend().changed(reader.range(), &continuation) => {}
            () = yield_now() => {}
        }
    }
    let write = async { drop(stage.put("a", "x", 1).await) };
    assert_eq!(versions(&woken_by(&stage, &mut reader, write).await), ["x=1"]);
}
