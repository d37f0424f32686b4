//! Neighbours on one lease container: hosts of the .NET SDK, and hosts of ours with other timings.

mod shop;

use std::time::Duration;

use changefeed::{LeaseTiming, Running, core::Timestamp};
use serde_json::{Value, json};
use shop::{Calls, Seen, Shop, pass, start_slow, until, until_async};

/// How often a .NET host renews, by default.
const DOTNET_RENEWS: Duration = Duration::from_secs(17);

/// Of two leases, a neighbour owns "1" and the host under test "0".
impl Shop {
    /// Leases as a first run of ours leaves them.
    async fn with_leases(ranges: usize) -> Self {
        let shop = Self::new(ranges).await;
        shop.host("worker-1", &Seen::default()).await.stop().await.expect("stop");
        shop
    }

    async fn owner(&self, token: &str) -> Option<String> {
        self.lease_documents().await[token]["Owner"].as_str().map(str::to_owned)
    }

    /// Gives a lease to an owner with these properties.
    async fn give(&self, token: &str, owner: &str, properties: &Value) {
        self.edit_lease(token, |lease| {
            lease["Owner"] = owner.into();
            lease["timestamp"] = "2026-11-16T20:00:00.0000000Z".into();
            lease["properties"] = properties.clone();
        })
        .await;
    }

    /// Gives lease 1 to an owner that never writes again, and starts a host; returns how long that waits before it takes
    /// the lease, to a second. None if it does not within `limit`.
    async fn time_to_expiry(&self, properties: Value, timing: LeaseTiming, limit: Duration) -> Option<Duration> {
        self.give("1", "neighbour", &properties).await;
        let running = shop::start(self.processor("worker-1").lease_timing(timing), &Seen::default()).await;
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < limit {
            pass(Duration::from_secs(1)).await;
            if self.owner("1").await.as_deref() != Some("neighbour") {
                let waited = begun.elapsed();
                running.stop().await.expect("stop");
                return Some(waited);
            }
        }
        None
    }
}

fn promise(owner: &str, expiration: &str) -> Value {
    json!({"cf.epoch": "5", "cf.owner": owner, "cf.expiration": expiration, "cf.version": "2"})
}

const AT_LEAST: Duration = Duration::from_secs(59);
const AT_MOST: Duration = Duration::from_secs(90);

#[tokio::test(start_paused = true)]
async fn no_lease_is_stolen_from_a_living_dotnet_owner_that_renews_at_its_own_pace() {
    let shop = Shop::with_leases(2).await;
    shop.dotnet_acquires("1", "dotnet").await;
    let running = shop.host("worker-1", &Seen::default()).await;
    for renewal in 0..20 {
        pass(DOTNET_RENEWS).await;
        assert!(shop.dotnet_renews("1", "dotnet").await, "stolen before renewal {renewal}");
    }
    assert_eq!(shop.owner("0").await.as_deref(), Some("worker-1"));
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_living_dotnet_owner_are_stolen_to_a_fair_share_and_that_is_no_crash() {
    let shop = Shop::with_leases(4).await;
    let calls = Calls::default();
    shop.write(0..100, 1).await;
    for token in ["0", "1", "2", "3"] {
        shop.give(token, "dotnet", &json!({})).await;
    }
    let running: Running = start_slow(shop.processor("worker-1"), shop.runtime(), Duration::from_secs(1), &calls).await;
    for _ in 0..6 {
        pass(DOTNET_RENEWS).await;
        for token in ["0", "1", "2", "3"] {
            shop.dotnet_renews(token, "dotnet").await;
        }
    }
    let owners: Vec<String> = shop.owners().await.into_iter().flatten().collect();
    let shares = ["dotnet", "worker-1"].map(|host| owners.iter().filter(|owner| *owner == host).count());
    assert_eq!(shares, [2, 2], "{owners:?}");
    assert!(calls.len() > 0 && calls.all().iter().all(|call| call.attempt == 1), "{:#?}", calls.all());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_dotnet_owner_that_is_silent_is_given_a_minute() {
    let shop = Shop::with_leases(2).await;
    let waited = shop.time_to_expiry(json!({}), LeaseTiming::EMBEDDED, AT_MOST).await.expect("taken");
    assert!(waited >= AT_LEAST, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_with_a_longer_interval_loses_no_lease_while_it_keeps_its_promise() {
    let shop = Shop::with_leases(2).await;
    let properties = promise("neighbour", "300000");
    shop.give("1", "neighbour", &properties).await;
    let running = shop.host("worker-1", &Seen::default()).await;
    for write in 0..4 {
        pass(Duration::from_secs(250)).await;
        assert_eq!(shop.owner("1").await.as_deref(), Some("neighbour"), "stolen before write {write}");
        shop.give("1", "neighbour", &properties).await;
    }
    pass(Duration::from_secs(200)).await;
    let taken = || async { shop.owner("1").await.as_deref() == Some("worker-1") };
    until_async("its lease is taken once the promise is broken", taken).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn an_owner_with_a_shorter_interval_is_not_waited_for_longer() {
    let shop = Shop::with_leases(2).await;
    let waited = shop.time_to_expiry(promise("neighbour", "8000"), LeaseTiming::REMOTE, AT_MOST).await.expect("taken");
    // One interval, and one look at the leases.
    assert!((Duration::from_secs(7)..Duration::from_secs(45)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn what_another_owner_promised_does_not_count() {
    for expiration in ["1000", "600000"] {
        let shop = Shop::with_leases(2).await;
        // A .NET host copies the properties of the owner before it.
        let properties = promise("worker-9", expiration);
        let waited = shop.time_to_expiry(properties, LeaseTiming::EMBEDDED, AT_MOST).await.expect("taken");
        assert!(waited >= AT_LEAST, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_promise_that_cannot_be_read_is_none() {
    for expiration in ["", "soon", "-5", "0", "8 s"] {
        let shop = Shop::with_leases(2).await;
        let properties = promise("neighbour", expiration);
        let waited = shop.time_to_expiry(properties, LeaseTiming::EMBEDDED, AT_MOST).await.expect("taken");
        assert!(waited >= AT_LEAST, "{expiration:?}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_promise_has_an_upper_bound() {
    let shop = Shop::with_leases(2).await;
    shop.give("1", "neighbour", &promise("neighbour", "9000000000000000")).await;
    let processor = shop.processor("worker-1").lease_timing(LeaseTiming::REMOTE);
    let running = shop::start(processor, &Seen::default()).await;
    for _ in 0..24 {
        shop.runtime().sleep(Duration::from_secs(3600)).await;
    }
    assert_eq!(shop.owner("1").await.as_deref(), Some("worker-1"));
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn hosts_of_different_timings_share_leases_without_stealing_from_each_other() {
    let shop = Shop::new(2).await;
    let (slow, quick) = (Seen::default(), Seen::default());
    let first = shop::start(shop.processor("worker-1").lease_timing(LeaseTiming::REMOTE), &slow).await;
    shop.write(0..50, 1).await;
    until("delivery", || slow.len() == 50).await;
    let second = shop::start(shop.processor("worker-2").lease_timing(LeaseTiming::EMBEDDED), &quick).await;
    let shared = || async {
        let owners: Vec<String> = shop.owners().await.into_iter().flatten().collect();
        owners.contains(&"worker-1".to_owned()) && owners.contains(&"worker-2".to_owned())
    };
    until_async("the leases are shared", shared).await;
    let epochs = || async {
        let documents = shop.lease_documents().await;
        documents.values().map(|lease| lease["properties"]["cf.epoch"].clone()).collect::<Vec<_>>()
    };
    // What is granted is yet to be acquired.
    pass(Duration::from_secs(30)).await;
    let before = epochs().await;
    pass(Duration::from_secs(300)).await;
    assert_eq!(epochs().await, before, "no lease changes hands");
    first.stop().await.expect("stop");
    second.stop().await.expect("stop");
}

/// Whether a lease was written not long ago by the store's time, as a .NET host would judge it: neither expired nor in the
/// future.
fn is_fresh(shop: &Shop, lease: &Value) -> bool {
    let written = lease["timestamp"].as_str().expect("timestamp");
    // Texts of one form compare as their times do.
    let text = |time: Timestamp| {
        let moment = time::OffsetDateTime::from_unix_timestamp(i64::try_from(time.as_secs()).expect("a time"));
        let moment = moment.expect("a time");
        format!("{}T{:02}:{:02}:{:02}", moment.date(), moment.hour(), moment.minute(), moment.second())
    };
    let now = shop.clock.now();
    let (first, last) = (now.saturating_sub(Duration::from_secs(10)), now.saturating_add(Duration::from_secs(1)));
    (text(first).as_str()..=text(last).as_str()).contains(&&written[..19])
}

#[tokio::test(start_paused = true)]
async fn the_timestamp_of_a_lease_is_the_stores_time_although_the_clock_of_the_host_is_off() {
    for off in [-600_000, 600_000, -3_600_000] {
        let shop = Shop::new(2).await;
        shop.write(0..20, 1).await;
        let seen = Seen::default();
        let running = shop::start(shop.processor("worker-1").runtime(shop.runtime_with_clock_off_by(off)), &seen).await;
        // From the first moment on that it owns something, through checkpoints and renewals.
        until_async("two leases", async || shop.owner("0").await.is_some() && shop.owner("1").await.is_some()).await;
        for _ in 0..30 {
            for (token, lease) in shop.lease_documents().await {
                assert!(is_fresh(&shop, &lease), "off by {off}: lease {token}: {}", lease["timestamp"]);
            }
            pass(Duration::from_secs(1)).await;
            shop.clock.advance(Duration::from_secs(1));
        }
        shop.split(0).await;
        shop.write(20..40, 1).await;
        until("delivery", || seen.len() == 40).await;
        running.stop().await.expect("stop");
        for (token, lease) in shop.lease_documents().await {
            assert!(is_fresh(&shop, &lease), "off by {off}: lease {token}: {}", lease["timestamp"]);
        }
    }
}
