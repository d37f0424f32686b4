//! Writers, readers and splits at the same time. These cases run on several threads.

use std::collections::BTreeMap;

use changefeed_core::{Container, ErrorKind, Lsn, Mode, StartFrom};
use tokio::task::{JoinSet, yield_now};

use super::{
    Feature, Fixture, all_versions,
    follower::Follower,
    patience::within,
    reader::ids,
    stage::{DATABASE, Stage, many_keys, refused},
};
use crate::fixtures::{create, item, item_number, number, upsert};

const WRITERS: usize = 6;
const KEYS_PER_WRITER: usize = 3;
const VERSIONS: u64 = 30;

async fn stage_for(fixture: &dyn Fixture, mode: Mode) -> Stage<'_> {
    match mode {
        Mode::LatestVersion => Stage::new(fixture).await,
        Mode::AllVersions => all_versions::stage(fixture).await,
    }
}

/// Starts writers that count each of their items up, and returns the final versions.
fn start_writers(container: &Container, tasks: &mut JoinSet<()>) -> BTreeMap<String, u64> {
    let keys = many_keys(WRITERS * KEYS_PER_WRITER);
    for mine in keys.chunks(KEYS_PER_WRITER) {
        let (container, mine) = (container.clone(), mine.to_vec());
        tasks.spawn(async move { count_up(&container, &mine).await });
    }
    keys.into_iter().map(|key| (key, VERSIONS)).collect()
}

async fn count_up(container: &Container, keys: &[String]) {
    let mut lsns: BTreeMap<String, Lsn> = BTreeMap::new();
    for n in 1..=VERSIONS {
        for key in keys {
            let written = container.upsert(&item(key, key, n)).await.expect("write");
            assert_eq!(written.created, n == 1);
            let before = lsns.insert(key.clone(), written.lsn).unwrap_or_default();
            assert!(written.lsn > before, "LSNs ascend per partition key");
            let read = container.read_item(key.as_str(), key).await.expect("read");
            assert_eq!(item_number(&read), n, "an acknowledged write is visible");
        }
        yield_now().await;
    }
}

async fn finish<T: 'static>(tasks: &mut JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        results.push(result.unwrap_or_else(|error| panic!("a task failed: {error}")));
    }
    results
}

pub(super) async fn no_final_version_is_missed_while_writers_write(fixture: &dyn Fixture) {
    follow_writers(fixture, Mode::LatestVersion).await;
}

pub(super) async fn every_version_arrives_exactly_once_while_writers_write(fixture: &dyn Fixture) {
    follow_writers(fixture, Mode::AllVersions).await;
}

async fn follow_writers(fixture: &dyn Fixture, mode: Mode) {
    let stage = stage_for(fixture, mode).await;
    let mut follower = Follower::new(&stage.container, mode).await;
    let mut tasks = JoinSet::new();
    let last = start_writers(&stage.container, &mut tasks);
    within(fixture, "every final version arrives", follower.follow_to(&last)).await;
    finish(&mut tasks).await;
}

pub(super) async fn a_reader_that_waits_for_changed_misses_nothing(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut follower = Follower::new(&stage.container, Mode::LatestVersion).await;
    let mut tasks = JoinSet::new();
    let (wanted, container) = (("x".to_owned(), 300), stage.container.clone());
    tasks.spawn(async move {
        for n in 1..=300 {
            container.upsert(&item("a", "x", n)).await.expect("write");
            if n % 3 == 0 {
                yield_now().await;
            }
        }
    });
    let last = BTreeMap::from([wanted]);
    // It looks only when woken, so a lost wake-up is a reader that never wakes up.
    let following = async {
        while !follower.has_seen(&last) {
            let (range, continuation) = follower.place();
            stage.backend().changed(&range, &continuation).await;
            follower.round().await;
        }
    };
    within(fixture, "a reader that waits for changed arrives at the last version", following).await;
    finish(&mut tasks).await;
}

pub(super) async fn no_change_is_lost_while_ranges_split(fixture: &dyn Fixture) {
    follow_through_splits(fixture, Mode::LatestVersion).await;
}

pub(super) async fn no_version_is_lost_while_ranges_split(fixture: &dyn Fixture) {
    follow_through_splits(fixture, Mode::AllVersions).await;
}

/// Splits, and merges where the store can, as long as there are writers.
async fn follow_through_splits(fixture: &dyn Fixture, mode: Mode) {
    let stage = stage_for(fixture, mode).await;
    let mut follower = Follower::new(&stage.container, mode).await;
    let mut writers = JoinSet::new();
    let last = start_writers(&stage.container, &mut writers);
    let mut splitter = JoinSet::new();
    let (catalog, container) = (stage.catalog.clone(), stage.container.clone());
    let merges = fixture.supports(Feature::Merge);
    splitter.spawn(async move {
        for round in 0..12 {
            let live = container.feed_ranges().await.expect("read the feed ranges");
            if merges && live.len() > 3 {
                let left = round % (live.len() - 1);
                let pair = [&live[left].id, &live[left + 1].id];
                catalog.merge(DATABASE, "items", pair).await.expect("merge");
            } else {
                catalog.split(DATABASE, "items", &live[round % live.len()].id, None).await.expect("split");
            }
            for _ in 0..20 {
                yield_now().await;
            }
        }
    });
    within(fixture, "every final version arrives in spite of splits", follower.follow_to(&last)).await;
    finish(&mut writers).await;
    finish(&mut splitter).await;
    assert_eq!(follower.round().await, 0, "a split is not a change");
    assert_eq!(stage.list(Default::default()).await.len(), last.len());
}

pub(super) async fn readers_see_a_batch_whole_or_not_at_all(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut tasks = JoinSet::new();
    for key in many_keys(3) {
        let container = stage.container.clone();
        tasks.spawn(async move {
            for n in 1..=VERSIONS {
                let items = ["x", "y", "z"].map(|id| item(&key, &format!("{key}-{id}"), n));
                let batch = items.iter().fold(container.batch(key.as_str()), |batch, item| batch.upsert(item));
                batch.commit().await.expect("commit");
                yield_now().await;
            }
        });
    }
    // As many as a batch has: less would allow the store to cut it.
    let mut reader = stage.reader(StartFrom::Beginning).max_items(3);
    let mut last = BTreeMap::new();
    let reading = async {
        while last.values().filter(|n| **n == VERSIONS).count() < 3 {
            let page = reader.page().await;
            let changes = reader.by_key(&page.changes);
            for group in changes.chunk_by(|a, b| a.lsn == b.lsn && reader.key_of(a) == reader.key_of(b)) {
                let numbers: Vec<_> = group.iter().map(|one| one.current.as_deref().map(number)).collect();
                assert_eq!(numbers, [numbers[0]; 3], "all three or none: {:?}", ids(group));
                last.insert(group[0].id.to_string(), numbers[0].unwrap_or_default());
            }
            yield_now().await;
        }
    };
    within(fixture, "the last batch of each writer arrives", reading).await;
    finish(&mut tasks).await;
}

pub(super) async fn of_many_creators_exactly_one_wins(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for round in 0..5 {
        let mut tasks = JoinSet::new();
        for n in 0..12 {
            let container = stage.container.clone();
            tasks.spawn(async move { container.create(&item("a", &format!("x{round}"), n)).await.map(|_| n) });
        }
        let (won, lost): (Vec<_>, Vec<_>) = finish(&mut tasks).await.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 11));
        for result in lost {
            refused(result, ErrorKind::AlreadyExists);
        }
        let winner = won.into_iter().next().and_then(Result::ok);
        assert_eq!(Some(item_number(&stage.get("a", &format!("x{round}")).await)), winner);
    }
}

pub(super) async fn of_many_writers_with_one_etag_exactly_one_wins(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 0).await;
    for round in 1..6 {
        let etag = stage.get("a", "x").await.etag;
        let mut tasks = JoinSet::new();
        for n in 0..12 {
            let (container, etag, n) = (stage.container.clone(), etag.clone(), round * 100 + n);
            tasks.spawn(async move { container.replace_if(&item("a", "x", n), &etag).await.map(|_| n) });
        }
        let (won, lost): (Vec<_>, Vec<_>) = finish(&mut tasks).await.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 11));
        for result in lost {
            refused(result, ErrorKind::PreconditionFailed);
        }
        let winner = won.into_iter().next().and_then(Result::ok);
        assert_eq!(Some(item_number(&stage.get("a", "x").await)), winner);
    }
}

pub(super) async fn no_update_is_lost_when_each_insists_on_what_it_read(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "counter", 0).await;
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        let container = stage.container.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                increment(&container).await;
            }
        });
    }
    within(fixture, "all increments succeed in the end", finish(&mut tasks)).await;
    assert_eq!(item_number(&stage.get("a", "counter").await), 10 * WRITERS as u64);
}

async fn increment(container: &Container) {
    loop {
        let read = container.read_item("a", "counter").await.expect("read");
        match container.replace_if(&item("a", "counter", item_number(&read) + 1), &read.etag).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::PreconditionFailed, "{error:?}"),
        }
        yield_now().await;
    }
}

pub(super) async fn a_listing_during_writes_returns_what_stays(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for key in many_keys(20) {
        stage.put(&key, "stays", 1).await;
    }
    let mut tasks = JoinSet::new();
    let container = stage.container.clone();
    tasks.spawn(async move {
        for n in 0..10 {
            for key in many_keys(20) {
                container.upsert(&item(&key, &format!("new-{n}"), n)).await.expect("write");
                container.delete(key.as_str(), &format!("new-{n}")).await.expect("delete");
            }
        }
    });
    while !tasks.is_empty() {
        let request = changefeed_core::ListItems { max_items: 3, ..Default::default() };
        let items = stage.list(request).await;
        assert_eq!(items.iter().filter(|item| item.id.as_str() == "stays").count(), 20);
        if let Some(done) = tasks.try_join_next() {
            done.expect("the writer does not fail");
        }
        yield_now().await;
    }
}

pub(super) async fn a_write_that_is_dropped_happened_whole_or_not_at_all(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for polls in 0..6 {
        let (key, writes) = (format!("key-{polls}"), ["x", "y", "z"]);
        let items = writes.map(|id| create(&item(&format!("key-{polls}"), &format!("{id}{polls}"), 1)));
        let write = stage.try_batch(&key, items.to_vec());
        let patience = async {
            for _ in 0..polls {
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = patience => {}
            result = write => drop(result.expect("nothing is wrong with the batch")),
        }
    }
    let marker = stage.try_write(Some("last"), upsert(&item("last", "marker", 1))).await.expect("writes go on");
    let mut reader = stage.reader(StartFrom::Beginning).max_items(1);
    let changes = reader.drain().await;
    let changes = reader.by_key(&changes);
    assert!(changes.iter().any(|change| change.id == marker[0].id && change.lsn == marker[0].lsn));
    for group in changes.chunk_by(|a, b| a.lsn == b.lsn && reader.key_of(a) == reader.key_of(b)) {
        let whole = if group[0].id.as_str() == "marker" { 1 } else { 3 };
        assert_eq!(group.len(), whole, "whole or not at all: {:?}", ids(group));
    }
}
