//! Commit to delegate: how long after a durable write the delegate is called, against a task that waits with `changed`
//! for the same write.
//!
//! The clock starts at the first sign of the commit: the writer's acknowledgement or the wake-up of that task. They
//! race, so often one of them is the first sign itself; that counts as one microsecond.

use std::time::{Duration, Instant};

use changefeed::{Context as Delegated, Processor, RawChanges, Running};
use changefeed_core::Container;
use changefeed_embedded::Durability;
use tokio::{
    sync::{mpsc, watch},
    time,
};

use super::{Experiment, Goal, PATIENCE, Row, is_caught_up};
use crate::{
    Result,
    documents::Documents,
    load::{self, Sink},
    measure::{Latencies, Measurement, Round},
    rows::{
        Context,
        wake_up::{REST, Waiter, micros},
    },
    store::{Store, StoreWriter},
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[
        Row {
            name: "commit_to_delegate_p50",
            unit: "us",
            baseline: "changed_waiter",
            goal: Some(Goal::ValueBelow(1000.0)),
        },
        Row { name: "commit_to_delegate_p99", unit: "us", baseline: "changed_waiter", goal: None },
    ],
    run: commit_to_delegate,
};

/// A delay that is too short to be measured, because it is that of the clock's own start.
const SHORTEST: Duration = Duration::from_micros(1);

fn commit_to_delegate(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("commit_to_delegate")?;
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Durable, 1))?;
    let leases = runtime.block_on(store.leases())?;
    let rounds = (0..context.scale.rounds).map(|round| {
        let (container, writer, samples) = (store.container.clone(), store.writer(), context.scale.wake_ups);
        let delivering = round_of(format!("latency-{round}"), container, leases.clone(), writer, samples);
        runtime.block_on(async { tokio::spawn(delivering).await? })
    });
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    runtime.block_on(store.engine.close())?;
    let row = |name, percent| {
        let committed = Measurement::of(name, &rounds, |delays: &Delays| micros(delays.committed.percentile(percent)));
        let whole = Measurement::of(name, &rounds, |delays: &Delays| micros(delays.handed_over.percentile(percent)));
        let (delegate, waiter) = (whole.value.median, whole.baseline.median);
        committed.note(format!(
            "from the first sign of a durable commit; from handing it over, {delegate:.0} us and {waiter:.0} us"
        ))
    };
    Ok(vec![row("commit_to_delegate_p50", 50), row("commit_to_delegate_p99", 99)])
}

/// How long after each write something happened.
#[derive(Clone, Debug)]
pub(in crate::rows) struct Delays {
    /// From the first sign of the commit.
    pub(in crate::rows) committed: Latencies,
    /// From handing over the write.
    pub(in crate::rows) handed_over: Latencies,
}

pub(in crate::rows) async fn round_of(
    name: String,
    container: Container,
    leases: Container,
    writer: StoreWriter,
    samples: usize,
) -> Result<Round<Delays>> {
    let (running, mut calls) = start(name, &container, &leases).await?;
    let (waiter, mut wake_ups) = Waiter::start(container).await?;
    let documents = Documents::new(samples as u64);
    let (mut called, mut woken) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
    for sample in 0..samples as u64 {
        let body = documents.body(sample, sample);
        time::sleep(REST).await;
        let start = Instant::now();
        writer.write(body).await?;
        let acknowledged = Instant::now();
        let wake_up = moment(&mut wake_ups).await?;
        let call = moment(&mut calls).await?;
        let commit = acknowledged.min(wake_up);
        let delays = |moment: Instant| {
            (moment.saturating_duration_since(commit).max(SHORTEST), moment.saturating_duration_since(start))
        };
        called.push(delays(call));
        woken.push(delays(wake_up));
    }
    waiter.stop().await?;
    running.stop().await?;
    let of = |delays: Vec<(Duration, Duration)>| {
        let (committed, handed_over) = delays.into_iter().unzip();
        Delays { committed: Latencies::new(committed), handed_over: Latencies::new(handed_over) }
    };
    Ok(Round { baseline: of(woken), subject: of(called) })
}

async fn moment(moments: &mut mpsc::Receiver<Instant>) -> Result<Instant> {
    let moment = time::timeout(PATIENCE, moments.recv()).await.map_err(|_| "a change was not noticed")?;
    Ok(moment.ok_or("a reader ended early")?)
}

/// Starts a processor that says when its delegate is called, and waits until it has nothing to do.
async fn start(name: String, container: &Container, leases: &Container) -> Result<(Running, mpsc::Receiver<Instant>)> {
    let (called, calls) = mpsc::channel(1);
    let (idle, mut idle_seen) = watch::channel(false);
    let processor = Processor::builder(name, container, leases)
        .on_notification(move |notification| {
            if is_caught_up(notification) {
                idle.send_replace(true);
            }
        })
        .build(move |_: RawChanges, _: Delegated| {
            let (moment, called) = (Instant::now(), called.clone());
            async move { Ok(called.send(moment).await?) }
        })?;
    let running = processor.start().await?;
    time::timeout(PATIENCE, idle_seen.wait_for(|idle| *idle)).await.map_err(|_| "the processor did not catch up")??;
    Ok((running, calls))
}
