//! Whether a lease's owner is alive, judged by what we saw ourselves: no clock of another host counts.

use std::{collections::BTreeMap, time::Duration};

use changefeed_core::ETag;

use super::{prefix::LeaseToken, store::StoredLease};

/// When each lease was last seen to change, on our own monotonic clock.
#[derive(Debug, Default)]
pub struct Observations {
    /// The version that was seen; none if it could not be told, which equals no other.
    seen: BTreeMap<LeaseToken, (Option<ETag>, Duration)>,
}

impl Observations {
    /// Takes in a listing that was asked for at `now`. Leases that are not in it are forgotten.
    pub fn observe(&mut self, leases: &[StoredLease], now: Duration) {
        let mut seen = BTreeMap::new();
        for lease in leases {
            let token = &lease.document.token;
            let since = match self.seen.get(token) {
                Some((Some(etag), since)) if *etag == lease.etag => *since,
                _ => now,
            };
            seen.insert(token.clone(), (Some(lease.etag.clone()), since));
        }
        self.seen = seen;
    }

    /// Takes in one version of a lease that was read at `now`.
    pub fn hear(&mut self, token: &LeaseToken, etag: Option<ETag>, now: Duration) {
        let known = self.seen.get(token).is_some_and(|(seen, _)| seen.is_some() && *seen == etag);
        if !known {
            self.seen.insert(token.clone(), (etag, now));
        }
    }

    /// Whether nothing was written to some lease for `expiration`.
    pub fn any_silent(&self, expiration: Duration, now: Duration) -> bool {
        self.seen.values().any(|(_, since)| now.saturating_sub(*since) >= expiration)
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

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "\"a\"";
    const B: &str = "\"b\"";

    #[test]
    fn a_lease_is_silent_while_what_is_heard_of_it_is_one_version() {
        let at = Duration::from_secs;
        let version = |etag: &'static str| ETag::new(etag).unwrap();
        let token: LeaseToken = "7".parse().unwrap();
        let mut observations = Observations::default();
        assert!(!observations.any_silent(at(60), at(1000)));
        observations.hear(&token, Some(version(A)), at(0));
        observations.hear(&token, Some(version(A)), at(30));
        assert!(!observations.any_silent(at(60), at(59)) && observations.any_silent(at(60), at(60)));
        observations.hear(&token, Some(version(B)), at(70));
        assert!(!observations.any_silent(at(60), at(129)) && observations.any_silent(at(60), at(130)));
        // A version that cannot be told may be a new one.
        observations.hear(&token, None, at(140));
        observations.hear(&token, None, at(150));
        assert_eq!(observations.silent_for(&token, at(170)), at(20));
    }
}
