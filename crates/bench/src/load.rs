//! Writers: tasks that write in a loop and wait for each answer, whatever they write to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    Result,
    documents::{Documents, Random},
    measure::Latencies,
};

/// Threads of the runtime: as many as the machines that the goals speak of have cores.
const WORKER_THREADS: usize = 2;

/// Writers when only the result counts: enough to fill groups.
pub(crate) const FILL_WRITERS: u64 = 64;

/// Something to write to.
pub(crate) trait Sink: Clone + Send + Sync + 'static {
    /// Writes one body and returns when it is acknowledged.
    fn write(&self, body: Bytes) -> impl Future<Output = Result<()>> + Send;
}

/// What writers achieved in a round.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Acknowledged writes per second.
    pub(crate) per_second: f64,
    /// From handing over a body to its acknowledgement.
    pub(crate) latencies: Latencies,
}

/// The runtime that baseline and subject share.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build()?)
}

/// A runtime for stores in memory, which work in the thread of the caller: with one thread, nothing is spent on waking
/// others, and nothing depends on which is faster.
pub(crate) fn single_thread() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Writes random documents with `writers` tasks until `length` is over. Another `seed` gives other documents.
pub(crate) async fn write_for<S: Sink>(
    sink: S,
    documents: &Documents,
    writers: u64,
    length: Duration,
    seed: u64,
) -> Result<Load> {
    let start = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let (sink, documents) = (sink.clone(), documents.clone());
        tokio::spawn(async move {
            let mut random = Random::new(seed * writers + writer);
            let mut latencies = Vec::new();
            let mut now = Instant::now();
            while now.duration_since(start) < length {
                let body = documents.body(random.below(documents.items()), latencies.len() as u64);
                let before = Instant::now();
                sink.write(body).await?;
                now = Instant::now();
                latencies.push(now - before);
            }
            Ok(latencies)
        })
    });
    let latencies = join(tasks.collect()).await?.concat();
    let per_second = latencies.len() as f64 / start.elapsed().as_secs_f64();
    Ok(Load { per_second, latencies: Latencies::new(latencies) })
}

/// Writes each item once, then random items, `writes` times in all, and returns the writes per second.
pub(crate) async fn fill<S: Sink>(sink: S, documents: &Documents, writers: u64, writes: u64) -> Result<f64> {
    let start = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let tasks = (0..writers).map(|writer| {
        let (sink, documents, next) = (sink.clone(), documents.clone(), next.clone());
        tokio::spawn(async move {
            let mut random = Random::new(writer);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= writes {
                    return Ok(());
                }
                let item = if number < documents.items() { number } else { random.below(documents.items()) };
                sink.write(documents.body(item, number)).await?;
            }
        })
    });
    join(tasks.collect()).await?;
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}

/// Waits for all tasks.
pub(crate) async fn join<T>(tasks: Vec<JoinHandle<Result<T>>>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await??);
    }
    Ok(results)
}
