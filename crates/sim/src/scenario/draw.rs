//! Draws the basic part of a scenario from a seed. Each class of faults is on or off for a whole run.

use super::{
    CheckpointPlan, DelegatePlan, Fault, FaultKind, FinalStep, HostPlan, NetworkPlan, ProcessorPlan, Scenario, Store,
    StoreFault, WakePlan, WorkloadPlan,
};
use crate::{exec::Order, rng::Rng};

const SECOND: u64 = 1000;

impl Scenario {
    /// The scenario of a seed with faults of machines, networks and stores, and none of the behaviours.
    pub fn basic(seed: u64) -> Self {
        let rng = &mut Rng::new(seed, "scenario");
        let planned = rng.chance(250);
        let processor = processor(rng, planned);
        let chaos = processor.expiration * rng.between(10, 25);
        let hosts = hosts(rng, processor.expiration, planned);
        let network = network(rng, &processor, planned);
        let delegate = delegate(rng, &processor, planned);
        let workload = workload(rng, &processor, chaos, planned);
        let faults = faults(&mut Rng::new(seed, "faults"), &processor, hosts.len(), chaos, planned);
        let order = rng.pick(&[Order::Fifo, Order::Random, Order::Random, Order::Random, Order::Lifo]);
        let ranges = usize::try_from(rng.between(1, 8)).unwrap_or(1);
        let final_step = final_step(&mut Rng::new(seed, "last act"), hosts.len(), planned);
        Self {
            seed,
            order,
            hosts,
            ranges,
            processor,
            network,
            delegate,
            workload,
            faults,
            chaos,
            final_step,
            neighbours: Vec::new(),
            legacy: None,
            dotnet_bootstrap: None,
            leases_by_partition_key: false,
            new_names: false,
        }
    }
}

fn final_step(rng: &mut Rng, hosts: usize, planned: bool) -> FinalStep {
    match rng.below(4) {
        0 if hosts > 1 => FinalStep::Stop,
        1 if hosts > 1 && !planned => FinalStep::Crash,
        _ => FinalStep::Stay,
    }
}

fn processor(rng: &mut Rng, planned: bool) -> ProcessorPlan {
    let (acquire, renew, expiration) = rng.pick(&[(1, 2, 8), (3, 5, 20), (13, 17, 60), (5, 5, 15)]);
    let all_versions = rng.chance(400);
    let checkpoint = match rng.below(10) {
        0 | 1 => CheckpointPlan::Manual(1),
        2 if !planned => CheckpointPlan::Manual(3),
        3 if !planned => CheckpointPlan::Lagging,
        _ => CheckpointPlan::Automatic,
    };
    ProcessorPlan {
        acquire: acquire * SECOND,
        renew: renew * SECOND,
        expiration: expiration * SECOND,
        poll: rng.pick(&[SECOND, 2 * SECOND, 5 * SECOND]),
        max_items: rng.pick(&[1, 3, 10, 10, 100]),
        checkpoint,
        dead_letter_after: rng.chance(500).then(|| u32::try_from(rng.between(1, 4)).unwrap_or(1)),
        all_versions,
        from_beginning: !all_versions && rng.chance(600),
        stop_deadline: rng.pick(&[5, 15, 30]) * SECOND,
        delegate_timeout: rng.chance(400).then(|| expiration * SECOND / 2),
        forced_steal: false,
        max_concurrent_calls: None,
        max_bytes_in_flight: None,
        max_request_units_per_second: None,
    }
}

fn hosts(rng: &mut Rng, expiration: u64, planned: bool) -> Vec<HostPlan> {
    let count = rng.pick(&[1, 2, 2, 3, 3, 4, 5, 6]);
    let together = rng.chance(500);
    let skewed = rng.chance(500);
    (0..count)
        .map(|host| HostPlan {
            starts_at: if together || host == 0 { rng.below(50) } else { rng.below(expiration * 6) },
            timing: None,
            drift_ppm: if skewed { i64::try_from(rng.below(100_000)).unwrap_or(0) - 50_000 } else { 0 },
            offset: if skewed && !planned { i64::try_from(rng.below(240_000)).unwrap_or(0) - 120_000 } else { 0 },
        })
        .collect()
}

fn network(rng: &mut Rng, processor: &ProcessorPlan, planned: bool) -> NetworkPlan {
    let (fastest_micros, slowest_micros) = rng.pick(&[(0, 0), (100, 1000), (1000, 20_000), (5000, 100_000)]);
    let faulty = |rng: &mut Rng, most: u64| if !planned && rng.chance(350) { rng.between(1, most) } else { 0 };
    NetworkPlan {
        fastest_micros,
        slowest_micros,
        tail_per_mille: faulty(rng, 30),
        tail: processor.expiration * 3 / 2,
        timeout: rng.pick(&[processor.renew / 2, processor.renew, processor.expiration / 2]),
        lost_request_per_mille: faulty(rng, 30),
        lost_response_per_mille: faulty(rng, 50),
        throttled_per_mille: faulty(rng, 200),
        wakes: rng.pick(&[WakePlan::Never, WakePlan::After(0), WakePlan::After(30)]),
        slow_reads: 0,
        panics: 0,
    }
}

fn delegate(rng: &mut Rng, processor: &ProcessorPlan, planned: bool) -> DelegatePlan {
    let faulty = |rng: &mut Rng, most: u64| if !planned && rng.chance(300) { rng.between(1, most) } else { 0 };
    let longest = rng.pick(&[0, 5, 200, 1500]);
    DelegatePlan {
        shortest: if longest > 5 { 1 } else { 0 },
        longest,
        fail_per_mille: faulty(rng, 100),
        blame_per_mille: faulty(rng, 100),
        each_per_mille: faulty(rng, 100),
        panic_per_mille: faulty(rng, 30),
        never_per_mille: if processor.delegate_timeout.is_some() { faulty(rng, 10) } else { 0 },
        slow_per_mille: faulty(rng, 10),
        ..DelegatePlan::default()
    }
}

fn workload(rng: &mut Rng, processor: &ProcessorPlan, chaos: u64, planned: bool) -> WorkloadPlan {
    let letters = processor.dead_letter_after.is_some() && !planned;
    // A run has some hundreds of writes, however long it is.
    let writes = rng.pick(&[100, 300, 600]);
    WorkloadPlan {
        keys: u32::try_from(rng.between(1, 24)).unwrap_or(1),
        items_per_key: u32::try_from(rng.between(1, 3)).unwrap_or(1),
        pause: (chaos / writes).max(20),
        burst_per_mille: rng.pick(&[0, 5, 20, 60]),
        before: rng.pick(&[0, 5, 60, 150]),
        delete_per_mille: rng.pick(&[0, 0, 100]),
        batch_per_mille: rng.pick(&[0, 0, 100]),
        poison_per_mille: if letters && rng.chance(600) { rng.between(1, 60) } else { 0 },
        killers: if letters && rng.chance(300) { 1 } else { 0 },
        unparsable_per_mille: 0,
    }
}

/// Draws faults class by class.
struct Draw<'a> {
    rng: &'a mut Rng,
    hosts: u64,
    chaos: u64,
    expiration: u64,
    faults: Vec<Fault>,
}

impl Draw<'_> {
    fn class(&mut self, per_mille: u64, most: u64, mut draw: impl FnMut(&mut Self) -> FaultKind) {
        if !self.rng.chance(per_mille) {
            return;
        }
        for _ in 0..self.rng.between(1, most) {
            let (at, kind) = (self.rng.below(self.chaos), draw(self));
            self.faults.push(Fault { at, kind });
        }
    }

    fn host(&mut self) -> usize {
        usize::try_from(self.rng.below(self.hosts)).unwrap_or_default()
    }

    fn length(&mut self) -> u64 {
        let up_to = self.rng.pick(&[self.expiration / 4, self.expiration, self.expiration * 2]);
        self.rng.between(100, up_to)
    }

    /// A split or merge, and at almost the same moment something else.
    fn around_a_split(&mut self, planned: bool) {
        if !self.rng.chance(300) {
            return;
        }
        for _ in 0..self.rng.between(1, 3) {
            let at = self.rng.below(self.chaos);
            let pick = self.rng.number();
            let kind = if self.rng.chance(700) { FaultKind::Split { pick } } else { FaultKind::Merge { pick } };
            self.faults.push(Fault { at, kind });
            let (host, down) = (self.host(), self.expiration + self.length());
            let kind = match self.rng.below(if planned { 2 } else { 5 }) {
                0 => FaultKind::Stop { host, down },
                1 => FaultKind::Split { pick: self.rng.number() },
                2 => FaultKind::Crash { host, down },
                3 => FaultKind::Stall { host, length: down },
                _ => self.store_fault(Store::Leases),
            };
            let soon = at + self.rng.below(self.expiration / 8);
            self.faults.push(Fault { at: soon, kind });
        }
    }

    fn store_fault(&mut self, store: Store) -> FaultKind {
        let host = self.rng.chance(500).then(|| self.host());
        let slow = self.rng.between(self.expiration / 20, self.expiration);
        let kind = self.rng.pick(&[
            StoreFault::Unavailable,
            StoreFault::Throttled,
            StoreFault::NoAnswers,
            StoreFault::NoRequests,
            StoreFault::Slow(slow),
            StoreFault::Hang,
        ]);
        FaultKind::StoreFault { store, host, kind, length: self.length() }
    }
}

fn faults(rng: &mut Rng, processor: &ProcessorPlan, hosts: usize, chaos: u64, planned: bool) -> Vec<Fault> {
    let mut draw = Draw { rng, hosts: hosts as u64, chaos, expiration: processor.expiration, faults: Vec::new() };
    draw.class(500, 6, |draw| FaultKind::Stop { host: draw.host(), down: draw.length() });
    draw.class(500, 4, |draw| FaultKind::Split { pick: draw.rng.number() });
    draw.class(300, 3, |draw| FaultKind::Merge { pick: draw.rng.number() });
    draw.class(300, 4, |draw| FaultKind::Jump {
        host: draw.host(),
        by: i64::try_from(draw.rng.below(400_000)).unwrap_or(0) - 200_000,
    });
    draw.around_a_split(planned);
    if !planned {
        draw.class(500, 6, |draw| FaultKind::Crash { host: draw.host(), down: draw.length() });
        draw.class(400, 5, |draw| FaultKind::Stall { host: draw.host(), length: draw.length() });
        draw.class(200, 2, |draw| FaultKind::DuplicateInstance { host: draw.host(), length: draw.length() });
        draw.class(400, 4, |draw| draw.store_fault(Store::Leases));
        draw.class(300, 3, |draw| draw.store_fault(Store::Feed));
        if processor.dead_letter_after.is_some() {
            draw.class(300, 2, |draw| draw.store_fault(Store::Letters));
        }
        draw.class(200, 2, |draw| {
            let (store, host, kind) = (Store::Leases, None, StoreFault::NoDeletes);
            FaultKind::StoreFault { store, host, kind, length: draw.length() * 3 }
        });
        draw.class(150, 2, |draw| FaultKind::DeleteLease { pick: draw.rng.number() });
    }
    draw.faults.sort_by_key(|fault| fault.at);
    draw.faults
}
