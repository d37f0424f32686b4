//! A monitored container that is deleted and created again, and hosts that start for the first time on the new one: they do not
//! know that the processor ran before, and make nobody skip what is in it.

mod shop;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, Running,
    core::{Batch, ErrorKind, StartFrom, Write},
};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Calls, Order, Seen, Shop, faulty, pass, until};

/// Starts a host `b` from `start` on a container that has just been created again with 20 orders in it, and writes ten more.
/// The host `a`, which ran on the old container, has looked for the new one in vain, and looks again after that.
async fn host_on_new_container(shop: &mut Shop, start: impl Fn(&Shop) -> StartFrom, seen: &Seen) -> Running {
    let ranges = shop.ranges().await.len();
    shop.engine.catalog().delete_container("shop", "orders").await.expect("delete");
    pass(Duration::from_millis(10)).await;
    let again = shop.engine.database("shop").container("orders").partition_key("/customer").ranges(ranges);
    shop.orders = again.create().await.expect("orders");
    shop.write(0..20, 1).await;
    let running = shop::start(shop.processor("b").start_from(start(shop)), seen).await;
    shop.write(20..30, 1).await;
    running
}

/// Waits until both together have received all 30 orders, then stops the hosts.
async fn receive_all(hosts: [Running; 2], seen: [&Seen; 2]) {
    let received = || seen.iter().flat_map(|seen| seen.ids()).collect::<BTreeSet<_>>().len();
    until("delivery", || received() == 30).await;
    for host in hosts {
        host.stop().await.expect("stop");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_the_new_host_is_delivered() {
    let mut shop = Shop::new(2).await;
    let (old, new) = (Seen::default(), Seen::default());
    let first = shop::start(shop.processor("a").start_from(StartFrom::Now), &old).await;
    let second = host_on_new_container(&mut shop, |_| StartFrom::Now, &new).await;
    receive_all([first, second], [&old, &new]).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_the_time_of_the_new_host_is_delivered() {
    let mut shop = Shop::new(2).await;
    let (old, new) = (Seen::default(), Seen::default());
    let from_now = |shop: &Shop| StartFrom::Time(shop.clock.now());
    let first = shop::start(shop.processor("a").start_from(from_now(&shop)), &old).await;
    let minute_later = |shop: &Shop| {
        shop.clock.advance(Duration::from_secs(60));
        from_now(shop)
    };
    let second = host_on_new_container(&mut shop, minute_later, &new).await;
    receive_all([first, second], [&old, &new]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_leaves_no_lease_behind_that_skips_changes() {
    let mut shop = Shop::new(3).await;
    let (old, new) = (Seen::default(), Seen::default());
    let moves = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&moves);
    let leases = faulty(&shop.leases, move |call: &Call<'_>| match call {
        Call::Write(batch) if moves_a_lease(batch) && counted.fetch_add(1, Ordering::Relaxed) == 1 => Fault::Throttled,
        _ => Fault::None,
    });
    let throttled = Shop { leases, ..shop.clone() };
    let first = shop::start(throttled.processor("a").start_from(StartFrom::Now), &old).await;
    let second = host_on_new_container(&mut shop, |_| StartFrom::Now, &new).await;
    receive_all([first, second], [&old, &new]).await;
    assert!(moves.load(Ordering::Relaxed) > 3, "the refused one again, and the one behind it");
}

fn moves_a_lease(batch: &Batch) -> bool {
    let generation = b"cf.generation";
    let body = |write: &Write| match write {
        Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. } => body.clone(),
        Write::Delete { .. } => Default::default(),
    };
    batch.writes.iter().any(|write| body(write).windows(generation.len()).any(|part| part == generation))
}

#[tokio::test(start_paused = true)]
async fn nothing_is_repeated_if_the_new_host_has_left_nothing_out() {
    let mut shop = Shop::new(2).await;
    let (calls, seen) = (Calls::default(), Seen::default());
    let from_now = |shop: &Shop, name: &str| shop.processor(name).start_from(StartFrom::Now);
    let first = shop::start_slow(from_now(&shop, "a"), shop.runtime(), Duration::from_secs(30), &calls).await;
    shop.write(0..1, 1).await;
    until("a call", || calls.len() == 1).await;
    shop.recreate_orders(2).await;
    let second = shop::start(from_now(&shop, "b"), &seen).await;
    shop.write(0..20, 2).await;
    until("delivery", || seen.len() == 20).await;
    // The call of the first host ends meanwhile, and it follows.
    pass(Duration::from_secs(60)).await;
    assert!(!first.owned_leases().is_empty());
    first.stop().await.expect("stop");
    second.stop().await.expect("stop");
    assert_eq!((calls.len(), seen.len()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn a_new_host_that_fails_in_its_bootstrap_leaves_nothing_out() {
    let mut shop = Shop::new(2).await;
    let (old, new) = (Seen::default(), Seen::default());
    let first = shop::start(shop.processor("a").start_from(StartFrom::Now), &old).await;
    shop.engine.catalog().delete_container("shop", "orders").await.expect("delete");
    pass(Duration::from_millis(10)).await;
    let again = shop.engine.database("shop").container("orders").partition_key("/customer").ranges(2);
    shop.orders = again.create().await.expect("orders");
    shop.write(0..20, 1).await;
    // It creates one lease, after these orders, and no other.
    let leases = AtomicUsize::new(0);
    let broken = faulty(&shop.leases, move |call: &Call<'_>| match call {
        Call::Write(batch) if creates_a_lease(batch) && leases.fetch_add(1, Ordering::Relaxed) == 1 => {
            Fault::Error(ErrorKind::Forbidden)
        }
        _ => Fault::None,
    });
    let failing = Shop { leases: broken, ..shop.clone() }.processor("b").start_from(StartFrom::Now);
    let error = failing.build(move |orders: Changes<Order>, context: Context| {
        new.add(&orders, &context);
        async { Ok(()) }
    });
    let error = error.expect("build").start().await.expect_err("a lease cannot be created");
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    until("delivery", || old.counts().len() == 20).await;
    first.stop().await.expect("stop");
}

fn creates_a_lease(batch: &Batch) -> bool {
    let is_lease = |body: &[u8]| body.windows(10).any(|part| part == b"LeaseToken");
    batch.writes.iter().any(|write| matches!(write, Write::Create { body } if is_lease(body)))
}
