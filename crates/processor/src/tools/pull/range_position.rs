//! Feed ranges with a position each, fitted to the physical ranges. Pure.

use changefeed_core::{FeedRange, PhysicalRange, StartFrom};

use crate::lease::ranges::live_from;

/// A part of the keys with a position of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangePosition {
    pub(super) range: FeedRange,
    pub(super) start: StartFrom,
}

/// Joins neighbours that stand at the same position, and cuts what spans several physical ranges. A part inside one
/// physical range stays as it is: the store serves any part of a range.
pub(super) fn fit(mut positions: Vec<RangePosition>, live: &[PhysicalRange]) -> Vec<RangePosition> {
    positions.sort_by(|a, b| a.range.cmp(&b.range));
    let mut joined: Vec<RangePosition> = Vec::with_capacity(positions.len());
    for position in positions {
        if let Some(last) = joined.last_mut()
            && last.start == position.start
            && last.range.max_exclusive() == position.range.min_inclusive()
            && let Ok(both) = FeedRange::new(last.range.min_inclusive().clone(), position.range.max_exclusive().clone())
        {
            last.range = both;
        } else {
            joined.push(position);
        }
    }
    let cut = |position: &RangePosition| {
        let parts = live_from(&position.range, live).map_while(|physical| physical.range.intersection(&position.range));
        parts.map(|range| RangePosition { range, start: position.start.clone() }).collect::<Vec<_>>()
    };
    joined.iter().flat_map(cut).collect()
}

#[cfg(test)]
mod tests {
    use changefeed_core::Continuation;

    use super::*;

    fn position(range: &str, after: &str) -> RangePosition {
        RangePosition { range: range.parse().unwrap(), start: Continuation::from_token(after).into() }
    }

    fn live(ranges: &[&str]) -> Vec<PhysicalRange> {
        let physical =
            |(id, range): (u64, &&str)| PhysicalRange { id: id.into(), range: range.parse().unwrap(), parents: vec![] };
        (0..).zip(ranges).map(physical).collect()
    }

    #[test]
    fn ranges_are_cut_at_new_boundaries_and_joined_where_their_positions_are_equal() {
        for (positions, ranges, fitted) in [
            (vec![position("-FF", "7")], vec!["-FF"], vec![position("-FF", "7")]),
            (vec![position("-FF", "7")], vec!["-20", "20-FF"], vec![position("-20", "7"), position("20-FF", "7")]),
            (vec![position("20-FF", "7"), position("-20", "7")], vec!["-FF"], vec![position("-FF", "7")]),
            (
                vec![position("20-FF", "8"), position("-20", "7")],
                vec!["-FF"],
                vec![position("-20", "7"), position("20-FF", "8")],
            ),
            (
                vec![position("10-30", "7")],
                vec!["-20", "20-28", "28-FF"],
                vec![position("10-20", "7"), position("20-28", "7"), position("28-30", "7")],
            ),
        ] {
            assert_eq!(fit(positions, &live(&ranges)), fitted);
        }
    }
}
