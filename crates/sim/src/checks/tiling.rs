//! S10: every key has a lease, and leases overlap only while one replaces another.

use super::{
    Broken,
    key_range::{KeyRange, gaps},
};

/// A lease document that an operator removed or made unreadable.
#[derive(Debug)]
struct Hole {
    range: KeyRange,
    /// Whether a lease was created there since.
    repaired: bool,
}

/// Whether the leases tile the key space.
#[derive(Debug, Default)]
pub struct Tiling {
    /// Whether the first leases are complete.
    pub complete: bool,
    /// Whether ranges have changed since the last check.
    pub changed: bool,
    /// The ranges of leases that .NET hosts have created. Where a range was split and a part of it merged, they reach beyond
    /// the lease that they replace.
    pub by_others: Vec<KeyRange>,
    holes: Vec<Hole>,
}

impl Tiling {
    /// An operator removed the lease of a range that nothing younger covers.
    pub fn removed(&mut self, range: &KeyRange, younger: &[KeyRange]) {
        self.changed = true;
        if !gaps(range, younger.iter()).is_empty() {
            self.holes.push(Hole { range: range.clone(), repaired: false });
        }
    }

    /// A lease was created.
    pub fn created(&mut self, range: &KeyRange) {
        self.changed = true;
        self.holes.iter_mut().filter(|hole| hole.range.overlaps(range)).for_each(|hole| hole.repaired = true);
    }

    /// Whether an operator removed a lease of these keys that was not repaired.
    pub fn is_damaged(&self, range: &KeyRange) -> bool {
        self.holes.iter().any(|hole| hole.range.overlaps(range))
    }

    /// Checks the ranges of all leases.
    ///
    /// # Errors
    /// S10.
    pub fn check(&mut self, ranges: &[(&str, KeyRange)]) -> Result<(), Broken> {
        if !self.complete || !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let found = gaps(&KeyRange::full(), ranges.iter().map(|(_, range)| range));
        if let Some(gap) = found.iter().find(|gap| !self.is_damaged(gap)) {
            return Err(("S10", format!("no lease covers {gap}")));
        }
        for (at, (token, range)) in ranges.iter().enumerate() {
            for (other_token, other) in ranges.iter().skip(at + 1) {
                let nested = range.covers(other) || other.covers(range);
                let foreign = self.by_others.contains(range) || self.by_others.contains(other);
                if range.overlaps(other) && !nested && !foreign {
                    return Err(("S10", format!("leases {token} and {other_token} overlap in part")));
                }
            }
        }
        self.holes.retain(|hole| !hole.repaired || found.iter().any(|gap| gap.overlaps(&hole.range)));
        Ok(())
    }
}

/// Whether ranges tile the key space without overlap.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn is_tiled(ranges: &mut [(&str, KeyRange)]) -> Result<(), String> {
    ranges.sort_by(|a, b| a.1.cmp(&b.1));
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1.overlaps(&pair[1].1)) {
        return Err(format!("leases {} and {} overlap", pair[0].0, pair[1].0));
    }
    match gaps(&KeyRange::full(), ranges.iter().map(|(_, range)| range)).first() {
        Some(gap) => Err(format!("no lease covers {gap}")),
        None => Ok(()),
    }
}
