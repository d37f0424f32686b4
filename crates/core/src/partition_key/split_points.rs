//! Split points: even ranges for a new container, the middle of a range that splits.
//!
//! Boundaries are one below the round number (`1FFF...FF`, not `2000...00`), as in the service: some SDKs ignore
//! trailing zero bytes, others do not.

use super::{
    PartitionKey, PartitionKeyDefinition, PartitionKeyVersion,
    hashing::{HASH_LEN, HASH_LIMIT, version1_hash},
};
use crate::{
    epk::Epk,
    error::{Error, ErrorKind, Result},
    range::FeedRange,
};

/// More ranges than this in a new container are surely a mistake.
const MAX_RANGES: usize = 1000;
/// Version 1 hashes have 32 bits.
const V1_LIMIT: u64 = 1 << 32;

/// A version 2 key as a number per level; levels the definition lacks are zero.
type Levels = [u128; PartitionKey::MAX_VALUES];

impl PartitionKeyDefinition {
    /// Divides the whole key space into 1 to 1000 ranges that get equal shares of the keys, in order.
    pub fn split_evenly(&self, count: usize) -> Result<Vec<FeedRange>> {
        if !(1..=MAX_RANGES).contains(&count) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a container has 1 to {MAX_RANGES} ranges to begin with, not {count}"),
            ));
        }
        let mut ranges = Vec::with_capacity(count);
        let mut rest = FeedRange::full();
        for index in 1..count as u128 {
            let boundary = match self.version() {
                // Below 2^32, because index < count.
                PartitionKeyVersion::V1 => v1_boundary(share(V1_LIMIT.into(), index, count as u128) as u32),
                PartitionKeyVersion::V2 => Epk::from_bytes(&share(HASH_LIMIT, index, count as u128).to_be_bytes()),
            };
            let (range, above) = rest.split_at(&boundary)?;
            ranges.push(range);
            rest = above;
        }
        ranges.push(rest);
        Ok(ranges)
    }

    /// Returns the key that halves a range by the share of keys on either side, strictly inside; none if there is no
    /// place to cut because only one key can lie inside. A range within one value of the outermost level of a
    /// hierarchical key is cut at the next level.
    pub fn middle(&self, range: &FeedRange) -> Option<Epk> {
        match self.version() {
            PartitionKeyVersion::V1 => middle_v1(range),
            PartitionKeyVersion::V2 => middle_v2(range, self.key_paths().len()),
        }
    }
}

/// One below `index * limit / count`, rounded up, without overflow; never ends in a zero byte.
fn share(limit: u128, index: u128, count: u128) -> u128 {
    let cut = limit / count * index + (limit % count * index).div_ceil(count) - 1;
    if cut.is_multiple_of(256) { cut + 1 } else { cut }
}

/// Halfway between, but rather one less than with a zero byte at the end.
fn halfway(low: u128, high: u128) -> u128 {
    let middle = low + (high - low) / 2;
    if middle.is_multiple_of(256) && middle > low { middle - 1 } else { middle }
}

fn v1_boundary(hash: u32) -> Epk {
    Epk::from_bytes(&version1_hash(hash))
}

fn middle_v1(range: &FeedRange) -> Option<Epk> {
    let low = first_hash_from(range.min_inclusive());
    let high = first_hash_from(range.max_exclusive());
    if low >= high {
        return None;
    }
    // `low` itself is a place to cut if keys of the hash before it lie inside, too.
    let hash = u32::try_from(halfway(low.into(), high.into())).ok().filter(|hash| *hash > 0)?;
    Some(v1_boundary(hash)).filter(|cut| cut > range.min_inclusive() && cut < range.max_exclusive())
}

/// The first hash all of whose keys lie at or behind the bound; 2^32 if there is none.
fn first_hash_from(bound: &Epk) -> u64 {
    let (mut low, mut high) = (0, V1_LIMIT);
    while low < high {
        let middle = low + (high - low) / 2;
        // Below 2^32, because it is less than `high`.
        if v1_boundary(middle as u32) < *bound {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn middle_v2(range: &FeedRange, levels: usize) -> Option<Epk> {
    let low = first_key_from(range.min_inclusive().as_bytes(), levels);
    let mut high = first_key_from(range.max_exclusive().as_bytes(), levels);
    let mut prefix = Vec::with_capacity(levels * HASH_LEN);
    for (level, low) in low.into_iter().enumerate().take(levels) {
        let [from, below @ ..] = high.get(level..)? else { return None };
        // A cut at `from` leaves something above it only if the range goes on below that hash.
        let last = if below.iter().any(|hash| *hash > 0) { *from } else { from.saturating_sub(1) };
        if last > low {
            prefix.extend(halfway(low, *from).clamp(low + 1, last).to_be_bytes());
            return Some(Epk::from_bytes(&prefix));
        }
        // All keys of the range share this hash. If it ends with the hash, everything below is inside.
        if *from > low {
            high = [HASH_LIMIT, 0, 0];
            high.rotate_right((level + 1) % PartitionKey::MAX_VALUES);
        }
        prefix.extend(low.to_be_bytes());
    }
    None
}

/// The first possible key at or behind the bound, which may have any length and any bytes.
fn first_key_from(bound: &[u8], levels: usize) -> Levels {
    let mut key = Levels::default();
    let mut chunks = bound.chunks(HASH_LEN);
    for level in 0..levels.min(key.len()) {
        let mut bytes = [0; HASH_LEN];
        for (to, from) in bytes.iter_mut().zip(chunks.next().unwrap_or_default()) {
            *to = *from;
        }
        let hash = u128::from_be_bytes(bytes);
        if hash >= HASH_LIMIT {
            return next_key(key, level);
        }
        key[level] = hash;
    }
    // A bound that goes on behind the last level is behind the key it begins with.
    if chunks.next().is_some() { next_key(key, levels) } else { key }
}

/// The key after all that share the first `levels` hashes; `2^126, 0, 0` if there is none.
fn next_key(mut key: Levels, levels: usize) -> Levels {
    for hash in key.iter_mut().take(levels).rev() {
        *hash += 1;
        if *hash < HASH_LIMIT {
            return key;
        }
        *hash = 0;
    }
    [HASH_LIMIT, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::{PhysicalRange, check_tiling};

    fn v1() -> PartitionKeyDefinition {
        PartitionKeyDefinition::hash_v1("/pk").unwrap()
    }

    fn v2() -> PartitionKeyDefinition {
        PartitionKeyDefinition::hash("/pk").unwrap()
    }

    fn three() -> PartitionKeyDefinition {
        PartitionKeyDefinition::hierarchical(["/a", "/b", "/c"]).unwrap()
    }

    fn range(text: &str) -> FeedRange {
        text.parse().unwrap()
    }

    #[test]
    fn even_ranges_meet_where_the_service_cuts() {
        let text = |ranges: Vec<FeedRange>| ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(v1().split_evenly(2).unwrap()), ["-05C1DFFFFFFFFC", "05C1DFFFFFFFFC-FF"]);
        assert_eq!(
            text(v2().split_evenly(2).unwrap()),
            ["-1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF"]
        );
        assert_eq!(text(three().split_evenly(3).unwrap())[0], "-15555555555555555555555555555555");
        assert_eq!(text(v2().split_evenly(1).unwrap()), ["-FF"]);
    }

    #[test]
    fn even_ranges_tile_the_space_and_share_the_keys() {
        for definition in [v1(), v2(), three()] {
            for count in [1, 2, 3, 7, 16, 100, 1000] {
                let ranges = definition.split_evenly(count).unwrap();
                assert!(ranges.iter().all(|range| range.max_exclusive().as_bytes().last() != Some(&0)));
                let physical: Vec<_> = (0..)
                    .zip(&ranges)
                    .map(|(id, range): (u64, _)| PhysicalRange { id: id.into(), range: range.clone(), parents: vec![] })
                    .collect();
                check_tiling(&physical).unwrap();
            }
            let ranges = definition.split_evenly(4).unwrap();
            let mut shares = [0; 4];
            for n in 0..4000 {
                let key = if definition == three() { (n, 1, 2).into() } else { PartitionKey::from(n) };
                let epk = definition.epk(&key).unwrap();
                shares[ranges.iter().position(|range| range.contains(&epk)).unwrap()] += 1;
            }
            assert!(shares.iter().all(|share| (850..1150).contains(share)), "{shares:?}");
        }
    }

    #[test]
    fn a_senseless_number_of_ranges_is_refused() {
        for count in [0, 1001, usize::MAX] {
            assert_eq!(v2().split_evenly(count).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn the_middle_of_the_space_is_where_two_even_ranges_meet() {
        for definition in [v1(), v2(), three()] {
            let middle = definition.middle(&FeedRange::full()).unwrap();
            let halves = definition.split_evenly(2).unwrap();
            assert_eq!(&middle, halves[1].min_inclusive());
            let quarters = definition.split_evenly(4).unwrap();
            assert_eq!(&definition.middle(&halves[0]).unwrap(), quarters[1].min_inclusive());
            assert_eq!(&definition.middle(&halves[1]).unwrap(), quarters[3].min_inclusive());
        }
    }

    /// Halves towards a key until nothing is left to halve; returns the number of cuts.
    fn halve_towards(definition: &PartitionKeyDefinition, key: &Epk) -> (usize, FeedRange) {
        let mut range = FeedRange::full();
        let mut cuts = 0;
        while let Some(middle) = definition.middle(&range) {
            let (low, high) = range.split_at(&middle).unwrap();
            range = if low.contains(key) { low } else { high };
            assert!(range.contains(key));
            cuts += 1;
            assert!(cuts < 500);
        }
        (cuts, range)
    }

    #[test]
    fn halving_ends_at_a_single_key() {
        for (definition, key, bits) in
            [(v1(), "a".into(), 32), (v2(), "a".into(), 126), (three(), ("a", 1, true).into(), 378)]
        {
            let epk = definition.epk(&key).unwrap();
            let (cuts, last) = halve_towards(&definition, &epk);
            assert!((bits - 5..=bits + 5).contains(&cuts), "{cuts} cuts of {bits} bits");
            assert!(last.contains(&epk));
        }
        for definition in [v1(), v2(), three()] {
            for key in [Epk::MIN, "3FFFFF".parse().unwrap(), "05C1FF".parse().unwrap(), "FE".parse().unwrap()] {
                halve_towards(&definition, &key);
            }
        }
    }

    #[test]
    fn a_range_of_one_key_has_no_middle() {
        for n in 0..300 {
            for definition in [v1(), v2()] {
                assert_eq!(definition.middle(&definition.key_range(&n.into()).unwrap()), None);
            }
            assert_eq!(three().middle(&three().key_range(&(n, n, n).into()).unwrap()), None);
        }
    }

    #[test]
    fn a_range_without_possible_keys_has_no_middle() {
        for text in ["40-FF", "3FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00-FF", "-00"] {
            assert_eq!(v2().middle(&range(text)), None);
        }
        for text in ["05C1F0-FF", "-0580", "06-07"] {
            assert_eq!(v1().middle(&range(text)), None);
        }
    }

    #[test]
    fn a_prefix_is_cut_at_the_next_level() {
        for key in [PartitionKey::from("T"), ("T", "U").into()] {
            let prefix = three().key_range(&key).unwrap();
            let middle = three().middle(&prefix).unwrap();
            let next_level = middle.to_string().split_off(prefix.min_inclusive().as_bytes().len() * 2);
            assert_eq!(next_level, "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF");
            assert!(prefix.contains(&middle));
        }
    }

    #[test]
    fn a_range_across_two_outer_values_is_cut_between_them() {
        let zeros = "0".repeat(31);
        let across = range(&format!("1{zeros}10-1{}110", "0".repeat(30)));
        assert_eq!(three().middle(&across).unwrap().to_string(), format!("1{}1", "0".repeat(30)));
    }
}
