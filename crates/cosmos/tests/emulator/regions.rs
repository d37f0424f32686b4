//! Accounts that take writes in several regions: where leases are written if one region is pinned.

use std::sync::{Arc, Mutex};

use azure_data_cosmos_driver::in_memory_emulator::WriteMode;
use changefeed::Running;
use changefeed_cosmos::Options;

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
        let (orders, leases) = (Emulated::new().await, Emulated::start(&REGIONS, WriteMode::Multi).await);
        Shop::create(&orders);
        Shop::create(&leases);
        let account = leases.connect().await.options(Options::new().write_region(pinned));
        assert_eq!(account.properties().write_regions, REGIONS);
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
