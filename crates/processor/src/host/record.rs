//! One record per lease: everything that a host knows about it, and nowhere else.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed_core::ETag;
use tokio_util::task::AbortOnDropHandle;

use super::observation::Observation;
use crate::lease::{
    document::{LONGEST_PROMISE, LeaseSummary},
    listing::{Listing, StoredLease},
    prefix::LeaseToken,
    signals::CommandSender,
};

/// For how many expiration intervals a host remembers leases that were deleted. A split that created one may still be under
/// way for about one interval, and report it when it ends.
const REMEMBERED_EXPIRATIONS: u32 = 2;

/// What a host knows about one lease. Small: in a large fleet nearly all leases are other hosts'.
#[derive(Debug, Default)]
pub(crate) struct LeaseRecord {
    /// The last version that was seen.
    seen: Option<Seen>,
    /// How long its owner may be silent.
    expires_after: Duration,
    /// Who asks for it.
    request: Option<Box<SeenRequest>>,
    /// Since when it has been seen without a living owner.
    free_since: Option<Duration>,
    /// What this host has to do with it; none for most leases.
    own: Option<Box<OwnState>>,
}

/// What a host itself has to do with a lease.
#[derive(Debug, Default)]
pub(crate) struct OwnState {
    /// This host's own request for it.
    pub(crate) pending: Option<PendingRequest>,
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
    /// What was read of it.
    summary: Arc<LeaseSummary>,
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
    /// Leases of this host that were deleted: the epoch of its last task, and when that was noticed.
    deleted: BTreeMap<LeaseToken, (u64, Duration)>,
    observation: Observation,
}

impl LeaseRecord {
    /// Whether nothing was written to the lease for as long as its owner promised.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        self.seen.as_ref().is_some_and(|seen| now.saturating_sub(seen.since) + seen.before >= self.expires_after)
    }

    fn see(&mut self, etag: Option<ETag>, summary: &Arc<LeaseSummary>, now: Duration) {
        let (since, before) = match &self.seen {
            Some(seen) if seen.etag.is_some() && seen.etag == etag => return,
            Some(seen) if summary.is_only_asked(&seen.summary) => (seen.since, seen.before),
            _ => (now, Duration::ZERO),
        };
        self.seen = Some(Seen { etag, summary: Arc::clone(summary), since, before });
    }

    fn take_in(
        &mut self,
        listing: &Listing,
        (StoredLease { document, etag }, summary): (&StoredLease, &Arc<LeaseSummary>),
        own_expiration: Duration,
        instance: &str,
        now: Duration,
    ) {
        let first = self.seen.is_none();
        self.see(Some(etag.clone()), summary, now);
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
        if let Some(own) = &mut self.own {
            own.pending.take_if(|pending| pending.epoch != epoch || request.as_deref() != Some(instance));
        }
        self.request = request.map(|to| match self.request.take() {
            Some(known) if known.to == to && known.epoch == epoch => known,
            _ => Box::new(SeenRequest { to, epoch, since: now }),
        });
        let free = document.owner.is_none() || self.is_silent(now);
        self.free_since = if free { self.free_since.or(Some(now)) } else { None };
    }

    /// Leaves `time` out of all that is measured: the lease could not be read meanwhile.
    fn leave_out(&mut self, time: Duration) {
        let seen = self.seen.iter_mut().map(|seen| &mut seen.since);
        let request = self.request.iter_mut().map(|request| &mut request.since);
        let pending = self.own.iter_mut().filter_map(|own| own.pending.as_mut()).map(|pending| &mut pending.since);
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
        self.request.is_some() || self.pending().is_some()
    }

    /// Whether a task of this host is on it.
    pub(crate) fn has_task(&self) -> bool {
        self.task().is_some()
    }

    /// This host's own request for the lease.
    pub(crate) fn pending(&self) -> Option<PendingRequest> {
        self.own.as_ref()?.pending
    }

    /// Its task, while this host owns it.
    pub(crate) fn task(&self) -> Option<&RunningTask> {
        self.own.as_ref()?.task.as_ref()
    }

    /// The epoch of the last task of this host.
    fn epoch(&self) -> Option<u64> {
        self.own.as_ref()?.epoch
    }

    /// The moment before which this host does not acquire it.
    pub(crate) fn not_before(&self) -> Option<Duration> {
        self.own.as_ref()?.not_before
    }

    /// For how many cycles it has overlapped others.
    pub(crate) fn overlap_cycles(&self) -> u32 {
        self.own.as_ref().map_or(0, |own| own.overlap_cycles)
    }

    /// Sets for how many cycles it has overlapped others.
    pub(crate) fn set_overlap_cycles(&mut self, cycles: u32) {
        if cycles != self.overlap_cycles() {
            self.own_mut().overlap_cycles = cycles;
        }
    }

    /// What this host has to do with it, to be changed.
    pub(crate) fn own_mut(&mut self) -> &mut OwnState {
        self.own.get_or_insert_default()
    }

    /// Forgets a moment before which this host does not acquire it, if that has passed.
    pub(crate) fn end_wait(&mut self, now: Duration) {
        if let Some(own) = &mut self.own {
            own.not_before.take_if(|until| *until <= now);
        }
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
        self.deleted.retain(|_, (_, since)| now.saturating_sub(*since) < own_expiration * REMEMBERED_EXPIRATIONS);
        let mut listed = listing.leases.iter().map(|lease| &lease.document.token).peekable();
        self.leases.retain(|token, record| {
            while listed.next_if(|listed| *listed < token).is_some() {}
            let kept = record.has_task() || listed.peek() == Some(&token);
            if let Some(epoch) = record.epoch().filter(|_| !kept) {
                self.deleted.insert(token.clone(), (epoch, now));
            }
            kept
        });
        let missing: Vec<LeaseToken> = self
            .beside(listing)
            .filter(|(_, record)| record.is_none())
            .map(|(lease, _)| lease.document.token.clone())
            .collect();
        if !missing.is_empty() {
            // Built together: a map that grows one by one in order is half empty.
            let new = missing.into_iter().map(|token| (token, LeaseRecord::default()));
            self.leases = std::mem::take(&mut self.leases).into_iter().chain(new).collect();
        }
        let mut records = self.leases.iter_mut();
        for (lease, summary) in listing.summarised() {
            // Both are in the order of tokens, and now there is a record for each lease.
            if let Some((_, record)) = records.find(|(token, _)| **token == lease.document.token) {
                record.take_in(listing, (lease, summary), own_expiration, instance, now);
            }
        }
    }

    /// Each lease of a listing with its record. Both are in the order of tokens, so that nothing has to be looked up.
    pub(crate) fn beside<'a>(
        &'a self,
        listing: &'a Listing,
    ) -> impl Iterator<Item = (&'a StoredLease, Option<&'a LeaseRecord>)> {
        let mut records = self.leases.iter().peekable();
        listing.leases.iter().map(move |lease| {
            let token = &lease.document.token;
            while records.next_if(|(known, _)| *known < token).is_some() {}
            (lease, records.next_if(|(known, _)| *known == token).map(|(_, record)| record))
        })
    }

    /// The tasks of this host, by lease.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (&LeaseToken, &RunningTask)> {
        self.leases.iter().filter_map(|(token, record)| Some((token, record.task()?)))
    }

    /// Takes in one version of a lease that was read at `now`. Returns whether a task of this host is on it.
    pub(crate) fn see(&mut self, seen: &Arc<LeaseSummary>, now: Duration) -> bool {
        let record = self.entry(seen.token());
        record.see(seen.etag().cloned(), seen, now);
        record.has_task()
    }

    pub(crate) fn get(&self, token: &LeaseToken) -> Option<&LeaseRecord> {
        self.leases.get(token)
    }

    /// The record of a lease; a new one if there is none.
    pub(crate) fn entry(&mut self, token: &LeaseToken) -> &mut LeaseRecord {
        self.leases.entry(token.clone()).or_default()
    }

    /// What this host has to do with a lease, to be changed.
    pub(crate) fn own_mut(&mut self, token: &LeaseToken) -> &mut OwnState {
        self.entry(token).own_mut()
    }

    /// The way to send commands to the task of a lease.
    pub(crate) fn task(&self, token: &LeaseToken) -> Option<&CommandSender> {
        self.leases.get(token)?.task().map(|task| &task.commands)
    }

    pub(crate) fn has_task(&self, token: &LeaseToken) -> bool {
        self.task(token).is_some()
    }

    /// Whether this host has had a task under this epoch of the lease or a later one. Of a lease that was deleted, only
    /// documents `written` before that count: it may have been created again.
    pub(crate) fn has_had_task(&self, token: &LeaseToken, epoch: u64, written: Duration) -> bool {
        let deleted = self.deleted.get(token).filter(|(_, noticed)| written <= *noticed).map(|(epoch, _)| *epoch);
        self.get(token).and_then(LeaseRecord::epoch).max(deleted) >= Some(epoch)
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.leases.values().any(LeaseRecord::has_task)
    }

    /// How many leases are known.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether other hosts can know of this one: by a lease of its own or a request.
    pub(crate) fn is_visible(&self) -> bool {
        self.leases.values().any(|record| record.has_task() || record.pending().is_some())
    }

    /// Whether some owner is silent for as long as it promised.
    pub(crate) fn any_silent(&self, now: Duration) -> bool {
        self.leases.values().any(|record| record.is_silent(now))
    }

    /// Whether all leases have living owners and nobody asks for one.
    pub(crate) fn is_settled(&self) -> bool {
        self.leases
            .values()
            .all(|record| record.free_since.is_none() && !record.has_request() && record.not_before().is_none())
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
        let renewed = |time: &str| Arc::new(LeaseSummary::from(&lease(time)));
        record.see(version("\"a\""), &renewed("1"), at(0));
        record.see(version("\"a\""), &renewed("1"), at(30));
        assert!(!record.is_silent(at(59)) && record.is_silent(at(60)));
        record.see(version("\"b\""), &renewed("2"), at(70));
        assert!(!record.is_silent(at(129)) && record.is_silent(at(130)));
        // A version that is not known, of an author that writes no time, may be a new one.
        let mut untimed = lease("");
        untimed.timestamp = None;
        let unknown = Arc::new(LeaseSummary::from(&untimed));
        record.see(None, &unknown, at(140));
        record.see(None, &unknown, at(150));
        assert!(!record.is_silent(at(209)) && record.is_silent(at(210)));
    }

    #[test]
    fn time_in_which_leases_cannot_be_read_is_no_silence_of_their_owners() {
        let at = Duration::from_secs;
        let mut records = Records::default();
        let token = "0".parse().unwrap();
        let record = records.entry(&token);
        record.expires_after = at(60);
        record.see(Some(ETag::new("\"a\"").unwrap()), &Arc::new(LeaseSummary::from(&lease("1"))), at(0));
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
        record.see(version("\"a\""), &Arc::new(LeaseSummary::from(&owned)), at(0));
        owned.set_hand_over(Some("host-2"));
        record.see(version("\"b\""), &Arc::new(LeaseSummary::from(&owned)), at(50));
        assert!(record.is_silent(at(60)));
        // A new owner is, whoever wrote its name.
        owned.owner = Some("host-3".into());
        record.see(version("\"c\""), &Arc::new(LeaseSummary::from(&owned)), at(70));
        assert!(!record.is_silent(at(129)));
    }

    #[test]
    fn epochs_of_deleted_leases_are_remembered_for_as_long_as_a_split_may_report_them() {
        let at = Duration::from_secs;
        let token: LeaseToken = "6".parse().unwrap();
        let mut records = Records::default();
        records.own_mut(&token).epoch = Some(2);
        let listed = |records: &mut Records, now| records.take_in(&Listing::default(), at(60), "host-1", at(now));
        listed(&mut records, 10);
        assert!(records.get(&token).is_none(), "its document is gone");
        assert!(records.has_had_task(&token, 1, at(9)) && records.has_had_task(&token, 2, at(10)));
        assert!(!records.has_had_task(&token, 3, at(9)) && !records.has_had_task(&"7".parse().unwrap(), 1, at(9)));
        assert!(!records.has_had_task(&token, 1, at(11)), "it was created again");
        listed(&mut records, 129);
        assert!(records.has_had_task(&token, 1, at(9)));
        listed(&mut records, 130);
        assert!(!records.has_had_task(&token, 1, at(9)));
    }

    #[test]
    fn a_request_counts_for_its_lifetime_and_longer_if_its_author_is_alive() {
        let at = Duration::from_secs;
        let request = SeenRequest { to: "b".into(), epoch: 1, since: at(0) };
        let record = LeaseRecord { request: Some(Box::new(request)), ..LeaseRecord::default() };
        assert_eq!(record.requested_by(at(9), at(10), |_| false), Some("b"));
        assert_eq!(record.requested_by(at(10), at(10), |_| false), None);
        assert_eq!(record.requested_by(at(99), at(10), |name| name == "b"), Some("b"));
    }
}
