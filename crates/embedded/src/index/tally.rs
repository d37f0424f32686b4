//! How many changes the keys of a physical range have had.
//!
//! LSNs run through a container, so the distance of two says nothing about one range. Who wants to know how far a
//! reader of a range is behind takes these numbers instead. Nothing is ever found by them: a position is an LSN.

use changefeed_core::{Epk, FeedRange};

/// Keys that are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: FeedRange,
    /// What was counted before a split made it, not only in these keys.
    pub(crate) base: u64,
    /// The number of its newest change.
    pub(crate) count: u64,
}

/// The parts of one physical range, in key order. There is one, until two ranges are merged: readers of theirs go on
/// to read the keys they read before, so these stay counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally(Vec<Part>);

impl Tally {
    /// Keys of a range that had `base` changes so far.
    pub(crate) fn new(range: FeedRange, base: u64) -> Self {
        Self(vec![Part { range, base, count: base }])
    }

    /// From parts in key order.
    pub(crate) fn of_parts(parts: Vec<Part>) -> Self {
        debug_assert!(parts.is_sorted_by(|a, b| a.range.max_exclusive() <= b.range.min_inclusive()));
        Self(parts)
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The tally of two neighbours, lower keys first.
    pub(crate) fn merge(&self, other: &Self) -> Self {
        Self::of_parts(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// The tally of a child of this range. Whatever a reader of the parent or of one of its parts took for the count,
    /// it was not more.
    pub(crate) fn child(&self, range: FeedRange) -> Self {
        Self::new(range, sum(&self.0))
    }

    /// The part that a key belongs to; the last one for a key that belongs to none.
    pub(crate) fn position(&self, epk: &Epk) -> usize {
        self.0.partition_point(|part| part.range.max_exclusive() <= epk).min(self.0.len().saturating_sub(1))
    }

    /// The number of the newest change of the part that a key belongs to.
    pub(crate) fn newest(&self, epk: &Epk) -> u64 {
        self.0.get(self.position(epk)).map_or(0, |part| part.count)
    }

    /// Takes note of the number of a change.
    pub(crate) fn note(&mut self, epk: &Epk, number: u64) {
        let position = self.position(epk);
        if let Some(part) = self.0.get_mut(position) {
            part.count = part.count.max(number);
        }
    }

    /// Leaves out numbers that may have been given to changes that were lost.
    pub(crate) fn skip(&mut self, numbers: u64) {
        self.0.iter_mut().for_each(|part| part.count = part.count.saturating_add(numbers));
    }

    /// How many changes the parts have had that `range` touches.
    pub(crate) fn total(&self, range: &FeedRange) -> u64 {
        sum(self.0.iter().filter(|part| part.range.overlaps(range)))
    }
}

/// What parts have had together. Those that a split made have a past in common, which counts once: a range that is
/// split and merged over and over must not seem to have had more and more changes.
fn sum<'a>(parts: impl IntoIterator<Item = &'a Part> + Clone) -> u64 {
    let base = parts.clone().into_iter().map(|part| part.base).max().unwrap_or(0);
    parts.into_iter().fold(base, |sum, part| sum.saturating_add(part.count - part.base))
}

/// How a record says its number: by how much it is above its LSN. Both grow alike in a container with one range, so it
/// is small, and where it is not, what is stored is as near as can be.
pub(crate) fn drift(number: u64, lsn: u64) -> i32 {
    let drift = i128::from(number) - i128::from(lsn);
    i32::try_from(drift).unwrap_or(if drift < 0 { i32::MIN } else { i32::MAX })
}

/// The number that a record says.
pub(crate) fn number(drift: i32, lsn: u64) -> u64 {
    lsn.saturating_add_signed(drift.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epk(first: u8) -> Epk {
        Epk::from_bytes(&[first])
    }

    fn range(min: u8, max: u8) -> FeedRange {
        FeedRange::new(epk(min), epk(max)).unwrap()
    }

    /// Keys that were never split and have had so many changes.
    fn counted(min: u8, max: u8, count: u64) -> Tally {
        let mut tally = Tally::new(range(min, max), 0);
        tally.note(&epk(min), count);
        tally
    }

    #[test]
    fn merged_ranges_are_counted_apart_and_together() {
        let mut merged = counted(1, 5, 10).merge(&counted(5, 9, 100));
        merged.note(&epk(4), 11);
        merged.note(&epk(5), 99);
        assert_eq!([merged.newest(&epk(1)), merged.newest(&epk(5)), merged.newest(&epk(8))], [11, 100, 100]);
        assert_eq!(merged.total(&range(1, 5)), 11);
        assert_eq!(merged.total(&range(5, 9)), 100);
        assert_eq!(merged.total(&range(4, 6)), 111);
        assert_eq!(merged.total(&FeedRange::full()), 111);
    }

    #[test]
    fn a_child_goes_on_where_no_reader_of_its_parent_has_been() {
        let parent = counted(1, 5, 10).merge(&counted(5, 9, 100));
        assert_eq!(parent.child(range(1, 3)), Tally::new(range(1, 3), 110));
    }

    #[test]
    fn splitting_and_merging_alone_changes_no_count() {
        let mut tally = counted(1, 9, 10);
        for round in 1..=100 {
            let [mut left, right] = [range(1, 5), range(5, 9)].map(|range| tally.child(range));
            left.note(&epk(2), left.newest(&epk(2)) + 1);
            tally = left.merge(&right);
            assert_eq!(tally.total(&FeedRange::full()), 10 + round);
        }
    }

    #[test]
    fn a_number_survives_its_drift_unless_it_is_out_of_reach() {
        for (number_, lsn) in [(1, 1), (1, 1000), (1000, 1), (5 << 40, (5 << 40) + 7), (0, i32::MAX as u64)] {
            assert_eq!(number(drift(number_, lsn), lsn), number_);
        }
        assert_eq!(number(drift(1, 1 << 40), 1 << 40), (1 << 40) - (1 << 31));
        assert_eq!(number(drift(1 << 40, 1), 1), 1 << 31);
    }
}
