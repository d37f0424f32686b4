//! Wall-clock time as a parameter. [`SystemClock`] is the one place that asks the operating system.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

/// A moment, in milliseconds since 1970-01-01T00:00:00Z. As JSON it is that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// From whole seconds since the epoch, as in `_ts`.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, as in `_ts`.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// This moment plus `duration`; stays at the end of time instead of overflowing.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This moment minus `duration`; stays at the epoch instead of underflowing.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Where the time comes from. Nothing else in this library reads a clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day. It may jump in both directions.
    fn wall(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
