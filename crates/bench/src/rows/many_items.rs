//! Containers with many small items: how long writes wait while a range splits or merges, the time to live changes or a part
//! of a range is read page by page, and how long a restart takes with many ranges.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use changefeed_core::{
    Batch, Catalog, Container, ContainerSpec, PartitionKey, PartitionKeyDefinition, RangeId, ReadChanges, StartFrom,
    TimeToLive, Write,
};
use changefeed_embedded::Durability;
use tokio::{
    runtime::Runtime,
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{Context, Experiment, Goal, Row};
use crate::{
    Result, load,
    measure::{self, Latencies, Measurement, Round},
    store::Store,
};

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        rows: &[Row {
            name: "split_pause_3m_items",
            unit: "ms",
            baseline: "longest_write_without_split",
            goal: Some(Goal::ValueBelow(50.0)),
        }],
        run: split_pause,
    },
    Experiment {
        rows: &[Row {
            name: "ttl_change_pause_3m_items",
            unit: "ms",
            baseline: "longest_write_without_change",
            goal: Some(Goal::ValueBelow(50.0)),
        }],
        run: ttl_change_pause,
    },
    Experiment {
        rows: &[Row {
            name: "part_page_pause_3m_items",
            unit: "ms",
            baseline: "longest_write_without_reader",
            goal: Some(Goal::ValueBelow(50.0)),
        }],
        run: part_page_pause,
    },
    Experiment {
        rows: &[Row {
            name: "restart_1m_items_1000_ranges",
            unit: "s",
            baseline: "restart_1_range",
            goal: Some(Goal::RatioAtMost(1.5)),
        }],
        run: restart,
    },
];

/// Items of one partition key, which are written in one transaction.
const ITEMS_PER_KEY: u64 = 100;

/// Transactions that are under way at once while a container is filled.
const FILL_WRITERS: usize = 64;

/// Writes go on for this long before a split and after it.
const MARGIN: Duration = Duration::from_millis(200);

fn split_pause(context: &Context) -> Result<Vec<Measurement>> {
    let items = context.scale.many_items;
    let runtime = load::runtime()?;
    let folder = context.place.folder("split_pause")?;
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Relaxed, 1))?;
    runtime.block_on(fill(&store.container, items))?;
    let mut lengths = [Vec::new(), Vec::new()];
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(longest_write_beside(&store.container, async { Ok(()) })).map(|(longest, ())| longest),
        |_| {
            let catalog = store.engine.catalog();
            let (split, merge) = runtime.block_on(split_and_merge(&store.container, &*catalog, &mut lengths))?;
            Ok(split.max(merge))
        },
    )?;
    runtime.block_on(store.engine.close())?;
    let [splits, merges] = lengths.map(Latencies::new);
    let millis = |length: Duration| length.as_secs_f64() * 1000.0;
    let note = format!(
        "{} k items, one writer; the longest split {:.1} ms, merge {:.1} ms",
        items / 1000,
        millis(splits.max()),
        millis(merges.max())
    );
    Ok(vec![Measurement::of("split_pause_3m_items", &rounds, |longest| millis(*longest)).note(note)])
}

/// Splits the only range and merges its children; the longest write beside each.
async fn split_and_merge(
    container: &Container,
    catalog: &dyn Catalog,
    lengths: &mut [Vec<Duration>; 2],
) -> Result<(Duration, Duration)> {
    let ids = |ranges: Vec<changefeed_core::PhysicalRange>| -> Vec<RangeId> {
        ranges.into_iter().map(|range| range.id).collect()
    };
    let live = ids(container.feed_ranges().await?);
    let [range] = live.as_slice() else { return Err("the container should have one range".into()) };
    let splitting = async {
        let begin = Instant::now();
        let children = catalog.split("bench", "items", range, None).await?;
        Ok((begin.elapsed(), ids(children)))
    };
    let (split, (length, children)) = longest_write_beside(container, splitting).await?;
    lengths[0].push(length);
    let [a, b] = children.as_slice() else { return Err("a split should make two ranges".into()) };
    let merging = async {
        let begin = Instant::now();
        catalog.merge("bench", "items", [a, b]).await?;
        Ok(begin.elapsed())
    };
    let (merge, length) = longest_write_beside(container, merging).await?;
    lengths[1].push(length);
    Ok((split, merge))
}

/// A time to live that no item of the benchmark reaches.
const LONG: u32 = 30 * 24 * 60 * 60;

fn ttl_change_pause(context: &Context) -> Result<Vec<Measurement>> {
    let items = context.scale.many_items;
    let runtime = load::runtime()?;
    let folder = context.place.folder("ttl_change_pause")?;
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Relaxed, 1))?;
    runtime.block_on(fill(&store.container, items))?;
    let mut lengths = Vec::new();
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(longest_write_beside(&store.container, async { Ok(()) })).map(|(longest, ())| longest),
        |_| runtime.block_on(change_ttl(&store, &mut lengths)),
    )?;
    runtime.block_on(store.engine.close())?;
    let millis = |length: Duration| length.as_secs_f64() * 1000.0;
    let note = format!(
        "{} k items, one writer; the longest change of the time to live {:.1} ms",
        items / 1000,
        millis(Latencies::new(lengths).max())
    );
    Ok(vec![Measurement::of("ttl_change_pause_3m_items", &rounds, |longest| millis(*longest)).note(note)])
}

/// Gives all items a time to live, changes it and takes it away; the longest write beside any of these changes.
async fn change_ttl(store: &Store, lengths: &mut Vec<Duration>) -> Result<Duration> {
    let catalog = store.engine.catalog();
    let mut longest = Duration::ZERO;
    for time_to_live in [TimeToLive::Seconds(LONG), TimeToLive::Seconds(2 * LONG), TimeToLive::Off] {
        let changing = async {
            let partition_key = PartitionKeyDefinition::hash("/pk")?;
            let spec = ContainerSpec { time_to_live, ..ContainerSpec::new("items", partition_key) };
            let begin = Instant::now();
            catalog.replace_container("bench", spec).await?;
            let length = begin.elapsed();
            // Returns when the index has caught up with the change.
            store.engine.expire().await?;
            Ok(length)
        };
        let (write, length) = longest_write_beside(&store.container, changing).await?;
        lengths.push(length);
        longest = longest.max(write);
    }
    Ok(longest)
}

/// Pages that a client reads one after the other in a round.
const PAGES: usize = 50;

fn part_page_pause(context: &Context) -> Result<Vec<Measurement>> {
    let items = context.scale.many_items;
    let runtime = load::runtime()?;
    let folder = context.place.folder("part_page_pause")?;
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Relaxed, 1))?;
    runtime.block_on(fill(&store.container, items))?;
    let mut lengths = Vec::new();
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(longest_write_beside(&store.container, async { Ok(()) })).map(|(longest, ())| longest),
        |_| {
            let reading = read_part(&store.container, &mut lengths);
            runtime.block_on(longest_write_beside(&store.container, reading)).map(|(longest, ())| longest)
        },
    )?;
    runtime.block_on(store.engine.close())?;
    let millis = |length: Duration| length.as_secs_f64() * 1000.0;
    let note = format!(
        "{} k items, one writer; the longest page of one item {:.1} ms",
        items / 1000,
        millis(Latencies::new(lengths).max())
    );
    Ok(vec![Measurement::of("part_page_pause_3m_items", &rounds, |longest| millis(*longest)).note(note)])
}

/// Reads pages of one item of half of the range from its beginning, and asks each time how many changes remain.
async fn read_part(container: &Container, lengths: &mut Vec<Duration>) -> Result<()> {
    let half = container.identity().partition_key.split_evenly(2)?.remove(0);
    let mut start = StartFrom::Beginning;
    for _ in 0..PAGES {
        let begin = Instant::now();
        let request = ReadChanges::new(half.clone(), start).max_items(1).count_remaining();
        let page = container.read_changes(request).await?.into_value();
        lengths.push(begin.elapsed());
        start = page.continuation.into();
    }
    Ok(())
}

/// Performs `work` while a task writes one item after the other; returns the longest of these writes.
async fn longest_write_beside<T>(
    container: &Container,
    work: impl Future<Output = Result<T>>,
) -> Result<(Duration, T)> {
    let (stop, stopped) = watch::channel(false);
    let container = container.clone();
    let writer: JoinHandle<Result<Duration>> = tokio::spawn(async move {
        let (mut longest, mut number) = (Duration::ZERO, 0u64);
        while !*stopped.borrow() {
            let begin = Instant::now();
            let key = format!("w{}", number % 1000);
            container.upsert(&serde_json::json!({ "id": "w", "pk": key, "n": number })).await?;
            longest = longest.max(begin.elapsed());
            number += 1;
        }
        Ok(longest)
    });
    tokio::time::sleep(MARGIN).await;
    let done = work.await;
    tokio::time::sleep(MARGIN).await;
    stop.send_replace(true);
    let longest = writer.await??;
    Ok((longest, done?))
}

fn restart(context: &Context) -> Result<Vec<Measurement>> {
    let (items, ranges) = (context.scale.restart_items, 1000);
    let runtime = load::runtime()?;
    let folder = context.place.folder("restart")?;
    let stores = [(folder.join("one"), 1), (folder.join("many"), ranges)];
    for (path, ranges) in &stores {
        runtime.block_on(async {
            let store = Store::open(path, Durability::Relaxed, *ranges).await?;
            fill(&store.container, items).await?;
            store.engine.settle().await?;
            store.engine.close().await?;
            Result::Ok(())
        })?;
    }
    let [one, many] = &stores;
    let rounds: Vec<Round<f64>> = measure::interleaved(
        context.scale.rounds,
        |_| reopen(&runtime, &one.0, one.1),
        |_| reopen(&runtime, &many.0, many.1),
    )?;
    let note = format!("{} k items, {ranges} ranges, until the first item is read", items / 1000);
    Ok(vec![Measurement::of("restart_1m_items_1000_ranges", &rounds, |seconds| *seconds).note(note)])
}

/// Seconds until the first item of a closed store can be read.
fn reopen(runtime: &Runtime, folder: &Path, ranges: usize) -> Result<f64> {
    runtime.block_on(async {
        let begin = Instant::now();
        let store = Store::open(folder, Durability::Durable, ranges).await?;
        store.container.read_item(key(0), "0").await?;
        let seconds = begin.elapsed().as_secs_f64();
        store.engine.close().await?;
        Ok(seconds)
    })
}

fn key(number: u64) -> String {
    format!("k{number}")
}

/// Writes `items` small items, a hundred under each partition key.
pub(crate) async fn fill(container: &Container, items: u64) -> Result<()> {
    let mut writers = JoinSet::new();
    for number in 0..items / ITEMS_PER_KEY {
        if writers.len() >= FILL_WRITERS
            && let Some(done) = writers.join_next().await
        {
            done??;
        }
        let container = container.clone();
        writers.spawn(async move { write_key(&container, number).await });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}

async fn write_key(container: &Container, number: u64) -> Result<()> {
    let key = key(number);
    let body = |id: u64| Bytes::from(format!(r#"{{"id":"{id}","pk":"{key}","value":{id}}}"#));
    let writes = (0..ITEMS_PER_KEY).map(|id| Write::Create { body: body(id) }).collect();
    let batch = Batch { partition_key: Some(PartitionKey::from(key.as_str())), writes, return_items: false };
    container.backend().write(batch).await?;
    Ok(())
}
