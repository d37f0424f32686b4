//! Positions that are ahead of the feed. A failover between regions can lose writes: the range that took over then counts
//! its LSNs from below positions that leases hold, and answers that nothing is new until it has passed them. Pure: takes
//! what a page told, returns whether to read again from an earlier time; never reads a clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use changefeed_core::{FeedRange, RangeId, Timestamp};

/// How many reads in a row must find a position ahead, beside the time that it takes: one lagging replica is not enough.
const MIN_READS: u32 = 3;

/// How long the feed must have been behind a position for its catching up to be a sign of new writes, not of a replica that
/// lagged: as long as the patience, and at most this long.
const MAX_LAG: Duration = Duration::from_secs(5);

/// How far the clock of this machine may be ahead of the service's, which stamps changes. The service refuses requests of
/// clocks that are off by more.
const CLOCK_MARGIN: Duration = Duration::from_secs(15 * 60);

/// After how many times the patience a sighting is forgotten that was not repeated.
const FORGET_AFTER: u32 = 20;

/// The time that passes at least before a sighting is forgotten, however short the patience is.
const MIN_MEMORY: Duration = Duration::from_secs(600);

/// How long a proof lasts that this is still the container that was opened: one metadata request in this time, at most, for
/// a container without changes.
const PROOF_LASTS: Duration = Duration::from_secs(60);

/// What is done about positions that are ahead of the feed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// How long a position must be ahead.
    pub(crate) patience: Duration,
    /// How far back to read if it is not known when the position was last good.
    pub(crate) window: Duration,
}

impl Policy {
    /// Whether nothing is done.
    pub(crate) fn is_off(self) -> bool {
        self.patience == Duration::MAX
    }
}

/// Who reads: the physical range, which counts the LSNs, and what is asked of it. A reader may ask for a part of a physical
/// range or for one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reader {
    pub(crate) physical: RangeId,
    pub(crate) asked: FeedRange,
}

/// What a page tells about the position it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// The LSN of the position.
    pub(crate) position: u64,
    /// The newest LSN that the range knows.
    pub(crate) newest: u64,
    /// When the page was asked for.
    pub(crate) at: Timestamp,
}

/// What to do about a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The feed has it.
    Good,
    /// It is ahead of what the replica that answered knows, which may be lagging: ask again.
    Ahead,
    /// It is ahead of the feed: everything written since then has to be read again.
    Reread(Timestamp),
}

/// What is known of the physical ranges of one container.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// The highest LSN of each range, and when the range was last known to have it.
    confirmed: BTreeMap<RangeId, (u64, Timestamp)>,
    /// Positions that were found ahead. Readers of one range may be at different ones, and each has to read again.
    ahead: BTreeMap<(Reader, u64), Sighting>,
    /// Ranges whose ETags do not count as their LSNs do.
    incomparable: BTreeSet<RangeId>,
    /// When it was last known that the container with this name is the one that was opened.
    proven: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    first: Timestamp,
    last: Timestamp,
    reads: u32,
    /// When the range was last known to have the position, if it was.
    good: Option<Timestamp>,
}

impl Positions {
    /// Records that a range had an LSN at some time.
    pub(crate) fn confirm(&mut self, range: &RangeId, newest: u64, at: Timestamp) {
        match self.confirmed.get_mut(range) {
            Some(known) if newest >= known.0 => *known = (newest, at),
            Some(_) => {}
            None => drop(self.confirmed.insert(range.clone(), (newest, at))),
        }
    }

    /// Records that the container was known to be the one that was opened.
    pub(crate) fn prove(&mut self, at: Timestamp) {
        self.proven = Some(at);
    }

    /// Whether it was not known for long: another container may have got the name and, by chance, as many changes.
    pub(crate) fn is_unproven(&mut self, at: Timestamp) -> bool {
        let proven = *self.proven.get_or_insert(at);
        at < proven || at >= proven.saturating_add(PROOF_LASTS)
    }

    /// Whether positions of a range cannot be compared with the LSNs that it tells: a page ended at a higher number than
    /// the newest LSN. Then they never are, since every position would look like one that is ahead.
    pub(crate) fn is_incomparable(&mut self, range: &RangeId, end: Option<u64>, newest: u64) -> bool {
        if end.is_some_and(|end| end > newest) && self.incomparable.insert(range.clone()) {
            self.ahead.retain(|(reader, _), _| reader.physical != *range);
            tracing::warn!(
                %range, end, newest_lsn = newest,
                "a page ends after the newest LSN that its range tells: failovers that lose writes are not found there"
            );
        }
        self.incomparable.contains(range)
    }

    /// Judges the position that a page was read from.
    pub(crate) fn judge(&mut self, reader: &Reader, told: Told, policy: Policy) -> Verdict {
        let key = (reader.clone(), told.position);
        if told.newest >= told.position {
            let sighting = self.ahead.remove(&key);
            let lasted = |sighting: &Sighting| {
                let lag = policy.patience.min(MAX_LAG);
                sighting.reads >= MIN_READS && sighting.last >= sighting.first.saturating_add(lag)
            };
            // A busy range passes the position before the patience ends; what it wrote on the way is not covered by it.
            return match sighting.filter(lasted) {
                Some(sighting) => Verdict::Reread(sighting.good_at(policy)),
                None => Verdict::Good,
            };
        }
        let memory = MIN_MEMORY.max(policy.patience.saturating_mul(FORGET_AFTER));
        self.ahead.retain(|_, sighting| told.at <= sighting.last.saturating_add(memory));
        // Other readers of the physical range confirm later LSNs once the feed has passed the position.
        let confirmed = self.confirmed.get(&reader.physical);
        let good = confirmed.filter(|(lsn, at)| *lsn >= told.position && *at <= told.at).map(|(_, at)| *at);
        let first = Sighting { first: told.at, last: told.at, reads: 0, good };
        let sighting = self.ahead.entry(key).or_insert(first);
        sighting.last = sighting.last.max(told.at);
        sighting.reads = sighting.reads.saturating_add(1);
        let sighting = *sighting;
        if sighting.reads < MIN_READS || told.at < sighting.first.saturating_add(policy.patience) {
            return Verdict::Ahead;
        }
        Verdict::Reread(sighting.good_at(policy))
    }

    /// Forgets ranges that do not live.
    pub(crate) fn keep(&mut self, live: impl Fn(&RangeId) -> bool) {
        self.confirmed.retain(|range, _| live(range));
        self.ahead.retain(|(reader, _), _| live(&reader.physical));
        self.incomparable.retain(live);
    }
}

impl Sighting {
    /// A time at which the feed had the position: whatever the position does not cover was written later.
    fn good_at(self, policy: Policy) -> Timestamp {
        match self.good {
            Some(at) => at.saturating_sub(CLOCK_MARGIN),
            None => self.first.saturating_sub(policy.window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { patience: Duration::from_secs(60), window: Duration::from_secs(86_400) };
    const NOON: u64 = 1_700_000_000;

    fn whole() -> Reader {
        Reader { physical: RangeId::from(0), asked: FeedRange::full() }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(NOON + seconds)
    }

    fn told(position: u64, newest: u64, seconds: u64) -> Told {
        Told { position, newest, at: at(seconds) }
    }

    #[test]
    fn a_replica_that_lags_for_a_moment_changes_nothing() {
        let (mut positions, range) = (Positions::default(), whole());
        for round in 0..50 {
            assert_eq!(positions.judge(&range, told(20, 15, round * 30), POLICY), Verdict::Ahead);
            assert_eq!(positions.judge(&range, told(20, 20, round * 30 + 10), POLICY), Verdict::Good);
        }
    }

    #[test]
    fn it_takes_both_several_reads_and_time() {
        let (mut positions, range) = (Positions::default(), whole());
        assert_eq!(positions.judge(&range, told(20, 15, 0), POLICY), Verdict::Ahead);
        assert_eq!(positions.judge(&range, told(20, 15, 61), POLICY), Verdict::Ahead, "only two reads");
        assert!(matches!(positions.judge(&range, told(20, 16, 62), POLICY), Verdict::Reread(_)));
        let mut positions = Positions::default();
        for second in 0..60 {
            assert_eq!(positions.judge(&range, told(20, 15, second), POLICY), Verdict::Ahead, "{second} s");
        }
        assert!(matches!(positions.judge(&range, told(20, 15, 60), POLICY), Verdict::Reread(_)));
    }

    #[test]
    fn what_was_written_since_the_position_was_last_good_is_read_again() {
        let (mut positions, range) = (Positions::default(), whole());
        positions.confirm(&range.physical, 19, at(10));
        positions.confirm(&range.physical, 20, at(20));
        // The range that took over: it does not change when the position was good.
        positions.confirm(&range.physical, 12, at(30));
        let verdicts: Vec<_> =
            [40, 90, 101].map(|second| positions.judge(&range, told(20, 12, second), POLICY)).to_vec();
        assert_eq!(verdicts, [Verdict::Ahead, Verdict::Ahead, Verdict::Reread(at(20).saturating_sub(CLOCK_MARGIN))]);
        // Another reader, at a position that the range has, is not concerned.
        assert_eq!(positions.judge(&range, told(11, 12, 102), POLICY), Verdict::Good);
        assert!(matches!(positions.judge(&range, told(20, 12, 103), POLICY), Verdict::Reread(_)));
    }

    #[test]
    fn a_busy_range_that_passes_the_position_meanwhile_is_read_again_as_well() {
        let (mut positions, range) = (Positions::default(), whole());
        positions.confirm(&range.physical, 20, at(0));
        for (second, newest) in [(10, 12), (13, 14), (16, 18)] {
            assert_eq!(positions.judge(&range, told(20, newest, second), POLICY), Verdict::Ahead);
        }
        let expected = Verdict::Reread(at(0).saturating_sub(CLOCK_MARGIN));
        assert_eq!(positions.judge(&range, told(20, 25, 19), POLICY), expected);
        assert_eq!(positions.judge(&range, told(20, 25, 20), POLICY), Verdict::Good, "once");
    }

    #[test]
    fn a_process_that_never_saw_the_position_good_reads_the_window_again() {
        let (mut positions, range) = (Positions::default(), whole());
        positions.confirm(&range.physical, 12, at(0));
        for second in [1, 2] {
            assert_eq!(positions.judge(&range, told(20, 12, second), POLICY), Verdict::Ahead);
        }
        let expected = Verdict::Reread(at(1).saturating_sub(POLICY.window));
        assert_eq!(positions.judge(&range, told(20, 12, 61), POLICY), expected);
        // Later as well: from the same moment.
        assert_eq!(positions.judge(&range, told(20, 12, 120), POLICY), expected);
    }

    #[test]
    fn the_container_is_proven_once_in_a_while() {
        let mut positions = Positions::default();
        assert!(!positions.is_unproven(at(100)), "it was just opened");
        assert!(!positions.is_unproven(at(159)));
        assert!(positions.is_unproven(at(160)));
        assert!(positions.is_unproven(at(161)), "until it is proven");
        positions.prove(at(161));
        assert!(!positions.is_unproven(at(220)));
        assert!(positions.is_unproven(at(221)));
        assert!(positions.is_unproven(at(90)), "the clock was put back");
    }

    #[test]
    fn a_range_whose_page_ends_after_its_newest_lsn_is_not_judged_any_more() {
        let (mut positions, range) = (Positions::default(), whole());
        let other = RangeId::from(1);
        assert!(!positions.is_incomparable(&range.physical, Some(12), 12));
        assert!(!positions.is_incomparable(&range.physical, None, 12));
        assert!(positions.is_incomparable(&range.physical, Some(13), 12));
        assert!(positions.is_incomparable(&range.physical, None, 20), "for good");
        assert!(!positions.is_incomparable(&other, Some(13), 13));
        positions.keep(|_| false);
        assert!(!positions.is_incomparable(&range.physical, Some(12), 12));
    }

    #[test]
    fn sightings_that_are_not_repeated_are_forgotten() {
        let (mut positions, range) = (Positions::default(), whole());
        for lsn in 100..200 {
            positions.judge(&range, told(lsn, 5, 0), POLICY);
        }
        positions.judge(&range, told(200, 5, 1_201), POLICY);
        assert_eq!(positions.ahead.len(), 1);
        positions.confirm(&range.physical, 5, at(0));
        positions.keep(|_| false);
        assert!(positions.confirmed.is_empty());
    }

    #[test]
    fn readers_of_many_keys_share_what_is_known_of_their_range() {
        let mut positions = Positions::default();
        for number in 0..10_000_u64 {
            let asked: FeedRange = format!("{number:04X}-{:04X}", number + 1).parse().unwrap();
            let reader = Reader { physical: RangeId::from(0), asked };
            positions.judge(&reader, told(number, number, number), POLICY);
            positions.confirm(&reader.physical, number, at(number));
        }
        assert_eq!((positions.confirmed.len(), positions.ahead.len()), (1, 0));
    }

    #[test]
    fn each_reader_of_a_range_reads_again_from_when_its_position_was_good() {
        let mut positions = Positions::default();
        let [one, other] = ["-1F", "1F-FF"].map(|asked| Reader { asked: asked.parse().unwrap(), ..whole() });
        positions.confirm(&one.physical, 20, at(0));
        for (second, newest) in [(10, 12), (13, 14), (16, 18)] {
            for reader in [&one, &other] {
                assert_eq!(positions.judge(reader, told(20, newest, second), POLICY), Verdict::Ahead);
                positions.confirm(&reader.physical, newest, at(second));
            }
        }
        let expected = Verdict::Reread(at(0).saturating_sub(CLOCK_MARGIN));
        for reader in [&one, &other] {
            assert_eq!(positions.judge(reader, told(20, 25, 19), POLICY), expected);
            positions.confirm(&reader.physical, 25, at(19));
        }
    }
}
