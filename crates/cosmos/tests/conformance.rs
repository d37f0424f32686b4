//! The conformance suite through the SDK, against a server of this project on a real socket with a clock of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed_core::{Capabilities, Catalog, async_trait};
use changefeed_embedded::{Builder, Engine, vfs::memory::MemoryDisk};
use changefeed_server::Server;
use changefeed_testkit::{
    clock::TestClock,
    conformance::{Case, Feature, Fixture, cases},
};
use support::{TestCatalog, connect};

/// A store behind a server, and a client of the SDK.
struct Cosmos {
    clock: TestClock,
    disk: MemoryDisk,
    /// None while it is being reopened.
    served: Mutex<Option<Served>>,
    other: Mutex<Option<Served>>,
}

struct Served {
    engine: Engine,
    server: Server,
    catalog: Arc<dyn Catalog>,
}

impl Served {
    async fn start(builder: Builder, disk: MemoryDisk, address: SocketAddr) -> Self {
        let engine = builder.open_on(disk).expect("open the store");
        let server = Server::builder(engine.catalog()).previous_images(true).listen(address);
        let server = server.start().await.expect("start the server");
        let account = connect(server.endpoint()).await;
        let catalog = Arc::new(TestCatalog { account, admin: engine.catalog() });
        Self { engine, server, catalog }
    }
}

const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

impl Cosmos {
    async fn new() -> Self {
        let (clock, disk) = (TestClock::new(), MemoryDisk::new());
        let cosmos = Self { clock, disk, served: Mutex::new(None), other: Mutex::new(None) };
        let served = Served::start(cosmos.builder(), cosmos.disk.clone(), ANY_PORT.into()).await;
        *cosmos.served.lock().unwrap() = Some(served);
        cosmos
    }

    fn builder(&self) -> Builder {
        Engine::builder().clock(Arc::new(self.clock.clone()))
    }
}

#[async_trait]
impl Fixture for Cosmos {
    fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::clone(&self.served.lock().unwrap().as_ref().expect("it is served").catalog)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().all_versions(true).split_on_demand(true)
    }

    fn supports(&self, feature: Feature) -> bool {
        !matches!(feature, Feature::NumberedContinuations | Feature::ListedLsns | Feature::DeletedHandles)
    }

    async fn reopen(&self) {
        let served = self.served.lock().unwrap().take().expect("it is served");
        // The port is part of the identity.
        let address = served.server.address();
        served.server.stop().await;
        served.engine.close().await.expect("close the store");
        let served = Served::start(self.builder(), self.disk.clone(), address).await;
        *self.served.lock().unwrap() = Some(served);
    }

    async fn other_store(&self) -> Arc<dyn Catalog> {
        let other = Served::start(self.builder(), MemoryDisk::new(), ANY_PORT.into()).await;
        let catalog = Arc::clone(&other.catalog);
        *self.other.lock().unwrap() = Some(other);
        catalog
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        let engine = self.served.lock().unwrap().as_ref().expect("it is served").engine.clone();
        engine.expire().await.expect("expire items");
    }
}

changefeed_testkit::conformance!(async Cosmos::new);

#[tokio::test]
async fn the_cases_that_do_not_apply_are_these_and_no_others() {
    let cosmos = Cosmos::new().await;
    let declared = cosmos.capabilities();
    let offered = |feature: &Feature| match feature {
        Feature::Split => declared.split_on_demand,
        Feature::AllVersions => declared.all_versions,
        Feature::WakeUps => declared.wake_ups,
        Feature::RangeParents => declared.range_parents,
        other => cosmos.supports(*other),
    };
    let applies = |case: &&Case| case.needs().iter().all(offered) && !case.lacks().iter().any(offered);
    let others: Vec<&str> = cases().iter().filter(|case| !applies(case)).map(Case::name).collect();
    assert_eq!(others, NOT_APPLICABLE);
}

/// About stores that lack what this one has, and about what the SDK does not offer: wake-ups, parents of ranges, LSNs of
/// listed items, and a way to insist on a container that was deleted.
const NOT_APPLICABLE: [&str; 24] = [
    "a_handle_to_a_deleted_container_answers_not_found_for_ever",
    "deleting_a_database_deletes_its_containers",
    "a_store_that_does_not_charge_says_zero",
    "an_empty_page_advances_to_the_newest_lsn",
    "the_continuation_of_a_page_lies_between_its_last_change_and_the_newest",
    "a_store_without_all_versions_mode_says_so",
    "a_store_with_one_range_per_container_says_so",
    "a_child_can_be_split_again_and_names_all_its_ancestors",
    "a_store_that_cannot_split_says_so",
    "a_merge_makes_one_range_of_two_neighbours",
    "a_range_can_be_split_and_merged_again_and_again",
    "a_store_that_cannot_merge_says_so",
    "a_store_without_time_to_live_says_so",
    "changed_returns_after_a_write_in_the_range",
    "changed_returns_at_once_when_there_is_news_already",
    "changed_returns_after_a_write_in_a_sub_range",
    "changed_wakes_every_waiting_reader",
    "changed_returns_when_the_range_is_split",
    "changed_goes_on_in_the_children_of_a_split",
    "changed_returns_after_a_delete_in_all_versions_mode",
    "changed_returns_after_an_expiry_in_all_versions_mode",
    "a_reader_that_stops_waiting_changes_nothing",
    "a_continuation_beyond_the_end_is_refused",
    "a_reader_that_waits_for_changed_misses_nothing",
];
