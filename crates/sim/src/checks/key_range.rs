//! Intervals of effective partition keys. Written for the checks alone: they share no code with the processor.

use std::fmt;

use changefeed_core::FeedRange;

/// Keys from `min` (inclusive) to `max` (exclusive), compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    min: Vec<u8>,
    max: Vec<u8>,
}

impl KeyRange {
    /// The whole key space.
    pub fn full() -> Self {
        Self { min: Vec::new(), max: vec![0xFF] }
    }

    /// The interval between two keys in hexadecimal; none if it is empty or not hexadecimal.
    pub fn parse(min: &str, max: &str) -> Option<Self> {
        let (min, max) = (from_hex(min)?, from_hex(max)?);
        (min < max).then_some(Self { min, max })
    }

    /// The interval in a text of the form `min-max`.
    pub fn from_token(token: &str) -> Option<Self> {
        let (min, max) = token.split_once('-')?;
        Self::parse(min, max)
    }

    /// The same interval as a store or a delegate context states it.
    pub fn of(range: &FeedRange) -> Self {
        Self { min: range.min_inclusive().as_bytes().to_vec(), max: range.max_exclusive().as_bytes().to_vec() }
    }

    /// Whether a key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.min <= *key && *key < *self.max
    }

    /// Whether all keys of `other` lie in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Whether the two have keys in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.min < other.max && other.min < self.max
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.min.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
        f.write_str("-")?;
        self.max.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// The parts of `whole` that no part covers, in key order.
pub fn gaps<'a>(whole: &KeyRange, parts: impl Iterator<Item = &'a KeyRange>) -> Vec<KeyRange> {
    let mut parts: Vec<&KeyRange> = parts.filter(|part| part.overlaps(whole)).collect();
    parts.sort_unstable();
    let (mut found, mut reached) = (Vec::new(), whole.min.clone());
    for part in parts {
        if part.min > reached {
            found.push(KeyRange { min: reached.clone(), max: part.min.clone() });
        }
        reached = reached.max(part.max.clone());
    }
    if reached < whole.max {
        found.push(KeyRange { min: reached, max: whole.max.clone() });
    }
    found
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> KeyRange {
        KeyRange::from_token(text).expect("a range")
    }

    #[test]
    fn gaps_are_what_no_part_covers() {
        let found = |parts: &[&str]| -> Vec<String> {
            let parts: Vec<KeyRange> = parts.iter().map(|part| range(part)).collect();
            gaps(&KeyRange::full(), parts.iter()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(found(&["-FF"]), Vec::<String>::new());
        assert_eq!(found(&["-40", "40-FF"]), Vec::<String>::new());
        assert_eq!(found(&["10-40", "30-80", "C0-FF"]), ["-10", "80-C0"]);
        assert_eq!(found(&[]), ["-FF"]);
    }

    #[test]
    fn bounds_are_compared_as_bytes() {
        assert!(range("-FF").covers(&range("05C1-80")));
        assert!(!range("-40").overlaps(&range("40-FF")));
        assert!(range("10-40").contains(&[0x10, 0x01]));
        assert_eq!(KeyRange::from_token("40-10"), None);
        assert_eq!(KeyRange::from_token("4-10"), None);
    }
}
