//! Positions that are ahead of the feed, as after a failover between regions that lost writes: what was written since is
//! delivered, and a replica that lags for a moment changes nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

mod support;

use std::{sync::Arc, time::Duration};

use changefeed_core::{
    Batch, ChangePage, Clock as _, Container, ContainerSpec, Continuation, DatabaseSpec, ErrorKind, FeedRange, ItemKey,
    Mode, PartitionKey, PartitionKeyDefinition, ReadChanges, StartFrom, Timestamp, Write,
};
use changefeed_cosmos::Options;
use changefeed_embedded::{Engine, vfs::memory::MemoryDisk};
use changefeed_server::Server;
use changefeed_testkit::clock::TestClock;
use serde_json::json;
use support::{OnSdk, connect, on_sdk};

/// The default of [`Options::failover_patience`].
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

struct Stage {
    clock: TestClock,
    disk: MemoryDisk,
    engine: Engine,
    server: Server,
    orders: Container,
}

impl Stage {
    /// A container whose store has the same clock as its readers.
    async fn new() -> Self {
        let clock = TestClock::at(Timestamp::from_secs(1_700_000_000));
        let disk = MemoryDisk::unreliable();
        let engine = Engine::builder().clock(Arc::new(clock.clone())).open_on(disk.clone()).unwrap();
        engine.catalog().create_database(DatabaseSpec::new("shop")).await.unwrap();
        let mut spec = ContainerSpec::new("orders", PartitionKeyDefinition::hash("/pk").unwrap());
        spec.all_versions_retention = Some(HOUR * 24);
        engine.catalog().create_container("shop", spec).await.unwrap();
        Self::serve(clock, disk, engine).await
    }

    /// Another region of the same account, which has what was written so far.
    async fn replica(&self) -> Self {
        let clock = TestClock::at(self.clock.wall());
        let disk = self.disk.power_cut(|| true);
        let engine = Engine::builder().clock(Arc::new(clock.clone())).open_on(disk.clone()).unwrap();
        Self::serve(clock, disk, engine).await
    }

    async fn serve(clock: TestClock, disk: MemoryDisk, engine: Engine) -> Self {
        // Requests are signed at the time of the machine.
        let server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
        let orders = open(&server, &clock).await;
        Self { clock, disk, engine, server, orders }
    }

    async fn write(&self, ids: &[&str]) {
        let orders = self.engine.catalog().container("shop", "orders").await.unwrap();
        for id in ids {
            orders.upsert(&json!({"id": id, "pk": "a"})).await.unwrap();
        }
    }

    async fn read(&self, from: StartFrom) -> ChangePage {
        self.orders.read_changes(ReadChanges::new(FeedRange::full(), from)).await.unwrap().into_value()
    }
}

/// Opens the container with a client of its own, as another process would.
async fn open(server: &Server, clock: &TestClock) -> Container {
    open_with(server, Options::new().clock(Arc::new(clock.clone()))).await
}

async fn open_with(server: &Server, options: Options) -> Container {
    let account = connect(server.endpoint()).await.options(options);
    OnSdk::container(&on_sdk(async move { account.container("shop", "orders").await }).await.unwrap())
}

fn ids(page: &ChangePage) -> Vec<&str> {
    page.changes.iter().map(|change| change.id.as_str()).collect()
}

fn position(lsn: u64) -> StartFrom {
    StartFrom::Continuation(Continuation::from_token(format!("\"{lsn}\"")))
}

#[tokio::test]
async fn a_position_that_stays_ahead_is_left_and_what_was_written_since_is_delivered() {
    let stage = Stage::new().await;
    stage.write(&["long", "ago"]).await;
    stage.clock.advance(HOUR * 25);
    stage.write(&["1", "2"]).await;
    for _ in 0..10 {
        let page = stage.read(position(99)).await;
        assert!(page.changes.is_empty(), "a replica may be lagging");
        assert_eq!(page.continuation.token(), "\"99\"");
    }
    stage.clock.advance(PATIENCE);
    let page = stage.read(position(99)).await;
    assert_eq!(ids(&page), ["1", "2"], "what was written in the last 24 hours");
    stage.write(&["3"]).await;
    assert_eq!(ids(&stage.read(page.continuation.into()).await), ["3"], "and nothing more from there on");
}

#[tokio::test]
async fn a_process_that_knew_the_position_to_be_good_reads_no_more_than_it_must() {
    let stage = Stage::new().await;
    stage.write(&["1"]).await;
    // The region that takes over has only the first of them, and is given new ones.
    let other = stage.replica().await;
    stage.write(&["2", "3", "4"]).await;
    let end = stage.read(StartFrom::Beginning).await.continuation;
    stage.clock.advance(HOUR);
    assert!(stage.read(end.clone().into()).await.changes.is_empty());
    other.clock.advance(HOUR);
    other.write(&["5", "6"]).await;
    // The client and its session stay.
    let address = stage.server.address();
    stage.server.stop().await;
    let server = Server::builder(other.engine.catalog()).listen(address).start().await.unwrap();
    stage.clock.advance(HOUR);
    let read = || stage.orders.read_changes(ReadChanges::new(FeedRange::full(), end.clone()));
    for _ in 0..2 {
        assert!(read().await.unwrap().changes.is_empty());
        stage.clock.advance(PATIENCE / 2);
    }
    let page = read().await.unwrap().into_value();
    assert_eq!(ids(&page), ["5", "6"], "the first one was written before the position was last good");
    server.stop().await;
}

#[tokio::test]
async fn a_replica_that_lags_for_a_moment_changes_nothing() {
    let stage = Stage::new().await;
    stage.write(&["1", "2"]).await;
    assert!(stage.read(position(4)).await.changes.is_empty());
    stage.clock.advance(PATIENCE * 2);
    assert!(stage.read(position(4)).await.changes.is_empty(), "two reads are too few");
    // It has caught up.
    stage.write(&["1"]).await;
    assert!(stage.read(position(4)).await.changes.is_empty(), "the position is at the end");
    stage.write(&["2"]).await;
    assert_eq!(ids(&stage.read(position(4)).await), ["2"]);
}

#[tokio::test]
async fn without_an_end_of_the_patience_no_position_is_left() {
    let mut stage = Stage::new().await;
    let options = Options::new().clock(Arc::new(stage.clock.clone())).failover_patience(Duration::MAX);
    stage.orders = open_with(&stage.server, options).await;
    stage.write(&["1", "2"]).await;
    for _ in 0..5 {
        stage.clock.advance(HOUR);
        for (lsn, token) in [(99, "\"99\""), (4, "\"4\"")] {
            let page = stage.read(position(lsn)).await;
            assert!(page.changes.is_empty());
            assert_eq!(page.continuation.token(), token);
        }
        let read = ReadChanges::new(FeedRange::full(), position(99)).mode(Mode::AllVersions);
        assert!(stage.orders.read_changes(read).await.unwrap().changes.is_empty());
    }
    stage.write(&["3", "4"]).await;
    assert_eq!(ids(&stage.read(position(4)).await), ["4"], "also if the feed passes it");
}

#[tokio::test]
async fn all_versions_cannot_be_read_from_a_time_and_say_so() {
    let stage = Stage::new().await;
    stage.write(&["1", "2"]).await;
    let read = || stage.orders.read_changes(ReadChanges::new(FeedRange::full(), position(99)).mode(Mode::AllVersions));
    for _ in 0..3 {
        assert!(read().await.unwrap().changes.is_empty());
    }
    stage.clock.advance(PATIENCE);
    let error = read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContinuationBeyondEnd);
    for part in ["position 99", "which was at 3", "changefeed seek"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[tokio::test]
async fn items_are_read_from_a_region_that_is_behind_the_session() {
    let stage = Stage::new().await;
    stage.write(&["1"]).await;
    let other = stage.replica().await;
    stage.write(&["2", "3", "4"]).await;
    // The session of the client has seen all four.
    stage.read(StartFrom::Beginning).await;
    let address = stage.server.address();
    stage.server.stop().await;
    let server = Server::builder(other.engine.catalog()).listen(address).start().await.unwrap();
    let key = ItemKey { partition_key: PartitionKey::from("a"), id: "1".parse().unwrap() };
    let item = stage.orders.backend().read_item(&key).await.unwrap().into_value();
    assert_eq!(item.id.as_str(), "1");
    assert_eq!(stage.orders.list("").await.unwrap().len(), 1);
    // What is read there can be replaced there.
    let replaced = stage.orders.backend().write(Batch {
        partition_key: Some(key.partition_key.clone()),
        writes: vec![Write::Replace {
            body: br#"{"id":"1","pk":"a","x":1}"#.as_slice().into(),
            if_match: Some(item.etag),
        }],
        return_items: false,
    });
    assert_eq!(replaced.await.unwrap().into_value().len(), 1);
    server.stop().await;
}
