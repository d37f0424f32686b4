//! The lag of a processor as gauges, from measurements of the estimator.

use std::{collections::BTreeSet, time::Duration};

use ::metrics::{Counter, Gauge, Label, counter, gauge};

use super::{
    labels::{labels, lease_labels},
    names,
};
use crate::lease::prefix::LeaseToken;

/// The states of a lease, as values of a label.
pub(crate) const STATES: [&str; 7] = ["owned", "free", "paused", "split_pending", "missing", "expired", "broken"];

/// The lag of one lease.
pub(crate) struct LeaseSample<'a> {
    pub(crate) lease: &'a LeaseToken,
    /// One of [`STATES`].
    pub(crate) state: &'static str,
    pub(crate) changes: u64,
    pub(crate) behind: Duration,
}

/// The gauges of one processor's lag.
pub(crate) struct LagGauges {
    processor: String,
    changes: Gauge,
    seconds: Gauge,
    states: [(&'static str, Gauge); STATES.len()],
    failures: Counter,
    /// Leases with gauges of their own; `None` if leases have none.
    leases: Option<BTreeSet<LeaseToken>>,
}

impl LagGauges {
    pub(crate) fn new(processor: &str, by_lease: bool) -> Self {
        names::describe();
        let state = |value| {
            let mut labels = labels(processor);
            labels.push(Label::from_static_parts("state", value));
            (value, gauge!(names::LAG_LEASES, labels))
        };
        Self {
            changes: gauge!(names::LAG_CHANGES, labels(processor)),
            seconds: gauge!(names::LAG_SECONDS, labels(processor)),
            states: STATES.map(state),
            failures: counter!(names::LAG_FAILURES, labels(processor)),
            leases: by_lease.then(BTreeSet::new),
            processor: processor.to_owned(),
        }
    }

    /// A measurement failed: the gauges stay as they are.
    pub(crate) fn failed(&self) {
        self.failures.increment(1);
    }

    /// Sets the gauges from the sums and from each lease.
    pub(crate) fn record(&mut self, changes: u64, behind: Duration, leases: &[LeaseSample<'_>]) {
        self.changes.set(whole(changes));
        self.seconds.set(behind.as_secs_f64());
        for (state, gauge) in &self.states {
            gauge.set(whole(leases.iter().filter(|lease| lease.state == *state).count() as u64));
        }
        let Some(known) = &mut self.leases else { return };
        let (processor, mut gone) = (&self.processor, std::mem::take(known));
        for sample in leases {
            set(processor, sample.lease, sample.changes, sample.behind);
            gone.remove(sample.lease);
            known.insert(sample.lease.clone());
        }
        // A series cannot be taken back: a lease that was split has nothing left to do.
        gone.iter().for_each(|lease| set(processor, lease, 0, Duration::ZERO));
    }
}

fn set(processor: &str, lease: &LeaseToken, changes: u64, behind: Duration) {
    gauge!(names::LEASE_LAG_CHANGES, lease_labels(processor, lease)).set(whole(changes));
    gauge!(names::LEASE_LAG_SECONDS, lease_labels(processor, lease)).set(behind.as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn whole(number: u64) -> f64 {
    number as f64
}
