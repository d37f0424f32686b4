//! Coverage: whether the leases of a processor tile the key space, and which leases follow when ranges split or merge.
//! Pure: takes snapshots, returns what to create and what is left over.
//!
//! A lease is given up only for leases that lie inside it. So no two leases can be given up for each other, however
//! many hosts decide at once on whatever they saw, and the union of all leases never shrinks.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use changefeed_core::{Epk, FeedRange, PhysicalRange};

use super::{document::LeaseVersion, prefix::LeaseToken};

/// A lease as far as coverage is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Its token.
    pub token: LeaseToken,
    /// The keys it is for.
    pub range: FeedRange,
    /// Whether it is only the tombstone of a lease; then it covers nothing.
    pub gone: bool,
}

/// What is wrong with the leases of a processor; nothing, if all three are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Keys that no lease covers, in key order: their changes reach nobody.
    pub holes: Vec<FeedRange>,
    /// Leases that have keys in common, in key order: their changes arrive twice.
    pub overlaps: Vec<(LeaseToken, LeaseToken)>,
    /// Leases whose whole range is tiled by leases inside it, which are parents that somebody forgot to delete; then
    /// tombstones that are not needed any more to repair a hole. Deleting all of them leaves no hole.
    pub covered_by_others: Vec<LeaseToken>,
}

/// A lease to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its kind.
    pub version: LeaseVersion,
    /// Its token: always the same for the same keys, so that two creators cannot both succeed.
    pub token: LeaseToken,
    /// The keys it is for.
    pub range: FeedRange,
}

/// What becomes of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Succession {
    /// It goes on as it is: its keys lie within one physical range, and no other lease has any of them.
    Keep,
    /// Create these, then delete it. None, if all of them exist already.
    Replace(Vec<Child>),
}

impl Child {
    fn of_physical(physical: &PhysicalRange) -> Self {
        let (token, range) = (LeaseToken::from(&physical.id), physical.range.clone());
        Self { version: LeaseVersion::Range, token, range }
    }

    fn of_range(range: FeedRange) -> Self {
        Self { version: LeaseVersion::FeedRange, token: LeaseToken::from(&range), range }
    }
}

impl Covered {
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
pub fn audit(leases: &[Covered]) -> Audit {
    let mut alive: Vec<&Covered> = leases.iter().filter(|lease| !lease.gone).collect();
    alive.sort_by(|a, b| (&a.range, &a.token).cmp(&(&b.range, &b.token)));
    let holes = uncovered(&FeedRange::full(), alive.iter().map(|lease| &lease.range));
    let mut overlaps = Vec::new();
    let mut partners: BTreeMap<usize, Vec<&Covered>> = BTreeMap::new();
    for (at, lease) in alive.iter().enumerate() {
        // In key order the leases that begin before this one ends follow at once.
        let after = (at + 1..).zip(alive.iter().skip(at + 1));
        for (other_at, other) in after.take_while(|(_, other)| lease.range.overlaps(&other.range)) {
            overlaps.push((lease.token.clone(), other.token.clone()));
            partners.entry(at).or_default().push(other);
            partners.entry(other_at).or_default().push(lease);
        }
    }
    let covered = |(at, partners): (usize, Vec<&Covered>)| {
        let lease = alive.get(at)?;
        let inside = partners.into_iter().filter(|other| lease.may_rely_on(other)).map(|other| &other.range);
        uncovered(&lease.range, inside).is_empty().then(|| lease.token.clone())
    };
    let mut covered_by_others: Vec<_> = partners.into_iter().filter_map(covered).collect();
    let idle = |tombstone: &&Covered| {
        tombstone.gone && uncovered(&tombstone.range, alive.iter().map(|lease| &lease.range)).is_empty()
    };
    covered_by_others.extend(leases.iter().filter(idle).map(|tombstone| tombstone.token.clone()));
    Audit { holes, overlaps, covered_by_others }
}

/// What becomes of `parent` when its physical range is gone or an audit found that it overlaps, given the ranges that
/// are `live` and all `leases`.
///
/// As in the .NET SDK: a version 0 lease is followed by one per new range, or after a merge by a version 1 lease of
/// its own keys; a version 1 lease is cut at the boundaries inside it. Unlike there, a child never reaches beyond its
/// parent, and keys that another lease inside the parent covers already get no second one: so it can be repeated
/// after a crash at any step, and by several hosts at once. Where a lease reaches across the parent's bounds both are
/// cut at each other's, which leaves them a piece in common that only one of them creates.
pub fn successors(parent: &Covered, live: &[PhysicalRange], leases: &[Covered]) -> Succession {
    let inside: Vec<&FeedRange> =
        leases.iter().filter(|lease| parent.may_rely_on(lease)).map(|lease| &lease.range).collect();
    let across: Vec<&FeedRange> =
        leases.iter().filter(|lease| parent.is_crossed_by(lease)).map(|lease| &lease.range).collect();
    let wanted = match wanted(parent, live) {
        Some(children) => children,
        None if inside.is_empty() && across.is_empty() => return Succession::Keep,
        None => vec![Child::of_range(parent.range.clone())],
    };
    let left = wanted.into_iter().flat_map(|child| what_is_left(child, &inside));
    Succession::Replace(left.flat_map(|child| cut_at(child, &across)).collect())
}

/// The leases to create so that every key of the `live` ranges has one: version 0 for a whole range, version 1 for a
/// part. A range whose parent still has a lease is covered by that, and waits for its succession.
pub fn missing(live: &[PhysicalRange], leases: &[Covered]) -> Vec<Child> {
    let taken: Vec<&FeedRange> = leases.iter().filter(|lease| !lease.gone).map(|lease| &lease.range).collect();
    let mut live: Vec<&PhysicalRange> = live.iter().collect();
    live.sort_by(|a, b| a.range.cmp(&b.range));
    live.into_iter().flat_map(|physical| what_is_left(Child::of_physical(physical), &taken)).collect()
}

/// The parts of `whole` that none of `by` covers, in key order.
pub fn uncovered<'a>(whole: &FeedRange, by: impl IntoIterator<Item = &'a FeedRange>) -> Vec<FeedRange> {
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

/// The range between two keys, if there is anything between them.
fn between(min: &Epk, max: &Epk) -> Option<FeedRange> {
    // Mostly there is nothing, and the error that would say so is expensive.
    if min < max { FeedRange::new(min.clone(), max.clone()).ok() } else { None }
}

/// The children of `parent` on the `live` ranges; none if it can go on.
fn wanted(parent: &Covered, live: &[PhysicalRange]) -> Option<Vec<Child>> {
    let mut overlapping: Vec<&PhysicalRange> =
        live.iter().filter(|physical| physical.range.overlaps(&parent.range)).collect();
    overlapping.sort_by(|a, b| a.range.cmp(&b.range));
    match (parent.version(), overlapping.as_slice()) {
        (_, []) | (LeaseVersion::FeedRange, [_]) => None,
        (LeaseVersion::Range, [same]) if parent.token == LeaseToken::from(&same.id) => None,
        (LeaseVersion::Range, [_]) => Some(vec![Child::of_range(parent.range.clone())]),
        (version, several) => Some(several.iter().filter_map(|physical| piece(parent, version, physical)).collect()),
    }
}

/// The child of `parent` on one of several physical ranges.
fn piece(parent: &Covered, version: LeaseVersion, physical: &PhysicalRange) -> Option<Child> {
    if version == LeaseVersion::Range && parent.range.contains_range(&physical.range) {
        return Some(Child::of_physical(physical));
    }
    parent.range.intersection(&physical.range).map(Child::of_range)
}

/// The child, or version 1 pieces of it if a bound of one of `ranges` lies inside it.
fn cut_at(child: Child, ranges: &[&FeedRange]) -> Vec<Child> {
    let mut bounds: Vec<&Epk> =
        ranges.iter().flat_map(|range| [range.min_inclusive(), range.max_exclusive()]).collect();
    bounds.sort();
    let mut pieces = Vec::new();
    let mut rest = child.range.clone();
    for bound in bounds {
        if let Ok((low, high)) = rest.split_at(bound) {
            pieces.push(Child::of_range(low));
            rest = high;
        }
    }
    if pieces.is_empty() {
        return vec![child];
    }
    pieces.push(Child::of_range(rest));
    pieces
}

/// The child itself if nothing of it is taken; otherwise version 1 leases for what is not.
fn what_is_left(child: Child, taken: &[&FeedRange]) -> Vec<Child> {
    let gaps = uncovered(&child.range, taken.iter().copied());
    if gaps.first() == Some(&child.range) {
        return vec![child];
    }
    gaps.into_iter().map(Child::of_range).collect()
}
