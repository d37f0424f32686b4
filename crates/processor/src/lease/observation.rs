//! Whether a lease's owner is alive, judged by what we saw ourselves: no clock of another host counts.

use std::{collections::BTreeMap, time::Duration};

use changefeed_core::ETag;

use super::{prefix::LeaseToken, store::StoredLease};

/// When each lease was last seen to change, on our own monotonic clock.
#[derive(Debug, Default)]
pub struct Observations {
    seen: BTreeMap<LeaseToken, (ETag, Duration)>,
}

impl Observations {
    /// Takes in a listing that was asked for at `now`. Leases that are not in it are forgotten.
    pub fn observe(&mut self, leases: &[StoredLease], now: Duration) {
        let mut seen = BTreeMap::new();
        for lease in leases {
            let token = &lease.document.token;
            let since = match self.seen.get(token) {
                Some((etag, since)) if *etag == lease.etag => *since,
                _ => now,
            };
            seen.insert(token.clone(), (lease.etag.clone(), since));
        }
        self.seen = seen;
    }

    /// Whether nothing was written to the lease for `expiration`.
    pub fn is_silent(&self, token: &LeaseToken, expiration: Duration, now: Duration) -> bool {
        self.seen.get(token).is_some_and(|(_, since)| now.saturating_sub(*since) >= expiration)
    }

    /// For how long nothing was written to the lease, as far as we saw.
    pub fn silent_for(&self, token: &LeaseToken, now: Duration) -> Duration {
        self.seen.get(token).map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since))
    }
}
