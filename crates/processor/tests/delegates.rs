//! Delegates that misbehave: panics, endless calls, slow ends.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use changefeed::{Changes, Context, DelegateError, core::ErrorKind};
use shop::{Notifications, Order, Seen, Shop, until};

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_and_the_batch_comes_again() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..5, 1).await;
    let (kept, calls) = (seen.clone(), Arc::new(AtomicU32::new(0)));
    let clumsy = move |changes: Changes<Order>, ctx: Context| {
        let (seen, first) = (kept.clone(), calls.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            assert!(!first, "dropped the parcel");
            seen.add(&changes, &ctx);
            Ok(())
        }
    };
    let processor = shop.processor("worker-1").on_notification(notifications.listen());
    let running = processor.build(clumsy).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 5).await;
    assert!(notifications.text().contains("the delegate panicked: dropped the parcel"), "{}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_contained_too() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..5, 1).await;
    let (kept, calls) = (seen.clone(), Arc::new(AtomicU32::new(0)));
    let clumsy = move |changes: Changes<Order>, ctx: Context| {
        assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "stumbled at the door");
        let seen = kept.clone();
        async move {
            seen.add(&changes, &ctx);
            Ok(())
        }
    };
    let processor = shop.processor("worker-1").on_notification(notifications.listen());
    let running = processor.build(clumsy).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 5).await;
    assert!(notifications.text().contains("stumbled at the door"), "{}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_delegate_timeout_ends_the_call_and_counts_as_a_failure() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..5, 1).await;
    let kept = seen.clone();
    let slow = move |changes: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            if ctx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            seen.add(&changes, &ctx);
            Ok(())
        }
    };
    let processor =
        shop.processor("worker-1").on_notification(notifications.listen()).delegate_timeout(Duration::from_secs(7));
    let running = processor.build(slow).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 5).await;
    assert!(notifications.text().contains("the delegate did not return within 7s"), "{}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn stop_returns_within_its_deadline_whatever_the_delegate_does() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..20, 1).await;
    let kept = seen.clone();
    let endless = move |changes: Changes<Order>, ctx: Context| {
        kept.add(&changes, &ctx);
        std::future::pending::<Result<(), DelegateError>>()
    };
    let processor = shop.processor("worker-1").stop_deadline(Duration::from_secs(10));
    let running = processor.build(endless).expect("build").start().await.expect("start");
    until("delivery begins", || seen.len() == 20).await;
    let begun = tokio::time::Instant::now();
    let error = running.stop().await.expect_err("the delegate never returned");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(begun.elapsed() <= Duration::from_secs(10), "{:?}", begun.elapsed());
    seen.take();
    let running = shop.host("worker-2", &seen).await;
    until("the batch comes again", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_a_batch_that_is_being_handled_and_it_does_not_come_again() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..20, 1).await;
    let (release, gate) = tokio::sync::watch::channel(false);
    let kept = seen.clone();
    let slow = move |changes: Changes<Order>, ctx: Context| {
        let (seen, mut gate) = (kept.clone(), gate.clone());
        async move {
            seen.add(&changes, &ctx);
            drop(gate.wait_for(|open| *open).await);
            Ok(())
        }
    };
    let running = shop.processor("worker-1").build(slow).expect("build").start().await.expect("start");
    until("delivery begins", || seen.len() == 20).await;
    let (stopped, ()) = tokio::join!(running.stop(), async {
        shop::pass(Duration::from_secs(2)).await;
        release.send_replace(true);
    });
    stopped.expect("stop");
    let running = shop.host("worker-2", &seen).await;
    shop.write(20..30, 1).await;
    until("delivery", || seen.len() >= 30).await;
    shop::pass(Duration::from_secs(3)).await;
    assert_eq!(seen.len(), 30);
    running.stop().await.expect("stop");
}
