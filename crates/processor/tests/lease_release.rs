//! Release: leases of dead owners become free, living owners are asked, and nothing is lost or delivered beside them.

mod shop;

use std::time::Duration;

use changefeed::{ReleaseOutcome, Scope, core::ErrorKind};
use serde_json::Value;
use shop::{Calls, Seen, Shop, pass, start_slow, until, until_async};

fn epoch(lease: &Value) -> u64 {
    lease["properties"]["cf.epoch"].as_str().map_or(0, |text| text.parse().expect("a number"))
}

/// Makes a host that is not there the owner of a lease, as one that crashed at `timestamp` would leave it.
async fn owned_by_a_ghost(shop: &Shop, timestamp: &str) {
    shop.edit_lease("0", |lease| {
        lease["Owner"] = "ghost".into();
        lease["timestamp"] = timestamp.into();
        lease["properties"]["cf.owner"] = "ghost".into();
        lease["properties"]["cf.expiration"] = "8000".into();
        lease["properties"]["cf.session"] = "00000000000000aa".into();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_dead_owner_becomes_free_under_a_new_epoch_and_the_crash_counts() {
    let shop = Shop::new(2).await;
    shop.write(0..10, 1).await;
    shop.catch_up(&Seen::default(), 10).await;
    owned_by_a_ghost(&shop, "2001-01-01T00:00:00.0000000Z").await;
    // The clock of the store counts.
    shop.clock.advance(Duration::from_secs(10));
    let before = epoch(&shop.lease_documents().await["0"]);
    let would = shop.control().release(Scope::All).dry_run().await.expect("dry run");
    let outcomes: Vec<_> = would.iter().map(|one| (one.owner.as_deref(), one.outcome)).collect();
    assert_eq!(outcomes, [(Some("ghost"), ReleaseOutcome::OwnerDead), (None, ReleaseOutcome::AlreadyFree)]);
    assert_eq!(shop.owners().await, [Some("ghost".to_owned()), None], "a dry run changes nothing");

    assert_eq!(shop.control().release(Scope::All).apply().await.expect("release"), would);
    let lease = &shop.lease_documents().await["0"];
    assert!(lease["Owner"].is_null() && epoch(lease) == before + 1, "{lease}");
    assert!(lease["properties"]["cf.attempts"].as_str().expect("counted").starts_with("1 "), "{lease}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_wrote_within_its_promise_is_not_taken_for_dead() {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    shop.catch_up(&Seen::default(), 3).await;
    // A host that wrote in the future, by a clock that is ahead, is alive as far as anybody can tell.
    owned_by_a_ghost(&shop, "2100-01-01T00:00:00.0000000Z").await;
    let patience = Duration::from_secs(5);
    let released = shop.control().release(Scope::All).patience(patience).apply().await.expect("release");
    assert_eq!(released[0].outcome, ReleaseOutcome::Kept, "it was asked and did not answer");
    let lease = &shop.lease_documents().await["0"];
    assert_eq!((lease["Owner"].as_str(), lease["properties"].get("cf.paused")), (Some("ghost"), None), "{lease}");

    let taken = shop.control().release(Scope::All).force(true).apply().await.expect("release");
    assert_eq!(taken[0].outcome, ReleaseOutcome::Taken);
    assert!(shop.is_released().await);
}

#[tokio::test(start_paused = true)]
async fn an_operator_whose_clock_is_ahead_takes_no_lease_from_a_living_owner() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    let epoch_before = epoch(&shop.lease_documents().await["0"]);
    let control = shop.control().runtime(shop.runtime_with_clock_off_by(600_000));
    let archive = control.export().await.expect("export");
    let error = control.import(archive).apply().await.expect_err("a host is alive");
    assert!(error.message().contains("hosts are alive: a;"), "{error}");
    assert_eq!(epoch(&shop.lease_documents().await["0"]), epoch_before);
    let released = control.release(Scope::All).apply().await.expect("release");
    assert_eq!(released[0].outcome, ReleaseOutcome::GivenUp, "it was asked");
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_living_owner_gives_its_lease_up_after_its_batch() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..4, 1).await;
    let running = start_slow(shop.processor("a"), shop.runtime(), Duration::from_secs(3), &calls).await;
    until("a call", || calls.len() == 1).await;
    let released = shop.control().release(Scope::All).apply().await.expect("release");
    assert_eq!(released[0].outcome, ReleaseOutcome::GivenUp);
    assert!(calls.all()[0].finished, "its batch was not cut off");
    shop.write(4..8, 1).await;
    until("the rest", || calls.handled().len() == 8).await;
    assert!(calls.given().values().all(|count| *count == 1), "nothing was delivered twice");
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_died_just_before_is_noticed_while_it_is_waited_for() {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    shop.catch_up(&Seen::default(), 3).await;
    // It promised to write within eight seconds.
    owned_by_a_ghost(&shop, "2100-01-01T00:00:00.0000000Z").await;
    let released = shop.control().release(Scope::All).apply().await.expect("release");
    assert_eq!(released[0].outcome, ReleaseOutcome::OwnerDead);
    let lease = &shop.lease_documents().await["0"];
    assert!(lease["Owner"].is_null() && lease["properties"].get("cf.paused").is_none(), "{lease}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_stopped_leaves_no_lease_paused() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..4, 1).await;
    let running = start_slow(shop.processor("a"), shop.runtime(), Duration::from_secs(600), &calls).await;
    until("a call", || calls.len() == 1).await;
    let is_paused = || async { shop.lease_documents().await["0"]["properties"]["cf.paused"].is_string() };
    let release = shop.control().release(Scope::All).patience(Duration::from_secs(500));
    let released = release.apply_unless(until_async("a pause", is_paused)).await.expect("release");
    assert_eq!(released[0].outcome, ReleaseOutcome::Kept);
    assert!(!is_paused().await);
    assert_eq!(shop.owners().await, [Some("a".to_owned())]);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_host_of_another_implementation_keeps_its_lease_unless_it_is_taken() {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    shop.catch_up(&Seen::default(), 3).await;
    shop.edit_lease("0", |lease| {
        lease["Owner"] = "dotnet".into();
        lease["timestamp"] = "2100-01-01T00:00:00.0000000Z".into();
    })
    .await;
    let kept = shop.control().release(Scope::All).apply().await.expect("release");
    assert_eq!(kept[0].outcome, ReleaseOutcome::Kept, "nobody there reads our requests");
    pass(Duration::from_secs(1)).await;
    assert_eq!(shop.owners().await, [Some("dotnet".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_exist_is_named() {
    let shop = Shop::new(2).await;
    let unknown = shop.control().release(Scope::All).apply().await.expect_err("never started");
    assert_eq!(unknown.kind(), ErrorKind::ItemNotFound);
    shop.write(0..1, 1).await;
    shop.catch_up(&Seen::default(), 1).await;
    let token = "7".parse().expect("a token");
    let error = shop.control().release(Scope::Lease(token)).apply().await.expect_err("no such lease");
    assert!(error.message().contains("the leases are 0, 1"), "{error}");
}
