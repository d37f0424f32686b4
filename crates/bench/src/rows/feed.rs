//! Reading the feed from its beginning to its end in pages of 1,000, from warm cache.

use std::{hint::black_box, path::PathBuf, thread};

use changefeed_core::{Container, FeedRange, ReadChanges, StartFrom};

use super::{Context, Experiment, Goal, Row};
use crate::{
    Result, load,
    measure::{self, Measurement},
    raw,
    store::Store,
};

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        rows: &[
            Row {
                name: "feed_read_items",
                unit: "items/s",
                baseline: "sequential_file_read",
                goal: Some(Goal::ValueAtLeast(500_000.0)),
            },
            Row { name: "feed_read_bytes", unit: "MB/s", baseline: "sequential_file_read", goal: None },
        ],
        run: one_reader,
    },
    Experiment {
        rows: &[Row { name: "feed_read_4_ranges", unit: "items/s", baseline: "sequential_file_read_4", goal: None }],
        run: four_readers,
    },
];

fn one_reader(context: &Context) -> Result<Vec<Measurement>> {
    let (rounds, pass) = feed_rounds(context, 1)?;
    let items = Measurement::of("feed_read_items", &rounds, |passes| passes * pass.items as f64);
    let bytes = Measurement::of("feed_read_bytes", &rounds, |passes| passes * pass.bytes as f64 / 1e6);
    let note = format!("{} items, {} bytes each with system members", pass.items, pass.bytes / pass.items.max(1));
    Ok(vec![items.note(note), bytes])
}

fn four_readers(context: &Context) -> Result<Vec<Measurement>> {
    let (rounds, pass) = feed_rounds(context, 4)?;
    let items = Measurement::of("feed_read_4_ranges", &rounds, |passes| passes * pass.items as f64);
    Ok(vec![items.note(format!("{} items, four readers, one range each", pass.items))])
}

/// Passes per second over the whole feed, a reader for each range, against as many files of the same bytes in all.
fn feed_rounds(context: &Context, ranges: usize) -> Result<(Vec<measure::Round<f64>>, Pass)> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("feed")?;
    let store = runtime.block_on(Store::filled(&folder.join("store"), context.scale.feed_items, ranges))?;
    let warm_up = runtime.block_on(read_all(&store.container))?;
    if warm_up.items != context.scale.feed_items {
        return Err(format!("the feed gave {} items of {}", warm_up.items, context.scale.feed_items).into());
    }
    let files: Vec<_> = (0..ranges).map(|number| folder.join(format!("file-{number}"))).collect();
    files.iter().try_for_each(|file| raw::create_file(file, warm_up.bytes / ranges as u64))?;
    let length = context.scale.round;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| measure::passes_per_second(length, || read_files(&files)),
        |_| {
            measure::passes_per_second(length, || {
                let pass = runtime.block_on(read_all(&store.container))?;
                if pass == warm_up { Ok(()) } else { Err("two passes over the same feed differ".into()) }
            })
        },
    )?;
    runtime.block_on(store.engine.close())?;
    Ok((rounds, warm_up))
}

/// What a pass over the feed gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pass {
    items: u64,
    bytes: u64,
}

/// Reads the whole feed, one task per range.
pub(super) async fn read_all(container: &Container) -> Result<Pass> {
    let ranges = container.feed_ranges().await?;
    let readers = ranges.into_iter().map(|physical| tokio::spawn(read_range(container.clone(), physical.range)));
    let passes = load::join(readers.collect()).await?;
    Ok(passes
        .iter()
        .fold(Pass::default(), |sum, pass| Pass { items: sum.items + pass.items, bytes: sum.bytes + pass.bytes }))
}

async fn read_range(container: Container, range: FeedRange) -> Result<Pass> {
    let mut pass = Pass::default();
    let mut start = StartFrom::Beginning;
    loop {
        let page = container.read_changes(ReadChanges::new(range.clone(), start)).await?.into_value();
        if page.changes.is_empty() {
            return Ok(pass);
        }
        pass.items += page.changes.len() as u64;
        for body in page.changes.iter().filter_map(|change| change.current.as_ref()) {
            pass.bytes += body.len() as u64;
            black_box((body.first(), body.last()));
        }
        start = page.continuation.into();
    }
}

fn read_files(files: &[PathBuf]) -> Result<()> {
    thread::scope(|scope| {
        let readers: Vec<_> = files.iter().map(|file| scope.spawn(|| raw::read_file(file))).collect();
        for reader in readers {
            reader.join().map_err(|_| "a reader of a file panicked")??;
        }
        Ok(())
    })
}
