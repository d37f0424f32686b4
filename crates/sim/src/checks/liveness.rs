//! Checks of the quiet phase, in which no fault lasts: S1, S13 and the liveness rules L1 to L5.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{key_range::KeyRange, lease::Lease, limits::READ_UNITS};
use crate::{
    documents,
    host::LONGEST_REQUEST,
    hosts, nemesis, operator,
    scenario::{CheckpointPlan, FaultKind, FinalStep, OperatorCommand},
    simulation::Simulation,
    workload::Writer,
};

/// How often a condition is checked.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long owners must stay the same, in acquire intervals.
const STEADY_CYCLES: u64 = 20;

/// The quiet phase: all hosts are up, nothing fails, and all work must be completed.
pub async fn quiet_phase(sim: &Arc<Simulation>, writer: &mut Writer) {
    nemesis::end(sim);
    sim.log(format_args!("the quiet phase begins"));
    // What a host reports about leases without ranges that it cannot resolve, an operator does.
    documents::write_ranges(sim).await;
    let plan = sim.scenario.slowest_timing();
    let pauses = |kind: &FaultKind| matches!(kind, FaultKind::Operator(OperatorCommand::Pause { .. }));
    if sim.scenario.faults.iter().any(|fault| pauses(&fault.kind)) {
        operator::resume_all(sim).await;
    }
    if sim.scenario.processor.dead_letter_after.is_none() {
        writer.repair().await;
        // Pages that hosts have already read still hold the old versions.
        if sim.scenario.workload.unparsable_per_mille > 0 {
            for host in 0..sim.scenario.hosts.len() {
                nemesis::restart(sim, host).await;
            }
        }
    }
    for _ in 0..10 {
        writer.write().await;
    }
    let limit = limit(sim);
    let started = until(sim, limit, || {
        if sim.hosts.lock().all_started() {
            return Ok(());
        }
        // One that was stopping when the quiet phase began goes down first.
        (0..sim.scenario.hosts.len()).for_each(|host| hosts::start(sim, host, false));
        Err("some host is not up".to_owned())
    });
    if !report(sim, "L5", "a host did not start", started.await) {
        return;
    }
    if !report(sim, "S1", "changes are lost or stuck", until(sim, limit, || handled(sim)).await) {
        return;
    }
    if !report(sim, "L1", "a lease does not catch up", until(sim, limit, || caught_up(sim)).await) {
        return;
    }
    let cycles = (sim.leases.lock().leases().count() as u64).div_ceil(sim.scenario.hosts.len() as u64) + 4;
    let expiration = sim.scenario.longest_expiration();
    let limit = expiration * 2 + cycles * plan.acquire * 5 / 4 + 10_000 + crashes(sim) + long_calls(sim);
    let balanced = until(sim, limit, || balance(sim).and_then(|()| owned(sim)));
    if !report(sim, "L3", "the leases are not balanced", balanced.await) {
        return;
    }
    // Requests that were sent before the quiet phase may still cost a lease. Reads that began before it may still hang,
    // and calls still run, although nothing waits for them, since there is nothing new or it was deleted meanwhile.
    let hanging = if sim.scenario.has_hanging_reads() { LONGEST_REQUEST } else { 0 };
    let late = (2 * expiration + sim.scenario.network.timeout).max(hanging + long_calls(sim));
    let aftermath = sim.scenario.chaos + late;
    sim.exec.sleep_until(aftermath * 1000).await;
    // A command that was given before the quiet phase still moves leases. One that waits for an answer in vain moves none.
    let commands = until(sim, limit, || match *sim.commands.lock() {
        0 => Ok(()),
        running => Err(format!("{running} commands are being carried out")),
    });
    drop(commands.await);
    if !report(sim, "L3", "the leases do not stay balanced", until(sim, limit, || balance(sim)).await) {
        return;
    }
    steady(sim, writer).await;
}

/// Owners stay the same, and work continues.
async fn steady(sim: &Arc<Simulation>, writer: &mut Writer) {
    let cycle = sim.scenario.slowest_timing().acquire;
    if sim.scenario.processor.checkpoint == CheckpointPlan::Automatic {
        // After a reset everything is delivered again, and new changes have to wait for that.
        drop(until(sim, repetition(sim), || delivered_again(sim)).await);
    }
    let tokens = || -> Vec<String> { sim.leases.lock().leases().map(|lease| lease.document.token.clone()).collect() };
    let length = (cycle * STEADY_CYCLES).max(4 * read_time(sim));
    loop {
        // A host that has crashed takes its leases back, and nothing says that they were not balanced meanwhile.
        let back = 2 * sim.scenario.slowest_timing().expiration;
        drop(until(sim, back, || owners_live(sim)).await);
        let (before, processes) = (tokens(), sim.hosts.lock().processes());
        let moves = sim.leases.lock().moves;
        for _ in 0..5 {
            writer.write().await;
        }
        sim.exec.sleep(Duration::from_millis(length)).await;
        if sim.leases.lock().moves == moves {
            break;
        }
        // A seek that was slow brings back items that crash processes.
        if tokens() == before && sim.hosts.lock().processes() == processes {
            return sim.violated("L3", "leases moved although they were balanced".to_owned());
        }
        // A read that hung has hidden a split until now.
    }
    // Where the user checkpoints, what is delivered again after a reset or a crash was not waited for above.
    let resets = |kind: &FaultKind| matches!(kind, FaultKind::Operator(OperatorCommand::Reset));
    let repeats = sim.scenario.workload.killers > 0 || sim.scenario.faults.iter().any(|fault| resets(&fault.kind));
    let again = if sim.scenario.is_manual() && repeats { repetition(sim) } else { 0 };
    let rule = format!("a change waited for {STEADY_CYCLES} cycles without faults");
    if !report(sim, "L1", &rule, until(sim, again, || handled(sim)).await) {
        return;
    }
    if final_step(sim, writer).await {
        stop_all(sim).await;
    }
}

/// The first host crashes, stops or is dropped: its leases are taken over in time, and work continues.
async fn final_step(sim: &Arc<Simulation>, writer: &mut Writer) -> bool {
    let plan = sim.scenario.slowest_timing();
    // A cycle is spread by a quarter, and clocks are up to five percent wrong.
    let cycle = plan.acquire * 5 / 4 * 20 / 19;
    let trips = (sim.leases.lock().leases().count() as u64 + 4) * 4 * sim.scenario.network.slowest_micros / 1000;
    // One cycle to see the last write of the host, if the store does not wake readers, and one to see its silence.
    let expired = plan.expiration * 20 / 19 + 2 * cycle + trips;
    let limit = match sim.scenario.final_step {
        FinalStep::Stay => return true,
        FinalStep::Crash => {
            hosts::crash(sim, 0);
            expired
        }
        FinalStep::Drop => {
            hosts::drop_running(sim, 0);
            sim.exec.sleep(INTERVAL).await;
            expired
        }
        FinalStep::Stop => {
            hosts::stop(sim, 0, false);
            let down = until(sim, sim.scenario.processor.stop_deadline * 2, || match sim.hosts.lock().is_down(0) {
                true => Ok(()),
                false => Err("it is up".to_owned()),
            });
            if !report(sim, "L4", "a host does not stop", down.await) {
                return false;
            }
            cycle + trips
        }
    };
    for _ in 0..5 {
        writer.write().await;
    }
    if !report(sim, "L2", "a lease is not taken over", until(sim, limit, || owned(sim)).await) {
        return false;
    }
    let limit = (plan.acquire * STEADY_CYCLES).max(4 * read_time(sim)) + repetition(sim);
    report(sim, "L1", "work does not continue", until(sim, limit, || handled(sim)).await)
}

/// How long it may take until everything is handled, in milliseconds.
fn limit(sim: &Simulation) -> u64 {
    let plan = sim.scenario.slowest_timing();
    let (full, oracle) = (KeyRange::full(), sim.oracle.lock());
    let waiting = oracle.waiting(&full, 0).count().max(oracle.unhandled().count()) as u64;
    drop(oracle);
    // After a crash they may be read one by one.
    let isolates = sim.scenario.processor.dead_letter_after.is_some();
    let items = if isolates { 1 } else { sim.scenario.processor.max_items as u64 };
    let reads = (20 + waiting / items) * read_time(sim);
    let backlog = waiting * longest_delivery(sim) + reads;
    let expiration = sim.scenario.longest_expiration();
    3 * expiration
        + 10 * plan.acquire
        + 60_000
        + crashes(sim)
        + bisections(sim)
        + backlog
        + long_calls(sim)
        + repetition(sim)
}

/// The time of calls that began before the quiet phase.
fn long_calls(sim: &Simulation) -> u64 {
    2 * sim.scenario.delegate.long
}

/// The time to isolate an item that crashes processes: every crash may have to expire.
fn crashes(sim: &Simulation) -> u64 {
    let expiration = sim.scenario.longest_expiration();
    if sim.scenario.workload.killers > 0 { 12 * (expiration + 10_000) } else { 0 }
}

/// The longest time that one change may take where changes are delivered one by one.
fn longest_delivery(sim: &Simulation) -> u64 {
    sim.scenario.delegate.longest + 6 * sim.scenario.network.slowest_micros / 1000
}

/// How long a read may take: on its way, or because all leases wait for request units in turn.
fn read_time(sim: &Simulation) -> u64 {
    let leases = sim.leases.lock().leases().count() as u64;
    // A read with the most changes costs less than this.
    let units = READ_UNITS as u64 * 6;
    let limited = sim.scenario.processor.max_request_units_per_second.map_or(0, |limit| leases * units * 1000 / limit);
    sim.scenario.network.slow_reads + limited
}

/// The time to find items that cannot be handled.
fn bisections(sim: &Simulation) -> u64 {
    let workload = &sim.scenario.workload;
    if workload.poison_per_mille + workload.unparsable_per_mille > 0 { 120_000 } else { 0 }
}

/// The time for changes that were handled and not checkpointed, and are handled again by the next owner.
fn repetition(sim: &Simulation) -> u64 {
    let read = read_time(sim);
    let (leases, oracle) = (sim.leases.lock(), sim.oracle.lock());
    let again = |lease: &Lease| {
        let stored = lease.document.position().unwrap_or(0);
        lease.range.as_ref().map_or(0, |range| oracle.shown_after(range, stored)) as u64
    };
    let items = leases.leases().map(again).sum::<u64>();
    // After a crash they may be read one by one.
    items * (longest_delivery(sim) + read) + bisections(sim)
}

/// No lease has changes before it, handled or not.
fn delivered_again(sim: &Simulation) -> Result<(), String> {
    let (leases, oracle) = (sim.leases.lock(), sim.oracle.lock());
    let behind = |lease: &&Lease| {
        let stored = lease.document.position().unwrap_or(0);
        lease.range.as_ref().is_some_and(|range| oracle.shown_after(range, stored) > 0)
    };
    match leases.leases().find(behind) {
        None => Ok(()),
        Some(lease) => Err(format!("lease {} is behind", lease.document.token)),
    }
}

/// Every lease is held by a process that is alive, or was granted to a host that is up.
fn owned(sim: &Simulation) -> Result<(), String> {
    let leases = sim.leases.lock();
    let hosts = sim.hosts.lock();
    let gone = |process| sim.exec.is_dead(process) || leases.dropped_at(process).is_some();
    let is_owned = |lease: &Lease| match lease.holder {
        Some(holder) => !gone(holder),
        None => lease.document.owner.as_deref().is_some_and(|owner| hosts.is_up(owner)),
    };
    match leases.leases().find(|lease| !is_owned(lease)) {
        None => Ok(()),
        Some(lease) => Err(format!("{} of {:?}", lease.document.token, lease.document.owner)),
    }
}

/// Everything that is owed was handled.
fn handled(sim: &Simulation) -> Result<(), String> {
    match sim.oracle.lock().unhandled().next() {
        None => Ok(()),
        Some(change) => {
            let again = if change.due_since.is_some() { " again after a seek" } else { "" };
            Err(format!("item {} at {} was not handled{again}", change.item, change.lsn))
        }
    }
}

async fn stop_all(sim: &Arc<Simulation>) {
    for host in 0..sim.scenario.hosts.len() {
        hosts::stop(sim, host, false);
    }
    let limit = sim.scenario.processor.stop_deadline * 2;
    let down =
        until(sim, limit, || if sim.hosts.lock().all_down() { Ok(()) } else { Err("some host is up".to_owned()) });
    if !report(sim, "L4", "hosts do not stop", down.await) {
        return;
    }
    let (leases, oracle) = (sim.leases.lock(), sim.oracle.lock());
    if let Some(lease) = leases.leases().find(|lease| lease.document.owner.is_some()) {
        let (token, owner) = (&lease.document.token, &lease.document.owner);
        return sim.violated("L4", format!("lease {token} still belongs to {owner:?} after all hosts stopped"));
    }
    for lease in leases.leases() {
        let (Some(range), at) = (&lease.range, lease.document.position()) else { continue };
        if !sim.scenario.is_manual() && oracle.owed_after(range, at.unwrap_or(0)) {
            let what = format!("the checkpoint {at:?} of lease {} is behind what was handled", lease.document.token);
            return sim.violated("L4", what);
        }
    }
    if let Some(change) = oracle.without_dead_letter().next() {
        let what = format!("item {} at {} cannot be handled, and is no dead letter", change.item, change.lsn);
        sim.violated("S13", what);
    }
}

/// Nothing waits behind any checkpoint.
fn caught_up(sim: &Simulation) -> Result<(), String> {
    let (leases, oracle) = (sim.leases.lock(), sim.oracle.lock());
    for lease in leases.leases() {
        let (Some(range), at) = (&lease.range, lease.document.position()) else { continue };
        // Where a lease without a checkpoint begins is written elsewhere; S1 was checked before.
        if let Some(change) = at.and_then(|at| oracle.waiting(range, at).next()) {
            return Err(format!("item {} at {} waits for lease {}", change.item, change.lsn, lease.document.token));
        }
    }
    Ok(())
}

/// All hosts have the same number of leases, give or take one.
fn balance(sim: &Simulation) -> Result<(), String> {
    let leases = sim.leases.lock();
    leases.is_tidy()?;
    let hosts = sim.hosts.lock();
    let mut counts: BTreeMap<&str, usize> = hosts.names().map(|name| (&**name, 0)).collect();
    for lease in leases.leases() {
        let document = &lease.document;
        match document.owner.as_deref().filter(|_| lease.holder.is_some()) {
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

/// Whether the processes that hold the leases live.
fn owners_live(sim: &Simulation) -> Result<(), String> {
    let leases = sim.leases.lock();
    match leases.leases().find(|lease| lease.holder.is_some_and(|holder| sim.exec.is_dead(holder))) {
        None => Ok(()),
        Some(lease) => Err(format!("the owner of lease {} has crashed", lease.document.token)),
    }
}

/// Waits until a condition holds; returns what is wrong if it takes too long.
async fn until(sim: &Simulation, millis: u64, mut check: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let end = sim.exec.now() + millis * 1000;
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(problem) if sim.exec.now() >= end => return Err(problem),
            Err(_) => sim.exec.sleep(INTERVAL).await,
        }
    }
}

fn report(sim: &Simulation, check: &'static str, rule: &str, outcome: Result<(), String>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(problem) => {
            sim.violated(check, format!("{rule}: {problem}"));
            false
        }
    }
}
