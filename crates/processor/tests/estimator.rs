//! The estimator: exact numbers, with hosts and without, before and after splits.

mod shop;

use std::time::Duration;

use changefeed::{
    Control, Estimator, Lag, LeaseState, Processor, RawChanges, Scope,
    core::{ErrorKind, StartFrom},
};
use shop::{Seen, Shop, until, until_async};

impl Shop {
    fn estimator(&self) -> Estimator {
        Estimator::new("mailer", &self.orders, &self.leases).runtime(self.runtime())
    }

    async fn lag(&self) -> Lag {
        self.estimator().lag().await.expect("lag")
    }
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_was_never_started_is_not_caught_up_but_unknown() {
    let shop = Shop::new(2).await;
    let error = shop.estimator().lag().await.expect_err("no leases");
    assert_eq!(error.kind(), ErrorKind::ItemNotFound);
    let expected = "processor \"mailer\" has no leases in shop/leases: it was never started on shop/orders, and neither \
                    was any other processor";
    assert_eq!(error.message(), expected);
}

#[tokio::test(start_paused = true)]
async fn changes_are_counted_exactly_with_no_host_running() {
    let shop = Shop::new(4).await;
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    shop.catch_up(&seen, 100).await;
    let lag = shop.lag().await;
    assert_eq!((lag.changes, lag.behind, lag.leases.len()), (0, Duration::ZERO, 4));
    assert!(lag.leases.iter().all(|lease| lease.state == LeaseState::Free && !lease.estimated));
    shop.write(0..30, 2).await;
    shop.clock.advance(Duration::from_secs(90));
    shop.write(20..50, 3).await;
    shop.clock.advance(Duration::from_millis(500));
    let lag = shop.lag().await;
    // Ten items were overwritten before anybody read them: they count once.
    assert_eq!(lag.changes, 50);
    assert_eq!(lag.behind, Duration::from_millis(90_500));
    assert_eq!(lag.leases.iter().map(|lease| lease.changes).sum::<u64>(), 50);
    assert!(lag.leases.iter().all(|lease| lease.changes > 0 && lease.owner.is_none()));
}

#[tokio::test(start_paused = true)]
async fn items_of_one_transaction_count_one_by_one() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..1, 1).await;
    shop.catch_up(&seen, 1).await;
    let mut batch = shop.orders.batch("c0");
    for item in 0..20 {
        batch = batch.upsert(&shop::order(item * 50, 2));
    }
    batch.commit().await.expect("commit");
    assert_eq!(shop.lag().await.changes, 20);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_never_worked_on_is_measured_from_where_it_will_begin() {
    let shop = Shop::new(2).await;
    shop.write(0..40, 1).await;
    // The first host begins now, the leases of the second at the beginning; neither has a lease long enough to work.
    let now = Processor::builder("now", &shop.orders, &shop.leases).runtime(shop.runtime());
    drop(now.build(|_: RawChanges, _| async { Ok(()) }).expect("build").start().await.expect("start"));
    let beginning = shop.processor("worker-1");
    drop(beginning.build(|_: RawChanges, _| async { Ok(()) }).expect("build").start().await.expect("start"));
    shop.write(40..50, 1).await;
    assert_eq!(shop.lag().await.changes, 50);
    let now = Estimator::new("now", &shop.orders, &shop.leases).lag().await.expect("lag");
    assert_eq!(now.changes, 10);
}

#[tokio::test(start_paused = true)]
async fn a_split_and_a_merge_while_no_host_runs_do_not_disturb_the_count() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    shop.catch_up(&seen, 100).await;
    shop.write(0..60, 2).await;
    shop.split(0).await;
    shop.split(0).await;
    let lag = shop.lag().await;
    assert_eq!((lag.changes, lag.leases.len()), (60, 2));
    let states: Vec<LeaseState> = lag.leases.iter().map(|lease| lease.state).collect();
    assert_eq!(states, [LeaseState::SplitPending, LeaseState::Free]);
    while shop.ranges().await.len() > 1 {
        shop.merge(0).await;
    }
    shop.write(60..70, 2).await;
    let lag = shop.lag().await;
    assert_eq!((lag.changes, lag.leases.len()), (70, 2));
    shop.catch_up(&seen, 170).await;
    assert_eq!(shop.lag().await.changes, 0);
    assert_eq!(seen.len(), 170);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_document_shows_as_missing_with_its_changes() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    shop.catch_up(&seen, 100).await;
    let lost = shop.lease_documents().await["0"]["id"].as_str().expect("id").to_owned();
    shop.leases.delete(lost.as_str(), &lost).await.expect("delete");
    let lag = shop.lag().await;
    let states: Vec<LeaseState> = lag.leases.iter().map(|lease| lease.state).collect();
    assert_eq!(states, [LeaseState::Missing, LeaseState::Free]);
    let in_range = shop.ranges().await[0].range.clone();
    let expected = (0..100).filter(|item| shop::is_in(&shop.orders, &shop::order(*item, 1), &in_range)).count();
    assert_eq!(lag.changes, expected as u64, "it will begin where the processor began");
}

#[tokio::test(start_paused = true)]
async fn owners_pauses_and_broken_documents_are_shown() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    shop.write(0..100, 1).await;
    until("delivery", || seen.len() == 100).await;
    until_async("checkpoints", || async { shop.lag().await.changes == 0 }).await;
    let lag = shop.lag().await;
    assert!(lag.leases.iter().all(|lease| lease.owner.as_deref() == Some("worker-1")));
    assert!(lag.leases.iter().all(|lease| lease.state == LeaseState::Owned));
    let control = Control::new("mailer", &shop.orders, &shop.leases);
    control.pause(Scope::All).await.expect("pause");
    assert!(shop.lag().await.leases.iter().all(|lease| lease.state == LeaseState::Paused));
    running.stop().await.expect("stop");
    let document = shop.lease_documents().await["1"].clone();
    let mut broken = document.clone();
    broken["version"] = 9.into();
    shop.leases.upsert(&broken).await.expect("upsert");
    let lag = shop.lag().await;
    let states: Vec<LeaseState> = lag.leases.iter().map(|lease| lease.state).collect();
    assert_eq!(states, [LeaseState::Paused, LeaseState::Broken]);
    assert_eq!((lag.changes, lag.leases[1].estimated), (0, true), "nobody knows where it stands");
    assert!(lag.broken[0].ends_with("lease version 9 is not known here: update this host"), "{:?}", lag.broken);
}

#[tokio::test(start_paused = true)]
async fn a_watch_measures_at_once_and_then_every_interval() {
    let shop = Shop::new(1).await;
    let mut watch = shop.estimator().watch(Duration::from_secs(5));
    assert_eq!(watch.next().await.expect_err("not started").kind(), ErrorKind::ItemNotFound);
    let seen = Seen::default();
    shop.write(0..5, 1).await;
    shop.catch_up(&seen, 5).await;
    shop.write(0..3, 2).await;
    let begun = tokio::time::Instant::now();
    while watch.next().await.map_or(0, |lag| lag.changes) != 3 {}
    assert!(begun.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn all_versions_count_every_version_and_delete() {
    let shop = Shop::with_history().await;
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).all_versions().runtime(shop.runtime());
    drop(processor.build(|_: RawChanges, _| async { Ok(()) }).expect("build").start().await.expect("start"));
    shop.write(0..10, 1).await;
    shop.write(0..10, 2).await;
    shop.orders.delete("c0", "o0").await.expect("delete");
    let lag = shop.lag().await;
    assert_eq!(lag.changes, 21);
    shop.clock.advance(Duration::from_secs(2 * 86_400));
    let lag = shop.lag().await;
    assert!(lag.leases.iter().all(|lease| lease.state == LeaseState::Expired && lease.estimated), "{lag:?}");
    assert!(lag.changes > 0);
}

#[tokio::test(start_paused = true)]
async fn two_processors_on_one_lease_container_are_counted_apart() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..20, 1).await;
    shop.catch_up(&seen, 20).await;
    let other = Processor::builder("mailer.eu", &shop.orders, &shop.leases).start_from(StartFrom::Beginning);
    drop(other.build(|_: RawChanges, _| async { Ok(()) }).expect("build").start().await.expect("start"));
    assert_eq!(shop.lag().await.changes, 0);
    let other = Estimator::new("mailer.eu", &shop.orders, &shop.leases).lag().await.expect("lag");
    assert_eq!(other.changes, 20);
}
