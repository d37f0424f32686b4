//! Arithmetic on feed ranges. Pure.

use std::collections::BTreeMap;

use changefeed_core::{Epk, FeedRange, PhysicalRange, RangeId};

use super::prefix::LeaseToken;

/// The parts of `whole` that none of `by` covers, in key order.
pub(crate) fn uncovered<'a>(whole: &FeedRange, by: impl IntoIterator<Item = &'a FeedRange>) -> Vec<FeedRange> {
    let mut by: Vec<&FeedRange> = by.into_iter().filter(|range| range.overlaps(whole)).collect();
    by.sort();
    let mut gaps = Vec::new();
    let mut end: &Epk = whole.min_inclusive();
    for range in by {
        gaps.extend(between(end, range.min_inclusive()));
        end = end.max(range.max_exclusive());
    }
    gaps.extend(between(end, whole.max_exclusive()));
    gaps
}

/// What `whole` has in common with each of `gaps`, which are in key order and do not overlap. Looks only at those that do.
pub(crate) fn parts_of<'a>(whole: &'a FeedRange, gaps: &'a [FeedRange]) -> impl Iterator<Item = FeedRange> + 'a {
    let first = gaps.partition_point(|gap| gap.max_exclusive() <= whole.min_inclusive());
    gaps.iter().skip(first).map_while(|gap| whole.intersection(gap))
}

/// The physical ranges from the one that holds the first key of `range` on; `live` is in key order, as stores list them.
pub(crate) fn live_from<'a>(range: &FeedRange, live: &'a [PhysicalRange]) -> impl Iterator<Item = &'a PhysicalRange> {
    let first = live.partition_point(|physical| physical.range.max_exclusive() <= range.min_inclusive());
    live.iter().skip(first)
}

/// The range between two keys, if there is anything between them.
fn between(min: &Epk, max: &Epk) -> Option<FeedRange> {
    // Mostly there is nothing, and the error that would say so is expensive.
    if min < max { FeedRange::new(min.clone(), max.clone()).ok() } else { None }
}

/// The range of a physical range that a lease names by its id only, as old .NET leases do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedRange {
    /// It lives.
    Live(FeedRange),
    /// It was split; its descendants tile this range and descend from these, unless one of them was merged too: then
    /// another of these has a lease.
    Split(FeedRange, Vec<RangeId>),
    /// It was merged into this range, which descends from these.
    Merged(FeedRange, Vec<RangeId>),
    /// It cannot be determined: no live range descends from it, or several of which one was merged.
    Unknown,
}

/// The live physical ranges, by id and by ancestor: resolves the ids that leases name.
#[derive(Debug)]
pub(crate) struct Lineage<'a> {
    live: BTreeMap<&'a str, &'a PhysicalRange>,
    /// Each in key order.
    descendants: BTreeMap<&'a str, Vec<&'a PhysicalRange>>,
}

impl<'a> Lineage<'a> {
    pub(crate) fn new(live: &'a [PhysicalRange]) -> Self {
        let mut in_key_order: Vec<&PhysicalRange> = live.iter().collect();
        in_key_order.sort_by(|a, b| a.range.cmp(&b.range));
        let mut descendants: BTreeMap<&str, Vec<&PhysicalRange>> = BTreeMap::new();
        for range in in_key_order {
            for parent in &range.parents {
                descendants.entry(parent.as_str()).or_default().push(range);
            }
        }
        Self { live: live.iter().map(|range| (range.id.as_str(), range)).collect(), descendants }
    }

    /// Resolves the physical range that the token of a lease names, through the parents of the live ranges.
    pub(crate) fn named_range(&self, token: &LeaseToken) -> NamedRange {
        let name = token.as_str();
        if let Some(range) = self.live.get(name) {
            return NamedRange::Live(range.range.clone());
        }
        let family = self.descendants.get(name).map(Vec::as_slice).unwrap_or_default();
        let (Some(first), Some(last)) = (family.first(), family.last()) else { return NamedRange::Unknown };
        let hull = FeedRange::new(first.range.min_inclusive().clone(), last.range.max_exclusive().clone());
        let Ok(hull) = hull else { return NamedRange::Unknown };
        let tiled = uncovered(&hull, family.iter().map(|range| &range.range)).is_empty();
        // Where ranges were only split, each ancestor has at least two live descendants; a merge leaves one with a single
        // one.
        let mut parents: BTreeMap<&RangeId, usize> = BTreeMap::new();
        for parent in family.iter().flat_map(|range| &range.parents) {
            *parents.entry(parent).or_default() += 1;
        }
        let merged = parents.values().any(|descendants| *descendants < 2);
        let parents = parents.into_keys().cloned().collect();
        match (merged, family) {
            (false, _) if tiled => NamedRange::Split(hull, parents),
            (true, [_]) => NamedRange::Merged(hull, parents),
            // Split again after a merge: the new boundaries cross the old ones.
            _ => NamedRange::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn physical(id: u64, range: &str, parents: &[u64]) -> PhysicalRange {
        let parents = parents.iter().map(|parent| RangeId::from(*parent)).collect();
        PhysicalRange { id: RangeId::from(id), range: range.parse().unwrap(), parents }
    }

    fn named(id: &str, live: &[PhysicalRange]) -> NamedRange {
        Lineage::new(live).named_range(&id.parse().unwrap())
    }

    #[test]
    fn the_live_ranges_of_a_range_begin_with_the_one_that_holds_its_first_key() {
        let live = [physical(2, "-40", &[]), physical(0, "40-80", &[]), physical(1, "80-FF", &[])];
        for (range, ids) in [("-10", "201"), ("10-50", "201"), ("40-80", "01"), ("7F-80", "01"), ("80-FF", "1")] {
            let found: String =
                live_from(&range.parse().unwrap(), &live).map(|physical| physical.id.to_string()).collect();
            assert_eq!(found, ids, "{range}");
        }
    }

    #[test]
    fn a_range_that_was_split_is_what_its_descendants_tile() {
        let live = [physical(2, "80-FF", &[0]), physical(3, "-40", &[0, 1]), physical(4, "40-80", &[0, 1])];
        assert_eq!(named("2", &live), NamedRange::Live("80-FF".parse().unwrap()));
        let ids = |ids: &[u64]| ids.iter().map(|id| RangeId::from(*id)).collect();
        assert_eq!(named("0", &live), NamedRange::Split("-FF".parse().unwrap(), ids(&[0, 1])));
        assert_eq!(named("1", &live), NamedRange::Split("-80".parse().unwrap(), ids(&[0, 1])));
    }

    #[test]
    fn a_range_that_was_merged_is_named_with_all_that_were() {
        let merged = |id: &str, live: &[PhysicalRange]| match named(id, live) {
            NamedRange::Merged(range, parents) => {
                (range.to_string(), parents.iter().map(ToString::to_string).collect())
            }
            other => (format!("{other:?}"), Vec::new()),
        };
        let live = [physical(2, "-FF", &[0, 1])];
        assert_eq!(merged("0", &live), ("-FF".to_owned(), vec!["0".to_owned(), "1".to_owned()]));
        let live = [physical(3, "-40", &[0]), physical(5, "40-FF", &[0, 2, 4])];
        assert_eq!((named("0", &live), named("9", &live)), (NamedRange::Unknown, NamedRange::Unknown));
    }
}
