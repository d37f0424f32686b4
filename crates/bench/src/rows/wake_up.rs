//! Wake-ups: how long after a write a waiting reader runs, against a channel between two tasks.
//!
//! The clock starts when the write is handed to a relaxed store on disk and stops when `changed` has returned: the
//! whole way of a commit but for the sync, so an upper bound of commit to wake-up. Reader and writer rest in between,
//! because a reader of a busy feed does not wait.

use std::time::{Duration, Instant};

use bytes::Bytes;
use changefeed_core::{Container, FeedRange, ReadChanges, StartFrom};
use changefeed_embedded::Durability;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time,
};

use super::{Context, Experiment, Goal, Row};
use crate::{
    Result,
    documents::Documents,
    load::{self, Sink},
    measure::{self, Latencies, Measurement},
    store::{Store, StoreWriter},
};

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    rows: &[
        Row { name: "wake_up_p50", unit: "us", baseline: "watch_channel", goal: Some(Goal::ValueBelow(200.0)) },
        Row { name: "wake_up_p99", unit: "us", baseline: "watch_channel", goal: None },
    ],
    run: wake_up,
}];

/// Rest before each write: long enough for the reader to wait and for idle threads to sleep.
pub(super) const REST: Duration = Duration::from_millis(1);

/// A reader that is not woken within this time is never woken.
const PATIENCE: Duration = Duration::from_secs(10);

fn wake_up(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("wake_up")?;
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Relaxed, 1))?;
    let samples = context.scale.wake_ups;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(async { tokio::spawn(channel_wake_ups(samples)).await? }),
        |_| {
            runtime.block_on(async {
                tokio::spawn(store_wake_ups(store.container.clone(), store.writer(), samples)).await?
            })
        },
    )?;
    runtime.block_on(store.engine.close())?;
    let micros = |percent| move |latencies: &Latencies| micros(latencies.percentile(percent));
    Ok(vec![
        Measurement::of("wake_up_p50", &rounds, micros(50))
            .note("from handing over a relaxed write to the waiting reader"),
        Measurement::of("wake_up_p99", &rounds, micros(99)),
    ])
}

async fn channel_wake_ups(samples: usize) -> Result<Latencies> {
    let (sender, mut receiver) = watch::channel(Bytes::new());
    let (woken, wake_ups) = mpsc::channel(1);
    let reader =
        tokio::spawn(
            async move { while receiver.changed().await.is_ok() && woken.send(Instant::now()).await.is_ok() {} },
        );
    let latencies = write_and_wait(&ChannelWriter(sender), wake_ups, samples).await?;
    // Both ends of the channel that carried the news are gone, so the reader ends.
    reader.await?;
    Ok(latencies)
}

async fn store_wake_ups(container: Container, writer: StoreWriter, samples: usize) -> Result<Latencies> {
    let (waiter, wake_ups) = Waiter::start(container).await?;
    let latencies = write_and_wait(&writer, wake_ups, samples).await;
    waiter.stop().await?;
    latencies
}

/// In microseconds.
pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A task that waits for changes and says when it woke.
#[derive(Debug)]
pub(super) struct Waiter(JoinHandle<Result<()>>);

impl Waiter {
    /// Begins to wait for changes of a container with one range, from now on.
    pub(super) async fn start(container: Container) -> Result<(Self, mpsc::Receiver<Instant>)> {
        let range = FeedRange::full();
        let now = container.read_changes(ReadChanges::new(range.clone(), StartFrom::Now)).await?.into_value();
        let (woken, wake_ups) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let mut continuation = now.continuation;
            loop {
                container.backend().changed(&range, &continuation).await;
                let moment = Instant::now();
                let page = container.read_changes(ReadChanges::new(range.clone(), continuation)).await?.into_value();
                continuation = page.continuation;
                // `changed` may return for nothing.
                if !page.changes.is_empty() && woken.send(moment).await.is_err() {
                    return Ok(());
                }
            }
        });
        Ok((Self(task), wake_ups))
    }

    /// Ends it, though it waits for changes that nobody will make.
    pub(super) async fn stop(self) -> Result<()> {
        self.0.abort();
        match self.0.await {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes and waits for the moment at which the reader woke, again and again.
async fn write_and_wait(
    writer: &impl Sink,
    mut wake_ups: mpsc::Receiver<Instant>,
    samples: usize,
) -> Result<Latencies> {
    let documents = Documents::new(samples as u64);
    let mut latencies = Vec::with_capacity(samples);
    for sample in 0..samples as u64 {
        let body = documents.body(sample, sample);
        time::sleep(REST).await;
        let start = Instant::now();
        writer.write(body).await?;
        let woken = time::timeout(PATIENCE, wake_ups.recv()).await.map_err(|_| "the reader was not woken")?;
        latencies.push(woken.ok_or("the reader ended early")?.duration_since(start));
    }
    Ok(Latencies::new(latencies))
}

#[derive(Clone, Debug)]
struct ChannelWriter(watch::Sender<Bytes>);

impl Sink for ChannelWriter {
    async fn write(&self, body: Bytes) -> Result<()> {
        Ok(self.0.send(body)?)
    }
}
