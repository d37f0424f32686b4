//! The options of a processor.

use std::time::Duration;

use changefeed_core::{Container, Error, ErrorKind, Mode, Result, StartFrom};

use crate::{
    backoff::Backoff,
    delivery::{Policy, dead_letter::DeadLetter, outage::OutageDetector},
    lease::{state::Settings, timing::LeaseTiming},
};

/// When progress is stored, unless the delegate does it:
/// [`ProcessorBuilder::manual_checkpoints`](crate::ProcessorBuilder::manual_checkpoints).
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{Checkpoint, Context, Processor, RawChanges, core::{Container, Result}};
///
/// # fn example(orders: &Container, leases: &Container) -> Result<Processor> {
/// Processor::builder("mailer", orders, leases)
///     .checkpoint(Checkpoint::Every(Duration::from_secs(5))) // after a crash, up to 5 s of work are repeated
///     .build(|changes: RawChanges, _ctx: Context| async move {
///         println!("{} changes", changes.len());
///         Ok(())
///     })
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checkpoint {
    /// After each batch that the delegate has handled; a busy lease is written at most every 20 ms.
    #[default]
    Automatic,
    /// After batches that the delegate has handled, at most once in this interval for each lease: fewer writes, and after
    /// a crash up to this much work is repeated. Every renewal stores progress, too, so that more than the renew interval
    /// has no further effect. A lease that is released or handed over stores its progress first.
    Every(Duration),
}

/// How often an idle feed is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How often an idle feed with wake-ups is polled: polling is a safety net for lost wake-ups.
const POLL_INTERVAL_WITH_WAKE_UPS: Duration = Duration::from_secs(60);

/// How often an idle feed of this container is polled, without an option.
pub(crate) fn default_poll_interval(monitored: &Container) -> Duration {
    if monitored.capabilities().wake_ups { POLL_INTERVAL_WITH_WAKE_UPS } else { POLL_INTERVAL }
}

/// When a call counts as slow, without an option and without a delegate timeout.
const SLOW_AFTER: Duration = Duration::from_secs(30);

/// How long a start waits for a store, without an option: longer than a server takes to restart, and short enough that a
/// wrong address is noticed.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// All options that have defaults.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) start: StartFrom,
    pub(crate) timing: LeaseTiming,
    pub(crate) poll_interval: Duration,
    pub(crate) max_items: usize,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) manual_checkpoints: bool,
    pub(crate) retry: Backoff,
    pub(crate) store_retry: Backoff,
    pub(crate) dead_letter: Option<DeadLetter>,
    pub(crate) delegate_timeout: Option<Duration>,
    pub(crate) slow_after: Option<Duration>,
    pub(crate) read_timeout: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) stop_deadline: Duration,
    pub(crate) max_leases: Option<usize>,
    pub(crate) max_concurrent_calls: Option<usize>,
    pub(crate) max_bytes_in_flight: Option<usize>,
    pub(crate) max_request_units_per_second: Option<f64>,
    pub(crate) steal_after: Option<Duration>,
    pub(crate) stalled_after: u32,
    pub(crate) notification_capacity: usize,
    pub(crate) lease_metrics: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: StartFrom::Now,
            timing: LeaseTiming::REMOTE,
            poll_interval: POLL_INTERVAL,
            max_items: 1000,
            checkpoint: Checkpoint::Automatic,
            manual_checkpoints: false,
            retry: Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) },
            store_retry: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) },
            dead_letter: None,
            delegate_timeout: None,
            slow_after: None,
            read_timeout: Duration::from_secs(65),
            start_timeout: START_TIMEOUT,
            stop_deadline: Duration::from_secs(30),
            max_leases: None,
            max_concurrent_calls: None,
            max_bytes_in_flight: None,
            max_request_units_per_second: None,
            steal_after: None,
            stalled_after: 3,
            notification_capacity: 1024,
            lease_metrics: false,
        }
    }
}

impl Options {
    /// What the state of a lease needs to know.
    pub(crate) fn settings(&self) -> Settings {
        let letters = self.dead_letter.as_ref();
        Settings {
            timing: self.timing,
            checkpoint_interval: match self.checkpoint {
                Checkpoint::Every(interval) => interval,
                Checkpoint::Automatic => Duration::ZERO,
            },
            policy: Policy {
                attempts: letters.map(|letters| letters.attempts),
                manual: self.manual_checkpoints,
                dead_letter_unparsed: letters.is_some_and(|letters| letters.unparsed_at_once),
                crashes: letters.map_or(DeadLetter::CRASHES, |letters| letters.crashes),
            },
            outage: letters.map_or_else(OutageDetector::default, |letters| {
                OutageDetector::new(letters.in_a_row, letters.outage_ends_after)
            }),
            retry: self.retry,
            store_retry: self.store_retry,
            max_items: self.max_items,
            delegate_timeout: self.delegate_timeout,
            slow_after: self.slow_after(),
            stalled_after: self.stalled_after,
            limits_calls: self.max_concurrent_calls.is_some(),
        }
    }

    /// How long a delegate call runs before it is reported as slow.
    pub(crate) fn slow_after(&self) -> Duration {
        self.slow_after.or(self.delegate_timeout.map(|limit| limit / 2)).unwrap_or(SLOW_AFTER)
    }

    /// Refuses nonsense.
    pub(crate) fn check(&self, mode: Mode) -> Result<()> {
        let refuse = |message: &str| Err(Error::new(ErrorKind::InvalidArgument, message));
        self.timing.check()?;
        if self.poll_interval.is_zero() {
            return refuse("the poll interval must be longer than 0: it is how often an idle feed is asked");
        }
        if self.checkpoint == Checkpoint::Every(Duration::ZERO) {
            return refuse("Checkpoint::Every must be longer than 0: use Checkpoint::Automatic to store each batch");
        }
        if self.manual_checkpoints && self.checkpoint != Checkpoint::Automatic {
            return refuse("manual_checkpoints leaves every checkpoint to the delegate: remove Checkpoint::Every");
        }
        for (name, backoff) in [("retry", self.retry), ("store_retry", self.store_retry)] {
            if backoff.first.is_zero() || backoff.longest < backoff.first {
                let problem = format!("{name}: the first pause must be longer than 0 and at most the longest");
                return refuse(&problem);
            }
        }
        if self.stalled_after == 0 {
            return refuse("stalled_after must be at least 1: it counts failed attempts");
        }
        // Tokio's channel rounds up to a power of two and panics above this.
        if !(1..=usize::MAX / 2).contains(&self.notification_capacity) {
            return refuse("notification_capacity must be at least 1: it is how far a receiver may be behind");
        }
        if self.max_items == 0 {
            return refuse("max_items must be at least 1");
        }
        if self.max_leases == Some(0) {
            return refuse("max_leases must be at least 1: a host that may own nothing does nothing");
        }
        if self.max_concurrent_calls == Some(0) {
            return refuse("max_concurrent_calls must be at least 1: a host that may call nothing delivers nothing");
        }
        if self.max_bytes_in_flight == Some(0) {
            return refuse("max_bytes_in_flight must be at least 1: leave it out for no limit");
        }
        if self.max_request_units_per_second.is_some_and(|units| !units.is_finite() || units <= 0.0) {
            return refuse("max_request_units_per_second must be a number above 0: leave it out for no limit");
        }
        if self.delegate_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return refuse("the delegate timeout must be longer than 0; leave it out for no limit");
        }
        if self.slow_after.is_some_and(|slow| slow.is_zero()) {
            return refuse("slow_after must be longer than 0: every call takes a moment");
        }
        if self.stop_deadline.is_zero() {
            return refuse("the stop deadline must be longer than 0: give delegates a moment to finish");
        }
        if self.steal_after.is_some_and(|deadline| deadline < self.timing.renew) {
            return refuse("steal_after must be at least the renew interval: an owner sees a request when it renews");
        }
        if mode == Mode::AllVersions && matches!(self.start, StartFrom::Beginning | StartFrom::Time(_)) {
            return refuse("an all-versions processor starts from now or from a continuation: remove start_from");
        }
        Ok(())
    }
}
