//! Accounts that take writes in several regions, or begin to: where leases are written if one region is pinned, and that
//! they are not written if none is.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use azure_data_cosmos::options::OperationOptions;
use azure_data_cosmos_driver::in_memory_emulator::WriteMode;
use changefeed::Running;
use changefeed_core::{Container, Effect, ErrorKind};
use changefeed_cosmos::{CosmosContainer, Options};
use changefeed_testkit::clock::TestClock;
use serde_json::json;

use crate::{
    account::Emulated,
    seen::{Seen, start, until},
    shop::Shop,
    support::{OnSdk, on_sdk},
};

const REGIONS: [&str; 2] = ["East US", "West US"];

/// Hosts whose leases are in one of the two write regions of an account. Orders are in another account.
struct Stage {
    /// Gone when dropped.
    _orders: Emulated,
    leases: Emulated,
    shop: Shop,
    seen: Seen,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn new(pinned: &str) -> Self {
        Self::with(WriteMode::Multi, Options::new().write_region(pinned)).await
    }

    async fn with(mode: WriteMode, options: Options) -> Self {
        let (orders, leases) = (Emulated::new().await, Emulated::start(&REGIONS, mode).await);
        Shop::create(&orders);
        Shop::create(&leases);
        let account = leases.connect().await.options(options);
        assert_eq!(account.properties().has_multiple_write_regions, mode == WriteMode::Multi);
        let shop = Shop::open(&orders.connect().await, &account).await;
        Self { _orders: orders, leases, shop, seen: Seen::default(), errors: Arc::default() }
    }

    async fn host(&self) -> Running {
        let errors = Arc::clone(&self.errors);
        let note = move |report: &changefeed::ErrorReport| errors.lock().unwrap().push(report.failure.to_string());
        start(self.shop.builder().on_error(note), &self.seen).await
    }

    /// Where the items of the lease container were read and written since there were `before` requests.
    fn regions_of_leases(&self, before: usize) -> Vec<(String, String)> {
        let requests = self.leases.requests().split_off(before);
        let requests = requests.into_iter().filter(|request| request.is_for_items_of("leases"));
        requests.map(|request| (request.region, request.method)).collect()
    }

    /// Checks that leases were replaced, and that all requests for leases went to one region.
    fn only_in(&self, region: &str, before: usize) {
        let found = self.regions_of_leases(before);
        assert!(found.iter().any(|(_, method)| method == "PUT"), "leases are written: {found:?}");
        assert!(found.iter().all(|(own, _)| own == region), "all in {region}: {found:?}");
    }

    async fn delivers(&self, numbers: std::ops::Range<u32>) {
        let count = numbers.end as usize;
        self.shop.write(numbers).await;
        until("delivery", || self.seen.distinct() >= count).await;
    }
}

fn other(region: &str) -> &'static str {
    if region == REGIONS[0] { REGIONS[1] } else { REGIONS[0] }
}

#[tokio::test]
async fn leases_are_read_and_written_in_the_pinned_region_only() {
    for pinned in REGIONS {
        let stage = Stage::new(pinned).await;
        let running = stage.host().await;
        stage.delivers(0..20).await;
        running.stop().await.unwrap();
        stage.only_in(pinned, 0);
    }
}

#[tokio::test]
async fn leases_stay_in_the_pinned_region_while_the_other_is_offline() {
    for pinned in REGIONS {
        let stage = Stage::new(pinned).await;
        let running = stage.host().await;
        stage.delivers(0..20).await;
        let before = stage.leases.requests().len();
        stage.leases.store().set_region_offline(other(pinned)).unwrap();
        stage.delivers(20..40).await;
        running.stop().await.unwrap();
        stage.only_in(pinned, before);
    }
}

#[tokio::test]
async fn leases_wait_for_the_pinned_region_while_it_is_offline() {
    for pinned in REGIONS {
        let stage = Stage::new(pinned).await;
        let running = stage.host().await;
        stage.delivers(0..20).await;
        stage.leases.store().set_region_offline(pinned).unwrap();
        let sentence = "the account cannot be reached";
        until("an error", || stage.errors.lock().unwrap().iter().any(|error| error.contains(sentence))).await;
        stage.shop.write(20..40).await;
        stage.leases.store().set_region_online(pinned).unwrap();
        stage.delivers(40..50).await;
        running.stop().await.unwrap();
        stage.only_in(pinned, 0);
    }
}

/// The SDK then goes to a region that is left, where the conditions of the pinned one do not hold.
#[tokio::test]
async fn answers_of_another_region_are_refused_after_the_pinned_one_was_removed() {
    let [kept, pinned] = REGIONS;
    let stage = Stage::new(pinned).await;
    let running = stage.host().await;
    stage.delivers(0..20).await;
    stage.leases.store().remove_region(pinned).unwrap();
    let sentence = format!("region {pinned} is pinned and not available");
    until("an error", || stage.errors.lock().unwrap().iter().any(|error| error.contains(&sentence))).await;
    drop(running.stop().await);
    stage.shop.write(20..40).await;
    // Nor does a host that starts now use leases there, unless it says so.
    let account = stage.leases.connect().await;
    let open = |region: &'static str| {
        let account = account.clone().options(Options::new().write_region(region));
        on_sdk(async move { account.lease_container("shop", "leases").await })
    };
    let refused = open(pinned).await.unwrap_err();
    assert!(
        refused.message().contains("\"West US\" is no write region of the account: use one of East US"),
        "{refused}"
    );
    let leases = OnSdk::container(&open(kept).await.unwrap());
    let running = start(Shop { leases, orders: stage.shop.orders.clone() }.builder(), &stage.seen).await;
    until("delivery", || stage.seen.distinct() >= 40).await;
    running.stop().await.unwrap();
}

/// Opens leases through a client that knows that both regions take writes and prefers the second one, with properties that
/// were read when the first one alone did: as if the SDK of a running host had found out by itself.
async fn opened_before_the_second_region_took_writes(emulated: &Emulated, options: Options) -> Container {
    Shop::create(emulated);
    let properties = emulated.properties().await;
    emulated.store().set_write_mode(WriteMode::Multi);
    let [first, second] = REGIONS;
    let client = emulated.client(OperationOptions::default(), &[second, first]).await;
    let opened =
        on_sdk(async move { CosmosContainer::open_leases(&client, "shop", "leases", &properties, options).await });
    OnSdk::container(&opened.await.unwrap())
}

#[tokio::test]
async fn a_region_that_was_pinned_while_it_alone_took_writes_remains_pinned() {
    let emulated = Emulated::start(&REGIONS, WriteMode::Single).await;
    let options = Options::new().write_region(REGIONS[0]);
    let leases = opened_before_the_second_region_took_writes(&emulated, options).await;
    let written = leases.create(&json!({"id": "a"})).await.unwrap();
    leases.replace_if(&json!({"id": "a", "n": 2}), &written.etag.unwrap()).await.unwrap();
    leases.read_item("a", "a").await.unwrap();
    let requests = emulated.requests().into_iter().filter(|request| request.is_for_items_of("leases"));
    let regions: Vec<String> = requests.map(|request| request.region).collect();
    assert_eq!(regions, [REGIONS[0]; 3]);
}

#[tokio::test]
async fn leases_without_a_pinned_region_are_not_written_once_a_second_region_takes_writes() {
    let emulated = Emulated::start(&REGIONS, WriteMode::Single).await;
    // The clock shows another time than that at which the properties were read.
    let options = Options::new().clock(Arc::new(TestClock::new()));
    let leases = opened_before_the_second_region_took_writes(&emulated, options).await;
    let refused = leases.create(&json!({"id": "a"})).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (ErrorKind::InvalidArgument, Effect::None), "{refused:?}");
    assert!(refused.message().contains("several regions (East US, West US)"), "{refused}");
    assert!(emulated.requests().iter().all(|request| !request.is_for_items_of("leases")), "nothing was sent");
}

#[tokio::test]
async fn a_host_without_a_pinned_region_stops_while_a_second_region_takes_writes() {
    let clock = TestClock::new();
    let stage = Stage::with(WriteMode::Single, Options::new().clock(Arc::new(clock.clone()))).await;
    let running = stage.host().await;
    stage.delivers(0..20).await;
    stage.leases.store().set_write_mode(WriteMode::Multi);
    clock.advance(Duration::from_secs(120));
    let sentence = "several regions (East US, West US)";
    until("a refusal", || stage.errors.lock().unwrap().iter().any(|error| error.contains(sentence))).await;
    stage.leases.store().set_write_mode(WriteMode::Single);
    clock.advance(Duration::from_secs(10));
    stage.delivers(20..40).await;
    running.stop().await.unwrap();
    stage.only_in(REGIONS[0], 0);
}
