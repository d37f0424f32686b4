//! Delivery: a processor over a full feed on disk, against a bare loop of `read_changes` over the same ranges; and the same
//! processor with a recorder of metrics, against itself without one.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use changefeed::{Context as Delegated, Processor, RawChanges};
use changefeed_core::{Container, StartFrom};
use changefeed_embedded::Durability;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tokio::{sync::Notify, time};

use super::{Experiment, Goal, PATIENCE, Row, counting};
use crate::{
    Result,
    counting::{Counting, Wakes},
    load,
    measure::{self, Measurement},
    place::Folder,
    process,
    rows::{Context, feed},
    store::Store,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[Row {
        name: "processor_delivery",
        unit: "changes/s",
        baseline: "read_changes_loop",
        goal: Some(Goal::RatioAtLeast(0.9)),
    }],
    run: delivery,
};

pub(super) const METRICS: Experiment = Experiment {
    rows: &[Row {
        name: "delivery_with_metrics",
        unit: "changes/CPU second",
        baseline: "delivery_without_recorder",
        goal: Some(Goal::RatioAtLeast(0.95)),
    }],
    run: with_metrics,
};

const RANGES: usize = 4;

/// Upper bounds of the buckets of all histograms: as many as the command has for durations.
const BOUNDS: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
    300.0,
];

/// A round is short, and whatever else the machine does shows: so there are more of them.
const MORE_ROUNDS: usize = 2;

/// What one round gave, in changes per second.
#[derive(Clone, Copy, Debug)]
pub(in crate::rows) struct Rate {
    /// From the call of `start` to the last change.
    pub(in crate::rows) whole: f64,
    /// From the first call of the delegate to the last change.
    pub(in crate::rows) started: f64,
    /// Lease writes per batch.
    writes: f64,
    /// From the call of `start` to the first call of the delegate, in milliseconds.
    pub(in crate::rows) start_up: f64,
    /// Per second of processor time, all included.
    by_cpu: f64,
}

/// A full feed that was read once, so that it is warm, and a lease container.
async fn full_store(folder: &Folder, items: u64) -> Result<(Store, Container)> {
    Store::written(&folder.join("store"), items, items, RANGES).await?.engine.close().await?;
    let store = Store::open(&folder.join("store"), Durability::Durable, RANGES).await?;
    let leases = store.leases().await?;
    feed::read_all(&store.container).await?;
    Ok((store, leases))
}

/// What recording costs: by CPU time, which other programs disturb less.
fn with_metrics(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("delivery")?;
    let items = context.scale.delivered_items;
    let (store, leases) = runtime.block_on(full_store(&folder, items))?;
    let deliver = |name: String, recorder: Option<Arc<PrometheusRecorder>>| {
        let deliver = deliver(store.container.clone(), leases.clone(), name, items, recorder);
        runtime.block_on(async { tokio::spawn(deliver).await? })
    };
    let series = Arc::new(AtomicU64::new(0));
    let rounds = measure::interleaved(
        context.scale.rounds * MORE_ROUNDS,
        |round| deliver(format!("plain-{round}"), None),
        |round| {
            let recorder = PrometheusBuilder::new().set_buckets(&BOUNDS)?.build_recorder();
            let handle = recorder.handle();
            let rate = deliver(format!("recorded-{round}"), Some(Arc::new(recorder)))?;
            let shown = handle.render();
            let delivered = shown.lines().any(|line| {
                line.starts_with("changefeed_processor_changes_total{") && line.ends_with(&format!(" {items}"))
            });
            if !delivered {
                return Err(format!("the recorder did not see {items} changes: {shown}").into());
            }
            let count = shown.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
            series.store(count as u64, Ordering::Relaxed);
            Ok(rate)
        },
    )?;
    runtime.block_on(store.engine.close())?;
    let whole = Measurement::of("delivery_with_metrics", &rounds, |rate| rate.whole).ratio.median;
    let series = series.load(Ordering::Relaxed);
    let note = format!("{items} items, {RANGES} ranges, {series} series; ratio by time {whole:.2}");
    Ok(vec![Measurement::of("delivery_with_metrics", &rounds, |rate| rate.by_cpu).note(note)])
}

fn delivery(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("delivery")?;
    let items = context.scale.delivered_items;
    let (store, leases) = runtime.block_on(full_store(&folder, items))?;
    let rounds = measure::interleaved(
        context.scale.rounds * MORE_ROUNDS,
        |_| {
            let (start, cpu) = (Instant::now(), process::cpu_seconds()?);
            runtime.block_on(feed::read_all(&store.container))?;
            let rate = items as f64 / start.elapsed().as_secs_f64();
            let by_cpu = items as f64 / (process::cpu_seconds()? - cpu);
            Ok(Rate { whole: rate, started: rate, writes: 0.0, start_up: 0.0, by_cpu })
        },
        |round| {
            let deliver = deliver_all(store.container.clone(), leases.clone(), format!("delivery-{round}"), items);
            runtime.block_on(async { tokio::spawn(deliver).await? })
        },
    )?;
    runtime.block_on(store.engine.close())?;
    let ratio = |value: fn(&Rate) -> f64| Measurement::of("processor_delivery", &rounds, value).ratio.median;
    let of = |value: fn(&Rate) -> f64| measure::Spread::of(rounds.iter().map(|round| value(&round.subject))).median;
    let note = format!(
        "{items} items, {RANGES} ranges, durable leases; ratio without start-up ({:.0} ms) {:.2}, by CPU time {:.2}; \
         {:.2} lease writes per batch",
        of(|rate| rate.start_up),
        ratio(|rate| rate.started),
        ratio(|rate| rate.by_cpu),
        of(|rate| rate.writes)
    );
    Ok(vec![Measurement::of("processor_delivery", &rounds, |rate| rate.whole).note(note)])
}

/// What a delegate has seen.
#[derive(Debug, Default)]
struct Seen {
    /// The first call: when, and how many changes it brought.
    first: OnceLock<(Instant, u64)>,
    changes: AtomicU64,
    batches: AtomicU64,
    all: Notify,
}

/// Runs a new processor from the beginning of the feed until it has delivered all `items`.
pub(in crate::rows) async fn deliver_all(
    container: Container,
    leases: Container,
    name: String,
    items: u64,
) -> Result<Rate> {
    deliver(container, leases, name, items, None).await
}

/// The same, recorded.
async fn deliver(
    container: Container,
    leases: Container,
    name: String,
    items: u64,
    recorder: Option<Arc<PrometheusRecorder>>,
) -> Result<Rate> {
    let (leases, requests) = Counting::around(&leases, Wakes::Yes);
    let seen = Arc::new(Seen::default());
    let witness = Arc::clone(&seen);
    let builder = Processor::builder(name, &container, &leases).start_from(StartFrom::Beginning);
    let processor = counting(builder, move |changes: RawChanges, _: Delegated| {
        let count = changes.len() as u64;
        seen.first.get_or_init(|| (Instant::now(), count));
        seen.batches.fetch_add(1, Ordering::Relaxed);
        if seen.changes.fetch_add(count, Ordering::Relaxed) + count >= items {
            seen.all.notify_one();
        }
    })?;
    let (start, cpu) = (Instant::now(), process::cpu_seconds()?);
    let mut starting = pin!(processor.start());
    let running = match &recorder {
        // A host asks for its metrics when it starts, on whatever thread that is.
        Some(recorder) => {
            poll_fn(|context| metrics::with_local_recorder(&**recorder, || starting.as_mut().poll(context))).await?
        }
        None => starting.await?,
    };
    let started = requests.requests();
    time::timeout(PATIENCE, witness.all.notified()).await.map_err(|_| "not all changes were delivered")?;
    if let Some(recorder) = &recorder {
        // Samples are sorted into buckets.
        recorder.handle().run_upkeep();
    }
    let (end, cpu) = (Instant::now(), process::cpu_seconds()? - cpu);
    let during = requests.requests() - started;
    running.stop().await?;
    let (first, first_count) = *witness.first.get().ok_or("nothing was delivered")?;
    Ok(Rate {
        whole: items as f64 / (end - start).as_secs_f64(),
        started: items.saturating_sub(first_count) as f64 / (end - first).as_secs_f64(),
        writes: during.writes as f64 / witness.batches.load(Ordering::Relaxed) as f64,
        start_up: (first - start).as_secs_f64() * 1e3,
        by_cpu: items as f64 / cpu,
    })
}
