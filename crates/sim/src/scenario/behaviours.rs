//! Behaviours of users, operators, stores and neighbours: each is on or off for a whole run (swarm testing), so that
//! each meets the others in many combinations, and a run with few of them stays readable.

use super::{
    BootstrapPlan, CheckpointPlan, Damage, Fault, FaultKind, FinalStep, LegacyPlan, NeighbourKind, NeighbourPlan,
    OperatorCommand, Scenario, SeekTarget, Store, StoreFault, Timing,
};
use crate::rng::Rng;

macro_rules! behaviours {
    ($($(#[$doc:meta])* $name:ident $per_mille:literal,)*) => {
        /// Something that a run does or does not do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Behaviour { $($(#[$doc])* $name,)* }

        impl Behaviour {
            /// All of them, and how often in a thousand seeds each is on.
            pub const ALL: &'static [(Self, u64)] = &[$((Self::$name, $per_mille),)*];

            /// The behaviour with this name.
            pub fn by_name(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$name),)* _ => None }
            }
        }
    };
}

behaviours! {
    /// Typed delegates, and items that do not parse.
    Typed 150,
    /// Manual checkpoints: early, late, from kept contexts, never.
    ManualCheckpoints 120,
    /// Calls longer than the expiration, without a timeout.
    LongCalls 150,
    /// Delegates that watch `cancelled`.
    WatchCancelled 120,
    /// Contexts that outlive their call, and hosts that are dropped without a stop.
    DroppedHosts 100,
    /// Operators pause and resume leases.
    Pauses 120,
    /// Operators move leases.
    Seeks 120,
    /// Operators reset the processor.
    Resets 30,
    /// Feed reads that take longer than a host may work without a renewal.
    SlowReads 60,
    /// Feed reads that never return.
    HungReads 80,
    /// Stores that panic.
    StorePanics 80,
    /// Hosts of the .NET SDK beside ours.
    DotNetNeighbours 120,
    /// Hosts of the version before beside ours.
    PreviousNeighbours 100,
    /// Leases of an old .NET fleet, reshaped while no host ran.
    LegacyLeases 80,
    /// Hosts with different intervals in one fleet.
    MixedTimings 80,
    /// Rolling deployments, with new instance names.
    RollingDeploys 120,
    /// Machines that sleep.
    Suspends 60,
    /// Two documents for one lease token.
    DuplicateDocuments 50,
    /// Damaged lease documents.
    DamagedDocuments 50,
    /// Deployments whose type fits no item.
    MismatchedTypes 60,
    /// Delegates that ask for all their items again.
    RetryMany 60,
    /// Lease containers partitioned by `/partitionKey`.
    PartitionKeyContainers 100,
    /// The option of a forced steal.
    ForcedSteal 60,
    /// Limits of what a host may use: concurrent calls, bytes in flight, request units.
    Limits 150,
    /// Operators delete the lease container and create it again.
    RecreatedLeases 200,
    /// Leases that .NET hosts have created, without continuations.
    DotNetBootstrap 120,
}

impl Behaviour {
    /// The behaviours that a seed switches on.
    pub fn of_seed(seed: u64) -> Vec<Self> {
        let rng = &mut Rng::new(seed, "behaviours");
        Self::ALL.iter().filter(|(_, per_mille)| rng.chance(*per_mille)).map(|(behaviour, _)| *behaviour).collect()
    }
}

impl Scenario {
    /// The scenario of a seed, with behaviours that the seed switches on.
    pub fn from_seed(seed: u64) -> Self {
        Self::with(seed, &Behaviour::of_seed(seed))
    }

    /// The scenario of a seed with exactly these behaviours.
    pub fn with(seed: u64, on: &[Behaviour]) -> Self {
        let mut scenario = Self::basic(seed);
        for behaviour in on {
            // A stream for each, so that one does not change what another draws.
            let rng = Rng::new(seed, &format!("behaviour {behaviour:?}"));
            Apply { rng, planned: scenario.is_planned_only(), scenario: &mut scenario }.apply(*behaviour);
        }
        scenario.resolve_conflicts();
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    /// Leaves out combinations in which no rule says what is right.
    fn resolve_conflicts(&mut self) {
        let moves = |fault: &Fault| {
            matches!(fault.kind, FaultKind::Operator(OperatorCommand::Seek { .. } | OperatorCommand::Reset))
        };
        // A document that is lost after a seek that failed half-way begins at the start of the processor; one of an old
        // fleet that is lost leaves keys that no remaining document names.
        if self.faults.iter().any(moves) || self.legacy.is_some() {
            self.faults.retain(|fault| {
                !matches!(
                    fault.kind,
                    FaultKind::DeleteLease { .. } | FaultKind::DamageLease { .. } | FaultKind::DuplicateLease { .. }
                )
            });
        }
        // A host that starts in an empty container begins where it is told to; hosts of other kinds do not follow; what a
        // move or a search has left in a document is lost with it.
        if !self.processor.from_beginning
            || self.legacy.is_some()
            || self.dotnet_bootstrap.is_some()
            || !self.neighbours.is_empty()
            || self.faults.iter().any(moves)
        {
            self.faults.retain(|fault| !matches!(fault.kind, FaultKind::RecreateLeases { .. }));
        }
        // One fleet comes first.
        if self.legacy.is_some() {
            self.dotnet_bootstrap = None;
        }
        // Without a dead-letter container, an old version that does not parse is never passed.
        if self.processor.all_versions && self.processor.dead_letter_after.is_none() {
            self.workload.unparsable_per_mille = 0;
        }
        // A page that is read or delivered for minutes keeps all other leases of its host waiting, as the user wants.
        if self.network.slow_reads > 0 || self.delegate.long > 0 || self.has_hanging_reads() {
            let limits = &mut self.processor;
            (limits.max_concurrent_calls, limits.max_bytes_in_flight) = (None, None);
        }
        // A graceful stop waits for the longest call.
        if self.processor.all_versions {
            self.legacy = None;
        }
        if self.is_planned_only() && !self.delegate.watches_cancelled {
            self.processor.stop_deadline = self.processor.stop_deadline.max(self.delegate.long * 2);
        }
    }
}

struct Apply<'a> {
    scenario: &'a mut Scenario,
    rng: Rng,
    /// Whether the run had only planned events before.
    planned: bool,
}

impl Apply<'_> {
    fn apply(&mut self, behaviour: Behaviour) {
        let expiration = self.scenario.processor.expiration;
        match behaviour {
            Behaviour::Typed => self.typed(),
            Behaviour::ManualCheckpoints => self.manual(),
            Behaviour::LongCalls => self.long_calls(),
            Behaviour::WatchCancelled => {
                if self.scenario.delegate.long == 0 {
                    self.long_calls();
                }
                self.scenario.delegate.watches_cancelled = true;
                self.scenario.processor.stop_deadline = self.rng.pick(&[5000, 15_000]);
            }
            Behaviour::DroppedHosts => {
                self.scenario.delegate.keeps_contexts = true;
                if self.scenario.hosts.len() > 1 && self.rng.chance(400) {
                    self.scenario.final_step = FinalStep::Drop;
                }
                self.faults(3, |apply| FaultKind::Drop { host: apply.host(), down: expiration + apply.length() });
            }
            Behaviour::Pauses => self.pauses(),
            Behaviour::Seeks => self.seeks(),
            Behaviour::Resets => self.reset(),
            Behaviour::SlowReads => {
                self.scenario.network.slow_reads = (expiration * self.rng.between(9, 15) / 10).min(58_000);
                self.scenario.processor.max_items = 100;
                self.scenario.delegate.long_per_mille = 0;
            }
            Behaviour::HungReads => self.faults(2, |apply| {
                let (store, host) = (Store::Feed, apply.rng.chance(600).then(|| apply.host()));
                let kind =
                    if apply.rng.chance(700) { StoreFault::HungReads } else { StoreFault::SlowReads(expiration) };
                FaultKind::StoreFault { store, host, kind, length: 90_000 + apply.rng.below(200_000) }
            }),
            Behaviour::StorePanics => self.scenario.network.panics = self.rng.pick(&[10, 50, 300]),
            Behaviour::DotNetNeighbours => self.neighbours(NeighbourKind::DotNet),
            Behaviour::PreviousNeighbours => self.neighbours(NeighbourKind::Previous),
            Behaviour::LegacyLeases => self.legacy(),
            Behaviour::MixedTimings => self.mixed_timings(),
            Behaviour::RollingDeploys => {
                self.scenario.new_names = self.rng.chance(700);
                self.faults(2, |apply| FaultKind::RollingDeploy { pause: apply.length() });
            }
            Behaviour::Suspends => {
                self.faults(3, |apply| FaultKind::Suspend { host: apply.host(), length: apply.length() });
            }
            Behaviour::DuplicateDocuments => {
                self.faults(2, |apply| FaultKind::DuplicateLease { pick: apply.rng.number() });
            }
            Behaviour::DamagedDocuments => self.faults(3, |apply| {
                let damage = apply.rng.pick(&[
                    Damage::Unreadable,
                    Damage::NoProperties,
                    Damage::NoFeedRange,
                    Damage::UnknownOwner,
                    Damage::BadNumbers,
                ]);
                FaultKind::DamageLease { pick: apply.rng.number(), damage, length: apply.length() }
            }),
            Behaviour::MismatchedTypes => {
                self.scenario.delegate.typed = true;
                self.scenario.processor.dead_letter_after.get_or_insert(2);
                self.faults(2, |apply| FaultKind::Mismatch { host: apply.host(), length: expiration + apply.length() });
            }
            Behaviour::RetryMany => {
                self.scenario.processor.max_items = self.scenario.processor.max_items.max(10);
                self.scenario.delegate.retry_all_per_mille = self.rng.between(20, 200);
            }
            Behaviour::PartitionKeyContainers => self.scenario.leases_by_partition_key = true,
            Behaviour::ForcedSteal => self.scenario.processor.forced_steal = true,
            Behaviour::Limits => self.limits(),
            Behaviour::DotNetBootstrap => self.dotnet_bootstrap(),
            Behaviour::RecreatedLeases => {
                self.faults(2, |apply| FaultKind::RecreateLeases { length: apply.rng.pick(&[0, 100, expiration]) });
            }
        }
    }

    fn faults(&mut self, most: u64, mut draw: impl FnMut(&mut Self) -> FaultKind) {
        for _ in 0..self.rng.between(1, most) {
            let (at, kind) = (self.rng.below(self.scenario.chaos), draw(self));
            self.scenario.faults.push(Fault { at, kind });
        }
    }

    fn host(&mut self) -> usize {
        usize::try_from(self.rng.below(self.scenario.hosts.len() as u64)).unwrap_or_default()
    }

    fn length(&mut self) -> u64 {
        let expiration = self.scenario.processor.expiration;
        let up_to = self.rng.pick(&[expiration / 4, expiration, expiration * 2]);
        self.rng.between(100, up_to)
    }

    fn one_or_all(&mut self) -> Option<u64> {
        let pick = self.rng.number();
        self.rng.chance(600).then_some(pick)
    }

    fn typed(&mut self) {
        self.scenario.delegate.typed = true;
        if self.rng.chance(850) {
            let most = if self.scenario.processor.all_versions { 20 } else { 50 };
            self.scenario.workload.unparsable_per_mille = self.rng.between(1, most);
        }
    }

    fn limits(&mut self) {
        let processor = &mut self.scenario.processor;
        processor.max_concurrent_calls = self.rng.chance(600).then(|| self.rng.pick(&[1, 1, 2, 3]));
        processor.max_bytes_in_flight = self.rng.chance(600).then(|| self.rng.between(1, 2000));
        processor.max_request_units_per_second = self.rng.chance(600).then(|| self.rng.between(1, 4));
    }

    fn manual(&mut self) {
        let late = self.rng.between(100, self.scenario.processor.expiration);
        self.scenario.processor.checkpoint = self.rng.pick(&[
            CheckpointPlan::Manual(1),
            CheckpointPlan::Manual(3),
            CheckpointPlan::Lagging,
            CheckpointPlan::Early,
            CheckpointPlan::Early,
            CheckpointPlan::Late(late),
            CheckpointPlan::Never,
        ]);
    }

    fn long_calls(&mut self) {
        let expiration = self.scenario.slowest_timing().expiration;
        let delegate = &mut self.scenario.delegate;
        delegate.long_per_mille = self.rng.pick(&[10, 30, 100]);
        delegate.long = expiration * self.rng.between(11, 30) / 10;
        self.scenario.processor.delegate_timeout = None;
        delegate.never_per_mille = 0;
        // Some hundreds of long calls would make the run longer, not better.
        self.scenario.processor.max_items = self.scenario.processor.max_items.max(10);
    }

    fn pauses(&mut self) {
        let expiration = self.scenario.processor.expiration;
        let failing = !self.planned && self.rng.chance(600);
        for _ in 0..self.rng.between(1, 4) {
            let at = self.rng.below(self.scenario.chaos);
            let (pick, length) = (self.one_or_all(), self.length() + 3 * expiration);
            let kind = FaultKind::Operator(OperatorCommand::Pause { pick, length });
            self.scenario.faults.push(Fault { at, kind });
            if failing {
                let at = at.saturating_sub(self.rng.below(expiration));
                self.scenario
                    .faults
                    .push(Fault { at, kind: FaultKind::DelegateOutage { length: length + expiration } });
            }
        }
    }

    fn seeks(&mut self) {
        let all_versions = self.scenario.processor.all_versions;
        let with_split = self.rng.chance(500);
        for _ in 0..self.rng.between(1, 3) {
            let (at, part) = (self.rng.below(self.scenario.chaos), self.rng.below(1000));
            let to = match self.rng.below(8) {
                0 | 1 if !all_versions => SeekTarget::Beginning,
                2 | 3 if !all_versions => SeekTarget::Time(part),
                4 => SeekTarget::Now,
                _ => SeekTarget::Continuation(part),
            };
            let pick = if with_split { None } else { self.one_or_all() };
            self.scenario.faults.push(Fault { at, kind: FaultKind::Operator(OperatorCommand::Seek { pick, to }) });
            if with_split {
                // A split is noticed within a poll interval, while the seek moves lease after lease: often enough only if
                // that interval is not much longer than both take.
                let poll = self.scenario.processor.poll.min(1000);
                self.scenario.processor.poll = poll;
                for _ in 0..3 {
                    let before = self.rng.below(poll);
                    let kind = FaultKind::Split { pick: self.rng.number() };
                    self.scenario.faults.push(Fault { at: at.saturating_sub(before), kind });
                }
                (self.scenario.network.fastest_micros, self.scenario.network.slowest_micros) = (5000, 100_000);
            }
        }
    }

    fn reset(&mut self) {
        let (at, timing) = (self.rng.below(self.scenario.chaos), &self.scenario.processor);
        let (expiration, acquire) = (timing.expiration, timing.acquire);
        let mut add = |at: u64, command| self.scenario.faults.push(Fault { at, kind: FaultKind::Operator(command) });
        add(at, OperatorCommand::Reset);
        // A seek that hosts have read, and one back that they had no time to read.
        if self.rng.chance(700) {
            let (before, long_before) = (self.rng.between(500, acquire.max(1000)), expiration * self.rng.between(1, 4));
            let (back, forth) = (self.rng.below(400), self.rng.between(700, 1000));
            for (before, part) in [(long_before, forth), (before, back)] {
                let to = SeekTarget::Continuation(part);
                add(at.saturating_sub(before), OperatorCommand::Seek { pick: None, to });
            }
        }
    }

    fn neighbours(&mut self, kind: NeighbourKind) {
        let chaos = self.scenario.chaos;
        for _ in 0..self.rng.between(1, 2) {
            let starts_at = self.rng.below(chaos / 2);
            let leaves_at = self.rng.between(chaos / 2, chaos);
            let crashes = !self.planned && self.rng.chance(300);
            self.scenario.neighbours.push(NeighbourPlan { kind, starts_at, leaves_at, crashes });
        }
        // A .NET host needs some cycles of 13 s to do anything.
        self.scenario.chaos = chaos.max(200_000);
        self.scenario.workload.pause = self.scenario.workload.pause.max(self.scenario.chaos / 600);
        if kind == NeighbourKind::DotNet && self.rng.chance(600) {
            self.tombstones();
        }
    }

    /// Splits while deletes are refused: .NET hosts acquire the tombstones that are left, and split them again when their
    /// children are split.
    fn tombstones(&mut self) {
        let (begin, length) = (self.rng.below(self.scenario.chaos / 2), self.rng.between(60_000, 120_000));
        let kind = StoreFault::NoDeletes;
        let kind = FaultKind::StoreFault { store: Store::Leases, host: None, kind, length };
        self.scenario.faults.push(Fault { at: begin, kind });
        for _ in 0..self.rng.between(2, 5) {
            let (at, kind) = (begin + self.rng.below(length), FaultKind::Split { pick: self.rng.number() });
            self.scenario.faults.push(Fault { at, kind });
        }
    }

    fn legacy(&mut self) {
        let reshaped = (0..self.rng.between(0, 3)).map(|_| (self.rng.number(), self.rng.chance(300))).collect();
        let (ran, writes) = (self.rng.between(1000, 20_000), u32::try_from(self.rng.below(20)).unwrap_or(0));
        self.scenario.workload.before = self.scenario.workload.before.max(5);
        self.scenario.legacy = Some(LegacyPlan { ran, reshaped, writes });
    }

    fn dotnet_bootstrap(&mut self) {
        let at_time = !self.scenario.processor.all_versions && self.rng.chance(300);
        let (idle, writes) = (self.rng.between(100, 20_000), u32::try_from(self.rng.below(20)).unwrap_or(0));
        self.scenario.dotnet_bootstrap = Some(BootstrapPlan { at_time, idle, writes });
        // It may run on beside ours.
        let first = self.scenario.neighbours.iter_mut().find(|neighbour| neighbour.kind == NeighbourKind::DotNet);
        if let Some(first) = first.filter(|_| self.rng.chance(500)) {
            first.starts_at = 0;
        }
    }

    fn mixed_timings(&mut self) {
        let fast = Timing { acquire: 1000, renew: 2000, expiration: 8000 };
        let slow = Timing { acquire: 13_000, renew: 17_000, expiration: 60_000 };
        let choices = [Some(fast), Some(slow), None];
        for host in &mut self.scenario.hosts {
            host.timing = self.rng.pick(&choices);
        }
    }
}
