//! Pauses between tries: growing, bounded, never the same on two hosts. Pure.

use std::time::Duration;

/// `pause` with a random half added or taken away.
pub(crate) fn jittered(pause: Duration, random: u64) -> Duration {
    pause.mul_f64(0.5 + (random % 1024) as f64 / 1024.0)
}

/// Exponential pauses between tries: each is twice as long as the one before, up to the longest, and spread at random by
/// half.
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::Backoff;
///
/// let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
/// let pause = backoff.after(3, 0); // after three failures: 4 s, here at its shortest
/// assert_eq!(pause, Duration::from_secs(2));
/// ```
///
/// [`ProcessorBuilder::retry`](crate::ProcessorBuilder::retry) and
/// [`ProcessorBuilder::store_retry`](crate::ProcessorBuilder::store_retry) take one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the pause after the given number of failures in a row, at least one; `random` spreads it.
    pub fn after(&self, failures: u32, random: u64) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        jittered(self.first.saturating_mul(factor).min(self.longest), random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_spread_by_half() {
        let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
        let bounds = |failures| (backoff.after(failures, 0), backoff.after(failures, 1023));
        assert_eq!(bounds(1).0, Duration::from_millis(50));
        assert!(bounds(1).1 < Duration::from_millis(150));
        assert_eq!(bounds(3).0, Duration::from_millis(200));
        assert_eq!(bounds(60).0, Duration::from_millis(500));
        assert!(bounds(u32::MAX).1 < Duration::from_millis(1500));
    }
}
