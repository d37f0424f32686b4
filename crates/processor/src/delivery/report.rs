//! What to tell about the result of a call.

use crate::delegate::DelegateError;

/// Items are being retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retrying {
    /// Failed attempts.
    pub(crate) failures: u32,
    /// The last error.
    pub(crate) reason: String,
}

/// What to tell about the result of a call.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The error of the delegate.
    pub(crate) error: Option<DelegateError>,
    /// Items are retried.
    pub(crate) retrying: Option<Retrying>,
    /// An outage was detected, with the last error.
    pub(crate) outage: Option<String>,
    /// Failed attempts to be stored in the lease.
    pub(crate) attempts: Option<u32>,
}

impl Report {
    /// One report of two: the later one counts where both say something.
    pub(super) fn merge(self, later: Self) -> Self {
        Self {
            error: later.error.or(self.error),
            retrying: later.retrying.or(self.retrying),
            outage: later.outage.or(self.outage),
            attempts: later.attempts.or(self.attempts),
        }
    }
}
