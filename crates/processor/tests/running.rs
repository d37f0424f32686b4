//! Running hosts: their health, their end, their notifications, and starting again.

mod shop;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DelegateError, ErrorReport, Failure, HostState, LeaseHealth, Notification,
    core::{ErrorKind, Timestamp},
    runtime::{BoxFuture, Runtime},
};
use shop::{Gate, Order, Seen, Shop, start, until};

#[tokio::test(start_paused = true)]
async fn an_error_report_names_lease_positions_and_attempt() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..5, 1).await;
    let (reports, kept) = (Arc::new(Mutex::new(Vec::<ErrorReport>::new())), seen.clone());
    let noted = Arc::clone(&reports);
    let builder = shop.processor("worker-1").on_error(move |report| noted.lock().expect("lock").push(report.clone()));
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            if ctx.attempt() < 3 {
                return Err(DelegateError::new("not yet"));
            }
            seen.add(&changes, &ctx);
            Ok(())
        }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 5).await;
    let reports = reports.lock().expect("lock").clone();
    let leases: Vec<_> = running.owned_leases();
    assert_eq!(reports.len(), 2);
    for (report, attempt) in reports.iter().zip(1..) {
        assert_eq!(report.lease.as_ref(), leases.first());
        let batch = report.batch.as_ref().expect("a batch");
        assert_eq!((batch.first_lsn.get(), batch.last_lsn.get(), batch.items, batch.attempt), (2, 6, 5, attempt));
        assert!(matches!(&report.failure, Failure::Delegate(error) if error.to_string() == "not yet"));
    }
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_context_has_continuation_and_epoch() {
    let shop = Shop::new(1).await;
    shop.write(0..5, 1).await;
    let noted = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&noted);
    let processor = shop.processor("worker-1").build(move |_: Changes<Order>, ctx: Context| {
        kept.lock().expect("lock").push((ctx.continuation().map(str::to_owned), ctx.epoch()));
        async { Ok(()) }
    });
    let processor = processor.expect("build");
    processor.start().await.expect("start").stop().await.expect("stop");
    let running = processor.start().await.expect("start again");
    until("delivery", || !noted.lock().expect("lock").is_empty()).await;
    let (continuation, epoch) = noted.lock().expect("lock").last().cloned().expect("a call");
    running.stop().await.expect("stop");
    let lease = shop.lease_documents().await.into_values().next().expect("a lease");
    assert_eq!(continuation.as_deref(), lease["ContinuationToken"].as_str(), "it is what the checkpoint stored");
    assert!(epoch > 0, "an owned lease has an epoch");
}

#[tokio::test(start_paused = true)]
async fn a_processor_starts_again_after_a_stop_and_not_before() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let processor = shop.processor("worker-1").build(move |changes: Changes<Order>, ctx: Context| {
        kept.add(&changes, &ctx);
        async { Ok(()) }
    });
    let processor = processor.expect("build");
    let running = processor.start().await.expect("start");
    let error = processor.start().await.expect_err("it runs");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("stop it first"), "{error}");
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    running.stop().await.expect("stop");
    shop.write(10..20, 1).await;
    let running = processor.start().await.expect("start again");
    until("delivery", || seen.len() == 20).await;
    // A host that was dropped has ended, too.
    drop(running);
    let running = processor.start().await.expect("start after a drop");
    shop.write(20..30, 1).await;
    // What was not checkpointed before the drop comes again.
    until("delivery", || seen.counts().len() == 30).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn health_shows_owned_leases_and_what_is_stuck() {
    let shop = Shop::new(2).await;
    let broken = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&broken);
    let processor = shop.processor("worker-1").build(move |_: Changes<Order>, _: Context| {
        let broken = flag.load(Ordering::SeqCst);
        async move { if broken { Err(DelegateError::new("no credit")) } else { Ok(()) } }
    });
    let running = processor.expect("build").start().await.expect("start");
    let caught_up = |health: &changefeed::Health| {
        health.leases.len() == 2 && health.leases.iter().all(|lease| lease.health == LeaseHealth::CaughtUp)
    };
    until("both leases have caught up", || caught_up(&running.health())).await;
    assert!(running.health().is_healthy() && !running.is_finished());
    assert_eq!(running.owned_leases().len(), 2);
    broken.store(true, Ordering::SeqCst);
    shop.write(0..1, 1).await;
    until("a stalled lease", || !running.health().is_healthy()).await;
    let health = running.health();
    let stuck: Vec<_> = health.leases.iter().filter(|lease| lease.last_error.is_some()).collect();
    assert_eq!(stuck.len(), 1);
    assert!(matches!(&stuck[0].health, LeaseHealth::Stalled { reason, .. } if reason == "no credit"), "{stuck:?}");
    broken.store(false, Ordering::SeqCst);
    until("recovery", || caught_up(&running.health())).await;
    assert!(running.health().is_healthy());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn async_callbacks_get_every_notification_before_stop_returns() {
    let shop = Shop::new(4).await;
    let (gate, seen, got) = (Gate::closed(), Seen::default(), Arc::new(Mutex::new(Vec::new())));
    let (held, kept) = (gate.clone(), Arc::clone(&got));
    let builder = shop.processor("worker-1").on_notification_async(move |notification| {
        let (gate, got) = (held.clone(), Arc::clone(&kept));
        async move {
            gate.pass().await;
            got.lock().expect("lock").push(notification);
        }
    });
    let running = start(builder, &seen).await;
    until("four leases", || running.owned_leases().len() == 4).await;
    assert!(got.lock().expect("lock").is_empty(), "the callback waits, the host does not");
    gate.open();
    running.stop().await.expect("stop");
    let got = got.lock().expect("lock");
    let count = |wanted: fn(&Notification) -> bool| got.iter().filter(|notification| wanted(notification)).count();
    assert_eq!(count(|notification| matches!(notification, Notification::LeaseAcquired(_))), 4);
    assert_eq!(count(|notification| matches!(notification, Notification::LeaseReleased(..))), 4);
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_never_returns_does_not_hold_up_stop_for_ever() {
    let shop = Shop::new(1).await;
    let builder = shop.processor("worker-1").on_notification_async(|_| std::future::pending());
    let running = start(builder.stop_deadline(Duration::from_secs(5)), &Seen::default()).await;
    until("a lease", || running.owned_leases().len() == 1).await;
    let error = running.stop().await.expect_err("the callback hangs");
    assert!(error.to_string().contains("a notification callback is running"), "{error}");
    assert!(shop.is_released().await, "the host itself has stopped in good order");
}

#[tokio::test(start_paused = true)]
async fn the_notification_stream_ends_with_the_host() {
    let shop = Shop::new(1).await;
    let running = start(shop.processor("worker-1"), &Seen::default()).await;
    let mut notifications = running.notifications();
    running.stop().await.expect("stop");
    let mut last = None;
    while let Some(notification) = notifications.recv().await {
        last = Some(notification);
    }
    assert!(matches!(last, None | Some(Notification::LeaseReleased(..))), "{last:?}");
}

/// A runtime with a bug: it panics when it is asked for a random number, once it is told to.
struct BuggyRuntime {
    inner: Arc<dyn Runtime>,
    broken: Arc<AtomicBool>,
}

impl fmt::Debug for BuggyRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BuggyRuntime")
    }
}

impl Runtime for BuggyRuntime {
    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }

    fn wall(&self) -> Timestamp {
        self.inner.wall()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> tokio::task::JoinHandle<()> {
        self.inner.spawn(name, task)
    }

    fn random(&self) -> u64 {
        assert!(!self.broken.load(Ordering::SeqCst), "no randomness left");
        self.inner.random()
    }
}

#[tokio::test(start_paused = true)]
async fn the_death_of_a_host_is_reported() {
    let shop = Shop::new(1).await;
    let broken = Arc::new(AtomicBool::new(false));
    let runtime = BuggyRuntime { inner: shop.runtime(), broken: Arc::clone(&broken) };
    let running = start(shop.processor("worker-1").runtime(Arc::new(runtime)), &Seen::default()).await;
    let mut notifications = running.notifications();
    until("a lease", || running.owned_leases().len() == 1).await;
    broken.store(true, Ordering::SeqCst);
    let error = running.join().await.expect_err("it died");
    assert!(error.to_string().contains("no randomness left"), "{error}");
    assert!(running.is_finished());
    let health = running.health();
    assert!(matches!(&health.host, HostState::Died(reason) if reason.contains("no randomness left")), "{health:?}");
    let mut died = false;
    while let Some(notification) = notifications.recv().await {
        died |= matches!(notification, Notification::HostDied { .. });
    }
    assert!(died);
    running.stop().await.expect_err("stop says that it died");
}
