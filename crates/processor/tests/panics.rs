//! Panics in a store or in our own tasks: reported, and processing continues.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{Changes, Context, DeadLetter, DelegateError, Running};
use changefeed_testkit::faulty::{Call, Fault, FaultPlan};
use shop::{Notifications, Order, Seen, Shop, faulty, until};

/// Panics once, in the first call that `wanted` names after it was armed.
#[derive(Clone)]
struct PanicOnce {
    armed: Arc<AtomicBool>,
    wanted: fn(&Call<'_>) -> bool,
}

impl PanicOnce {
    fn at(wanted: fn(&Call<'_>) -> bool) -> Self {
        Self { armed: Arc::default(), wanted }
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    fn has_panicked(&self) -> bool {
        !self.armed.load(Ordering::SeqCst)
    }
}

impl FaultPlan for PanicOnce {
    fn fault(&self, call: &Call<'_>) -> Fault {
        assert!(!((self.wanted)(call) && self.armed.swap(false, Ordering::SeqCst)), "bug in a store");
        Fault::None
    }
}

fn is_reported(notifications: &Notifications) -> bool {
    notifications.errors("bug in a store") > 0
}

/// A host on stores that fail, which has delivered what there was when `panic` strikes; it must report that and deliver
/// what comes then.
async fn survives(shop: &Shop, stores: &Shop, panic: &PanicOnce) {
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    let running = shop::start(stores.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    until("delivery", || seen.len() == 50).await;
    panic.arm();
    shop.write(0..50, 2).await;
    until("the panic", || panic.has_panicked()).await;
    until("the panic is reported", || is_reported(&notifications)).await;
    shop.write(0..50, 3).await;
    let newest = || seen.counts().into_keys().filter(|(_, version)| *version == 3).count() == 50;
    until("delivery goes on", newest).await;
    running.stop().await.expect("stop");
    assert!(shop.is_released().await);
}

async fn survives_in_orders(wanted: fn(&Call<'_>) -> bool) {
    let (shop, panic) = (Shop::new(2).await, PanicOnce::at(wanted));
    let stores = Shop { orders: faulty(&shop.orders, panic.clone()), ..shop.clone() };
    survives(&shop, &stores, &panic).await;
}

async fn survives_in_leases(wanted: fn(&Call<'_>) -> bool) {
    let (shop, panic) = (Shop::new(2).await, PanicOnce::at(wanted));
    let stores = Shop { leases: faulty(&shop.leases, panic.clone()), ..shop.clone() };
    survives(&shop, &stores, &panic).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_feed_is_read_is_reported_and_delivery_goes_on() {
    survives_in_orders(|call| matches!(call, Call::ReadChanges(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_host_waits_for_changes_is_reported_and_delivery_goes_on() {
    survives_in_orders(|call| matches!(call, Call::Changed(..))).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_lease_is_written_is_reported_and_delivery_goes_on() {
    survives_in_leases(|call| call.is_write()).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_leases_are_listed_is_reported_and_delivery_goes_on() {
    let (shop, panic) = (Shop::new(2).await, PanicOnce::at(|call| matches!(call, Call::ListItems(_))));
    let stores = Shop { leases: faulty(&shop.leases, panic.clone()), ..shop.clone() };
    let (seen, others, notifications) = (Seen::default(), Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    let running = shop::start(stores.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    until("delivery", || seen.len() == 50).await;
    panic.arm();
    // A second host makes the first one look at all leases.
    let other = shop.host("worker-2", &others).await;
    until("the panic", || panic.has_panicked()).await;
    until("the panic is reported", || is_reported(&notifications)).await;
    shop.write(0..50, 2).await;
    let newest = || seen.counts().into_keys().chain(others.counts().into_keys()).filter(|(_, v)| *v == 2).count() == 50;
    until("delivery goes on", newest).await;
    running.stop().await.expect("stop");
    other.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_panic_during_a_split_is_reported_and_the_children_are_processed() {
    let (shop, panic) = (Shop::new(1).await, PanicOnce::at(|call| matches!(call, Call::FeedRanges)));
    let stores = Shop { orders: faulty(&shop.orders, panic.clone()), ..shop.clone() };
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    let running = shop::start(stores.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    until("delivery", || seen.len() == 50).await;
    panic.arm();
    shop.split(0).await;
    shop.write(0..50, 2).await;
    until("the panic", || panic.has_panicked()).await;
    until("the panic is reported", || is_reported(&notifications)).await;
    until("delivery goes on", || seen.counts().len() == 100).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_dead_letter_is_written_is_reported_and_the_letter_is_written_later() {
    let (shop, panic) = (Shop::new(1).await, PanicOnce::at(|call| call.is_write()));
    panic.arm();
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    let kept = seen.clone();
    let rejecting = move |changes: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            if changes.iter().any(|order| order.id == "o3") {
                return Err(DelegateError::new("no address"));
            }
            seen.add(&changes, &ctx);
            Ok(())
        }
    };
    let policy = DeadLetter::to(&faulty(&shop.rejected, panic.clone())).after_attempts(2);
    let processor = shop.processor("worker-1").dead_letter(policy).on_notification(notifications.listen());
    let running: Running = processor.build(rejecting).expect("build").start().await.expect("start");
    until("the panic", || panic.has_panicked()).await;
    until("the panic is reported", || is_reported(&notifications)).await;
    shop::until_async("the dead letter", || async { shop.dead_lettered().await == ["o3"] }).await;
    until("delivery of the rest", || seen.counts().len() == 9).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_panicking_is_retried_with_pauses_and_other_leases_go_on() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let bad = shop.ranges().await[0].clone();
    let reads = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (count, range) = (Arc::clone(&reads), bad.range.clone());
    let orders = faulty(&shop.orders, move |call: &Call<'_>| {
        if matches!(call, Call::ReadChanges(request) if request.range == range) {
            count.fetch_add(1, Ordering::SeqCst);
            panic!("bug in a store");
        }
        Fault::None
    });
    let stores = Shop { orders, ..shop.clone() };
    shop.write(0..50, 1).await;
    let running = shop::start(stores.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    let expected = (0..50).filter(|item| !shop::is_in(&shop.orders, &shop::order(*item, 1), &bad.range)).count();
    until("delivery of the other range", || seen.len() == expected).await;
    shop::pass(Duration::from_secs(120)).await;
    let reads = reads.load(Ordering::SeqCst);
    assert!((3..60).contains(&reads), "tried again, with pauses: {reads} reads in 120 s");
    assert!(is_reported(&notifications), "{}", notifications.text());
    running.stop().await.expect("stop");
    assert!(shop.is_released().await);
}
