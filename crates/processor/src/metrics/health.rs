//! Gauges of a host's health: how many leases it owns, and how many of them are stuck.

use ::metrics::{Gauge, gauge};

use super::{labels::labels, names};

/// What counts about an owned lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Good,
    Slow,
    Stalled,
    Outage,
}

/// Gauges that follow the health of leases. They move by differences, so that hosts in one process add up.
pub(crate) struct HealthGauges {
    hosts: Gauge,
    owned: Gauge,
    stalled: Gauge,
    outage: Gauge,
    slow: Gauge,
}

impl Default for HealthGauges {
    /// Gauges that go nowhere.
    fn default() -> Self {
        let noop = Gauge::noop;
        Self { hosts: noop(), owned: noop(), stalled: noop(), outage: noop(), slow: noop() }
    }
}

impl HealthGauges {
    pub(crate) fn new(processor: &str) -> Self {
        let of = |name| {
            let gauge = gauge!(name, labels(processor));
            // So that it is there before the first lease is.
            gauge.increment(0.0);
            gauge
        };
        Self {
            hosts: of(names::HOSTS),
            owned: of(names::OWNED_LEASES),
            stalled: of(names::STALLED_LEASES),
            outage: of(names::OUTAGE_LEASES),
            slow: of(names::SLOW_LEASES),
        }
    }

    pub(crate) fn host_began(&self) {
        self.hosts.increment(1.0);
    }

    pub(crate) fn host_ended(&self) {
        self.hosts.decrement(1.0);
    }

    /// A lease was in one condition and is in another; `None`: not owned.
    pub(crate) fn moved(&self, before: Option<Condition>, after: Option<Condition>) {
        if before == after {
            return;
        }
        if before.is_some() != after.is_some() {
            let owned = if after.is_some() { 1.0 } else { -1.0 };
            self.owned.increment(owned);
        }
        if let Some(gauge) = before.and_then(|condition| self.of(condition)) {
            gauge.decrement(1.0);
        }
        if let Some(gauge) = after.and_then(|condition| self.of(condition)) {
            gauge.increment(1.0);
        }
    }

    fn of(&self, condition: Condition) -> Option<&Gauge> {
        match condition {
            Condition::Good => None,
            Condition::Slow => Some(&self.slow),
            Condition::Stalled => Some(&self.stalled),
            Condition::Outage => Some(&self.outage),
        }
    }
}

impl std::fmt::Debug for HealthGauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HealthGauges")
    }
}
