//! Starting while the stores are busy, away or silent.

mod shop;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Notification, Processor,
    core::{Container, ErrorKind},
};
use changefeed_testkit::faulty::{Call, Fault, FaultPlan, Faulty};
use shop::{Seen, Shop, pass, until};

fn faulty(container: &Container, plan: impl FaultPlan) -> Container {
    Container::new(Arc::new(Faulty::new(Arc::clone(container.backend()), plan)))
}

/// Every second of these calls fails.
fn every_second(
    these: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
    fault: impl Fn() -> Fault + Send + Sync + 'static,
) -> impl FaultPlan {
    let calls = AtomicU32::new(0);
    move |call: &Call<'_>| {
        let fails = these(call) && calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if fails { fault() } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_bears_stores_that_throttle_every_second_request() {
    let shop = Shop::new(8).await;
    let orders = faulty(&shop.orders, every_second(|_| true, || Fault::Throttled));
    let leases = faulty(&shop.leases, every_second(|_| true, || Fault::Throttled));
    let shop = Shop { orders, leases, ..shop };
    drop(shop.host("worker-1", &Seen::default()).await);
}

#[tokio::test(start_paused = true)]
async fn a_start_repeats_writes_that_were_lost() {
    let shop = Shop::new(8).await;
    let leases = faulty(&shop.leases, every_second(|call| call.is_write(), || Fault::FailedWithoutDoingIt));
    let shop = Shop { leases, ..shop };
    drop(shop.host("worker-1", &Seen::default()).await);
}

#[tokio::test(start_paused = true)]
async fn a_start_gives_up_on_a_store_that_stays_away() {
    let shop = Shop::new(1).await;
    let leases = faulty(&shop.leases, |_: &Call<'_>| Fault::Error(ErrorKind::Unavailable));
    let shop = Shop { leases, ..shop };
    let processor =
        shop.processor("worker-1").build(|_: changefeed::RawChanges, _: changefeed::Context| async { Ok(()) });
    let error = processor.expect("build").start().await.expect_err("a store that is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_a_store_as_long_as_its_start_timeout_says() {
    let shop = Shop::new(1).await;
    let begun = tokio::time::Instant::now();
    let back_after = Duration::from_secs(40);
    let leases = faulty(&shop.leases, move |_: &Call<'_>| match begun.elapsed() < back_after {
        true => Fault::Error(ErrorKind::Unavailable),
        false => Fault::None,
    });
    let shop = Shop { leases, ..shop };
    let build = |builder: changefeed::ProcessorBuilder| {
        builder.build(|_: changefeed::RawChanges, _: changefeed::Context| async { Ok(()) }).expect("build")
    };
    let at_once = build(shop.processor("worker-1").start_timeout(Duration::ZERO));
    at_once.start().await.expect_err("repeats nothing");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    build(shop.processor("worker-1")).start().await.expect_err("10 s are too short");
    assert!((Duration::from_secs(5)..=Duration::from_secs(14)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let patient = build(shop.processor("worker-1").start_timeout(Duration::from_secs(60)));
    patient.start().await.expect("the store is back in time").stop().await.expect("stop");
    assert!(begun.elapsed() >= back_after, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_no_longer_than_its_start_timeout_for_a_store_that_names_a_time() {
    let shop = Shop::new(1).await;
    let calls = AtomicU32::new(0);
    let leases = faulty(&shop.leases, move |_: &Call<'_>| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Fault::ThrottledFor { retry_after: Duration::from_secs(4), request_charge: 0.0 },
        1 => Fault::ThrottledFor { retry_after: Duration::from_secs(60), request_charge: 0.0 },
        _ => Fault::None,
    });
    let shop = Shop { leases, ..shop };
    let processor =
        shop.processor("worker-1").build(|_: changefeed::RawChanges, _: changefeed::Context| async { Ok(()) });
    let begun = tokio::time::Instant::now();
    let error = processor.expect("build").start().await.expect_err("60 s are too long");
    assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::Throttled, Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn an_async_callback_receives_the_errors_of_a_start_that_fails() {
    let shop = Shop::new(1).await;
    let leases = faulty(&shop.leases, |_: &Call<'_>| Fault::Panic);
    let shop = Shop { leases, ..shop };
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&received);
    let builder = shop.processor("worker-1").on_notification_async(move |notification| {
        let kept = Arc::clone(&kept);
        async move {
            tokio::task::yield_now().await;
            if let Notification::Error(report) = notification {
                kept.lock().expect("lock").push(report.failure.to_string());
            }
        }
    });
    let processor = builder.build(|_: changefeed::RawChanges, _: changefeed::Context| async { Ok(()) });
    processor.expect("build").start().await.expect_err("the store panics");
    let received = received.lock().expect("lock").clone();
    assert!(received.len() == 1 && received[0].contains("the store of leases panicked"), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_gets_the_lock_late_does_not_start_over() {
    let shop = Shop::new(1).await;
    let first_write = AtomicBool::new(true);
    let slow = faulty(&shop.leases, move |call: &Call<'_>| {
        let late = call.is_write() && first_write.swap(false, Ordering::Relaxed);
        if late { Fault::Latency(Box::pin(pass(Duration::from_secs(1)))) } else { Fault::None }
    });
    let seen = Seen::default();
    let late = shop::start(Processor::builder("mailer", &shop.orders, &slow).instance_name("worker-2"), &seen);
    let meanwhile = async {
        let first = Processor::builder("mailer", &shop.orders, &shop.leases).instance_name("worker-1");
        let first = shop::start(first, &Seen::default()).await;
        first.stop().await.expect("stop");
        let lease = shop.lease_documents().await.remove("0").expect("a lease");
        let id = lease["id"].as_str().expect("an id");
        shop.leases.delete(id, id).await.expect("delete");
        shop.write(0..10, 1).await;
    };
    let (late, ()) = tokio::join!(late, meanwhile);
    until("delivery", || seen.len() == 10).await;
    late.stop().await.expect("stop");
}
