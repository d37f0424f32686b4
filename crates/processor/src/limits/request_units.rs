//! The request units that a host may spend: a bucket that is filled by time and emptied by the charges of the stores.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::runtime::Runtime;

/// The request units of a host.
pub(crate) struct RequestUnits {
    runtime: Arc<dyn Runtime>,
    bucket: Mutex<Bucket>,
    /// Held by the reader that waits next: the others follow in order.
    turn: tokio::sync::Mutex<()>,
}

impl RequestUnits {
    pub(crate) fn new(per_second: f64, runtime: &Arc<dyn Runtime>) -> Self {
        let bucket = Mutex::new(Bucket::new(per_second, runtime.monotonic()));
        Self { runtime: Arc::clone(runtime), bucket, turn: tokio::sync::Mutex::default() }
    }

    /// Waits until the host may spend again. Returns what was set aside for the request, for [`RequestUnits::settle`].
    pub(crate) async fn reserve(&self) -> f64 {
        let _turn = self.turn.lock().await;
        loop {
            let reserved = self.bucket.lock().reserve(self.runtime.monotonic());
            crate::planted!(RequestUnitsUnlimited => return 0.0);
            match reserved {
                Ok(reserved) => return reserved,
                Err(wait) => self.runtime.sleep(wait).await,
            }
        }
    }

    /// A request that had waited was charged.
    pub(crate) fn settle(&self, reserved: f64, charge: f64) {
        self.bucket.lock().settle(reserved, charge);
    }

    /// A request that does not wait was charged.
    pub(crate) fn spend(&self, charge: f64) {
        self.bucket.lock().spend(charge);
    }
}

impl fmt::Debug for RequestUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestUnits({:?})", self.bucket.lock())
    }
}

/// A bucket of request units. Pure. Holds at most what one second brings; below zero is debt, which time pays.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    units: f64,
    filled: Duration,
    /// What the next request is likely to be charged: as much as the last.
    expected: f64,
}

/// A wait is never shorter than the resolution of a timer.
const SHORTEST_WAIT: f64 = 0.001;

/// No wait is longer, so that it can be a [`Duration`]: the next look waits again.
const LONGEST_WAIT: f64 = 3600.0;

impl Bucket {
    fn new(per_second: f64, now: Duration) -> Self {
        Self { per_second, units: per_second, filled: now, expected: 0.0 }
    }

    fn reserve(&mut self, now: Duration) -> Result<f64, Duration> {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.units = (self.units + passed * self.per_second).min(self.per_second);
        if self.units < 0.0 {
            let wait = (-self.units / self.per_second).clamp(SHORTEST_WAIT, LONGEST_WAIT);
            return Err(Duration::from_secs_f64(wait));
        }
        self.units -= self.expected;
        Ok(self.expected)
    }

    fn settle(&mut self, reserved: f64, charge: f64) {
        let charge = sane(charge);
        self.units += reserved - charge;
        self.expected = charge;
    }

    fn spend(&mut self, charge: f64) {
        self.units -= sane(charge);
    }
}

/// A charge that is no number, or below zero, counts as none.
fn sane(charge: f64) -> f64 {
    if charge.is_finite() { charge.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn debt_is_paid_by_time_and_savings_last_a_second() {
        let mut bucket = Bucket::new(10.0, at(0));
        assert_eq!(bucket.reserve(at(0)), Ok(0.0), "nothing is known about charges yet");
        bucket.settle(0.0, 35.0);
        assert_eq!(bucket.reserve(at(0)), Err(at(2500)), "10 saved, 35 spent, 10 a second");
        assert_eq!(bucket.reserve(at(2000)), Err(at(500)));
        assert_eq!(bucket.reserve(at(2500)), Ok(35.0), "as much as the last");
        bucket.settle(35.0, 5.0);
        assert_eq!(bucket.reserve(at(60_000)), Ok(5.0));
        assert_eq!(bucket.units, 5.0, "a minute of rest saved one second");
    }

    #[test]
    fn requests_that_do_not_wait_make_others_wait() {
        let mut bucket = Bucket::new(10.0, at(0));
        bucket.spend(20.0);
        bucket.spend(f64::NAN);
        bucket.spend(-7.0);
        assert_eq!(bucket.reserve(at(0)), Err(at(1000)));
    }

    #[test]
    fn concurrent_requests_are_counted_before_they_are_charged() {
        let mut bucket = Bucket::new(10.0, at(0));
        bucket.settle(0.0, 6.0);
        let (first, second) = (bucket.reserve(at(0)), bucket.reserve(at(0)));
        assert_eq!((first, second), (Ok(6.0), Err(at(200))), "4 left, 6 set aside");
    }
}
