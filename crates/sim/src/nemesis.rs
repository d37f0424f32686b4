//! The nemesis: does what the scenario says goes wrong, and undoes all of it before the quiet phase.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Batch, ErrorKind, ItemId, PartitionKey, RangeId, Write};

use crate::{
    commit,
    exec::WORLD,
    hosts,
    reach::Sometimes,
    scenario::{Fault, Store, Wrong},
    world::{Window, World},
};

/// A container is not split further than this.
const MOST_RANGES: usize = 16;

/// Sets all faults of the scenario in motion.
pub fn begin(world: &Arc<World>) {
    let faults = world.scenario.faults.iter().filter(|fault| fault.at < world.scenario.chaos);
    for (number, fault) in faults.cloned().enumerate() {
        let world = Arc::clone(world);
        let at = fault.at * 1000;
        world.clone().exec.detach("fault", async move {
            world.exec.sleep_until(at).await;
            strike(&world, number as u64, fault).await;
        });
    }
}

/// Ends everything that still goes wrong.
pub fn end(world: &Arc<World>) {
    *world.chaos.lock() = false;
    world.windows.lock().clear();
    for host in 0..world.scenario.hosts.len() {
        hosts::stall(world, host, false);
        hosts::stop(world, host, true);
        hosts::start(world, host, false);
    }
}

async fn strike(world: &Arc<World>, number: u64, fault: Fault) {
    world.log(format_args!("FAULT {:?}", fault.what));
    // Nothing lasts into the quiet phase.
    let left = (world.scenario.chaos * 1000).saturating_sub(world.exec.now());
    let pass = |millis: u64| world.exec.sleep(Duration::from_micros((millis * 1000).min(left)));
    match fault.what {
        Wrong::Crash { host, down } => {
            hosts::crash(world, host);
            pass(down).await;
            hosts::start(world, host, false);
        }
        Wrong::Stop { host, down } => {
            hosts::stop(world, host, false);
            pass(down).await;
            hosts::start(world, host, false);
        }
        Wrong::Stall { host, length } => {
            hosts::stall(world, host, true);
            pass(length).await;
            hosts::stall(world, host, false);
        }
        Wrong::Twin { host, length } => {
            hosts::start(world, host, true);
            pass(length).await;
            hosts::stop(world, host, true);
        }
        Wrong::Jump { host, by } => world.hosts.lock().jump(host, by),
        Wrong::Trouble { store, host, kind, length } => {
            world.windows.lock().push(Window { id: number, store, host, kind });
            pass(length).await;
            world.windows.lock().retain(|window| window.id != number);
        }
        Wrong::Split { pick } => split(world, pick).await,
        Wrong::Merge { pick } => merge(world, pick).await,
        Wrong::DeleteLease { pick } => delete_lease(world, pick).await,
    }
}

async fn split(world: &Arc<World>, pick: u64) {
    let Ok(ranges) = world.stores.monitored.feed_ranges().await else { return };
    if ranges.len() >= MOST_RANGES {
        return;
    }
    let Some(range) = ranges.get(usize::try_from(pick % ranges.len() as u64).unwrap_or_default()) else { return };
    let split = world.stores.catalog.split("sim", "monitored", &range.id, None).await;
    let names = split.map(|ranges| ranges.iter().map(|range| range.id.to_string()).collect::<Vec<_>>());
    world.log(format_args!("range {} is split into {names:?}", range.id));
    world.reached(Sometimes::Split);
    world.news(Store::Feed, |_| true);
}

async fn merge(world: &Arc<World>, pick: u64) {
    let Ok(ranges) = world.stores.monitored.feed_ranges().await else { return };
    let pairs: Vec<[&RangeId; 2]> = ranges.windows(2).map(|pair| [&pair[0].id, &pair[1].id]).collect();
    let Some(pair) = pairs.get(usize::try_from(pick % pairs.len().max(1) as u64).unwrap_or_default()) else { return };
    let merged = world.stores.catalog.merge("sim", "monitored", *pair).await.map(|range| range.id.to_string());
    world.log(format_args!("ranges {} and {} are merged into {merged:?}", pair[0], pair[1]));
    world.reached(Sometimes::Merge);
    world.news(Store::Feed, |_| true);
}

async fn delete_lease(world: &Arc<World>, pick: u64) {
    let id = {
        let ledger = world.ledger.lock();
        if !ledger.complete {
            return;
        }
        ledger.pick(pick).map(|(id, _)| id.clone())
    };
    let Some(id) = id.and_then(|id| ItemId::new(id).ok()) else { return };
    let key = PartitionKey::from(id.as_str());
    let write = Write::Delete { id, if_match: None };
    let server = commit::Server {
        world: Arc::clone(world),
        process: WORLD,
        name: "operator".into(),
        sent: world.exec.now(),
        store: Store::Leases,
        inner: Arc::clone(world.stores.leases.backend()),
    };
    match server.commit(Batch::single(Some(key), write), None).await {
        Ok(_) => world.reached(Sometimes::DocumentDeleted),
        Err(error) if error.kind() == ErrorKind::ItemNotFound => {}
        Err(error) => world.log(format_args!("the operator failed: {error:?}")),
    }
}
