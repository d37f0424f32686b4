//! What a host may use: concurrent calls, bytes in memory, request units.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DelegateError, Notification, RawChanges,
    core::{Database, ErrorKind},
    runtime::Runtime,
};
use changefeed_testkit::{clock::TestClock, model::ModelStore};
use parking_lot::Mutex;
use serde_json::json;
use shop::{Gate, Notifications, Order, Seen, Shop, pass, start, until};

/// How much of something is in use, and the most that ever was.
#[derive(Clone, Default)]
struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

impl Gauge {
    fn add(&self, amount: usize) {
        let now = self.0.0.fetch_add(amount, Ordering::Relaxed) + amount;
        self.0.1.fetch_max(now, Ordering::Relaxed);
    }

    fn subtract(&self, amount: usize) {
        self.0.0.fetch_sub(amount, Ordering::Relaxed);
    }

    fn now(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// A delegate that takes a second and shows how many of it run.
fn slow(
    runtime: Arc<dyn Runtime>,
    seen: &Seen,
    running: &Gauge,
) -> impl Fn(Changes<Order>, Context) -> changefeed::runtime::BoxFuture<'static, Result<(), DelegateError>> + use<> {
    let (seen, running) = (seen.clone(), running.clone());
    move |changes, ctx| {
        let (seen, running, runtime) = (seen.clone(), running.clone(), Arc::clone(&runtime));
        Box::pin(async move {
            running.add(1);
            runtime.sleep(Duration::from_secs(1)).await;
            seen.add(&changes, &ctx);
            running.subtract(1);
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_than_the_host_allows() {
    let shop = Shop::new(8).await;
    shop.write(0..50, 1).await;
    for (limit, most) in [(None, 8), (Some(3), 3), (Some(1), 1)] {
        let (seen, calls) = (Seen::default(), Gauge::default());
        let mut builder = shop.processor("worker-1");
        if let Some(limit) = limit {
            builder = builder.max_concurrent_calls(limit);
        }
        let delegate = slow(shop.runtime(), &seen, &calls);
        let running = builder.build(delegate).expect("build").start().await.expect("start");
        until("delivery", || seen.len() == 50).await;
        running.stop().await.expect("stop");
        assert_eq!(calls.most(), most, "with limit {limit:?}");
        shop.control().reset().apply().await.expect("reset");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_waits_for_its_call_is_renewed_and_released_at_a_stop() {
    let shop = Shop::new(2).await;
    shop.write(0..50, 1).await;
    let (gate, calls, notifications) = (Gate::closed(), Gauge::default(), Notifications::default());
    let (held, counted) = (gate.clone(), calls.clone());
    let builder = shop.processor("worker-1").max_concurrent_calls(1).on_notification(notifications.listen());
    let processor = builder.build(move |_: Changes<Order>, _: Context| {
        let (gate, calls) = (held.clone(), counted.clone());
        async move {
            calls.add(1);
            gate.pass().await;
            Ok(())
        }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("a call", || calls.now() == 1).await;
    // Many times the expiration of 8 s.
    pass(Duration::from_secs(60)).await;
    assert_eq!((calls.now(), running.owned_leases().len()), (1, 2), "the other waits, and is still owned");
    assert!(!notifications.any(|notification| matches!(notification, Notification::LeaseReleased(..))));
    let watch = async {
        pass(Duration::from_secs(1)).await;
        let released = notifications.any(|notification| matches!(notification, Notification::LeaseReleased(..)));
        assert!(released, "the lease that waited is released before the call ends");
        gate.open();
    };
    let (stopped, ()) = tokio::join!(running.stop(), watch);
    stopped.expect("stop");
    assert_eq!(calls.most(), 1, "no call began after the stop");
}

/// Bytes of one item.
const LARGE: usize = 400_000;

/// A shop with two large orders for each of 50 customers.
async fn shop_with_large_orders(ranges: usize) -> Shop {
    let shop = Shop::new(ranges).await;
    for item in 0..100 {
        let order = json!({"id": format!("o{item}"), "customer": format!("c{}", item % 50), "text": "x".repeat(LARGE)});
        shop.orders.upsert(&order).await.expect("upsert");
    }
    shop
}

#[tokio::test(start_paused = true)]
async fn no_more_bytes_are_in_calls_than_the_host_allows() {
    let shop = shop_with_large_orders(8).await;
    for (limit, least, most) in [(None, 40 * LARGE, 101 * LARGE), (Some(25 * LARGE), 8 * LARGE, 25 * LARGE)] {
        let (handled, bytes) = (Gauge::default(), Gauge::default());
        let (counted, held, runtime) = (handled.clone(), bytes.clone(), shop.runtime());
        let mut builder = shop.processor("worker-1");
        if let Some(limit) = limit {
            builder = builder.max_bytes_in_flight(limit);
        }
        let processor = builder.build(move |changes: RawChanges, _: Context| {
            let (counted, held, runtime) = (counted.clone(), held.clone(), Arc::clone(&runtime));
            async move {
                let size = changes.iter().filter_map(|change| change.current.as_ref()).map(|body| body.len()).sum();
                held.add(size);
                runtime.sleep(Duration::from_secs(1)).await;
                held.subtract(size);
                counted.add(changes.len());
                Ok(())
            }
        });
        let running = processor.expect("build").start().await.expect("start");
        until("delivery", || handled.now() == 100).await;
        running.stop().await.expect("stop");
        assert!((least..=most).contains(&bytes.most()), "with limit {limit:?}: {}", bytes.most());
        shop.control().reset().apply().await.expect("reset");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_that_keep_failing_do_not_use_up_the_memory_of_all_others() {
    let shop = shop_with_large_orders(8).await;
    let ranges = shop.ranges().await;
    let failing: Vec<_> = ranges.iter().take(4).map(|range| range.range.clone()).collect();
    let handled = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&handled);
    let processor = shop.processor("worker-1").max_bytes_in_flight(LARGE);
    let processor = processor.build(move |changes: RawChanges, ctx: Context| {
        let fails = failing.contains(ctx.range());
        if !fails {
            *counted.lock() += changes.len();
        }
        async move { if fails { Err(DelegateError::new("down")) } else { Ok(()) } }
    });
    let running = processor.expect("build").start().await.expect("start");
    let key = |item: u64| shop::order(item, 0);
    let healthy: Vec<_> = ranges.iter().skip(4).map(|range| range.range.clone()).collect();
    let expected = (0..100).filter(|item| healthy.iter().any(|range| shop::is_in(&shop.orders, &key(*item), range)));
    let expected = expected.count();
    assert!((10..90).contains(&expected), "{expected}");
    until("delivery of all that do not fail", || *handled.lock() == expected).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_host_spends_no_more_request_units_than_it_may() {
    // The model charges 1 RU for a call and an eighth for each item of its response.
    let store = Database::new(Arc::new(ModelStore::new(TestClock::new())), "shop");
    let orders = store.container("orders").partition_key("/customer").ranges(4).create().await.expect("orders");
    let shop = Shop { orders, ..Shop::new(1).await };
    shop.write(0..200, 1).await;
    let deliver = async |limit: Option<f64>| {
        let (seen, notifications) = (Seen::default(), Notifications::default());
        let mut builder = shop.processor("worker-1").max_items(8).on_notification(notifications.listen());
        if let Some(limit) = limit {
            builder = builder.max_request_units_per_second(limit);
        }
        let begun = tokio::time::Instant::now();
        let running = start(builder, &seen).await;
        until("delivery", || seen.len() == 200).await;
        let took = begun.elapsed();
        running.stop().await.expect("stop");
        let lost = notifications.count(|notification| matches!(notification, Notification::LeaseReleased(..)));
        assert_eq!(lost, 4, "leases are released at the stop, not before");
        shop.control().reset().apply().await.expect("reset");
        took
    };
    assert!(deliver(None).await < Duration::from_secs(5));
    // At least 25 pages of 2 RU.
    let took = deliver(Some(0.5)).await;
    assert!((Duration::from_secs(90)..Duration::from_secs(190)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn limits_that_allow_nothing_are_refused() {
    let shop = Shop::new(1).await;
    let builder = || shop.processor("worker-1");
    let refused = [
        (builder().max_concurrent_calls(0), "max_concurrent_calls must be at least 1"),
        (builder().max_bytes_in_flight(0), "leave it out for no limit"),
        (builder().max_request_units_per_second(0.0), "must be a number above 0"),
        (builder().max_request_units_per_second(-1.0), "must be a number above 0"),
        (builder().max_request_units_per_second(f64::NAN), "must be a number above 0"),
        (builder().max_request_units_per_second(f64::INFINITY), "must be a number above 0"),
    ];
    for (builder, sentence) in refused {
        let error = builder.build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(sentence), "{error}");
    }
}
