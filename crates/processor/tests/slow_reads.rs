//! Feed reads that take long: they are waited for while the lease is renewed, and reported when they hang.

mod shop;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use changefeed::{Failure, LeaseTiming};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Notifications, Seen, Shop, faulty, pass, until};

impl Shop {
    /// A shop whose pages take this long to read.
    fn with_slow_reads(&self, time: Duration) -> Self {
        let runtime = self.runtime();
        let orders = faulty(&self.orders, move |call: &Call<'_>| match call {
            Call::ReadChanges(_) => Fault::Latency(runtime.sleep(time)),
            _ => Fault::None,
        });
        Self { orders, ..self.clone() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_takes_longer_than_a_lease_lives_is_waited_for() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..30, 1).await;
    // A lease expires after 8 s.
    let running = shop.with_slow_reads(Duration::from_secs(20)).host("worker-1", &seen).await;
    until("delivery", || seen.len() == 30).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn delivery_goes_on_page_after_page_of_slow_reads() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    let slow = shop.with_slow_reads(Duration::from_secs(7));
    let processor = slow.processor("worker-1").max_items(2).on_notification(notifications.listen());
    let running = shop::start(processor, &seen).await;
    until("delivery", || seen.len() == 10).await;
    running.stop().await.expect("stop");
    assert_eq!(notifications.failures(|_| true), 0, "{}", notifications.text());
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_slow_read() {
    let shop = Shop::new(1).await;
    shop.write(0..10, 1).await;
    let running = shop.with_slow_reads(Duration::from_secs(3600)).host("worker-1", &Seen::default()).await;
    pass(Duration::from_secs(10)).await;
    let begun = tokio::time::Instant::now();
    running.stop().await.expect("stop");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(shop.is_released().await);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_ends_by_its_own_timeout_and_is_reported() {
    for timing in [LeaseTiming::EMBEDDED, LeaseTiming::REMOTE] {
        let shop = Shop::new(1).await;
        let (seen, notifications) = (Seen::default(), Notifications::default());
        shop.write(0..10, 1).await;
        let reads = AtomicU32::new(0);
        let orders = faulty(&shop.orders, move |call: &Call<'_>| match call {
            Call::ReadChanges(_) if reads.fetch_add(1, Ordering::SeqCst) < 2 => Fault::NeverReturns,
            _ => Fault::None,
        });
        let hung = Shop { orders, ..shop };
        let processor = hung.processor("worker-1").lease_timing(timing).on_notification(notifications.listen());
        let running = shop::start(processor, &seen).await;
        let reported = || notifications.failures(|failure| matches!(failure, Failure::Feed(_)));
        until("the first one is reported", || reported() >= 1).await;
        until("delivery, after the second", || seen.len() == 10).await;
        assert_eq!(reported(), 2, "{}", notifications.text());
        running.stop().await.expect("stop");
    }
}
