//! Hosts share leases, hand them over and replace each other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use changefeed::{Context, RawChanges};
use tokio::sync::Notify;

use crate::shop::{Seen, Shop, start, until};

#[tokio::test]
async fn hosts_share_the_leases_evenly() {
    let (shop, seen) = (Shop::new(6).await, [Seen::default(), Seen::default(), Seen::default()]);
    let mut running = Vec::new();
    for (name, own) in ["a", "b", "c"].into_iter().zip(&seen) {
        running.push(shop.host(name, own).await);
    }
    until("even shares", || seen.iter().all(|own| own.leases() == 2)).await;
    for host in running {
        host.stop().await.unwrap();
    }
    assert!(seen.iter().all(|own| own.leases() == 0));
}

#[tokio::test]
async fn a_host_that_joins_and_one_that_leaves_cause_no_duplicates() {
    let (shop, seen, second) = (Shop::new(4).await, Seen::default(), Seen::default());
    let first = shop.host("a", &seen).await;
    shop.write(0..100, 1).await;
    let joined = shop.host("b", &second).await;
    shop.write(100..200, 1).await;
    until("a share for the second", || second.leases() == 2).await;
    shop.write(200..300, 1).await;
    first.stop().await.unwrap();
    shop.write(300..400, 1).await;
    until("delivery", || seen.len() + second.len() >= 400).await;
    joined.stop().await.unwrap();
    assert_eq!(seen.distinct() + second.distinct(), 400);
    assert_eq!(seen.len() + second.len(), 400, "no duplicates");
}

#[tokio::test]
async fn a_restarted_host_goes_on_where_it_stopped() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    for round in 0..3 {
        let running = shop.host("a", &seen).await;
        shop.write(round * 30..(round + 1) * 30, 1).await;
        let wanted = (round as usize + 1) * 30;
        until("delivery", || seen.len() >= wanted).await;
        running.stop().await.unwrap();
    }
    assert_eq!((seen.len(), seen.distinct()), (90, 90));
}

#[tokio::test]
async fn a_host_that_is_dropped_is_replaced_after_its_leases_have_expired() {
    let (shop, seen, second) = (Shop::new(2).await, Seen::default(), Seen::default());
    let first = shop.host("a", &seen).await;
    shop.write(0..50, 1).await;
    until("delivery", || seen.len() >= 50).await;
    drop(first);
    let replacement = shop.host("b", &second).await;
    until("takeover", || second.leases() == 2).await;
    shop.write(50..100, 1).await;
    until("delivery", || second.ids().iter().filter(|id| id.parse::<u32>().unwrap() >= 50).count() >= 50).await;
    replacement.stop().await.unwrap();
}

#[tokio::test]
async fn a_host_takes_no_more_leases_than_it_may() {
    let (shop, seen) = (Shop::new(4).await, Seen::default());
    let running = start(shop.builder("a").max_leases(1), &seen).await;
    until("one lease", || seen.leases() == 1).await;
    let (rest, second) = (Seen::default(), shop.builder("b"));
    let second = start(second, &rest).await;
    until("the others with the second", || rest.leases() == 3).await;
    assert_eq!(seen.leases(), 1);
    running.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
async fn stop_returns_within_its_deadline_although_the_delegate_hangs() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    let called = Arc::new(Notify::new());
    let own = Arc::clone(&called);
    let processor = shop.builder("a").stop_deadline(Duration::from_millis(300));
    let processor = processor.build(move |_: RawChanges, _: Context| {
        own.notify_one();
        async {
            std::future::pending::<()>().await;
            Ok(())
        }
    });
    let running = processor.unwrap().start().await.unwrap();
    called.notified().await;
    let begin = Instant::now();
    // Whether it says that something was cut off is not the point here.
    drop(running.stop().await);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_long_call_is_waited_for_when_its_lease_is_handed_over() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (own, enter, gate) = (seen.clone(), Arc::clone(&entered), Arc::clone(&release));
    let processor = shop.builder("a").build(move |changes: RawChanges, context: Context| {
        let (own, enter, gate) = (own.clone(), Arc::clone(&enter), Arc::clone(&gate));
        async move {
            enter.notify_one();
            until("the end of the call", || gate.load(Ordering::Acquire)).await;
            own.note(&changes, &context);
            Ok(())
        }
    });
    let first = processor.unwrap().start().await.unwrap();
    shop.write(0..10, 1).await;
    entered.notified().await;
    // The first one begins to stop; its call goes on until the second one has started.
    let (stopped, second) = tokio::join!(first.stop(), async {
        let second = shop.host("b", &seen).await;
        release.store(true, Ordering::Release);
        second
    });
    stopped.unwrap();
    until("delivery", || seen.distinct() >= 10).await;
    second.stop().await.unwrap();
    assert_eq!(seen.len(), 10, "no duplicates");
}
