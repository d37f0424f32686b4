//! How far back the all-versions history of a physical range reaches, for each of its keys.

use changefeed_core::{Epk, FeedRange};

/// Keys whose history begins after the same LSN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: FeedRange,
    pub(crate) lsn: u64,
}

/// The parts of one physical range, in key order. There is one, until two ranges are merged: LSNs of their past say
/// nothing about each other, so what is gone in one of them must not expire readers of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Horizon(Vec<Part>);

impl Horizon {
    /// The history of all these keys begins after `lsn`.
    pub(crate) fn new(range: FeedRange, lsn: u64) -> Self {
        Self(vec![Part { range, lsn }])
    }

    /// From parts in key order.
    pub(crate) fn of_parts(parts: Vec<Part>) -> Self {
        debug_assert!(parts.is_sorted_by(|a, b| a.range.max_exclusive() <= b.range.min_inclusive()));
        Self(parts)
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The part that a key belongs to; the last one for a key that belongs to none.
    pub(crate) fn position(&self, epk: &Epk) -> usize {
        self.0.partition_point(|part| part.range.max_exclusive() <= epk).min(self.0.len().saturating_sub(1))
    }

    /// Takes note that history up to `lsn` is gone in the part of a key.
    pub(crate) fn raise(&mut self, epk: &Epk, lsn: u64) {
        let position = self.position(epk);
        if let Some(part) = self.0.get_mut(position) {
            part.lsn = part.lsn.max(lsn);
        }
    }

    /// Takes note of all that another one says about the same keys.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        for part in &mut self.0 {
            part.lsn = part.lsn.max(other.over(&part.range));
        }
    }

    /// The LSN after which the history of all keys in `range` is complete.
    pub(crate) fn over(&self, range: &FeedRange) -> u64 {
        self.0.iter().filter(|part| part.range.overlaps(range)).map(|part| part.lsn).max().unwrap_or(0)
    }

    /// What it says about the keys of a child of its range.
    pub(crate) fn within(&self, range: &FeedRange) -> Self {
        let common = |part: &Part| {
            let min = part.range.min_inclusive().max(range.min_inclusive()).clone();
            let max = part.range.max_exclusive().min(range.max_exclusive()).clone();
            Some(Part { range: FeedRange::new(min, max).ok()?, lsn: part.lsn })
        };
        Self(self.0.iter().filter(|part| part.range.overlaps(range)).filter_map(common).collect())
    }

    /// The horizon of two neighbours, lower keys first. Parts that say the same become one.
    pub(crate) fn merge(&self, other: &Self) -> Self {
        let mut parts: Vec<Part> = Vec::with_capacity(self.0.len() + other.0.len());
        for part in self.0.iter().chain(&other.0) {
            let whole = parts.last().filter(|last| last.lsn == part.lsn).and_then(|last| {
                FeedRange::new(last.range.min_inclusive().clone(), part.range.max_exclusive().clone()).ok()
            });
            match (whole, parts.last_mut()) {
                (Some(whole), Some(last)) => last.range = whole,
                _ => parts.push(part.clone()),
            }
        }
        Self::of_parts(parts)
    }
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

    #[test]
    fn merged_ranges_keep_their_own_horizons() {
        let mut merged = Horizon::new(range(1, 5), 10).merge(&Horizon::new(range(5, 9), 100));
        assert_eq!([merged.over(&range(1, 5)), merged.over(&range(5, 9)), merged.over(&range(4, 6))], [10, 100, 100]);
        merged.raise(&epk(4), 120);
        assert_eq!([merged.over(&range(1, 5)), merged.over(&range(5, 9))], [120, 100]);
        merged.raise(&epk(8), 110);
        assert_eq!(merged.over(&range(5, 6)), 110);
    }

    #[test]
    fn a_child_keeps_what_concerns_its_keys() {
        let parent = Horizon::new(range(1, 5), 10).merge(&Horizon::new(range(5, 9), 100));
        assert_eq!(parent.within(&range(1, 3)), Horizon::new(range(1, 3), 10));
        let (left, right) = (parent.within(&range(1, 7)), parent.within(&range(7, 9)));
        assert_eq!(left.parts().len(), 2);
        assert_eq!(left.merge(&right), parent);
    }

    #[test]
    fn parts_that_say_the_same_become_one() {
        let one = Horizon::new(range(1, 5), 7).merge(&Horizon::new(range(5, 9), 7));
        assert_eq!(one, Horizon::new(range(1, 9), 7));
    }
}
