//! The health of a host: what each of its leases is doing, and whether the host itself is alive.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    lease::prefix::LeaseToken,
    metrics::health::{Condition, HealthGauges},
    notification::{ErrorReport, Failure, Notification},
};

/// The health of a host at one moment, from what it knows itself: nothing is read from a store.
///
/// ```
/// # fn probe(running: &changefeed::Running) -> u16 {
/// let health = running.health();
/// for lease in &health.leases {
///     println!("lease {}: {:?}", lease.lease, lease.health);
/// }
/// if health.is_healthy() { 200 } else { 503 }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Whether the host is alive.
    pub host: HostState,
    /// The leases that this host owns, by token.
    pub leases: Vec<OwnedLease>,
    /// The last failure that concerns no lease, such as one of the balancer.
    pub last_error: Option<ErrorReport>,
}

impl Health {
    /// Returns `true` if the host runs and none of its leases is stuck ([`OwnedLease::is_stuck`]).
    pub fn is_healthy(&self) -> bool {
        self.host == HostState::Running && !self.leases.iter().any(OwnedLease::is_stuck)
    }
}

/// Whether a host is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostState {
    /// It owns and acquires leases.
    #[default]
    Running,
    /// It ended after [`Running::stop`](crate::Running::stop).
    Stopped,
    /// It ended by itself, for this reason. Other hosts take its leases over when they have expired.
    Died(String),
}

/// A lease that a host owns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OwnedLease {
    /// The lease.
    pub lease: LeaseToken,
    /// What it is doing.
    pub health: LeaseHealth,
    /// The last failure since the last batch that was handled.
    pub last_error: Option<ErrorReport>,
    /// How many reads of its feed have failed, one after the other.
    pub feed_failures: u32,
    /// How many times a dead letter could not be written, one after the other.
    pub dead_letter_failures: u32,
}

/// So many failures in a row are no hiccup: with the pauses between them, about ten seconds unless
/// [`ProcessorBuilder::store_retry`](crate::ProcessorBuilder::store_retry) says otherwise.
const LASTING_FAILURES: u32 = 8;

impl OwnedLease {
    /// Returns `true` if nothing moves until somebody repairs the cause: the batch keeps failing, items fail one after the
    /// other, or for a while no read of the feed or no write of a dead letter has succeeded.
    pub fn is_stuck(&self) -> bool {
        matches!(self.health, LeaseHealth::Stalled { .. } | LeaseHealth::Outage { .. })
            || self.feed_failures.max(self.dead_letter_failures) >= LASTING_FAILURES
    }
}

/// What a lease is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseHealth {
    /// It reads and delivers.
    #[default]
    Delivering,
    /// It has delivered everything there is.
    CaughtUp,
    /// A delegate call has been running for longer than
    /// [`ProcessorBuilder::slow_after`](crate::ProcessorBuilder::slow_after).
    Slow {
        /// For how long when it was last reported.
        running: Duration,
    },
    /// A batch keeps failing: nothing behind it moves.
    Stalled {
        /// How often it has failed.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// Items fail one after the other and none succeeds.
    Outage {
        /// The last failure.
        reason: String,
    },
}

impl LeaseHealth {
    fn condition(&self) -> Condition {
        match self {
            Self::Delivering | Self::CaughtUp => Condition::Good,
            Self::Slow { .. } => Condition::Slow,
            Self::Stalled { .. } => Condition::Stalled,
            Self::Outage { .. } => Condition::Outage,
        }
    }
}

/// What is known of a lease.
#[derive(Debug, Default)]
struct LeaseRecord {
    health: LeaseHealth,
    last_error: Option<ErrorReport>,
    feed_failures: u32,
    dead_letter_failures: u32,
}

/// What is known of a host, kept up to date by its notifications.
#[derive(Debug, Default)]
pub(crate) struct HealthRecord {
    pub(crate) host: HostState,
    leases: BTreeMap<LeaseToken, LeaseRecord>,
    last_error: Option<ErrorReport>,
    gauges: HealthGauges,
}

impl HealthRecord {
    /// The record of a host that begins now.
    pub(crate) fn begin(&mut self, gauges: HealthGauges) {
        gauges.host_began();
        self.gauges = gauges;
    }

    /// The host has ended.
    pub(crate) fn end(&mut self, state: HostState) {
        if self.host == HostState::Running {
            self.gauges.host_ended();
        }
        self.host = state;
        self.forget_leases();
    }

    /// The leases so far do not count any more.
    pub(crate) fn forget_leases(&mut self) {
        for lease in std::mem::take(&mut self.leases).values() {
            self.gauges.moved(Some(lease.health.condition()), None);
        }
    }

    /// Takes in a notification of the host.
    pub(crate) fn notified(&mut self, notification: &Notification) {
        match notification {
            Notification::LeaseAcquired(lease) => {
                let before = self.leases.insert(lease.clone(), Default::default());
                let before = before.map(|lease| lease.health.condition());
                self.gauges.moved(before, Some(Condition::Good));
            }
            Notification::LeaseReleased(lease, _) => {
                if let Some(lease) = self.leases.remove(lease) {
                    self.gauges.moved(Some(lease.health.condition()), None);
                }
            }
            Notification::CaughtUp(lease) => self.set(lease, LeaseHealth::CaughtUp),
            Notification::Slow { lease, running } => self.set(lease, LeaseHealth::Slow { running: *running }),
            Notification::Stalled { lease, attempts, reason } => {
                self.set(lease, LeaseHealth::Stalled { attempts: *attempts, reason: reason.clone() });
            }
            Notification::Outage { lease, reason } => self.set(lease, LeaseHealth::Outage { reason: reason.clone() }),
            Notification::Error(report) => match report.lease.as_ref().and_then(|lease| self.leases.get_mut(lease)) {
                Some(lease) => lease.failed(report),
                None => self.last_error = Some(report.clone()),
            },
            Notification::DeadLettered { lease, .. } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    lease.dead_letter_failures = 0;
                }
            }
            Notification::HostDied { reason } => self.end(HostState::Died(reason.clone())),
            _ => {}
        }
    }

    /// A delegate call of this lease begins.
    pub(crate) fn called(&mut self, lease: &LeaseToken) {
        if let Some(LeaseRecord { health: health @ LeaseHealth::CaughtUp, .. }) = self.leases.get_mut(lease) {
            *health = LeaseHealth::Delivering;
        }
    }

    /// A read of the feed has succeeded.
    pub(crate) fn feed_read(&mut self, lease: &LeaseToken) {
        if let Some(lease) = self.leases.get_mut(lease) {
            lease.feed_failures = 0;
        }
    }

    /// A delegate call of this lease has succeeded.
    pub(crate) fn handled(&mut self, lease: &LeaseToken) {
        if let Some(state) = self.leases.get_mut(lease) {
            self.gauges.moved(Some(state.health.condition()), Some(Condition::Good));
            *state = Default::default();
        }
    }

    pub(crate) fn leases(&self) -> Vec<LeaseToken> {
        self.leases.keys().cloned().collect()
    }

    pub(crate) fn health(&self) -> Health {
        let owned = |(token, lease): (&LeaseToken, &LeaseRecord)| OwnedLease {
            lease: token.clone(),
            health: lease.health.clone(),
            last_error: lease.last_error.clone(),
            feed_failures: lease.feed_failures,
            dead_letter_failures: lease.dead_letter_failures,
        };
        let (host, last_error) = (self.host.clone(), self.last_error.clone());
        Health { host, leases: self.leases.iter().map(owned).collect(), last_error }
    }

    fn set(&mut self, lease: &LeaseToken, health: LeaseHealth) {
        if let Some(lease) = self.leases.get_mut(lease) {
            self.gauges.moved(Some(lease.health.condition()), Some(health.condition()));
            lease.health = health;
        }
    }
}

impl LeaseRecord {
    fn failed(&mut self, report: &ErrorReport) {
        let count = match &report.failure {
            Failure::Feed(_) => Some(&mut self.feed_failures),
            Failure::DeadLetter(_) => Some(&mut self.dead_letter_failures),
            _ => None,
        };
        if let Some(count) = count {
            *count = count.saturating_add(1);
        }
        self.last_error = Some(report.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_lease_is_unhealthy_until_a_batch_is_handled() {
        let mut record = HealthRecord::default();
        let lease: LeaseToken = "0".parse().unwrap();
        record.notified(&Notification::LeaseAcquired(lease.clone()));
        assert!(record.health().is_healthy());
        let stalled = Notification::Stalled { lease: lease.clone(), attempts: 3, reason: "no".to_owned() };
        record.notified(&stalled);
        record.called(&lease);
        assert!(!record.health().is_healthy(), "the next attempt proves nothing");
        record.handled(&lease);
        assert!(record.health().is_healthy());
        record.notified(&Notification::CaughtUp(lease.clone()));
        assert_eq!(record.health().leases[0].health, LeaseHealth::CaughtUp);
        record.called(&lease);
        assert_eq!(record.health().leases[0].health, LeaseHealth::Delivering);
    }

    #[test]
    fn a_lease_whose_store_keeps_failing_is_stuck_until_it_succeeds() {
        let lease: LeaseToken = "0".parse().unwrap();
        let error = || std::sync::Arc::new(changefeed_core::Error::new(changefeed_core::ErrorKind::Unavailable, "no"));
        let mut record = HealthRecord::default();
        record.notified(&Notification::LeaseAcquired(lease.clone()));
        let fail = |record: &mut HealthRecord, failure: Failure, times: u32| {
            let report = Notification::error(Some(lease.clone()), failure);
            (0..times).for_each(|_| record.notified(&report));
        };
        fail(&mut record, Failure::Feed(error()), LASTING_FAILURES - 1);
        assert!(record.health().is_healthy(), "it may pass");
        fail(&mut record, Failure::Feed(error()), 1);
        assert!(!record.health().is_healthy());
        // An idle lease reads and delivers nothing.
        record.feed_read(&lease);
        assert!(record.health().is_healthy());

        fail(&mut record, Failure::DeadLetter(error()), LASTING_FAILURES);
        record.feed_read(&lease);
        assert!(!record.health().is_healthy(), "pages are read ahead");
        let reason = "no".to_owned();
        record.notified(&Notification::DeadLettered { lease: lease.clone(), item: "1".to_owned(), reason });
        assert!(record.health().is_healthy());
        fail(&mut record, Failure::Lease(error()), LASTING_FAILURES);
        assert!(record.health().is_healthy(), "a lease that cannot be written is lost soon");
    }

    #[test]
    fn a_host_that_died_owns_nothing_and_is_unhealthy() {
        let mut record = HealthRecord::default();
        record.notified(&Notification::LeaseAcquired("0".parse().unwrap()));
        record.notified(&Notification::HostDied { reason: "it panicked".to_owned() });
        let health = record.health();
        assert_eq!((health.host.clone(), health.leases.len()), (HostState::Died("it panicked".to_owned()), 0));
        assert!(!health.is_healthy());
    }
}
