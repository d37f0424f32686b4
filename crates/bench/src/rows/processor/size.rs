//! Many leases: what it costs to deliver a lone change when a process owns 10, 1,000 or 10,000 of them.
//!
//! A container begins with at most 1,000 ranges, so 10,000 leases are those of ten processors, each with containers of
//! its own for items and leases. A few writers each write a change to a random range and wait for its delivery: every
//! change wakes a worker and is a batch. The processor time of the whole process counts, with the write itself, renewals
//! and balancing. What it is beyond the time that the same leases take when nothing is written is reported beside it; that
//! time is a row of its own.
//!
//! Spread over ten leases, changes come so fast that many share a checkpoint; spread over thousands, each has its own,
//! so those rows differ by more than the number of leases. Rows of the same traffic have all changes go to a few keys:
//! they show what leases cost that have nothing to do with a change.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use changefeed::{Context as Delegated, Processor, RawChanges, Running};
use changefeed_core::{Batch, Container, Write};
use changefeed_embedded::Engine;
use tokio::{sync::mpsc, time};

use super::{Experiment, Goal, PATIENCE, Row, counting, is_caught_up, until};
use crate::{
    Result,
    documents::Random,
    load,
    measure::{Measurement, Round, Spread},
    process,
    rows::Context,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[
        row("cost_per_change_10_leases", None),
        row("cost_per_change_1000_leases", Some(Goal::RatioAtMost(2.0))),
        row("cost_per_change_10000_leases", Some(Goal::RatioAtMost(2.0))),
        row("same_traffic_10_leases", None),
        row("same_traffic_1000_leases", Some(Goal::RatioAtMost(1.5))),
        row("same_traffic_10000_leases", Some(Goal::RatioAtMost(1.5))),
        Row { name: IDLE, unit: "% of a core", baseline: "idle_1000_leases_x_10", goal: Some(Goal::ValueBelow(5.0)) },
    ],
    run: sizes,
};

const IDLE: &str = "idle_10000_leases";

/// The rows for changes to random ranges and to few keys, each with processors and leases of each.
const SIZES: [(&str, &str, usize, usize); 3] = [
    ("cost_per_change_10_leases", "same_traffic_10_leases", 1, 10),
    ("cost_per_change_1000_leases", "same_traffic_1000_leases", 1, 1000),
    ("cost_per_change_10000_leases", "same_traffic_10000_leases", 10, 1000),
];

/// Changes on their way at the same time: few, so that each finds an idle worker.
const WRITERS: usize = 4;

/// How long the last leases to catch up may take to store that.
const SETTLING: Duration = Duration::from_secs(1);

/// Enough partition keys for every range.
const MANY_KEYS: u64 = 1_000_000;

/// The same traffic for every number of leases.
const FEW_KEYS: u64 = 10;

const fn row(name: &'static str, goal: Option<Goal>) -> Row {
    Row { name, unit: "us CPU", baseline: "cost_at_10_leases", goal }
}

/// Processor time, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// For each change, all in all.
    per_change: f64,
    /// For each change, beyond what is spent without changes.
    beyond: f64,
    /// For each change, all in all, when few keys get all changes.
    few_keys: f64,
    /// In each second without changes.
    quiet: f64,
    /// Changes in each second with them.
    rate: f64,
}

fn sizes(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::single_thread()?;
    let length = context.scale.round;
    let mut rounds: [Vec<Round<Cost>>; SIZES.len()] = Default::default();
    for _ in 0..context.scale.slow_rounds {
        let mut few = None;
        for ((_, _, processors, leases), rounds) in SIZES.iter().zip(&mut rounds) {
            let delivering = cost(*processors, *leases, length, context.scale.idle_leases);
            let subject = runtime.block_on(async { tokio::spawn(delivering).await? })?;
            let baseline = *few.get_or_insert(subject);
            rounds.push(Round { baseline, subject });
        }
    }
    let measured = SIZES.iter().zip(&rounds).map(|((row, _, processors, leases), rounds)| {
        let of = |value: fn(&Cost) -> f64| Spread::of(rounds.iter().map(|round| value(&round.subject))).median;
        let note = format!(
            "{processors} x {leases} leases, {:.0} lone changes/s; {:.1} % of a core when quiet; {:.1} us beyond that",
            of(|cost| cost.rate),
            of(|cost| cost.quiet) / 1e4,
            of(|cost| cost.beyond)
        );
        Measurement::of(row, rounds, |cost| cost.per_change).note(note)
    });
    let same_traffic = SIZES.iter().zip(&rounds).map(|((_, row, processors, leases), rounds)| {
        let note = format!("{processors} x {leases} leases; {FEW_KEYS} partition keys get all changes");
        Measurement::of(row, rounds, |cost| cost.few_keys).note(note)
    });
    Ok(measured.chain(same_traffic).chain([idle(&rounds, context.scale.idle_leases)]).collect())
}

/// What ten thousand idle leases take, against ten times what a thousand take.
fn idle([_, thousand, ten_thousand]: &[Vec<Round<Cost>>; SIZES.len()], length: Duration) -> Measurement {
    let percent = |cost: &Cost| cost.quiet / 1e4;
    let rounds = thousand.iter().zip(ten_thousand).map(|(thousand, ten_thousand)| Round {
        baseline: 10.0 * percent(&thousand.subject),
        subject: percent(&ten_thousand.subject),
    });
    let rounds: Vec<_> = rounds.collect();
    Measurement::of(IDLE, &rounds, |percent| *percent)
        .note(format!("10 x 1000 leases, {} s without a write", length.as_secs()))
}

async fn cost(processors: usize, leases: usize, length: Duration, idle: Duration) -> Result<Cost> {
    let (lanes, mut arrivals): (Vec<_>, Vec<_>) = (0..WRITERS).map(|_| mpsc::channel(1)).unzip();
    let stage = Stage::new(processors, leases, lanes).await?;
    let quiet = {
        time::sleep(SETTLING).await;
        let before = process::cpu_seconds()?;
        time::sleep(idle).await;
        (process::cpu_seconds()? - before) / idle.as_secs_f64()
    };
    let Busy { spent, took, changes } = busy(&stage.items, MANY_KEYS, length, &mut arrivals).await?;
    let few = busy(&stage.items[..1], FEW_KEYS, length, &mut arrivals).await?;
    for running in stage.running {
        running.stop().await?;
    }
    let beyond = spent - quiet * took.as_secs_f64();
    if beyond <= 0.0 {
        // Nothing could be said but that a change costs nothing, which would look like a goal that was met.
        return Err(
            format!("only {changes} changes in {took:?}, which cost no more than silence: measure again").into()
        );
    }
    Ok(Cost {
        per_change: spent * 1e6 / changes as f64,
        beyond: beyond * 1e6 / changes as f64,
        few_keys: few.spent * 1e6 / few.changes as f64,
        quiet: quiet * 1e6,
        rate: changes as f64 / took.as_secs_f64(),
    })
}

/// A while with changes.
struct Busy {
    /// Seconds of processor time.
    spent: f64,
    took: Duration,
    changes: u64,
}

/// Has all writers write to so many keys of these containers.
async fn busy(
    items: &[Container],
    keys: u64,
    length: Duration,
    arrivals: &mut Vec<mpsc::Receiver<()>>,
) -> Result<Busy> {
    let (before, start) = (process::cpu_seconds()?, Instant::now());
    let writers = arrivals
        .drain(..)
        .enumerate()
        .map(|(writer, arrivals)| tokio::spawn(write_and_wait(items.to_vec(), keys, writer, start + length, arrivals)));
    let mut changes = 0;
    for (written, lane) in load::join(writers.collect()).await? {
        changes += written;
        arrivals.push(lane);
    }
    Ok(Busy { spent: process::cpu_seconds()? - before, took: start.elapsed(), changes })
}

/// Containers in memory, each with a processor that has caught up.
struct Stage {
    items: Vec<Container>,
    running: Vec<Running>,
}

impl Stage {
    /// Processors that tell the writer of each change, by its lane, that it has arrived.
    async fn new(processors: usize, leases: usize, lanes: Vec<mpsc::Sender<()>>) -> Result<Self> {
        let database = Engine::in_memory()?.database("bench");
        let caught_up = Arc::new(AtomicU64::default());
        let (mut items, mut running) = (Vec::new(), Vec::new());
        for number in 0..processors {
            let name = format!("items-{number}");
            let container = database.container(&name).partition_key("/pk").ranges(leases).create().await?;
            let lease_container = database.container(format!("leases-{number}")).create().await?;
            let (lanes, counter) = (lanes.clone(), Arc::clone(&caught_up));
            let builder = Processor::builder(name, &container, &lease_container).on_notification(move |notification| {
                counter.fetch_add(u64::from(is_caught_up(notification)), Ordering::Relaxed);
            });
            let processor = counting(builder, move |changes, _: Delegated| tell(&lanes, &changes))?;
            running.push(processor.start().await?);
            items.push(container);
        }
        let all = (processors * leases) as u64;
        until(Instant::now(), "a quiet start", || caught_up.load(Ordering::Relaxed) >= all).await?;
        Ok(Self { items, running })
    }
}

/// The id of a change is the number of the writer that waits for it.
fn tell(lanes: &[mpsc::Sender<()>], changes: &RawChanges) {
    for change in changes {
        if let Some(lane) = change.id.as_str().parse().ok().and_then(|lane: usize| lanes.get(lane)) {
            // A full lane means that its writer knows already.
            let _ = lane.try_send(());
        }
    }
}

/// Writes and waits until `end`; returns how many changes were delivered, and the channel of their arrivals.
async fn write_and_wait(
    containers: Vec<Container>,
    keys: u64,
    writer: usize,
    end: Instant,
    mut arrivals: mpsc::Receiver<()>,
) -> Result<(u64, mpsc::Receiver<()>)> {
    let mut random = Random::new(writer as u64);
    let mut changes = 0;
    while Instant::now() < end {
        let container = &containers[usize::try_from(random.below(containers.len() as u64))?];
        let key = random.below(keys);
        let body = format!("{{\"id\":\"{writer}\",\"pk\":\"{key}\",\"counter\":{changes}}}");
        let write = Write::Upsert { body: Bytes::from(body), if_match: None };
        container.backend().write(Batch::single(None, write)).await?;
        let arrival = time::timeout(PATIENCE, arrivals.recv()).await;
        arrival.map_err(|_| "a change was not delivered")?.ok_or("the processors ended early")?;
        changes += 1;
    }
    Ok((changes, arrivals))
}
