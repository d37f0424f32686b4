//! Writes: many tasks that each write and wait, against the same tasks and bytes on a raw log.

use std::time::Duration;

use changefeed_embedded::Durability;

use super::{Context, Experiment, Goal, Row};
use crate::{
    Result,
    documents::Documents,
    load::{self, Load},
    measure::{self, Measurement, Round},
    raw::{Acknowledge, RawLog, Space},
    store::Store,
};

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        rows: &[rate("durable_writes_1", "raw_append_fsync", None), p99("durable_writes_1_p99", None)],
        run: |context| durable(context, 1, ["durable_writes_1", "durable_writes_1_p99"]),
    },
    Experiment {
        rows: &[rate("durable_writes_8", "raw_append_fsync", None), p99("durable_writes_8_p99", None)],
        run: |context| durable(context, 8, ["durable_writes_8", "durable_writes_8_p99"]),
    },
    Experiment {
        rows: &[
            rate("durable_writes_64", "raw_append_fsync", Some(Goal::RatioAtLeast(0.6))),
            p99("durable_writes_64_p99", Some(Goal::ValueBelow(20.0))),
        ],
        run: |context| durable(context, 64, ["durable_writes_64", "durable_writes_64_p99"]),
    },
    Experiment { rows: &[rate("relaxed_writes_64", "raw_append", None)], run: relaxed },
    Experiment {
        rows: &[rate("raw_preallocated_1", "raw_append_fsync", None)],
        run: |context| preallocated(context, 1, "raw_preallocated_1"),
    },
    Experiment {
        rows: &[rate("raw_preallocated_8", "raw_append_fsync", None)],
        run: |context| preallocated(context, 8, "raw_preallocated_8"),
    },
    Experiment {
        rows: &[rate("raw_preallocated_64", "raw_append_fsync", None)],
        run: |context| preallocated(context, 64, "raw_preallocated_64"),
    },
];

/// Over how many items the writes go: enough that most have not been written lately, few enough that many are written
/// more than once.
const ITEMS: u64 = 100_000;

const fn rate(name: &'static str, baseline: &'static str, goal: Option<Goal>) -> Row {
    Row { name, unit: "writes/s", baseline, goal }
}

const fn p99(name: &'static str, goal: Option<Goal>) -> Row {
    Row { name, unit: "ms", baseline: "raw_append_fsync", goal }
}

fn durable(context: &Context, writers: u64, [rate, p99]: [&'static str; 2]) -> Result<Vec<Measurement>> {
    let rounds = store_rounds(context, writers, Durability::Durable, Acknowledge::Synced)?;
    Ok(vec![rate_of(rate, &rounds), p99_of(p99, &rounds)])
}

fn relaxed(context: &Context) -> Result<Vec<Measurement>> {
    let rounds = store_rounds(context, 64, Durability::Relaxed, Acknowledge::Written)?;
    Ok(vec![rate_of("relaxed_writes_64", &rounds)])
}

/// For information: what fsync costs when the file need not grow. No store is measured.
fn preallocated(context: &Context, writers: u64, row: &'static str) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder(row)?;
    let documents = Documents::new(ITEMS);
    let growing = RawLog::create(&folder.join("growing"), Acknowledge::Synced, Space::Growing)?;
    let preallocated = RawLog::create(&folder.join("preallocated"), Acknowledge::Synced, Space::Preallocated)?;
    let round = |log: &RawLog, seed: usize| {
        runtime.block_on(load::write_for(log.writer(), &documents, writers, context.scale.round, seed as u64))
    };
    let rounds =
        measure::interleaved(context.scale.rounds, |seed| round(&growing, seed), |seed| round(&preallocated, seed))?;
    growing.close()?;
    preallocated.close()?;
    Ok(vec![rate_of(row, &rounds).note("no store: a file whose blocks exist already")])
}

/// One store and one raw log, both kept for all rounds, so that later rounds meet what earlier ones left behind.
fn store_rounds(
    context: &Context,
    writers: u64,
    durability: Durability,
    acknowledge: Acknowledge,
) -> Result<Vec<Round<Load>>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("writes")?;
    let documents = Documents::new(ITEMS);
    let log = RawLog::create(&folder.join("raw"), acknowledge, Space::Growing)?;
    let store = runtime.block_on(Store::open(&folder.join("store"), durability, 1))?;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |seed| {
            let writing = load::write_for(log.writer(), &documents, writers, context.scale.round, seed as u64);
            let load = runtime.block_on(writing)?;
            log.sync()?;
            Ok(load)
        },
        |seed| {
            runtime.block_on(async {
                let writing = load::write_for(store.writer(), &documents, writers, context.scale.round, seed as u64);
                let load = writing.await?;
                // Work left for later must not slow the raw log down.
                store.engine.settle().await?;
                Ok(load)
            })
        },
    )?;
    runtime.block_on(store.engine.close())?;
    log.close()?;
    Ok(rounds)
}

fn rate_of(row: &'static str, rounds: &[Round<Load>]) -> Measurement {
    Measurement::of(row, rounds, |load| load.per_second)
}

fn p99_of(row: &'static str, rounds: &[Round<Load>]) -> Measurement {
    let longest = |load: fn(&Round<Load>) -> &Load| {
        millis(rounds.iter().map(|round| load(round).latencies.max()).max().unwrap_or_default())
    };
    let (store, raw) = (longest(|round| &round.subject), longest(|round| &round.baseline));
    let measurement = Measurement::of(row, rounds, |load| millis(load.latencies.percentile(99)));
    // A median hides the one round with a stall.
    let worst = measurement.value.max;
    measurement.note(format!("worst round {worst:.1} ms; longest write {store:.1} ms, raw {raw:.1} ms"))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
