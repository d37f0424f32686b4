//! The health of a host: what each of its leases is doing, and whether the host itself is alive.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    lease::prefix::LeaseToken,
    metrics::health::{Condition, HealthGauges},
    notification::{ErrorReport, Notification},
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
    /// Returns `true` if the host runs and none of its leases is stalled or in an outage.
    pub fn is_healthy(&self) -> bool {
        let stuck =
            |lease: &OwnedLease| matches!(lease.health, LeaseHealth::Stalled { .. } | LeaseHealth::Outage { .. });
        self.host == HostState::Running && !self.leases.iter().any(stuck)
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

/// What is known of a host, kept up to date by its notifications.
#[derive(Debug, Default)]
pub(crate) struct HealthRecord {
    pub(crate) host: HostState,
    leases: BTreeMap<LeaseToken, (LeaseHealth, Option<ErrorReport>)>,
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
        for (health, _) in std::mem::take(&mut self.leases).values() {
            self.gauges.moved(Some(health.condition()), None);
        }
    }

    /// Takes in a notification of the host.
    pub(crate) fn notified(&mut self, notification: &Notification) {
        match notification {
            Notification::LeaseAcquired(lease) => {
                let before = self.leases.insert(lease.clone(), Default::default());
                let before = before.map(|(health, _)| health.condition());
                self.gauges.moved(before, Some(Condition::Good));
            }
            Notification::LeaseReleased(lease, _) => {
                if let Some((health, _)) = self.leases.remove(lease) {
                    self.gauges.moved(Some(health.condition()), None);
                }
            }
            Notification::CaughtUp(lease) => self.set(lease, LeaseHealth::CaughtUp),
            Notification::Slow { lease, running } => self.set(lease, LeaseHealth::Slow { running: *running }),
            Notification::Stalled { lease, attempts, reason } => {
                self.set(lease, LeaseHealth::Stalled { attempts: *attempts, reason: reason.clone() });
            }
            Notification::Outage { lease, reason } => self.set(lease, LeaseHealth::Outage { reason: reason.clone() }),
            Notification::Error(report) => match report.lease.as_ref().and_then(|lease| self.leases.get_mut(lease)) {
                Some((_, last)) => *last = Some(report.clone()),
                None => self.last_error = Some(report.clone()),
            },
            Notification::HostDied { reason } => self.end(HostState::Died(reason.clone())),
            _ => {}
        }
    }

    /// A delegate call of this lease begins.
    pub(crate) fn called(&mut self, lease: &LeaseToken) {
        if let Some((health @ LeaseHealth::CaughtUp, _)) = self.leases.get_mut(lease) {
            *health = LeaseHealth::Delivering;
        }
    }

    /// A delegate call of this lease has succeeded.
    pub(crate) fn handled(&mut self, lease: &LeaseToken) {
        if let Some(state) = self.leases.get_mut(lease) {
            self.gauges.moved(Some(state.0.condition()), Some(Condition::Good));
            *state = Default::default();
        }
    }

    pub(crate) fn leases(&self) -> Vec<LeaseToken> {
        self.leases.keys().cloned().collect()
    }

    pub(crate) fn health(&self) -> Health {
        let owned = |(lease, (health, last_error)): (&LeaseToken, &(LeaseHealth, Option<ErrorReport>))| OwnedLease {
            lease: lease.clone(),
            health: health.clone(),
            last_error: last_error.clone(),
        };
        let (host, last_error) = (self.host.clone(), self.last_error.clone());
        Health { host, leases: self.leases.iter().map(owned).collect(), last_error }
    }

    fn set(&mut self, lease: &LeaseToken, health: LeaseHealth) {
        if let Some((current, _)) = self.leases.get_mut(lease) {
            self.gauges.moved(Some(current.condition()), Some(health.condition()));
            *current = health;
        }
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
    fn a_host_that_died_owns_nothing_and_is_unhealthy() {
        let mut record = HealthRecord::default();
        record.notified(&Notification::LeaseAcquired("0".parse().unwrap()));
        record.notified(&Notification::HostDied { reason: "it panicked".to_owned() });
        let health = record.health();
        assert_eq!((health.host.clone(), health.leases.len()), (HostState::Died("it panicked".to_owned()), 0));
        assert!(!health.is_healthy());
    }
}
