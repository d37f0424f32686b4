//! The nemesis: injects the faults of a scenario and sends its operators, and undoes all of it before the quiet phase.

use std::{sync::Arc, time::Duration};

use changefeed_core::RangeId;

use crate::{
    coverage::Sometimes,
    documents, hosts, operator,
    scenario::{Fault, FaultKind, Store},
    simulation::{Simulation, Window},
};

/// A container is not split further than this.
const MOST_RANGES: usize = 16;

/// Schedules all faults of the scenario.
pub fn begin(sim: &Arc<Simulation>) {
    let faults = sim.scenario.faults.iter().filter(|fault| fault.at < sim.scenario.chaos);
    for (number, fault) in faults.cloned().enumerate() {
        let sim = Arc::clone(sim);
        let at = fault.at * 1000;
        sim.clone().exec.detach("fault", async move {
            sim.exec.sleep_until(at).await;
            inject(&sim, number as u64, fault).await;
        });
    }
}

/// Ends all faults.
pub fn end(sim: &Arc<Simulation>) {
    *sim.chaos.lock() = false;
    sim.windows.lock().clear();
    for host in 0..sim.scenario.hosts.len() {
        hosts::stall(sim, host, false);
        hosts::stop(sim, host, true);
        sim.hosts.lock().mismatch(host, false);
        hosts::start(sim, host, false);
    }
}

async fn inject(sim: &Arc<Simulation>, number: u64, fault: Fault) {
    sim.log(format_args!("FAULT {:?}", fault.kind));
    // No fault lasts into the quiet phase.
    let left = (sim.scenario.chaos * 1000).saturating_sub(sim.exec.now());
    let pass = |millis: u64| sim.exec.sleep(Duration::from_micros((millis * 1000).min(left)));
    match fault.kind {
        FaultKind::Crash { host, down } => {
            hosts::crash(sim, host);
            pass(down).await;
            hosts::start(sim, host, false);
        }
        FaultKind::Stop { host, down } => {
            hosts::stop(sim, host, false);
            pass(down).await;
            hosts::start(sim, host, false);
        }
        FaultKind::Drop { host, down } => {
            hosts::drop_running(sim, host);
            pass(down).await;
            hosts::start(sim, host, false);
        }
        FaultKind::Stall { host, length } => {
            hosts::stall(sim, host, true);
            pass(length).await;
            hosts::stall(sim, host, false);
        }
        FaultKind::Suspend { host, length } => {
            let begun = sim.exec.now();
            sim.cover(Sometimes::Suspended);
            hosts::stall(sim, host, true);
            pass(length).await;
            sim.hosts.lock().slept(host, sim.exec.now() - begun);
            hosts::stall(sim, host, false);
        }
        FaultKind::DuplicateInstance { host, length } => {
            hosts::start(sim, host, true);
            pass(length).await;
            hosts::stop(sim, host, true);
        }
        FaultKind::Jump { host, by } => sim.hosts.lock().jump(host, by),
        FaultKind::StoreFault { store, host, kind, length } => {
            sim.windows.lock().push(Window { id: number, store, host, kind });
            pass(length).await;
            sim.windows.lock().retain(|window| window.id != number);
        }
        FaultKind::Split { pick } => split(sim, pick).await,
        FaultKind::Merge { pick } => merge(sim, pick).await,
        FaultKind::DeleteLease { pick } => documents::delete(sim, pick).await,
        FaultKind::DamageLease { pick, damage, length } => {
            documents::damage(sim, pick, damage, (length * 1000).min(left)).await;
        }
        FaultKind::RecreateLeases { length } => documents::recreate(sim, (length * 1000).min(left)).await,
        FaultKind::DuplicateLease { pick } => documents::duplicate(sim, pick).await,
        FaultKind::Mismatch { host, length } => {
            sim.hosts.lock().mismatch(host, true);
            restart(sim, host).await;
            pass(length).await;
            sim.hosts.lock().mismatch(host, false);
            restart(sim, host).await;
        }
        FaultKind::DelegateOutage { length } => {
            *sim.delegate_outages.lock() += 1;
            sim.cover(Sometimes::DelegateOutage);
            pass(length).await;
            *sim.delegate_outages.lock() -= 1;
        }
        FaultKind::RollingDeploy { pause } => rolling_deploy(sim, pause).await,
        FaultKind::Operator(command) => {
            *sim.commands.lock() += 1;
            operator::perform(sim, number, command, left).await;
            *sim.commands.lock() -= 1;
        }
    }
}

/// Stops a host, waits until it is down, and starts it again.
pub async fn restart(sim: &Arc<Simulation>, host: usize) {
    let end = sim.exec.now() + 2 * sim.scenario.processor.stop_deadline * 1000;
    let chaos = *sim.chaos.lock();
    hosts::stop(sim, host, false);
    while sim.exec.now() < end && !sim.hosts.lock().is_down(host) {
        sim.exec.sleep(Duration::from_millis(250)).await;
        // At the end of the fault phase all hosts are started anyway.
        if *sim.chaos.lock() != chaos {
            return;
        }
    }
    hosts::start(sim, host, false);
}

/// Restarts all hosts, one after the other.
async fn rolling_deploy(sim: &Arc<Simulation>, pause: u64) {
    for host in 0..sim.scenario.hosts.len() {
        if !*sim.chaos.lock() {
            return;
        }
        restart(sim, host).await;
        sim.exec.sleep(Duration::from_millis(pause)).await;
    }
    sim.cover(Sometimes::RollingDeploy);
}

/// Splits one of the ranges.
pub async fn split(sim: &Arc<Simulation>, pick: u64) {
    let Ok(ranges) = sim.stores.monitored.feed_ranges().await else { return };
    if ranges.len() >= MOST_RANGES {
        return;
    }
    let Some(range) = ranges.get(usize::try_from(pick % ranges.len() as u64).unwrap_or_default()) else { return };
    let split = sim.stores.catalog.split("sim", "monitored", &range.id, None).await;
    let names = split.map(|ranges| ranges.iter().map(|range| range.id.to_string()).collect::<Vec<_>>());
    sim.log(format_args!("range {} is split into {names:?}", range.id));
    reshaped(sim, Sometimes::Split).await;
}

/// Merges two adjacent ranges.
pub async fn merge(sim: &Arc<Simulation>, pick: u64) {
    let Ok(ranges) = sim.stores.monitored.feed_ranges().await else { return };
    let pairs: Vec<[&RangeId; 2]> = ranges.windows(2).map(|pair| [&pair[0].id, &pair[1].id]).collect();
    let Some(pair) = pairs.get(usize::try_from(pick % pairs.len().max(1) as u64).unwrap_or_default()) else { return };
    let merged = sim.stores.catalog.merge("sim", "monitored", *pair).await.map(|range| range.id.to_string());
    sim.log(format_args!("ranges {} and {} are merged into {merged:?}", pair[0], pair[1]));
    reshaped(sim, Sometimes::Merge).await;
}

async fn reshaped(sim: &Arc<Simulation>, what: Sometimes) {
    sim.register_ranges().await;
    sim.cover(what);
    sim.wake(Store::Feed, |_| true);
}
