//! Slowing down who guesses keys: after many wrong signatures, further refusals take their time. Right ones never do.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use changefeed_core::Timestamp;
use parking_lot::Mutex;

/// Refusals that come at once, for each address and window.
const FREE: u32 = 20;

const WINDOW: Duration = Duration::from_secs(60);

/// How long each further refusal takes.
const DELAY: Duration = Duration::from_secs(1);

/// How many addresses are remembered.
const MAX_ADDRESSES: usize = 10_000;

/// Refusals by address.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<IpAddr, (Timestamp, u32)>>);

impl Failures {
    /// Notes a refusal; how long to wait before telling.
    pub(crate) fn note(&self, address: IpAddr, now: Timestamp) -> Duration {
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
        let failures = Failures::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..FREE {
            assert_eq!(failures.note(one, Timestamp::from_secs(100)), Duration::ZERO);
        }
        assert_eq!(failures.note(one, Timestamp::from_secs(150)), DELAY);
        assert_eq!(failures.note(other, Timestamp::from_secs(150)), Duration::ZERO);
        assert_eq!(failures.note(one, Timestamp::from_secs(161)), Duration::ZERO, "a new window");
    }
}
