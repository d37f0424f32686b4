//! Requests to the lease container: what a checkpoint costs, and what a lease costs that has nothing to do. Requests
//! are counted, not timed, so one round tells all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use changefeed::{LeaseTiming, ManualContext, Processor, RawChanges, Running};
use changefeed_core::Container;
use changefeed_embedded::Engine;
use tokio::time;

use super::{Experiment, Goal, Row, is_caught_up, until};
use crate::{
    Result,
    counting::{Counting, Requests, Wakes},
    documents::Documents,
    load,
    measure::{Measurement, Round},
    rows::Context,
};

pub(super) const PER_CHECKPOINT: Experiment = Experiment {
    rows: &[Row {
        name: "lease_requests_per_checkpoint",
        unit: "requests",
        baseline: "one_write",
        goal: Some(Goal::ValueBelow(1.05)),
    }],
    run: per_checkpoint,
};

pub(super) const IDLE: Experiment = Experiment {
    rows: &[Row {
        name: "lease_requests_per_idle_lease_hour",
        unit: "requests",
        baseline: "read_and_replace_each_17_s",
        goal: None,
    }],
    run: idle,
};

/// Batches whose checkpoints are counted.
const BATCHES: u64 = 1000;

/// Ranges of the container with busy leases.
const BUSY_LEASES: usize = 4;

/// Enough that what a host asks for all leases together is spread thin.
const IDLE_LEASES: usize = 100;

/// The timing of hosts on remote stores, this many times faster.
const HASTE: u32 = 40;

/// For how many renewals of each lease idle leases are watched.
const RENEWALS: u32 = 8;

const SECONDS_PER_HOUR: f64 = 3600.0;

fn per_checkpoint(_: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::single_thread()?;
    let manual = runtime.block_on(async { tokio::spawn(busy(Checkpoints::Manual)).await? })?;
    let automatic = runtime.block_on(async { tokio::spawn(busy(Checkpoints::Automatic)).await? })?;
    let rounds = [Round { baseline: 1.0, subject: manual.per_batch() }];
    let note = format!(
        "awaited one by one in the delegate; automatic {:.2}; besides, {} and {} requests of the balancer",
        automatic.per_batch(),
        manual.balancing(),
        automatic.balancing()
    );
    Ok(vec![Measurement::of("lease_requests_per_checkpoint", &rounds, |requests| *requests).note(note)])
}

/// What was asked of the lease container while [`BATCHES`] batches were handled.
struct Busy(Requests);

impl Busy {
    fn per_batch(&self) -> f64 {
        (self.0.writes + self.0.reads) as f64 / BATCHES as f64
    }

    fn balancing(&self) -> u64 {
        self.0.lists + self.0.feed
    }
}

async fn busy(checkpoints: Checkpoints) -> Result<Busy> {
    let stage = Stage::new(BUSY_LEASES, Wakes::Yes).await?;
    let handled = Arc::new(AtomicU64::default());
    let running = stage.start(checkpoints, LeaseTiming::REMOTE, &handled).await?;
    let before = stage.counting.requests();
    let documents = Documents::new(BATCHES);
    for item in 0..BATCHES {
        stage.items.upsert(&serde_json::from_slice::<serde_json::Value>(&documents.body(item, 0))?).await?;
    }
    until(Instant::now(), "delivery", || handled.load(Ordering::Relaxed) == BATCHES).await?;
    let requests = stage.counting.requests() - before;
    running.stop().await?;
    Ok(Busy(requests))
}

fn idle(_: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::single_thread()?;
    let requests = runtime.block_on(async { tokio::spawn(watch_idle()).await? })?;
    let renew = LeaseTiming::REMOTE.renew;
    let hours = (renew * RENEWALS).as_secs_f64() / SECONDS_PER_HOUR;
    let per_lease_hour = |requests: u64| requests as f64 / IDLE_LEASES as f64 / hours;
    let dotnet = 2.0 * SECONDS_PER_HOUR / renew.as_secs_f64();
    let rounds = [Round { baseline: dotnet, subject: per_lease_hour(requests.all()) }];
    let note = format!(
        "{IDLE_LEASES} leases on one host, {RENEWALS} renewals each; 13/17/60 s, measured {HASTE} times faster, on a \
         store that wakes nobody; {:.0} renewals, the rest is listing for all leases together",
        per_lease_hour(requests.writes)
    );
    Ok(vec![Measurement::of("lease_requests_per_idle_lease_hour", &rounds, |requests| *requests).note(note)])
}

async fn watch_idle() -> Result<Requests> {
    let stage = Stage::new(IDLE_LEASES, Wakes::Never).await?;
    let LeaseTiming { acquire, renew, expiration } = LeaseTiming::REMOTE;
    let timing = LeaseTiming { acquire: acquire / HASTE, renew: renew / HASTE, expiration: expiration / HASTE };
    let running = stage.start(Checkpoints::Automatic, timing, &Arc::default()).await?;
    // In between two renewals, so that each lease has its number of them and none is at the edge.
    time::sleep(timing.renew / 2).await;
    let before = stage.counting.requests();
    time::sleep(timing.renew * RENEWALS).await;
    let requests = stage.counting.requests() - before;
    running.stop().await?;
    Ok(requests)
}

/// Who stores progress.
#[derive(Clone, Copy)]
enum Checkpoints {
    /// The processor, after each batch.
    Automatic,
    /// The delegate, in each call.
    Manual,
}

/// A store in memory whose lease container counts.
struct Stage {
    items: Container,
    leases: Container,
    counting: Arc<Counting>,
    ranges: usize,
}

impl Stage {
    async fn new(ranges: usize, wakes: Wakes) -> Result<Self> {
        let database = Engine::in_memory()?.database("bench");
        let items = database.container("items").partition_key("/pk").ranges(ranges).create().await?;
        let (leases, counting) = Counting::around(&database.container("leases").create().await?, wakes);
        Ok(Self { items, leases, counting, ranges })
    }

    /// Starts a host that delivers changes one by one, and waits until it has nothing more to do.
    async fn start(&self, checkpoints: Checkpoints, timing: LeaseTiming, handled: &Arc<AtomicU64>) -> Result<Running> {
        let (caught_up, handled) = (Arc::new(AtomicU64::default()), Arc::clone(handled));
        let counter = Arc::clone(&caught_up);
        let processor = Processor::builder("requests", &self.items, &self.leases)
            .lease_timing(timing)
            .max_items(1)
            .on_notification(move |notification| {
                counter.fetch_add(u64::from(is_caught_up(notification)), Ordering::Relaxed);
            });
        let processor = match checkpoints {
            Checkpoints::Automatic => processor.build(move |_: RawChanges, _| {
                handled.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            }),
            Checkpoints::Manual => {
                processor.manual_checkpoints().build(move |_: RawChanges, context: ManualContext| {
                    let handled = Arc::clone(&handled);
                    async move {
                        context.checkpoint().await?;
                        handled.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    }
                })
            }
        }?;
        let running = processor.start().await?;
        until(Instant::now(), "a quiet start", || caught_up.load(Ordering::Relaxed) >= self.ranges as u64).await?;
        Ok(running)
    }
}
