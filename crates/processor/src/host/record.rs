//! One record per lease: everything that a host knows about it, and nowhere else.

use std::{collections::BTreeMap, time::Duration};

use changefeed_core::{ETag, Result};
use tokio_util::task::AbortOnDropHandle;

use super::observation::Observation;
use crate::lease::{
    document::{LONGEST_PROMISE, SignOfLife, SummaryRef},
    prefix::LeaseToken,
    signals::CommandSender,
    store::{Listing, StoredLease},
};

/// What a host knows about one lease.
#[derive(Debug, Default)]
pub(crate) struct LeaseRecord {
    /// The last version that was seen.
    seen: Option<Seen>,
    /// How long its owner may be silent.
    expires_after: Duration,
    /// Who asks for it.
    request: Option<SeenRequest>,
    /// This host's own request for it.
    pub(crate) pending: Option<PendingRequest>,
    /// Since when it has been seen without a living owner.
    free_since: Option<Duration>,
    /// For how many cycles it has overlapped others.
    pub(crate) overlap_cycles: u32,
    /// The epoch of the last task of this host.
    pub(crate) epoch: Option<u64>,
    /// Its task, while this host owns it.
    pub(crate) task: Option<RunningTask>,
    /// After a panic: not acquired by this host before this moment.
    pub(crate) not_before: Option<Duration>,
}

/// A version of a lease, and since when its owner has been silent, on this host's monotonic clock.
#[derive(Debug)]
struct Seen {
    /// None if the version is not known: it equals no other.
    etag: Option<ETag>,
    sign: SignOfLife,
    since: Duration,
    /// For how long it was silent before that, by the store's clock; zero if that is not known, as long as any owner may be
    /// silent if the owner is known to be dead.
    before: Duration,
}

/// A lease task, as its host knows it. Dropping it aborts the task.
#[derive(Debug)]
pub(crate) struct RunningTask {
    pub(crate) commands: CommandSender,
    /// The id and partition key of its document.
    pub(crate) document: (String, Option<String>),
    pub(crate) _handle: AbortOnDropHandle<()>,
}

/// A request of any host for a lease, and since when it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenRequest {
    to: String,
    epoch: u64,
    since: Duration,
}

/// A request of this host for a lease: under which epoch, and since when. Whoever acquires a lease drops the request for
/// it: under the next epoch it is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    pub(crate) epoch: u64,
    pub(crate) since: Duration,
}

/// The records of all leases that a host knows.
#[derive(Debug, Default)]
pub(crate) struct Records {
    leases: BTreeMap<LeaseToken, LeaseRecord>,
    observation: Observation,
}

impl LeaseRecord {
    /// Whether nothing was written to the lease for as long as its owner promised.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        self.seen.as_ref().is_some_and(|seen| now.saturating_sub(seen.since) + seen.before >= self.expires_after)
    }

    fn see(&mut self, etag: Option<ETag>, sign: SignOfLife, now: Duration) {
        let (since, before) = match &self.seen {
            Some(seen) if seen.etag.is_some() && seen.etag == etag => return,
            Some(seen) if sign.is_only_asked(&seen.sign) => (seen.since, seen.before),
            _ => (now, Duration::ZERO),
        };
        self.seen = Some(Seen { etag, sign, since, before });
    }

    fn take_in(
        &mut self,
        listing: &Listing,
        StoredLease { document, etag }: &StoredLease,
        own_expiration: Duration,
        instance: &str,
        now: Duration,
    ) {
        let first = self.seen.is_none();
        self.see(Some(etag.clone()), SignOfLife::from(document), now);
        if let Some(seen) = &mut self.seen {
            match listing.ages.get(&document.token) {
                _ if listing.dead.contains(&document.token) => seen.before = LONGEST_PROMISE,
                Some(age) if first => seen.before = *age,
                _ => {}
            }
        }
        self.expires_after = document.expires_after(own_expiration);
        let request = document.hand_over().map(|request| request.to);
        let epoch = document.epoch();
        self.pending.take_if(|pending| pending.epoch != epoch || request.as_deref() != Some(instance));
        self.request = request.map(|to| match self.request.take() {
            Some(known) if known.to == to && known.epoch == epoch => known,
            _ => SeenRequest { to, epoch, since: now },
        });
        let free = document.owner.is_none() || self.is_silent(now);
        self.free_since = if free { self.free_since.or(Some(now)) } else { None };
    }

    /// Leaves `time` out of all that is measured: the lease could not be read meanwhile.
    fn leave_out(&mut self, time: Duration) {
        let seen = self.seen.iter_mut().map(|seen| &mut seen.since);
        let request = self.request.iter_mut().map(|request| &mut request.since);
        let pending = self.pending.iter_mut().map(|pending| &mut pending.since);
        seen.chain(request).chain(pending).for_each(|since| *since += time);
    }

    /// Who asks for the lease. A request that stands for longer than `lifetime` counts only if `is_alive` says so of
    /// its author.
    pub(crate) fn requested_by(
        &self,
        now: Duration,
        lifetime: Duration,
        is_alive: impl Fn(&str) -> bool,
    ) -> Option<&str> {
        let request = self.request.as_ref()?;
        let fresh = now.saturating_sub(request.since) < lifetime;
        (fresh || is_alive(&request.to)).then_some(request.to.as_str())
    }

    /// For how long it has been without a living owner, as far as this host saw.
    pub(crate) fn free_for(&self, now: Duration) -> Option<Duration> {
        self.free_since.map(|since| now.saturating_sub(since))
    }

    /// Whether a request, of this host or another, is open.
    fn has_request(&self) -> bool {
        self.request.is_some() || self.pending.is_some()
    }
}

impl Records {
    /// Leases could not be read.
    pub(crate) fn read_failed(&mut self) {
        self.observation.failed();
    }

    /// Leases were read at `now`; to be called before what was read is taken in. After failures, the time since the last
    /// read proves nothing: an owner could not renew a lease either while the store was away.
    pub(crate) fn read_succeeded(&mut self, now: Duration) {
        let unobserved = self.observation.succeeded(now);
        crate::planted!(OutageCountedAsSilence => return);
        if !unobserved.is_zero() {
            self.leases.values_mut().for_each(|record| record.leave_out(unobserved));
        }
    }

    /// Takes in a listing that was asked for at `now`. Leases that are not in it are forgotten, unless a task runs.
    pub(crate) fn take_in(&mut self, listing: &Listing, own_expiration: Duration, instance: &str, now: Duration) {
        self.leases.retain(|token, record| record.task.is_some() || listing.find(token).is_some());
        for lease in &listing.leases {
            self.entry(&lease.document.token).take_in(listing, lease, own_expiration, instance, now);
        }
    }

    /// Takes in one version of a lease that was read at `now`. Returns whether a task of this host is on it.
    ///
    /// # Errors
    /// Its token is none.
    pub(crate) fn see(&mut self, seen: &SummaryRef<'_>, now: Duration) -> Result<bool> {
        let record = match self.leases.get_mut(seen.token()) {
            Some(record) => record,
            None => self.leases.entry(seen.token().parse()?).or_default(),
        };
        let etag = seen.etag().and_then(|etag| etag.parse().ok());
        record.see(etag, SignOfLife::from(seen), now);
        Ok(record.task.is_some())
    }

    pub(crate) fn get(&self, token: &LeaseToken) -> Option<&LeaseRecord> {
        self.leases.get(token)
    }

    pub(crate) fn entry(&mut self, token: &LeaseToken) -> &mut LeaseRecord {
        self.leases.entry(token.clone()).or_default()
    }

    /// The way to send commands to the task of a lease.
    pub(crate) fn task(&self, token: &LeaseToken) -> Option<&CommandSender> {
        self.leases.get(token)?.task.as_ref().map(|task| &task.commands)
    }

    pub(crate) fn has_task(&self, token: &LeaseToken) -> bool {
        self.task(token).is_some()
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.leases.values().any(|record| record.task.is_some())
    }

    /// Whether some owner is silent for as long as it promised.
    pub(crate) fn any_silent(&self, now: Duration) -> bool {
        self.leases.values().any(|record| record.is_silent(now))
    }

    /// Whether all leases have living owners and nobody asks for one.
    pub(crate) fn is_settled(&self) -> bool {
        self.leases
            .values()
            .all(|record| record.free_since.is_none() && !record.has_request() && record.not_before.is_none())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&LeaseToken, &mut LeaseRecord)> {
        self.leases.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::{FeedRange, Mode};

    use super::*;
    use crate::lease::document::{LeaseDocument, LeaseVersion};

    fn lease(time: &str) -> LeaseDocument {
        let token = "0".parse().unwrap();
        let mut lease =
            LeaseDocument::new("x..0".into(), None, LeaseVersion::Range, token, FeedRange::full(), Mode::LatestVersion);
        lease.timestamp = Some(time.into());
        lease
    }

    #[test]
    fn an_owner_is_silent_while_one_version_is_seen_for_as_long_as_it_promised() {
        let at = Duration::from_secs;
        let version = |etag: &'static str| Some(ETag::new(etag).unwrap());
        let mut record = LeaseRecord { expires_after: at(60), ..LeaseRecord::default() };
        assert!(!record.is_silent(at(1000)));
        let renewed = |time: &str| SignOfLife::from(&lease(time));
        record.see(version("\"a\""), renewed("1"), at(0));
        record.see(version("\"a\""), renewed("1"), at(30));
        assert!(!record.is_silent(at(59)) && record.is_silent(at(60)));
        record.see(version("\"b\""), renewed("2"), at(70));
        assert!(!record.is_silent(at(129)) && record.is_silent(at(130)));
        // A version that is not known, of an author that writes no time, may be a new one.
        record.see(None, SignOfLife::default(), at(140));
        record.see(None, SignOfLife::default(), at(150));
        assert!(!record.is_silent(at(209)) && record.is_silent(at(210)));
    }

    #[test]
    fn time_in_which_leases_cannot_be_read_is_no_silence_of_their_owners() {
        let at = Duration::from_secs;
        let mut records = Records::default();
        let token = "0".parse().unwrap();
        let record = records.entry(&token);
        record.expires_after = at(60);
        record.see(Some(ETag::new("\"a\"").unwrap()), SignOfLife::from(&lease("1")), at(0));
        records.read_succeeded(at(20));
        records.read_failed();
        records.read_succeeded(at(500));
        let silent = |records: &Records, now| records.get(&token).unwrap().is_silent(at(now));
        assert!(!silent(&records, 539), "20 s before the store was away, 39 s after");
        assert!(silent(&records, 540), "a dead owner is noticed all the same");
    }

    #[test]
    fn a_request_is_no_sign_of_life_of_the_owner() {
        let at = Duration::from_secs;
        let version = |etag: &'static str| Some(ETag::new(etag).unwrap());
        let mut record = LeaseRecord { expires_after: at(60), ..LeaseRecord::default() };
        let mut owned = lease("1");
        record.see(version("\"a\""), SignOfLife::from(&owned), at(0));
        owned.set_hand_over(Some("host-2"));
        record.see(version("\"b\""), SignOfLife::from(&owned), at(50));
        assert!(record.is_silent(at(60)));
        // A new owner is, whoever wrote its name.
        owned.owner = Some("host-3".into());
        record.see(version("\"c\""), SignOfLife::from(&owned), at(70));
        assert!(!record.is_silent(at(129)));
    }

    #[test]
    fn a_request_counts_for_its_lifetime_and_longer_if_its_author_is_alive() {
        let at = Duration::from_secs;
        let request = SeenRequest { to: "b".into(), epoch: 1, since: at(0) };
        let record = LeaseRecord { request: Some(request), ..LeaseRecord::default() };
        assert_eq!(record.requested_by(at(9), at(10), |_| false), Some("b"));
        assert_eq!(record.requested_by(at(10), at(10), |_| false), None);
        assert_eq!(record.requested_by(at(99), at(10), |name| name == "b"), Some("b"));
    }
}
