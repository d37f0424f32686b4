//! Checks when nothing goes wrong any more: S1, S13 and the liveness promises L1 to L4.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed_core::FeedRange;

use super::ledger::{Lease, position};
use crate::{
    hosts, nemesis,
    scenario::{CheckpointPlan, LastAct},
    workload::Writer,
    world::World,
};

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(250);

/// How long owners must stay the same, in acquire intervals.
const STEADY_CYCLES: u64 = 20;

/// The quiet phase: everybody is up, nothing fails, and everything must come to its end.
pub async fn quiet_phase(world: &Arc<World>, writer: &mut Writer) {
    nemesis::end(world);
    world.log(format_args!("the quiet phase begins"));
    let plan = &world.scenario.processor;
    let workload = &world.scenario.workload;
    for _ in 0..10 {
        writer.write().await;
    }
    // A killer is met again and again until it is isolated, and every death may have to expire.
    let deaths = if workload.killers > 0 { 12 * (plan.expiration + 10_000) } else { 0 };
    let backlog = world.truth.lock().waiting(&FeedRange::full(), 0).count() as u64 * longest_delivery(world);
    let limit = 3 * plan.expiration + 10 * plan.acquire + 60_000 + deaths + bisections(world) + backlog;
    let started = until(world, limit, || {
        if world.hosts.lock().all_started() {
            return Ok(());
        }
        // One that was stopping when the quiet phase began goes down first.
        (0..world.scenario.hosts.len()).for_each(|host| hosts::start(world, host, false));
        Err("some host is not up".to_owned())
    });
    if !report(world, "L5", "a host did not start", started.await) {
        return;
    }
    if !report(world, "S1", "changes are lost or stuck", until(world, limit, || handled(world)).await) {
        return;
    }
    if !report(world, "L1", "a lease does not catch up", until(world, limit, || caught_up(world)).await) {
        return;
    }
    let cycles = (world.ledger.lock().leases().count() as u64).div_ceil(world.scenario.hosts.len() as u64) + 4;
    let limit = plan.expiration * 2 + cycles * plan.acquire * 5 / 4 + 10_000 + deaths;
    let balanced = until(world, limit, || balance(world));
    if !report(world, "L3", "the leases do not come to rest", balanced.await) {
        return;
    }
    // Requests that were under way when the quiet phase began may still cost a lease.
    let aftermath = world.scenario.chaos + 2 * plan.expiration + world.scenario.network.timeout;
    world.exec.sleep_until(aftermath * 1000).await;
    if !report(world, "L3", "the leases do not stay at rest", until(world, limit, || balance(world)).await) {
        return;
    }
    steady(world, writer).await;
}

/// Owners stay the same, and work goes on.
async fn steady(world: &Arc<World>, writer: &mut Writer) {
    let plan = &world.scenario.processor;
    let moves = world.ledger.lock().moves;
    for _ in 0..5 {
        writer.write().await;
    }
    world.exec.sleep(Duration::from_millis(plan.acquire * STEADY_CYCLES)).await;
    if world.ledger.lock().moves != moves {
        return world.violated("L3", "leases moved although they were balanced".to_owned());
    }
    if let Some(change) = world.truth.lock().unhandled().next() {
        let what = format!("item {} at {} waited for {STEADY_CYCLES} cycles in good times", change.item, change.lsn);
        return world.violated("L1", what);
    }
    if last_act(world, writer).await {
        stop_all(world).await;
    }
}

/// The first host dies or stops: what it leaves behind is taken over in time, and work goes on.
async fn last_act(world: &Arc<World>, writer: &mut Writer) -> bool {
    let plan = &world.scenario.processor;
    // A cycle is spread by a quarter, and clocks are up to five percent wrong.
    let cycle = plan.acquire * 5 / 4 * 20 / 19;
    let trips = (world.ledger.lock().leases().count() as u64 + 4) * 4 * world.scenario.network.slowest_micros / 1000;
    // One cycle to see what the host wrote last, if the store does not tell, and one to see that it is silent.
    let limit = match world.scenario.last_act {
        LastAct::Stay => return true,
        LastAct::Crash => {
            hosts::crash(world, 0);
            plan.expiration * 20 / 19 + 2 * cycle + trips
        }
        LastAct::Stop => {
            hosts::stop(world, 0, false);
            let down = until(world, plan.stop_deadline * 2, || match world.hosts.lock().is_down(0) {
                true => Ok(()),
                false => Err("it is up".to_owned()),
            });
            if !report(world, "L4", "a host does not stop", down.await) {
                return false;
            }
            cycle + trips
        }
    };
    for _ in 0..5 {
        writer.write().await;
    }
    if !report(world, "L2", "a lease is not taken over", until(world, limit, || owned(world)).await) {
        return false;
    }
    let limit = plan.acquire * STEADY_CYCLES + repetition(world);
    report(world, "L1", "work does not go on", until(world, limit, || handled(world)).await)
}

/// The longest that one change may take where changes are delivered one by one.
fn longest_delivery(world: &World) -> u64 {
    world.scenario.delegate.longest + 6 * world.scenario.network.slowest_micros / 1000
}

/// The time to find out which items are poison.
fn bisections(world: &World) -> u64 {
    if world.scenario.workload.poison_per_mille > 0 { 120_000 } else { 0 }
}

/// The time for what was handled and not stored, and is handled again by the next owner.
fn repetition(world: &World) -> u64 {
    if world.scenario.processor.checkpoint == CheckpointPlan::Automatic {
        return 0;
    }
    let (ledger, truth) = (world.ledger.lock(), world.truth.lock());
    let again = |lease: &Lease| {
        let stored = position(lease.document.continuation.as_deref()).unwrap_or(0);
        lease.document.range().map_or(0, |range| truth.shown_after(&range, stored)) as u64
    };
    ledger.leases().map(again).sum::<u64>() * longest_delivery(world) + bisections(world)
}

/// Every lease belongs to a process that lives, or was granted to a host that is up.
fn owned(world: &World) -> Result<(), String> {
    let ledger = world.ledger.lock();
    let hosts = world.hosts.lock();
    let is_granted = |lease: &Lease| {
        let owner = lease.document.owner.as_deref().filter(|_| lease.document.session().is_none());
        owner.is_some_and(|owner| hosts.is_up(owner))
    };
    let free =
        |lease: &&Lease| !is_granted(lease) && ledger.holder(lease).is_none_or(|holder| world.exec.is_dead(holder));
    match ledger.leases().find(free) {
        None => Ok(()),
        Some(lease) => Err(format!("{} of {:?}", lease.document.token, lease.document.owner)),
    }
}

/// Nothing is left to do.
fn handled(world: &World) -> Result<(), String> {
    match world.truth.lock().unhandled().next() {
        None => Ok(()),
        Some(change) => Err(format!("item {} at {} was never handled", change.item, change.lsn)),
    }
}

async fn stop_all(world: &Arc<World>) {
    for host in 0..world.scenario.hosts.len() {
        hosts::stop(world, host, false);
    }
    let limit = world.scenario.processor.stop_deadline * 2;
    let down =
        until(world, limit, || if world.hosts.lock().all_down() { Ok(()) } else { Err("some host is up".to_owned()) });
    if !report(world, "L4", "hosts do not stop", down.await) {
        return;
    }
    let (ledger, truth) = (world.ledger.lock(), world.truth.lock());
    if let Some(lease) = ledger.leases().find(|lease| lease.document.owner.is_some()) {
        let (token, owner) = (&lease.document.token, &lease.document.owner);
        return world.violated("L4", format!("lease {token} still belongs to {owner:?} after all hosts stopped"));
    }
    for lease in ledger.leases() {
        let (Some(range), at) = (lease.document.range(), position(lease.document.continuation.as_deref())) else {
            continue;
        };
        if !world.scenario.is_manual() && truth.owed_after(&range, at.unwrap_or(0)) {
            let what = format!("the checkpoint {at:?} of lease {} does not say what was handled", lease.document.token);
            return world.violated("L4", what);
        }
    }
    if let Some(change) = truth.unburied().next() {
        let what = format!("item {} at {} cannot be handled, and is no dead letter", change.item, change.lsn);
        world.violated("S13", what);
    }
}

/// Nothing waits behind any checkpoint.
fn caught_up(world: &World) -> Result<(), String> {
    let (ledger, truth) = (world.ledger.lock(), world.truth.lock());
    for lease in ledger.leases() {
        let (Some(range), at) = (lease.document.range(), position(lease.document.continuation.as_deref())) else {
            continue;
        };
        // Where a lease without a checkpoint begins is written elsewhere; what it owes was checked before.
        if let Some(change) = at.and_then(|at| truth.waiting(&range, at).next()) {
            return Err(format!("item {} at {} waits for lease {}", change.item, change.lsn, lease.document.token));
        }
    }
    Ok(())
}

/// Everybody has the same number of leases, give or take one.
fn balance(world: &World) -> Result<(), String> {
    let ledger = world.ledger.lock();
    ledger.is_tidy()?;
    let hosts = world.hosts.lock();
    let mut counts: BTreeMap<&str, usize> = hosts.names().map(|name| (&**name, 0)).collect();
    for lease in ledger.leases() {
        let document = &lease.document;
        match document.owner.as_deref().filter(|_| document.session().is_some()) {
            Some(owner) => *counts.entry(owner).or_default() += 1,
            None => return Err(format!("lease {} has no owner", document.token)),
        }
    }
    let (least, most) = (counts.values().min().copied(), counts.values().max().copied());
    match (least, most) {
        (Some(least), Some(most)) if most > least + 1 => Err(format!("the leases are spread as {counts:?}")),
        _ => Ok(()),
    }
}

/// Waits until something is so; what is not, if it takes too long.
async fn until(world: &World, millis: u64, mut look: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let end = world.exec.now() + millis * 1000;
    loop {
        match look() {
            Ok(()) => return Ok(()),
            Err(problem) if world.exec.now() >= end => return Err(problem),
            Err(_) => world.exec.sleep(LOOK).await,
        }
    }
}

fn report(world: &World, check: &'static str, promise: &str, outcome: Result<(), String>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(problem) => {
            world.violated(check, format!("{promise}: {problem}"));
            false
        }
    }
}
