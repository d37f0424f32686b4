//! Delegates that block their thread: in real time, on several threads, since a paused clock cannot show them.

mod shop;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DelegateError, Failure, Latest, LeaseTiming, Loss, Notification, Notifications, Processor,
    ProcessorBuilder, RawChanges, Release, Running, core::StartFrom, runtime::TokioRuntime,
};
use shop::{Order, Shop};
use tokio::sync::mpsc;

/// As short as a busy machine allows.
const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(200),
    renew: Duration::from_millis(400),
    expiration: Duration::from_secs(2),
};

/// Far more than anything here takes: only ends a test that would hang.
const LIMIT: Duration = Duration::from_secs(20);

const TIMEOUT: Duration = Duration::from_millis(300);

fn processor(shop: &Shop, instance: &str) -> ProcessorBuilder<Latest> {
    Processor::builder("mailer", &shop.orders, &shop.leases)
        .instance_name(instance)
        .start_from(StartFrom::Beginning)
        .lease_timing(TIMING)
        .stop_deadline(Duration::from_secs(1))
}

/// Blocks the thread of a delegate until it is dropped.
type Block = blocking::Sender<()>;

/// Starts a host whose first call blocks its thread; returns when that call has begun.
async fn start_blocked(builder: ProcessorBuilder<Latest>) -> (Running, Block, mpsc::UnboundedReceiver<Vec<Order>>) {
    let (block, blocked) = blocking::channel::<()>();
    let blocked = Arc::new(Mutex::new(Some(blocked)));
    let (sender, mut batches) = mpsc::unbounded_channel();
    let delegate = move |changes: Changes<Order>, _: Context| {
        let (blocked, sender) = (Arc::clone(&blocked), sender.clone());
        async move {
            drop(sender.send(changes.into_iter().collect::<Vec<_>>()));
            let first = blocked.lock().expect("lock").take();
            if let Some(blocked) = first {
                blocked.recv().expect_err("nothing is sent");
            }
            Ok(())
        }
    };
    let running = builder.build(delegate).expect("build").start().await.expect("start");
    within("the first call", batches.recv()).await;
    (running, block, batches)
}

/// Starts a host that sends on what it is given.
async fn start_healthy(builder: ProcessorBuilder<Latest>) -> (Running, mpsc::UnboundedReceiver<Vec<Order>>) {
    let (sender, batches) = mpsc::unbounded_channel();
    let delegate = move |changes: Changes<Order>, _: Context| {
        drop(sender.send(changes.into_iter().collect::<Vec<_>>()));
        async { Ok(()) }
    };
    (builder.build(delegate).expect("build").start().await.expect("start"), batches)
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        done = future => done,
        () = TokioRuntime::new().sleep(LIMIT) => panic!("{what} did not happen"),
    }
}

async fn wait_for(notifications: &mut Notifications, wanted: impl Fn(&Notification) -> bool) {
    while !wanted(&notifications.recv().await.expect("the host is gone")) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_blocks_its_thread_is_reported_when_its_timeout_has_passed() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    let (running, block, _) = start_blocked(processor(&shop, "worker-1").delegate_timeout(TIMEOUT)).await;
    let mut notifications = running.notifications();
    let failed =
        |n: &Notification| matches!(n, Notification::Error(report) if matches!(report.failure, Failure::Delegate(_)));
    within("a report of the timeout", wait_for(&mut notifications, failed)).await;
    drop(block);
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_its_timeout_the_lease_of_a_blocked_call_goes_to_another_host() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    let (running, block, _) = start_blocked(processor(&shop, "worker-1").delegate_timeout(TIMEOUT)).await;
    let (other, mut batches) = start_healthy(processor(&shop, "worker-2")).await;
    let batch = within("delivery by the other host", batches.recv()).await.expect("a batch");
    assert_eq!(batch, [shop::order(0, 1)]);
    drop(block);
    other.stop().await.expect("stop");
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_returns_and_renewal_ends_although_a_call_blocks_its_thread() {
    for timeout in [None, Some(TIMEOUT)] {
        let shop = Shop::new(1).await;
        shop.write(0..1, 1).await;
        let builder = processor(&shop, "worker-1");
        let builder = if let Some(timeout) = timeout { builder.delegate_timeout(timeout) } else { builder };
        let (running, block, _) = start_blocked(builder).await;
        within("the end of stop", running.stop()).await.expect_err("a call still runs");
        let (other, mut batches) = start_healthy(processor(&shop, "worker-2")).await;
        within("delivery by the other host", batches.recv()).await.expect("a batch");
        drop(block);
        other.stop().await.expect("stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_a_timeout_a_blocked_call_keeps_its_lease_and_is_reported_again_and_again() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    let builder = processor(&shop, "worker-1").slow_after(Duration::from_millis(200));
    let (running, block, mut own) = start_blocked(builder).await;
    let mut notifications = running.notifications();
    let (other, mut batches) = start_healthy(processor(&shop, "worker-2")).await;
    for doublings in 0..5 {
        let slow = Duration::from_millis(200) * 2_u32.pow(doublings);
        let reported = move |n: &Notification| matches!(n, Notification::Slow { running, .. } if *running >= slow);
        within("a report that the call is slow", wait_for(&mut notifications, reported)).await;
    }
    // It has run for longer than an expiration interval.
    assert!(batches.try_recv().is_err(), "its owner is alive");
    drop(block);
    shop.write(1..2, 1).await;
    let next = within("the next batch", own.recv()).await.expect("a batch");
    assert_eq!(next, [shop::order(1, 1)]);
    running.stop().await.expect("stop");
    other.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_of_a_dropped_host_wait_for_a_call_that_still_blocks_its_thread() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    // The lease does not expire within this test.
    let timing = LeaseTiming { expiration: LIMIT * 3, ..TIMING };
    let (running, block, _) = start_blocked(processor(&shop, "worker-1").lease_timing(timing)).await;
    drop(running);
    let (other, mut batches) = start_healthy(processor(&shop, "worker-2").lease_timing(timing)).await;
    // The other host lists the leases several times.
    TokioRuntime::new().sleep(TIMING.acquire * 5).await;
    assert!(batches.try_recv().is_err(), "the call of the dropped host still runs");
    drop(block);
    within("delivery by the other host", batches.recv()).await.expect("a batch");
    other.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_page_of_a_blocked_call_counts_as_memory_after_its_lease_was_given_up() {
    const LARGE: usize = 100_000;
    let shop = Shop::new(4).await;
    for item in 0..200 {
        let text = "x".repeat(LARGE);
        let order = serde_json::json!({"id": format!("o{item}"), "customer": format!("c{item}"), "text": text});
        shop.orders.upsert(&order).await.expect("upsert");
    }
    // Room for a page in memory and one that is read, but not for another page beside them.
    let limit = 4 * 1024 * 1024 + LARGE * 3 / 2;
    let builder = processor(&shop, "worker-1").max_items(1).max_bytes_in_flight(limit).delegate_timeout(LIMIT / 10);
    let (block, blocked) = blocking::channel::<()>();
    let blocked = Arc::new(Mutex::new(Some(blocked)));
    let (counted, mut counts) = mpsc::unbounded_channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let delegate = move |_: RawChanges, _: Context| {
        let (blocked, calls, counted) = (Arc::clone(&blocked), Arc::clone(&calls), counted.clone());
        async move {
            let first = blocked.lock().expect("lock").take();
            if let Some(blocked) = first {
                blocked.recv().expect_err("nothing is sent");
                return Ok(());
            }
            let others = calls.fetch_add(1, Ordering::SeqCst);
            TokioRuntime::new().sleep(Duration::from_millis(100)).await;
            calls.fetch_sub(1, Ordering::SeqCst);
            counted.send(others).map_err(|_| DelegateError::new("the test has ended"))
        }
    };
    let running = builder.build(delegate).expect("build").start().await.expect("start");
    let given_up = |n: &Notification| matches!(n, Notification::LeaseReleased(_, Release::Lost(Loss::Blocked)));
    within("the end of the lease", wait_for(&mut running.notifications(), given_up)).await;
    while counts.try_recv().is_ok() {}
    for _ in 0..8 {
        let others = within("another call", counts.recv()).await.expect("a call");
        assert_eq!(others, 0, "two pages are in memory beside that of the blocked call");
    }
    drop(block);
    drop(running);
}
