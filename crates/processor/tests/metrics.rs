//! What a host records, as a program that exports it to Prometheus would see it.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{Changes, Context, DeadLetter, DelegateError, Estimator, core::Database};
use changefeed_testkit::{clock::TestClock, model::ModelStore};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use shop::{Order, Seen, Shop, start, until};

/// A recorder of this test's thread, on which all tasks of the test run.
struct Recorded {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Recorded {
    fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        Self { recorder, handle }
    }

    /// The value of a series, without its common label.
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        self.find(series).unwrap_or_else(|| panic!("there is no series {series} in\n{}", self.handle.render()))
    }

    fn find(&self, series: &str) -> Option<f64> {
        let series = match series.split_once('{') {
            None => format!("changefeed_processor_{series}{{processor=\"mailer\"}} "),
            Some((name, labels)) => format!("changefeed_processor_{name}{{processor=\"mailer\",{labels} "),
        };
        let text = self.handle.render();
        text.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().expect("a number"))
    }

    fn series(&self) -> usize {
        self.handle.render().lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_counts_what_it_delivers_and_owns() {
    let recorded = Recorded::new();
    let _guard = metrics::set_default_local_recorder(&recorded.recorder);
    let shop = Shop::new(4).await;
    shop.write(0..40, 1).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || recorded.value("changes_total") == 40.0).await;
    assert_eq!((recorded.value("hosts"), recorded.value("owned_leases")), (1.0, 4.0));
    assert_eq!(recorded.value("lease_moves_total{move=\"acquired\"}"), 4.0);
    assert_eq!(recorded.value("lease_moves_total{move=\"lost\"}"), 0.0, "it is there before it happens");
    until("checkpoints", || recorded.value("checkpoints_total") >= 4.0).await;
    let calls = recorded.value("calls_total{result=\"ok\"}");
    assert!(calls >= 4.0, "{calls}");
    for histogram in ["delegate_seconds_count", "delivery_seconds_count", "ingest_seconds_count"] {
        assert_eq!(recorded.value(histogram), calls, "{histogram}");
    }
    assert_eq!(recorded.value("batch_changes_sum"), 40.0);
    assert!(
        recorded.value("requests_total{container=\"monitored\",operation=\"read_changes\",result=\"ok\"}") >= calls
    );
    assert!(recorded.value("requests_total{container=\"leases\",operation=\"write\",result=\"ok\"}") >= 4.0);
    running.stop().await.expect("stop");
    assert_eq!((recorded.value("hosts"), recorded.value("owned_leases")), (0.0, 0.0));
    assert_eq!(recorded.value("lease_moves_total{move=\"released\"}"), 4.0);
    assert_eq!(recorded.value("retries_total"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_dropped_owns_nothing_any_more() {
    let recorded = Recorded::new();
    let _guard = metrics::set_default_local_recorder(&recorded.recorder);
    let shop = Shop::new(2).await;
    let running = shop.host("worker-1", &Seen::default()).await;
    until("leases", || recorded.value("owned_leases") == 2.0).await;
    drop(running);
    until("the end", || recorded.value("owned_leases") == 0.0 && recorded.value("hosts") == 0.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_keeps_failing_is_seen_until_it_succeeds() {
    let recorded = Recorded::new();
    let _guard = metrics::set_default_local_recorder(&recorded.recorder);
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    let fixed = Arc::new(AtomicBool::new(false));
    let sees = Arc::clone(&fixed);
    let processor = shop.processor("worker-1").build(move |_: Changes<Order>, _: Context| {
        let fixed = sees.load(Ordering::Relaxed);
        async move { if fixed { Ok(()) } else { Err(DelegateError::new("sink down")) } }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("a stalled lease", || recorded.value("stalled_leases") == 1.0).await;
    let failed = recorded.value("calls_total{result=\"failed\"}");
    assert!(failed >= 3.0, "{failed}");
    assert_eq!(recorded.value("errors_total{source=\"delegate\"}"), failed);
    assert_eq!(recorded.value("retries_total"), failed - 1.0);
    assert_eq!((recorded.value("changes_total"), recorded.value("owned_leases")), (0.0, 1.0));
    fixed.store(true, Ordering::Relaxed);
    until("delivery", || recorded.value("changes_total") == 3.0).await;
    assert_eq!(recorded.value("stalled_leases"), 0.0);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_counted_and_so_are_their_requests() {
    let recorded = Recorded::new();
    let _guard = metrics::set_default_local_recorder(&recorded.recorder);
    let shop = Shop::new(1).await;
    shop.write(0..10, 1).await;
    let builder = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected)).max_items(1);
    let processor = builder.build(|orders: Changes<Order>, _: Context| async move {
        if orders.iter().any(|order| order.id == "o4") { Err(DelegateError::new("poison")) } else { Ok(()) }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("delivery", || recorded.value("changes_total") == 10.0).await;
    assert_eq!(recorded.value("dead_letters_total"), 1.0);
    assert_eq!(recorded.value("requests_total{container=\"dead_letters\",operation=\"write\",result=\"ok\"}"), 1.0);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_series_does_not_grow_with_leases_unless_wanted() {
    let count = async |ranges: usize, by_lease: bool| {
        let recorded = Recorded::new();
        let _guard = metrics::set_default_local_recorder(&recorded.recorder);
        let shop = Shop::new(ranges).await;
        shop.write(0..100, 1).await;
        let seen = Seen::default();
        let running = start(shop.processor("worker-1").lease_metrics(by_lease), &seen).await;
        let mut lag = Estimator::new("mailer", &shop.orders, &shop.leases)
            .runtime(shop.runtime())
            .lease_metrics(by_lease)
            .watch(Duration::from_secs(1));
        until("delivery", || recorded.value("changes_total") == 100.0).await;
        drop(lag.next().await.expect("lag"));
        assert_eq!(by_lease, recorded.find("lease_changes_total{lease=\"0\"}").is_some());
        assert_eq!(by_lease, recorded.find("lease_lag_changes{lease=\"0\"}").is_some());
        running.stop().await.expect("stop");
        recorded.series()
    };
    let few = count(2, false).await;
    assert_eq!(few, count(60, false).await);
    let more = count(60, true).await;
    assert!(more >= few + 4 * 60, "{few} without, {more} with series of 60 leases");
}

#[tokio::test(start_paused = true)]
async fn the_estimator_records_the_lag_and_a_lease_that_was_split_has_none() {
    let recorded = Recorded::new();
    let _guard = metrics::set_default_local_recorder(&recorded.recorder);
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.catch_up(&seen, 0).await;
    shop.write(0..30, 1).await;
    let estimator = Estimator::new("mailer", &shop.orders, &shop.leases).runtime(shop.runtime()).lease_metrics(true);
    let mut lag = estimator.watch(Duration::from_secs(1));
    assert_eq!(lag.next().await.expect("lag").changes, 30);
    assert_eq!((recorded.value("lag_changes"), recorded.value("lag_leases{state=\"free\"}")), (30.0, 1.0));
    assert_eq!(recorded.value("lease_lag_changes{lease=\"0\"}"), 30.0);
    shop.split(0).await;
    shop.catch_up(&seen, 30).await;
    until("the lag to go", || recorded.value("lag_changes") == 0.0).await;
    until("both halves", || recorded.value("lag_leases{state=\"free\"}") == 2.0).await;
    assert_eq!(recorded.value("lease_lag_changes{lease=\"0\"}"), 0.0);
    assert_eq!(recorded.value("splits_total"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn request_units_are_counted_by_container_and_operation() {
    let recorded = Recorded::new();
    let _guard = metrics::set_default_local_recorder(&recorded.recorder);
    // The model charges 1 RU for a call and an eighth for each item of its response.
    let store = Database::new(Arc::new(ModelStore::new(TestClock::new())), "shop");
    let orders = store.container("orders").partition_key("/customer").create().await.expect("orders");
    let shop = Shop { orders, ..Shop::new(1).await };
    shop.write(0..16, 1).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || recorded.value("changes_total") == 16.0).await;
    let read = recorded.value("request_units_total{container=\"monitored\",operation=\"read_changes\"}");
    assert!(read >= 3.0, "{read}");
    assert_eq!(
        recorded.value("request_units_total{container=\"leases\",operation=\"write\"}"),
        0.0,
        "it does not charge"
    );
    running.stop().await.expect("stop");
}
