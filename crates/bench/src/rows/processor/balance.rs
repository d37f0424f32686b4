//! Hosts that join, leave and crash under steady writes: the time until leases are balanced again, and duplicates.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use changefeed::{Context as Delegated, LeaseTiming, LeaseToken, Notification, Processor, RawChanges, Running};
use changefeed_core::{Batch, Container, Write};
use changefeed_embedded::Durability;
use tokio::{sync::watch, task::JoinHandle, time};

use super::{Experiment, Goal, Row, counting, until};
use crate::{
    Result,
    documents::{self, Documents, Random},
    load,
    measure::{Measurement, Round},
    place::Folder,
    rows::Context,
    store::Store,
};

pub(super) const REBALANCE: Experiment = Experiment {
    rows: &[
        Row { name: "rebalance_100_leases_join", unit: "s", baseline: "acquire_interval", goal: None },
        Row { name: "rebalance_100_leases_leave", unit: "s", baseline: "acquire_interval", goal: None },
        Row {
            name: "rebalance_100_leases_duplicates",
            unit: "changes",
            baseline: "changes_delivered",
            goal: Some(Goal::ValueBelow(1.0)),
        },
    ],
    run: rebalance,
};

pub(super) const TAKEOVER: Experiment = Experiment {
    rows: &[Row {
        name: "crash_takeover",
        unit: "s",
        baseline: "expiration_and_acquire",
        goal: Some(Goal::RatioAtMost(1.2)),
    }],
    run: takeover,
};

const LEASES: usize = 100;

/// Items that are written over and over: enough that all ranges get some.
const ITEMS: u64 = 5000;

/// Between two writes: a steady trickle, so that leases are neither idle nor behind.
const TRICKLE: Duration = Duration::from_millis(1);

/// Expirations that fit into a quick run, in the proportions of the embedded timing.
const HASTY: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(250),
    renew: Duration::from_millis(500),
    expiration: Duration::from_secs(2),
};

fn rebalance(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("rebalance")?;
    let rounds = context.scale.slow_rounds;
    runtime.block_on(async { tokio::spawn(join_and_leave(folder, rounds)).await? })
}

async fn join_and_leave(folder: Folder, rounds: usize) -> Result<Vec<Measurement>> {
    let timing = LeaseTiming::EMBEDDED;
    let stage = Stage::new(&folder, timing).await?;
    let first = stage.start("first").await?;
    until(Instant::now(), "the first start", || stage.owned("first") == LEASES).await?;
    let writer = stage.write();
    let (mut join, mut leave) = (Vec::new(), Vec::new());
    let round = |took: Duration| Round { baseline: timing.acquire.as_secs_f64(), subject: took.as_secs_f64() };
    for _ in 0..rounds {
        let start = Instant::now();
        let second = stage.start("second").await?;
        join.push(round(until(start, "an even share", || stage.is_even("first", "second")).await?));
        let start = Instant::now();
        let stopping = tokio::spawn(second.stop());
        leave.push(round(until(start, "the return of all leases", || stage.owned("first") == LEASES).await?));
        stopping.await??;
    }
    let written = writer.stop().await?;
    until(Instant::now(), "delivery of all that was written", || stage.ledger().has_all(&written)).await?;
    first.stop().await?;
    let (delivered, duplicates) = stage.ledger().delivered();
    stage.store.engine.close().await?;
    let seen = [Round { baseline: delivered as f64, subject: duplicates as f64 }];
    Ok(vec![
        Measurement::of("rebalance_100_leases_join", &join, |value| *value)
            .note("from the start of a second host to 50 and 50; the ratio is cycles"),
        Measurement::of("rebalance_100_leases_leave", &leave, |value| *value)
            .note("from the stop of the second host to 100 on the first; the ratio is cycles"),
        Measurement::of("rebalance_100_leases_duplicates", &seen, |value| *value)
            .note(format!("over {rounds} joins and leaves under steady writes; nothing was lost")),
    ])
}

fn takeover(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("takeover")?;
    let timing = if context.scale.short_expiration { HASTY } else { LeaseTiming::EMBEDDED };
    let rounds = context.scale.slow_rounds;
    runtime.block_on(async { tokio::spawn(crash(folder, timing, rounds)).await? })
}

async fn crash(folder: Folder, timing: LeaseTiming, rounds: usize) -> Result<Vec<Measurement>> {
    let stage = Stage::new(&folder, timing).await?;
    let survivor = stage.start("survivor").await?;
    until(Instant::now(), "the first start", || stage.owned("survivor") == LEASES).await?;
    let writer = stage.write();
    let wanted = (timing.expiration + timing.acquire).as_secs_f64();
    let probes = stage.one_for_each_lease().await?;
    let mut taken = Vec::new();
    for round in 0..rounds {
        let victim = format!("victim-{round}");
        let running = stage.start(&victim).await?;
        until(Instant::now(), "an even share", || stage.is_even("survivor", &victim)).await?;
        let start = Instant::now();
        drop(running);
        stage.ledger().forget(&victim);
        let probes = stage.probe(&probes).await?;
        let took = until(start, "the takeover", || stage.ledger().has_all(&probes)).await?;
        taken.push(Round { baseline: wanted, subject: took.as_secs_f64() });
    }
    let written = writer.stop().await?;
    until(Instant::now(), "delivery of all that was written", || stage.ledger().has_all(&written)).await?;
    survivor.stop().await?;
    let (delivered, duplicates) = stage.ledger().delivered();
    stage.store.engine.close().await?;
    let note = format!(
        "50 of {LEASES} leases, acquire {:?}, expiration {:?}; {duplicates} of {delivered} changes twice, none lost",
        timing.acquire, timing.expiration
    );
    Ok(vec![Measurement::of("crash_takeover", &taken, |value| *value).note(note)])
}

/// A store on disk, hosts on it, and what they did.
struct Stage {
    store: Store,
    leases: Container,
    timing: LeaseTiming,
    ledger: Arc<Mutex<Ledger>>,
}

impl Stage {
    async fn new(folder: &Folder, timing: LeaseTiming) -> Result<Self> {
        let store = Store::open(&folder.join("store"), Durability::Durable, LEASES).await?;
        let leases = store.leases().await?;
        Ok(Self { store, leases, timing, ledger: Arc::default() })
    }

    /// Starts a host.
    async fn start(&self, instance: &str) -> Result<Running> {
        let name: Arc<str> = instance.into();
        let (owners, handlers) = (Arc::clone(&self.ledger), Arc::clone(&self.ledger));
        let builder = Processor::builder("balance", &self.store.container, &self.leases)
            .instance_name(instance)
            .lease_timing(self.timing)
            .on_notification(move |notification| open(&owners).note(&name, notification));
        let processor = counting(builder, move |changes, _: Delegated| open(&handlers).handle(&changes))?;
        Ok(processor.start().await?)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        open(&self.ledger)
    }

    fn owned(&self, instance: &str) -> usize {
        self.ledger().owners.values().filter(|owner| ***owner == *instance).count()
    }

    fn is_even(&self, one: &str, other: &str) -> bool {
        self.owned(one) == LEASES / 2 && self.owned(other) == LEASES / 2
    }

    /// An item for each lease, none of which is ever written otherwise.
    async fn one_for_each_lease(&self) -> Result<BTreeSet<u64>> {
        let definition = &self.store.container.identity().partition_key;
        let ranges = self.store.container.feed_ranges().await?;
        let mut items = BTreeMap::new();
        // Other items than those of the writer, whose newer versions would take their place.
        for item in ITEMS..ITEMS + documents::PARTITION_KEYS {
            let key = definition.epk(&documents::partition_key(item).into())?;
            let range = ranges.iter().position(|physical| physical.range.contains(&key));
            items.entry(range).or_insert(item);
        }
        match items.len() {
            LEASES => Ok(items.into_values().collect()),
            some => Err(format!("only {some} of {LEASES} leases have items").into()),
        }
    }

    /// Writes these items at once; returns the position of each.
    async fn probe(&self, items: &BTreeSet<u64>) -> Result<BTreeMap<u64, Written>> {
        let documents = Documents::new(ITEMS);
        let writes = items.iter().map(|item| {
            let (container, item, body) = (self.store.container.clone(), *item, documents.body(*item, 0));
            tokio::spawn(async move { write(&container, item, body).await })
        });
        Ok(load::join(writes.collect()).await?.into_iter().collect())
    }

    /// Begins to write, until it is stopped.
    fn write(&self) -> Writer {
        let (stop, stopped) = watch::channel(false);
        Writer { stop, task: tokio::spawn(trickle(self.store.container.clone(), stopped)) }
    }
}

fn open(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The id of an item and the position of its change: ranges count for themselves.
type Written = (String, u64);

/// Who owns what, and which changes were handled.
#[derive(Debug, Default)]
struct Ledger {
    owners: BTreeMap<LeaseToken, Arc<str>>,
    /// Items and positions that were delivered.
    handled: BTreeSet<Written>,
    duplicates: usize,
}

impl Ledger {
    fn note(&mut self, instance: &Arc<str>, notification: &Notification) {
        match notification {
            Notification::LeaseAcquired(lease) => drop(self.owners.insert(lease.clone(), Arc::clone(instance))),
            Notification::LeaseReleased(lease, _) if self.owners.get(lease) == Some(instance) => {
                self.owners.remove(lease);
            }
            _ => {}
        }
    }

    fn handle(&mut self, changes: &RawChanges) {
        for change in changes {
            if !self.handled.insert((change.id.to_string(), change.lsn.get())) {
                self.duplicates += 1;
            }
        }
    }

    /// A host was killed: no notification says that its leases have no owner.
    fn forget(&mut self, instance: &str) {
        self.owners.retain(|_, owner| **owner != *instance);
    }

    fn has_all(&self, written: &BTreeMap<u64, Written>) -> bool {
        written.values().all(|written| self.handled.contains(written))
    }

    /// How many different changes were delivered, and how many deliveries were too many.
    fn delivered(&self) -> (usize, usize) {
        (self.handled.len(), self.duplicates)
    }
}

/// A task that writes.
struct Writer {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<BTreeMap<u64, Written>>>,
}

impl Writer {
    /// Stops it; returns the last position of each item.
    async fn stop(self) -> Result<BTreeMap<u64, Written>> {
        self.stop.send_replace(true);
        self.task.await?
    }
}

async fn trickle(container: Container, stopped: watch::Receiver<bool>) -> Result<BTreeMap<u64, Written>> {
    let documents = Documents::new(ITEMS);
    let (mut random, mut counter) = (Random::new(1), 0);
    let mut written = BTreeMap::new();
    while !*stopped.borrow() {
        let item = random.below(ITEMS);
        written.extend([write(&container, item, documents.body(item, counter)).await?]);
        counter += 1;
        time::sleep(TRICKLE).await;
    }
    Ok(written)
}

/// Writes an item; returns it with its position.
async fn write(container: &Container, item: u64, body: Bytes) -> Result<(u64, Written)> {
    let write = Write::Upsert { body, if_match: None };
    let written = container.backend().write(Batch::single(None, write)).await?;
    let written = written.first().ok_or("the store returned no result for a write")?;
    Ok((item, (written.id.to_string(), written.lsn.get())))
}
