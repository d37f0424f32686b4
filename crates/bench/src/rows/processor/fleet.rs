//! Large fleets on one lease container: what a host needs to join ten thousand leases of a thousand hosts, and how many
//! writes a cold start of twenty hosts tries.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use changefeed::{LeaseTiming, Notification, Processor, Running};
use changefeed_core::Container;
use changefeed_embedded::Engine;
use serde_json::{Value, json};
use tokio::time;

use super::{Experiment, Goal, Row, counting, many_ranges::ManyRanges, until};
use crate::{
    Result,
    counting::{Counting, Requests, Wakes},
    load,
    measure::{Measurement, Round, Spread},
    rows::Context,
};

pub(super) const PLANNING: Experiment = Experiment {
    rows: &[Row {
        name: "join_10000_leases_1000_hosts",
        unit: "ms",
        baseline: "list_and_parse",
        goal: Some(Goal::ValueBelow(2000.0)),
    }],
    run: planning,
};

pub(super) const COLD_START: Experiment = Experiment {
    rows: &[
        Row {
            name: "cold_start_writes_per_lease",
            unit: "writes",
            baseline: "one_write",
            goal: Some(Goal::RatioAtMost(2.0)),
        },
        Row { name: "staggered_start_writes_per_lease", unit: "writes", baseline: "one_write", goal: None },
    ],
    run: cold_start,
};

const MANY_LEASES: usize = 10_000;
const MANY_HOSTS: usize = 1000;

/// The share of one more host, at least.
const SHARE: u64 = (MANY_LEASES / (MANY_HOSTS + 1)) as u64;

const LEASES: usize = 200;
const HOSTS: usize = 20;

/// No lease is renewed or expires while requests are counted.
const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(500),
    renew: Duration::from_secs(60),
    expiration: Duration::from_secs(300),
};

/// Between two hosts of a staggered start: 3 s from the first to the last of them.
const STAGGER: Duration = Duration::from_millis(158);

/// Containers in memory, with leases that exist and are free. Cheap to clone.
#[derive(Clone)]
struct Stage {
    items: Container,
    leases: Container,
    counting: Arc<Counting>,
}

impl Stage {
    async fn new(leases: usize) -> Result<Self> {
        let database = Engine::in_memory()?.database("bench");
        let items = database.container("items").partition_key("/pk").create().await?;
        let items = ManyRanges::around(&items, leases)?;
        let (leases, counting) = Counting::of_leases(&database.container("leases").create().await?, Wakes::Yes);
        let stage = Self { items, leases, counting };
        stage.host("first", TIMING).await?.0.stop().await?;
        Ok(stage)
    }

    /// Starts a host; how many leases it owns is counted.
    async fn host(&self, name: &str, timing: LeaseTiming) -> Result<(Running, Arc<AtomicI64>)> {
        let owned = Arc::new(AtomicI64::default());
        let counter = Arc::clone(&owned);
        let builder = Processor::builder("fleet", &self.items, &self.leases)
            .instance_name(name)
            .lease_timing(timing)
            .on_notification(move |notification| {
                let change = match notification {
                    Notification::LeaseAcquired(_) => 1,
                    Notification::LeaseReleased(..) => -1,
                    _ => return,
                };
                counter.fetch_add(change, Ordering::Relaxed);
            });
        Ok((counting(builder, |_, _| {})?.start().await?, owned))
    }

    /// The lease documents.
    async fn documents(&self) -> Result<Vec<Value>> {
        let items = self.leases.list("").await?;
        let parsed = items.iter().map(|item| Ok(serde_json::from_slice::<Value>(&item.body)?));
        let documents = parsed.collect::<Result<Vec<_>>>()?;
        Ok(documents.into_iter().filter(|document| document.get("LeaseToken").is_some()).collect())
    }

    /// Gives each lease to one of many hosts, as if these had just renewed them.
    async fn give_away(&self) -> Result<()> {
        for (number, mut lease) in self.documents().await?.into_iter().enumerate() {
            let owner = format!("host-{:04}", number % MANY_HOSTS);
            lease["Owner"] = json!(owner);
            lease["properties"]["cf.owner"] = json!(owner);
            lease["properties"]["cf.session"] = json!(format!("{:016x}", number % MANY_HOSTS + 1));
            lease["properties"]["cf.expiration"] = json!(TIMING.expiration.as_millis().to_string());
            self.leases.upsert(&lease).await?;
        }
        Ok(())
    }
}

fn planning(context: &Context) -> Result<Vec<Measurement>> {
    let rounds = context.scale.slow_rounds;
    let rounds = load::runtime()?.block_on(async { tokio::spawn(join_many(rounds)).await? })?;
    let note = format!(
        "{MANY_LEASES} leases of {MANY_HOSTS} hosts, over one range that is shown as {MANY_LEASES}; from the start of one more to its requests for {SHARE} leases: two \
         listings, coverage, plan, writes; the baseline lists and parses once"
    );
    Ok(vec![Measurement::of("join_10000_leases_1000_hosts", &rounds, |millis| *millis).note(note)])
}

async fn join_many(rounds: usize) -> Result<Vec<Round<f64>>> {
    let stage = Stage::new(MANY_LEASES).await?;
    let mut measured = Vec::new();
    for round in 0..rounds {
        stage.give_away().await?;
        let begin = Instant::now();
        let listed = stage.documents().await?.len();
        let baseline = begin.elapsed().as_secs_f64() * 1e3;
        if listed != MANY_LEASES {
            return Err(format!("{listed} leases instead of {MANY_LEASES}").into());
        }
        let (begin, before) = (Instant::now(), stage.counting.requests().writes);
        let (running, _) = stage.host(&format!("joins-{round}"), TIMING).await?;
        let asked = || stage.counting.requests().writes - before >= SHARE;
        let took = until(begin, "requests for a share", asked).await?;
        running.stop().await?;
        measured.push(Round { baseline, subject: took.as_secs_f64() * 1e3 });
    }
    Ok(measured)
}

fn cold_start(context: &Context) -> Result<Vec<Measurement>> {
    let rounds = context.scale.slow_rounds;
    let runtime = load::runtime()?;
    let together = runtime.block_on(async { tokio::spawn(start_many(rounds, Duration::ZERO, TIMING)).await? })?;
    let staggered =
        runtime.block_on(async { tokio::spawn(start_many(rounds, STAGGER, LeaseTiming::SERVER)).await? })?;
    Ok(vec![
        start_row("cold_start_writes_per_lease", "all at once", &together),
        start_row("staggered_start_writes_per_lease", "158 ms after one another", &staggered),
    ])
}

fn start_row(row: &'static str, how: &str, starts: &[Requests]) -> Measurement {
    let median = |count: fn(&Requests) -> u64| Spread::of(starts.iter().map(|start| count(start) as f64)).median;
    let note = format!(
        "{HOSTS} hosts that start {how} on {LEASES} free leases; writes that acquire, request, grant or release a lease, \
         failed ones too, until each host has its share; with checkpoints {:.1} for each lease; each host reads {:.0} pages",
        median(|start| start.writes) / LEASES as f64,
        median(|start| start.lists + start.feed + start.reads) / HOSTS as f64
    );
    let per_lease = |start: &Requests| start.ownership_writes as f64 / LEASES as f64;
    let rounds: Vec<_> = starts.iter().map(|start| Round { baseline: 1.0, subject: per_lease(start) }).collect();
    Measurement::of(row, &rounds, |writes| *writes).note(note)
}

async fn start_many(rounds: usize, stagger: Duration, timing: LeaseTiming) -> Result<Vec<Requests>> {
    let stage = Stage::new(LEASES).await?;
    let mut measured = Vec::new();
    for round in 0..rounds {
        let before = stage.counting.requests();
        let start = |host: usize| {
            let stage = stage.clone();
            tokio::spawn(async move {
                time::sleep(stagger * u32::try_from(host)?).await;
                stage.host(&format!("{round}-{host}"), timing).await
            })
        };
        let hosts = load::join((0..HOSTS).map(start).collect()).await?;
        let share = (LEASES / HOSTS) as i64;
        let even = || hosts.iter().all(|(_, owned)| owned.load(Ordering::Relaxed) == share);
        until(Instant::now(), "an even share", even).await?;
        measured.push(stage.counting.requests() - before);
        let stop = |running: Running| tokio::spawn(async move { Ok(running.stop().await?) });
        load::join(hosts.into_iter().map(|(running, _)| stop(running)).collect()).await?;
    }
    Ok(measured)
}
