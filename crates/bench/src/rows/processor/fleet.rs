//! Large fleets: what a balance cycle costs with a thousand hosts, and how many writes a cold start takes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use changefeed::{Context as Delegated, LeaseTiming, Notification, Processor, RawChanges, Running};
use changefeed_core::Container;
use changefeed_embedded::Engine;
use serde_json::{Value, json};

use super::{Experiment, Goal, Row, counting, until};
use crate::{
    Result,
    counting::{Counting, Wakes},
    load,
    measure::{Measurement, Round},
    process,
    rows::Context,
};

pub(super) const CYCLE: Experiment = Experiment {
    rows: &[Row {
        name: "join_1000_hosts_10000_leases",
        unit: "ms CPU",
        baseline: "list_and_parse_10000_leases",
        goal: Some(Goal::RatioAtMost(8.0)),
    }],
    run: cycle,
};

pub(super) const COLD_START: Experiment = Experiment {
    rows: &[Row {
        name: "cold_start_writes_per_lease",
        unit: "writes",
        baseline: "one_write",
        goal: Some(Goal::RatioAtMost(2.0)),
    }],
    run: cold_start,
};

const FLEET_HOSTS: usize = 1000;
const FLEET_LEASES: usize = 10_000;

/// Hosts that join one after the other: CPU time is counted in hundredths of a second.
const JOINS: usize = 5;

const COLD_HOSTS: usize = 20;
const COLD_LEASES: usize = 200;

/// The latency of a write, so that hosts which start together overlap.
const LATENCY: Duration = Duration::from_millis(10);

fn cycle(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::single_thread()?;
    let rounds = (0..context.scale.slow_rounds)
        .map(|_| runtime.block_on(async { tokio::spawn(join_fleet()).await? }))
        .collect::<Result<Vec<_>>>()?;
    let note = format!(
        "one host joins: bootstrap, two listings, audit, plan and requests for its {} leases",
        FLEET_LEASES / (FLEET_HOSTS + 1)
    );
    Ok(vec![Measurement::of("join_1000_hosts_10000_leases", &rounds, |millis| *millis).note(note)])
}

/// Has hosts join a fleet that exists only in its lease documents.
async fn join_fleet() -> Result<Round<f64>> {
    let database = Engine::in_memory()?.database("bench");
    let items = database.container("items").partition_key("/pk").create().await?;
    let leases = database.container("leases").create().await?;
    write_fleet(&items, &leases).await?;
    let millis = |before: f64| -> Result<f64> { Ok((process::cpu_seconds()? - before) * 1e3 / JOINS as f64) };
    let before = process::cpu_seconds()?;
    for _ in 0..JOINS {
        let parsed: Vec<Value> =
            leases.list("").await?.iter().map(|item| serde_json::from_slice(&item.body)).collect::<Result<_, _>>()?;
        if parsed.len() < FLEET_LEASES {
            return Err(format!("only {} lease documents", parsed.len()).into());
        }
    }
    let baseline = millis(before)?;
    let mut subject = 0.0;
    for join in 0..JOINS {
        let (container, counter) = Counting::around(&leases, Wakes::Never);
        let before = process::cpu_seconds()?;
        let running = start(&items, &container, &format!("new-{join}"), &Arc::default()).await?;
        let share = FLEET_LEASES / (FLEET_HOSTS + 1);
        until(Instant::now(), "requests for a share", || counter.requests().writes >= share as u64).await?;
        subject += millis(before)?;
        // Its requests are withdrawn, so that the next host finds the same fleet.
        running.stop().await?;
    }
    Ok(Round { baseline, subject })
}

/// Writes the leases of a balanced fleet, as its hosts would have.
async fn write_fleet(items: &Container, leases: &Container) -> Result<()> {
    create_leases(items, leases, 1).await?;
    let documents: Vec<Value> =
        leases.list("").await?.iter().map(|item| serde_json::from_slice(&item.body)).collect::<Result<_, _>>()?;
    let first = documents.into_iter().find(|document| document["LeaseToken"] == "0").ok_or("no lease was created")?;
    let id = first["id"].as_str().ok_or("the lease has no id")?;
    let prefix = id.strip_suffix('0').ok_or("the lease is not that of range 0")?;
    let bound = |at: usize| match at {
        0 => String::new(),
        FLEET_LEASES => "FF".to_owned(),
        at => format!("{:08X}", 0xFF00_0000_u64 * at as u64 / FLEET_LEASES as u64),
    };
    for at in 0..FLEET_LEASES {
        let (min, max, owner) = (bound(at), bound(at + 1), format!("host-{:04}", at % FLEET_HOSTS));
        let token = format!("{min}-{max}");
        let mut lease = first.clone();
        lease["id"] = json!(format!("{prefix}{token}"));
        lease["version"] = json!(1);
        lease["LeaseToken"] = json!(token);
        lease["FeedRange"] = json!({"Range": {"min": min, "max": max}});
        lease["Owner"] = json!(owner);
        let promise =
            [("cf.owner", owner.as_str()), ("cf.epoch", "1"), ("cf.owner-epoch", "1"), ("cf.expiration", "60000")];
        for (key, value) in promise {
            lease["properties"][key] = json!(value);
        }
        lease["properties"]["cf.session"] = json!(format!("session of {owner}"));
        leases.upsert(&lease).await?;
    }
    Ok(leases.delete(id, id).await?)
}

fn cold_start(_: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::single_thread()?;
    let (writes, took) = runtime.block_on(async { tokio::spawn(start_together()).await? })?;
    let rounds = [Round { baseline: 1.0, subject: writes as f64 / COLD_LEASES as f64 }];
    let note = format!(
        "{COLD_HOSTS} hosts that start together, {COLD_LEASES} free leases, {} ms per write: {writes} writes in {:.1} s",
        LATENCY.as_millis(),
        took.as_secs_f64()
    );
    Ok(vec![Measurement::of("cold_start_writes_per_lease", &rounds, |writes| *writes).note(note)])
}

/// Starts hosts at the same time; returns the writes until all leases are owned, and the time.
async fn start_together() -> Result<(u64, Duration)> {
    let database = Engine::in_memory()?.database("bench");
    let items = database.container("items").partition_key("/pk").ranges(COLD_LEASES).create().await?;
    let leases = database.container("leases").create().await?;
    create_leases(&items, &leases, COLD_LEASES).await?;
    let (slow, counter) = Counting::with_latency(&leases, Wakes::Never, LATENCY);
    let owned = Arc::default();
    let began = Instant::now();
    let mut running = Vec::new();
    for host in 0..COLD_HOSTS {
        running.push(start(&items, &slow, &format!("host-{host:02}"), &owned).await?);
    }
    let took = until(began, "the acquisition of all leases", || owned.load(Ordering::Relaxed) == COLD_LEASES).await?;
    let writes = counter.requests().writes;
    for running in running {
        running.stop().await?;
    }
    Ok((writes, took))
}

/// Creates free leases: a host starts, acquires them and stops.
async fn create_leases(items: &Container, leases: &Container, count: usize) -> Result<()> {
    let owned = Arc::default();
    let running = start(items, leases, "first", &owned).await?;
    until(Instant::now(), "the first start", || owned.load(Ordering::Relaxed) == count).await?;
    running.stop().await?;
    Ok(())
}

/// Starts a host that counts the leases it owns.
async fn start(items: &Container, leases: &Container, name: &str, owned: &Arc<AtomicUsize>) -> Result<Running> {
    let owned = Arc::clone(owned);
    let builder = Processor::builder("fleet", items, leases)
        .instance_name(name)
        .lease_timing(LeaseTiming::REMOTE)
        .on_notification(move |notification| {
            match notification {
                Notification::LeaseAcquired(_) => owned.fetch_add(1, Ordering::Relaxed),
                Notification::LeaseReleased(..) => owned.fetch_sub(1, Ordering::Relaxed),
                _ => 0,
            };
        });
    Ok(counting(builder, |_: RawChanges, _: Delegated| ())?.start().await?)
}
