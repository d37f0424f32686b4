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
    /// Returns the time of the operating system: for programs, such as `StartFrom::Time(Timestamp::now().saturating_sub(hour))`.
    /// Code that is simulated takes a [`Clock`] instead.
    pub fn now() -> Self {
        SystemClock.wall()
    }

    /// Creates one from milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Creates one from whole seconds since the epoch, as in `_ts`.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Returns the milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the whole seconds since the epoch, as in `_ts`.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// Returns this moment plus `duration`; stays at the end of time instead of overflowing.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns this moment minus `duration`; stays at the epoch instead of underflowing.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl From<SystemTime> for Timestamp {
    /// Moments before 1970 become 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    /// Moments that the operating system cannot represent become 1970; those of a store are far from that.
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH.checked_add(Duration::from_millis(timestamp.0)).unwrap_or(UNIX_EPOCH)
    }
}

/// Where the time comes from. Nothing else in this library reads a clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the time of day. It may jump in both directions.
    fn wall(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        SystemTime::now().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_time_becomes_milliseconds_since_1970() {
        let moment = UNIX_EPOCH + Duration::from_micros(1_767_225_600_123_999);
        assert_eq!(Timestamp::from(moment), Timestamp::from_millis(1_767_225_600_123));
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), Timestamp::from_millis(0));
    }

    #[test]
    fn a_timestamp_becomes_a_system_time_and_back() {
        let timestamp = Timestamp::from_millis(1_767_225_600_123);
        let time = SystemTime::from(timestamp);
        assert_eq!(time, UNIX_EPOCH + Duration::from_millis(1_767_225_600_123));
        assert_eq!(Timestamp::from(time), timestamp);
        assert_eq!(SystemTime::from(Timestamp::default()), UNIX_EPOCH);
    }
}
