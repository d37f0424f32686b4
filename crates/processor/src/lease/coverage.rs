//! Coverage: whether the leases of a processor tile the key space, and which leases replace one whose range was split or
//! merged. Pure: takes snapshots, returns what to create and what is left over.
//!
//! A lease is given up only for leases that lie inside it. So no two leases can be given up for each other, however
//! many hosts decide at once on whatever they saw, and the union of all leases never shrinks.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use changefeed_core::{Epk, FeedRange, PhysicalRange};

use super::{
    document::LeaseVersion,
    prefix::LeaseToken,
    ranges::{parts_of, uncovered},
};

/// A lease as far as coverage is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeLease {
    /// Its token.
    pub(crate) token: LeaseToken,
    /// The keys it is for.
    pub(crate) range: FeedRange,
    /// Whether it is only the tombstone of a lease; then it covers nothing.
    pub(crate) gone: bool,
    /// How often an operator moved it to another position.
    pub(crate) generation: u64,
}

/// What is wrong with the leases of a processor; nothing, if all are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Keys that no lease covers, in key order: their changes reach nobody.
    pub(crate) holes: Vec<FeedRange>,
    /// Leases that have keys in common, in key order: their changes arrive twice.
    pub(crate) overlaps: Vec<(LeaseToken, LeaseToken)>,
    /// Leases whose whole range is tiled by leases inside it, which are parents that were not deleted; then tombstones
    /// that are not needed any more to repair a hole. Deleting all of them leaves no hole.
    pub(crate) covered_by_others: Vec<LeaseToken>,
    /// Leases inside another that an operator moved after they were created from it, each with that other: the operator's
    /// position counts, so they must be moved there before the other is deleted.
    pub(crate) outdated: Vec<(LeaseToken, LeaseToken)>,
}

/// A lease to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewLease {
    /// Its kind.
    pub(crate) version: LeaseVersion,
    /// Its token: always the same for the same keys, so that two creators cannot both succeed.
    pub(crate) token: LeaseToken,
    /// The keys it is for.
    pub(crate) range: FeedRange,
}

/// What becomes of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SplitPlan {
    /// It goes on as it is: its keys lie within one physical range, and no other lease has any of them.
    Keep,
    /// Create these, then delete it. None, if all of them exist already.
    Replace(Vec<NewLease>),
}

impl NewLease {
    fn of_physical(physical: &PhysicalRange) -> Self {
        let (token, range) = (LeaseToken::from(&physical.id), physical.range.clone());
        Self { version: LeaseVersion::Range, token, range }
    }

    fn of_range(range: FeedRange) -> Self {
        Self { version: LeaseVersion::FeedRange, token: LeaseToken::from(&range), range }
    }
}

impl RangeLease {
    /// The kind, which the token gives away.
    fn version(&self) -> LeaseVersion {
        match self.token.to_feed_range() {
            Some(range) if range == self.range => LeaseVersion::FeedRange,
            _ => LeaseVersion::Range,
        }
    }

    /// Whether `other` may stand in for a part of this lease: it lies inside. With equal ranges only a version 1
    /// lease may stand in for a version 0 one, which is how a merge replaces leases.
    fn may_rely_on(&self, other: &Self) -> bool {
        if other.gone || other.token == self.token || !self.range.contains_range(&other.range) {
            return false;
        }
        other.range != self.range || self.version() < other.version()
    }

    /// Whether `other` has keys inside and outside of this lease, without having all of it.
    fn is_crossed_by(&self, other: &Self) -> bool {
        let (own, range) = (&self.range, &other.range);
        !other.gone && own.overlaps(range) && !own.contains_range(range) && !range.contains_range(own)
    }
}

/// Checks that the leases cover every key once.
pub(crate) fn audit(leases: &[RangeLease]) -> Audit {
    let mut alive: Vec<&RangeLease> = leases.iter().filter(|lease| !lease.gone).collect();
    alive.sort_by(|a, b| (&a.range, &a.token).cmp(&(&b.range, &b.token)));
    let holes = uncovered(&FeedRange::full(), alive.iter().map(|lease| &lease.range));
    let mut overlaps = Vec::new();
    let mut partners: BTreeMap<usize, Vec<&RangeLease>> = BTreeMap::new();
    for (at, lease) in alive.iter().enumerate() {
        // In key order the leases that begin before this one ends follow at once.
        let after = (at + 1..).zip(alive.iter().skip(at + 1));
        for (other_at, other) in after.take_while(|(_, other)| lease.range.overlaps(&other.range)) {
            overlaps.push((lease.token.clone(), other.token.clone()));
            partners.entry(at).or_default().push(other);
            partners.entry(other_at).or_default().push(lease);
        }
    }
    let mut outdated = Vec::new();
    let covered = |(at, partners): (usize, Vec<&RangeLease>)| {
        let lease = alive.get(at)?;
        let inside: Vec<&RangeLease> = partners.into_iter().filter(|other| lease.may_rely_on(other)).collect();
        if !uncovered(&lease.range, inside.iter().map(|other| &other.range)).is_empty() {
            return None;
        }
        let older = inside.iter().filter(|other| other.generation < lease.generation);
        let older: Vec<_> = older.map(|other| (other.token.clone(), lease.token.clone())).collect();
        crate::planted!(OutdatedChildrenKept => return Some(lease.token.clone()));
        let up_to_date = older.is_empty();
        outdated.extend(older);
        up_to_date.then(|| lease.token.clone())
    };
    let mut covered_by_others: Vec<_> = partners.into_iter().filter_map(covered).collect();
    let idle = |tombstone: &&RangeLease| tombstone.gone && parts_of(&tombstone.range, &holes).next().is_none();
    covered_by_others.extend(leases.iter().filter(idle).map(|tombstone| tombstone.token.clone()));
    Audit { holes, overlaps, covered_by_others, outdated }
}

/// What becomes of `parent` when its physical range is gone or an audit found that it overlaps, given the ranges that
/// are `live` and all `leases`.
///
/// As in the .NET SDK: a version 0 lease is followed by one per new range, or after a merge by a version 1 lease of
/// its own keys; a version 1 lease is cut at the boundaries inside it. Unlike there, a child never reaches beyond its
/// parent, and keys that another lease inside the parent covers already get no second one: so it can be repeated
/// after a crash at any step, and by several hosts at once. Where a lease reaches across the parent's bounds both are
/// cut at each other's, which leaves them a piece in common that only one of them creates.
pub(crate) fn split_plan(parent: &RangeLease, live: &[PhysicalRange], leases: &[RangeLease]) -> SplitPlan {
    let inside: Vec<&FeedRange> =
        leases.iter().filter(|lease| parent.may_rely_on(lease)).map(|lease| &lease.range).collect();
    let across: Vec<&FeedRange> =
        leases.iter().filter(|lease| parent.is_crossed_by(lease)).map(|lease| &lease.range).collect();
    let wanted = match wanted(parent, live) {
        Some(children) => children,
        None if inside.is_empty() && across.is_empty() => return SplitPlan::Keep,
        None => vec![NewLease::of_range(parent.range.clone())],
    };
    let left = wanted.into_iter().flat_map(|child| what_is_left(child, &inside));
    SplitPlan::Replace(left.flat_map(|child| cut_at(child, &across)).collect())
}

/// The leases to create so that every key of the `live` ranges has one: version 0 for a whole range, version 1 for a
/// part. A range whose parent still has a lease is covered by that, and waits to be replaced.
pub(crate) fn missing(live: &[PhysicalRange], leases: &[RangeLease]) -> Vec<NewLease> {
    let taken = leases.iter().filter(|lease| !lease.gone).map(|lease| &lease.range);
    let holes = uncovered(&FeedRange::full(), taken);
    let mut live: Vec<&PhysicalRange> = live.iter().collect();
    live.sort_by(|a, b| a.range.cmp(&b.range));
    let of_range = |physical: &PhysicalRange| {
        pieces_of(NewLease::of_physical(physical), parts_of(&physical.range, &holes).collect())
    };
    live.into_iter().flat_map(of_range).collect()
}

/// The children of `parent` on the `live` ranges; none if it can go on.
fn wanted(parent: &RangeLease, live: &[PhysicalRange]) -> Option<Vec<NewLease>> {
    let mut overlapping: Vec<&PhysicalRange> =
        live.iter().filter(|physical| physical.range.overlaps(&parent.range)).collect();
    overlapping.sort_by(|a, b| a.range.cmp(&b.range));
    match (parent.version(), overlapping.as_slice()) {
        (_, []) | (LeaseVersion::FeedRange, [_]) => None,
        (LeaseVersion::Range, [same]) if parent.token == LeaseToken::from(&same.id) => None,
        (LeaseVersion::Range, [_]) => Some(vec![NewLease::of_range(parent.range.clone())]),
        (version, several) => Some(several.iter().filter_map(|physical| piece(parent, version, physical)).collect()),
    }
}

/// The child of `parent` on one of several physical ranges.
fn piece(parent: &RangeLease, version: LeaseVersion, physical: &PhysicalRange) -> Option<NewLease> {
    if version == LeaseVersion::Range && parent.range.contains_range(&physical.range) {
        return Some(NewLease::of_physical(physical));
    }
    parent.range.intersection(&physical.range).map(NewLease::of_range)
}

/// The child, or version 1 pieces of it if a bound of one of `ranges` lies inside it.
fn cut_at(child: NewLease, ranges: &[&FeedRange]) -> Vec<NewLease> {
    let mut bounds: Vec<&Epk> =
        ranges.iter().flat_map(|range| [range.min_inclusive(), range.max_exclusive()]).collect();
    bounds.sort();
    let mut pieces = Vec::new();
    let mut rest = child.range.clone();
    for bound in bounds {
        if let Ok((low, high)) = rest.split_at(bound) {
            pieces.push(NewLease::of_range(low));
            rest = high;
        }
    }
    if pieces.is_empty() {
        return vec![child];
    }
    pieces.push(NewLease::of_range(rest));
    pieces
}

/// The child itself if nothing of it is taken; otherwise version 1 leases for what is not.
fn what_is_left(child: NewLease, taken: &[&FeedRange]) -> Vec<NewLease> {
    let gaps = uncovered(&child.range, taken.iter().copied());
    pieces_of(child, gaps)
}

/// The child itself if it is one gap; otherwise version 1 leases for the gaps.
fn pieces_of(child: NewLease, gaps: Vec<FeedRange>) -> Vec<NewLease> {
    if gaps.first() == Some(&child.range) {
        return vec![child];
    }
    gaps.into_iter().map(NewLease::of_range).collect()
}
