//! What a lease needs to know of the options of its processor.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    delivery::{Policy, outage::OutageDetector},
    lease::timing::LeaseTiming,
};

/// What a lease needs to know of the options of its processor.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) timing: LeaseTiming,
    /// Between two automatic checkpoints, at least.
    pub(crate) checkpoint_interval: Duration,
    pub(crate) policy: Policy,
    pub(crate) outage: OutageDetector,
    /// Between attempts of a batch that failed.
    pub(crate) retry: Backoff,
    /// Between attempts of a request to a store.
    pub(crate) store_retry: Backoff,
    pub(crate) max_items: usize,
    pub(crate) delegate_timeout: Option<Duration>,
    pub(crate) slow_after: Duration,
    /// After this many failed attempts in a row a lease is reported as stalled, and again at each doubling.
    pub(crate) stalled_after: u32,
    /// Whether a call needs a permit of the host.
    pub(crate) limits_calls: bool,
}
