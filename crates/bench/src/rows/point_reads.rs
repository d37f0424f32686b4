//! Reading single items at random, from warm cache, against reads of the same size at random places of a file.

use std::{
    fs::File,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use changefeed_core::Container;

use super::{Context, Experiment, Row, feed};
use crate::{
    Result,
    documents::{self, BODY_BYTES, Random},
    load,
    measure::{self, Measurement},
    raw,
    store::Store,
};

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    rows: &[Row { name: "point_reads", unit: "items/s", baseline: "random_file_read", goal: None }],
    run: point_reads,
}];

/// Tasks that read: more than cores, so that none idles.
const READERS: u64 = 8;

/// Reads between two looks at the clock.
const READS_AT_A_TIME: u64 = 64;

fn point_reads(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("point_reads")?;
    let (items, length) = (context.scale.feed_items, context.scale.round);
    let path = folder.join("file");
    raw::create_file(&path, items * BODY_BYTES as u64)?;
    let file = Arc::new(File::open(&path)?);
    let store = runtime.block_on(Store::filled(&folder.join("store"), items, 1))?;
    // Everything is read once, so that it is warm.
    runtime.block_on(feed::read_all(&store.container))?;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |seed| runtime.block_on(read_for(&file, items, length, seed as u64)),
        |seed| runtime.block_on(read_for(&store.container, items, length, seed as u64)),
    )?;
    runtime.block_on(store.engine.close())?;
    Ok(vec![Measurement::of("point_reads", &rounds, |rate| *rate).note(format!("{READERS} readers, {items} items"))])
}

/// Something to read items from.
pub(super) trait Source: Clone + Send + Sync + 'static {
    fn read(&self, item: u64) -> impl Future<Output = Result<()>> + Send;
}

impl Source for Container {
    async fn read(&self, item: u64) -> Result<()> {
        let item = self.read_item(documents::partition_key(item), &documents::id(item)).await?;
        black_box(item.body.last());
        Ok(())
    }
}

impl Source for Arc<File> {
    async fn read(&self, item: u64) -> Result<()> {
        let mut buffer = vec![0; BODY_BYTES];
        raw::read_at(self, &mut buffer, item * BODY_BYTES as u64)?;
        black_box(&buffer);
        Ok(())
    }
}

/// Reads random items with all readers until `length` is over, and returns the reads per second.
pub(super) async fn read_for(source: &impl Source, items: u64, length: Duration, seed: u64) -> Result<f64> {
    let start = Instant::now();
    let readers = (0..READERS).map(|reader| {
        let source = source.clone();
        tokio::spawn(async move {
            let mut random = Random::new(seed * READERS + reader);
            let mut reads = 0;
            while start.elapsed() < length {
                for _ in 0..READS_AT_A_TIME {
                    source.read(random.below(items)).await?;
                }
                reads += READS_AT_A_TIME;
                // Neither source need ever wait, and the other readers want their turn.
                tokio::task::yield_now().await;
            }
            Ok(reads)
        })
    });
    let reads: u64 = load::join(readers.collect()).await?.iter().sum();
    Ok(reads as f64 / start.elapsed().as_secs_f64())
}
