//! What follows from a scenario: which excuses it gives, and which bounds hold in it.

use super::{
    CheckpointPlan, DelegatePlan, Fault, FaultKind, FinalStep, OperatorCommand, Scenario, Store, StoreFault, Timing,
};

/// How long a host without a promise of its own is given, in milliseconds.
pub const WITHOUT_PROMISE: u64 = 60_000;

impl DelegatePlan {
    /// Whether calls fail only because of the items they are given.
    fn is_healthy(&self) -> bool {
        let failing = self.fail_per_mille + self.blame_per_mille + self.each_per_mille + self.panic_per_mille;
        failing + self.never_per_mille + self.retry_all_per_mille == 0
    }
}

impl Scenario {
    /// Whether nothing happens that could cause a duplicate: stops, starts, splits, merges and pauses only.
    pub fn is_planned_only(&self) -> bool {
        let planned = |fault: &Fault| {
            matches!(
                fault.kind,
                FaultKind::Stop { .. }
                    | FaultKind::Split { .. }
                    | FaultKind::Merge { .. }
                    | FaultKind::Jump { .. }
                    | FaultKind::RollingDeploy { .. }
                    | FaultKind::Operator(OperatorCommand::Pause { .. })
            )
        };
        let clean =
            self.workload.poison_per_mille + self.workload.unparsable_per_mille == 0 && self.workload.killers == 0;
        let alive = matches!(self.final_step, FinalStep::Stay | FinalStep::Stop);
        let stored = matches!(self.processor.checkpoint, CheckpointPlan::Automatic | CheckpointPlan::Manual(1));
        let healthy = self.delegate.is_healthy()
            && (!self.processor.forced_steal || self.delegate.slow_per_mille + self.delegate.long_per_mille == 0);
        let alone = self.neighbours.is_empty() && self.legacy.is_none() && self.network.panics == 0;
        self.is_calm() && healthy && clean && alive && stored && alone && self.faults.iter().all(planned)
    }

    /// Whether only items that deserve it may become dead letters: nothing else fails, and no process crashes or seems
    /// to. Planned moves, cut calls and steals by .NET hosts are no reason.
    pub fn has_no_crashes(&self) -> bool {
        let crash = |fault: &Fault| match &fault.kind {
            FaultKind::Crash { .. }
            | FaultKind::Stall { .. }
            | FaultKind::Suspend { .. }
            | FaultKind::DuplicateInstance { .. }
            | FaultKind::Drop { .. }
            | FaultKind::Mismatch { .. }
            | FaultKind::DelegateOutage { .. }
            | FaultKind::DamageLease { .. }
            | FaultKind::DuplicateLease { .. } => true,
            FaultKind::StoreFault { store, kind, .. } => *store == Store::Leases && *kind != StoreFault::NoDeletes,
            _ => false,
        };
        let crashes = self.faults.iter().any(crash) || matches!(self.final_step, FinalStep::Crash | FinalStep::Drop);
        let lengths = self.delegate.slow_per_mille + self.delegate.long_per_mille;
        let cut = lengths > 0 && (self.processor.forced_steal || self.processor.delegate_timeout.is_some());
        let crashes = crashes || self.neighbours.iter().any(|neighbour| neighbour.crashes) || self.network.panics > 0;
        self.is_calm() && self.delegate.is_healthy() && !cut && !crashes && self.workload.killers == 0
    }

    /// Whether no request fails or is slow by chance.
    pub fn is_calm(&self) -> bool {
        let network = &self.network;
        network.tail_per_mille
            + network.lost_request_per_mille
            + network.lost_response_per_mille
            + network.throttled_per_mille
            == 0
    }

    /// Whether a fault concerns a store in a way that a host could miss its renewals.
    pub fn has_store_faults(&self) -> bool {
        let concerns = |fault: &Fault| match &fault.kind {
            FaultKind::StoreFault { store, kind, .. } => *store == Store::Leases && *kind != StoreFault::NoDeletes,
            _ => false,
        };
        self.faults.iter().any(concerns) || self.network.panics > 0
    }

    /// Whether progress is stored by the delegate.
    pub fn is_manual(&self) -> bool {
        self.processor.checkpoint != CheckpointPlan::Automatic
    }

    /// The intervals of a host.
    pub fn timing(&self, host: usize) -> Timing {
        let plan = &self.processor;
        let usual = Timing { acquire: plan.acquire, renew: plan.renew, expiration: plan.expiration };
        self.hosts.get(host).and_then(|host| host.timing).unwrap_or(usual)
    }

    /// The longest of each interval.
    pub fn slowest_timing(&self) -> Timing {
        let all = (0..self.hosts.len()).map(|host| self.timing(host));
        let longest = |a: Timing, b: Timing| Timing {
            acquire: a.acquire.max(b.acquire),
            renew: a.renew.max(b.renew),
            expiration: a.expiration.max(b.expiration),
        };
        all.reduce(longest).unwrap_or_else(|| self.timing(0))
    }

    /// How long a lease may stay with an owner that is gone: with owners that promise nothing, at least 60 s.
    pub fn longest_expiration(&self) -> u64 {
        let longest = self.slowest_timing().expiration;
        let foreign =
            |fault: &Fault| matches!(fault.kind, FaultKind::DamageLease { .. } | FaultKind::DuplicateLease { .. });
        let without = !self.neighbours.is_empty() || self.legacy.is_some() || self.faults.iter().any(foreign);
        if without { longest.max(WITHOUT_PROMISE) } else { longest }
    }

    /// Whether reads of the feed hang or are slow for a while.
    pub fn has_hanging_reads(&self) -> bool {
        let slow = |kind| matches!(kind, StoreFault::HungReads | StoreFault::SlowReads(_) | StoreFault::Hang);
        let hangs =
            |fault: &Fault| matches!(fault.kind, FaultKind::StoreFault { store: Store::Feed, kind, .. } if slow(kind));
        self.faults.iter().any(hangs)
    }

    /// The scenario as JSON, to be kept.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("invariant: numbers and names always serialise")
    }
}
