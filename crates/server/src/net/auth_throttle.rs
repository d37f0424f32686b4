//! Throttles clients that fail authentication: after many wrong signatures the refusals are delayed. Requests that are
//! signed correctly never wait.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use changefeed_core::Timestamp;
use parking_lot::Mutex;

/// Refusals per address and window that are not delayed.
const FREE: u32 = 20;

const WINDOW: Duration = Duration::from_secs(60);

/// The delay of each further refusal.
const DELAY: Duration = Duration::from_secs(1);

/// The most addresses that are counted.
const MAX_ADDRESSES: usize = 10_000;

/// Refusals by address.
#[derive(Debug, Default)]
pub(crate) struct AuthThrottle(Mutex<BTreeMap<IpAddr, (Timestamp, u32)>>);

impl AuthThrottle {
    /// Counts a refusal and returns how long to delay its response.
    pub(crate) fn delay(&self, address: IpAddr, now: Timestamp) -> Duration {
        let mut addresses = self.0.lock();
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&address) {
            addresses.clear();
        }
        let (since, count) = addresses.entry(address).or_insert((now, 0));
        if now.saturating_sub(WINDOW) > *since {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        if *count > FREE { DELAY } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twenty_first_refusal_within_a_minute_waits() {
        let throttle = AuthThrottle::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..FREE {
            assert_eq!(throttle.delay(one, Timestamp::from_secs(100)), Duration::ZERO);
        }
        assert_eq!(throttle.delay(one, Timestamp::from_secs(150)), DELAY);
        assert_eq!(throttle.delay(other, Timestamp::from_secs(150)), Duration::ZERO);
        assert_eq!(throttle.delay(one, Timestamp::from_secs(161)), Duration::ZERO, "a new window");
    }
}
